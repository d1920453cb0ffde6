//! `graphrun runs diff RUN@A [RUN@B]`.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use super::super::{
    difference::{Difference, differences},
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    item_writers::ItemWriters,
    json::to_json,
    run_at::{RunAt, RunSnapshot},
    runtime::block_on,
    steps::{HistoryStep, Writer, steps},
    terminal::{Paint, print_result},
    words::{clean, table},
};
use crate::{
    checkpoint::Checkpointer,
    id::{RunId, Step},
};

/// The length of the longest value in a line, in characters.
const CHARACTERS_MAX: usize = 60;

/// Print the differences between two steps of one or two runs, and their writers
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The first state: a run, and the step if not the last
    #[arg(value_name = "RUN[@STEP]")]
    from: RunAt,
    /// The second state, of this run or another [default: the last step of this run]
    #[arg(value_name = "RUN[@STEP]")]
    to: Option<RunAt>,
}

/// The differences between two states, as JSON.
#[derive(Debug, Serialize)]
struct Diff {
    from: Side,
    to: Side,
    changes: Vec<FieldChange>,
}

#[derive(Debug, Serialize)]
struct Side {
    run: RunId,
    name: String,
    step: Step,
}

#[derive(Debug, Serialize)]
struct FieldChange {
    #[serde(flatten)]
    difference: Difference,
    /// For one run, the writers of the field between the two steps. For two runs, its last writer
    /// in each.
    writers: Vec<RunWriter>,
}

#[derive(Debug, PartialEq, Serialize)]
struct RunWriter {
    run: RunId,
    #[serde(flatten)]
    writer: Writer,
    #[serde(skip)]
    name: Option<String>,
}

impl Args {
    /// Prints the differences, with old and new values and their writers.
    pub(super) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        block_on(async {
            globals.expect_output("runs diff", &[Output::Text, Output::Json])?;
            let checkpointer = globals.database_to_read()?.open_for(&self.from.run)?;
            let checkpointer = checkpointer.as_ref();
            let from = self.from.find(checkpointer).await?.without_private();
            let last = RunAt { run: self.from.run.clone(), step: None };
            let to = self.to.as_ref().unwrap_or(&last);
            let to = to.find(checkpointer).await?.without_private();
            let diff = Diff::of(checkpointer, &from, &to).await?;
            let text = match globals.output {
                Output::Json => to_json(&diff)?,
                _ => format!(
                    "{}\n{}",
                    globals.stdout.strong(&format!("{from} → {to}")),
                    diff.draw(globals.stdout)
                ),
            };
            print_result(&text).map_err(CliError::write)?;
            Ok(Exit::Done)
        })
    }
}

impl Diff {
    async fn of(
        checkpointer: &dyn Checkpointer,
        from: &RunSnapshot,
        to: &RunSnapshot,
    ) -> Result<Self, CliError> {
        let read = async |it: &RunSnapshot| {
            checkpointer.journal_without_values(&it.info.id).await.map(steps)
        };
        let is_one = from.info.id == to.info.id;
        let (before, after) = (read(from).await?, read(to).await?);
        let found = differences(&from.values, &to.values);
        let lists: BTreeSet<String> =
            found.iter().filter(|it| it.index().is_some()).map(|it| it.field.clone()).collect();
        let items = async |it: &RunSnapshot| {
            ItemWriters::read(checkpointer, &it.info.id, lists.clone()).await
        };
        let items_after = items(to).await?;
        let items_before = if is_one { ItemWriters::default() } else { items(from).await? };
        let writers = |it: &Difference| {
            let item = |items: &ItemWriters| {
                it.index().map(|index| items.of(&it.field, index).to_vec()).unwrap_or_default()
            };
            if is_one {
                return between((&it.field, item(&items_after)), &after, (from, to));
            }
            let sides = [(from, &before, item(&items_before)), (to, &after, item(&items_after))];
            let sides = sides.into_iter();
            sides.filter_map(|(side, steps, item)| last((&it.field, item), steps, side)).collect()
        };
        let changes = found.into_iter();
        let changes = changes.map(|it| FieldChange { writers: writers(&it), difference: it });
        Ok(Self { from: Side::of(from), to: Side::of(to), changes: changes.collect() })
    }

    fn draw(&self, paint: Paint) -> String {
        if self.changes.is_empty() {
            return "no difference\n".to_owned();
        }
        let mut rows =
            vec![["FIELD", "WAS", "IS", "WRITTEN BY"].map(|it| paint.faint(it)).to_vec()];
        rows.extend(self.changes.iter().map(|it| {
            let Difference { path, old, new, .. } = &it.difference;
            let writers: Vec<String> = it.writers.iter().map(RunWriter::describe).collect();
            vec![
                paint.strong(&clean(path)),
                short(old.as_ref()),
                short(new.as_ref()),
                writers.join(", "),
            ]
        }));
        table(&rows)
    }
}

impl Side {
    fn of(found: &RunSnapshot) -> Self {
        let (run, name) = (found.info.id.clone(), found.info.name.clone());
        Self { run, name, step: found.position.step }
    }
}

impl RunWriter {
    fn describe(&self) -> String {
        match &self.name {
            Some(name) => format!("{name}: {}", self.writer.describe()),
            None => self.writer.describe(),
        }
    }
}

/// Returns the writers of a field, or of one of its items, between two steps of one run, given in any order.
fn between(
    (field, item): (&str, Vec<Writer>),
    steps: &[HistoryStep],
    (from, to): (&RunSnapshot, &RunSnapshot),
) -> Vec<RunWriter> {
    let (a, b) = (from.position.step, to.position.step);
    let is_within = |step: Step| step > a.min(b) && step <= a.max(b);
    let mut writers: Vec<Writer> = item.into_iter().filter(|it| is_within(it.step)).collect();
    if writers.is_empty() {
        let within = steps.iter().filter(|it| is_within(it.step));
        writers = within.flat_map(|it| it.writers(field)).collect();
    }
    let of_run = |writer| RunWriter { run: from.info.id.clone(), writer, name: None };
    writers.into_iter().map(of_run).collect()
}

/// Returns the last writer of a field, or of one of its items, up to the step of this side.
fn last(
    (field, item): (&str, Vec<Writer>),
    steps: &[HistoryStep],
    side: &RunSnapshot,
) -> Option<RunWriter> {
    let until = steps.iter().filter(|it| it.step <= side.position.step);
    let of_item = item.into_iter().rfind(|it| it.step <= side.position.step);
    let writer = of_item.or_else(|| until.flat_map(|it| it.writers(field)).last())?;
    Some(RunWriter { run: side.info.id.clone(), writer, name: Some(side.info.name.clone()) })
}

/// Returns a value in one line; a long one is truncated.
fn short(value: Option<&Value>) -> String {
    let Some(value) = value else { return "—".to_owned() };
    let text = clean(&value.to_string());
    if text.chars().count() <= CHARACTERS_MAX {
        return text;
    }
    text.chars().take(CHARACTERS_MAX - 1).chain(['…']).collect()
}
