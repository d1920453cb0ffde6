//! `graphrun runs diff RUN@A [RUN@B]`.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use super::{
    difference::{Difference, differences},
    item_writers::ItemWriters,
    steps::{HistoryStep, Writer, steps},
};
use crate::{
    checkpoint::Checkpointer,
    cli::{
        arguments::{
            globals::{Globals, Output},
            run_at::{RunAt, RunSnapshot},
        },
        error::CliError,
        exit::Exit,
        output::{
            json::to_json,
            terminal::{Paint, print_result},
            words::{clean, table},
        },
        process::runtime::block_on,
    },
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

/// A state of a run, with the writers of its fields.
struct RunHistory<'a> {
    at: &'a RunSnapshot,
    steps: Vec<HistoryStep>,
    items: ItemWriters,
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
        let found = differences(&from.values, &to.values);
        let lists = found.iter().filter(|it| it.index().is_some()).map(|it| it.field.clone());
        let lists: BTreeSet<String> = lists.collect();
        let history = RunHistory::read(checkpointer, to, lists.clone()).await?;
        let mut changes = Vec::new();
        if from.info.id == to.info.id {
            let a = from.position.step;
            let b = to.position.step;
            let is_between = |step: Step| step > a.min(b) && step <= a.max(b);
            for difference in found {
                let writers = history.writers(&difference, is_between).into_iter();
                let of_run = |writer| RunWriter { run: to.info.id.clone(), writer, name: None };
                let writers = writers.map(of_run).collect();
                changes.push(FieldChange { difference, writers });
            }
        } else {
            let sides = [RunHistory::read(checkpointer, from, lists).await?, history];
            for difference in found {
                let writers = sides.iter().filter_map(|it| it.last_writer(&difference)).collect();
                changes.push(FieldChange { difference, writers });
            }
        }
        Ok(Self { from: Side::of(from), to: Side::of(to), changes })
    }

    fn draw(&self, paint: Paint) -> String {
        if self.changes.is_empty() {
            return "no difference\n".to_owned();
        }
        let mut rows =
            vec![["FIELD", "WAS", "IS", "WRITTEN BY"].map(|it| paint.faint(it)).to_vec()];
        rows.extend(self.changes.iter().map(|change| {
            let Difference { path, old, new, .. } = &change.difference;
            let writers: Vec<String> = change.writers.iter().map(RunWriter::describe).collect();
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
        let run = found.info.id.clone();
        let name = found.info.name.clone();
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

impl<'a> RunHistory<'a> {
    async fn read(
        checkpointer: &dyn Checkpointer,
        at: &'a RunSnapshot,
        lists: BTreeSet<String>,
    ) -> Result<Self, CliError> {
        let run = &at.info.id;
        let steps = steps(checkpointer.journal_without_values(run).await?);
        let items = ItemWriters::read(checkpointer, run, lists).await?;
        Ok(Self { at, steps, items })
    }

    /// Returns the writers of a changed item in some steps; those of the field, if there are none.
    fn writers(&self, changed: &Difference, is_in: impl Fn(Step) -> bool) -> Vec<Writer> {
        let field = &changed.field;
        let item = changed.index().map_or(&[][..], |index| self.items.of(field, index));
        let of_item: Vec<Writer> = item.iter().filter(|it| is_in(it.step)).cloned().collect();
        if !of_item.is_empty() {
            return of_item;
        }
        self.steps.iter().filter(|it| is_in(it.step)).flat_map(|it| it.writers(field)).collect()
    }

    /// Returns the last writer up to this state.
    fn last_writer(&self, changed: &Difference) -> Option<RunWriter> {
        let RunSnapshot { info, position, .. } = self.at;
        let writer = self.writers(changed, |step| step <= position.step).pop()?;
        Some(RunWriter { run: info.id.clone(), writer, name: Some(info.name.clone()) })
    }
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
