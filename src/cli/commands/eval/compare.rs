//! `graphrun eval compare BEFORE AFTER`: what changed from one evaluation to another.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Serialize;

use super::{
    results::{self, Line},
    summary::{ModelSummary, name, percent, show_command, summaries},
};
use crate::cli::{
    arguments::globals::{Globals, Output},
    error::CliError,
    exit::Exit,
    output::{
        json::to_json,
        terminal::{Paint, print_result},
        words::{clean, cost, duration, table, tokens},
    },
    settings::database::Database,
};

/// Compare the results of two evaluations, row by row
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The results of the first evaluation
    #[arg(value_name = "BEFORE.jsonl")]
    before: PathBuf,
    /// The results of the second one
    #[arg(value_name = "AFTER.jsonl")]
    after: PathBuf,
}

/// The differences between two evaluations.
#[derive(Debug, Serialize)]
struct Comparison {
    models: Vec<ModelPair>,
    /// The rows that both have, with another pass rate.
    changed: Vec<ChangedRow>,
    /// The rows that only the first has.
    only_before: Vec<String>,
    /// The rows that only the second has.
    only_after: Vec<String>,
}

/// A model in both evaluations; in one of them, if the other did not have it.
#[derive(Debug, Serialize)]
struct ModelPair {
    before: Option<ModelSummary>,
    after: Option<ModelSummary>,
}

/// A row whose pass rate changed.
#[derive(Debug, Serialize)]
struct ChangedRow {
    row: String,
    model: Option<String>,
    before: f64,
    after: f64,
    /// The first problem in the second evaluation.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// The run with that problem, or else a run that failed before.
    run: String,
}

impl Args {
    /// Reads both files and prints the differences.
    pub(super) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("eval compare", &[Output::Text, Output::Json])?;
        let (_, before) = results::load(&self.before)?;
        let (_, after) = results::load(&self.after)?;
        let comparison = Comparison::of(before, after);
        let text = match globals.output {
            Output::Json => to_json(&comparison)?,
            _ => comparison.draw(&globals.database()?, globals.stdout),
        };
        print_result(&text).map_err(CliError::write)?;
        Ok(Exit::Done)
    }
}

impl Comparison {
    fn of(mut before: Vec<Line>, mut after: Vec<Line>) -> Self {
        let mut first = summaries(&before);
        let second = summaries(&after);
        let mut models = Vec::new();
        if let ([_], [_]) = (&*first, &*second) {
            // Two models are compared: the rows are what both have.
            let pairs = first.into_iter().zip(second);
            models.extend(pairs.map(|(a, b)| ModelPair { before: Some(a), after: Some(b) }));
            for line in before.iter_mut().chain(&mut after) {
                line.model = None;
            }
        } else {
            for after in second {
                let same = first.iter().position(|it| it.model == after.model);
                let before = same.map(|it| first.remove(it));
                models.push(ModelPair { before, after: Some(after) });
            }
            models.extend(first.into_iter().map(|it| ModelPair { before: Some(it), after: None }));
        }
        let before = by_row(&before);
        let after = by_row(&after);
        let changed = before.iter().filter_map(|(key, old)| {
            let new = after.get(key)?;
            let old_rate = rate(old);
            let new_rate = rate(new);
            let failed =
                |lines: &[&Line]| lines.iter().find(|it| !it.passed).map(|it| it.run.clone());
            let problem = new.iter().find_map(|it| it.problems.first());
            (old_rate.total_cmp(&new_rate).is_ne()).then(|| ChangedRow {
                row: key.0.clone(),
                model: key.1.clone(),
                before: old_rate,
                after: new_rate,
                problem: problem.cloned(),
                run: failed(new)
                    .or_else(|| failed(old))
                    .map(|it| it.to_string())
                    .unwrap_or_default(),
            })
        });
        let changed = changed.collect();
        let only = |these: &ByRow<'_>, those: &ByRow<'_>| -> Vec<String> {
            let mut rows: Vec<String> = these
                .keys()
                .filter(|key| those.keys().all(|it| it.0 != key.0))
                .map(|it| it.0.clone())
                .collect();
            rows.dedup();
            rows
        };
        let only_before = only(&before, &after);
        let only_after = only(&after, &before);
        Self { models, changed, only_before, only_after }
    }

    /// Returns whether a model of the first evaluation is compared with one of the second.
    fn is_comparable(&self) -> bool {
        self.models.iter().any(|it| it.before.is_some() && it.after.is_some())
    }

    fn draw(&self, database: &Database, paint: Paint) -> String {
        let mut text = table(&self.models.iter().map(ModelPair::cells).collect::<Vec<_>>());
        for row in &self.changed {
            let model = row.model.as_ref().map(|it| format!(" with {}", clean(it)));
            let rates = format!("{} → {}", percent(row.before), percent(row.after));
            let rates = if row.after > row.before { paint.good(&rates) } else { paint.bad(&rates) };
            let problem = row.problem.as_ref().map(|it| format!(": {}", clean(it)));
            let model = model.unwrap_or_default();
            let problem = problem.unwrap_or_default();
            text.extend(["\n", &clean(&row.row), &model, "  ", &rates, &problem]);
            text.extend(["\n", &show_command(database, &row.run)]);
        }
        if !self.is_comparable() {
            text += "\nthe two have no model in common, so no row is compared\n";
        } else if self.changed.is_empty() {
            text += "\nno row passes more or less often\n";
        }
        for (rows, which) in [(&self.only_before, "first"), (&self.only_after, "second")] {
            if !rows.is_empty() {
                let rows = rows.iter().map(|it| clean(it)).collect::<Vec<_>>().join(", ");
                text.extend(["\nonly in the ", which, ": ", &rows, "\n"]);
            }
        }
        text
    }
}

impl ModelPair {
    fn cells(&self) -> Vec<String> {
        let model = |it: &ModelSummary| name(it.model.as_ref());
        let names: Vec<String> =
            [&self.before, &self.after].into_iter().flatten().map(model).collect();
        let same = names.iter().all(|it| *it == names[0]);
        let title = if same { names[0].clone() } else { names.join(" → ") };
        let show = |of: &dyn Fn(&ModelSummary) -> String| {
            let text = |it: &Option<ModelSummary>| it.as_ref().map_or("–".to_owned(), of);
            format!("{} → {}", text(&self.before), text(&self.after))
        };
        let mut cells = vec![title, show(&|it| percent(it.pass_rate))];
        if [&self.before, &self.after].into_iter().flatten().any(|it| it.usage.tokens.calls > 0) {
            cells.push(show(&|it| tokens(it.usage.total_tokens())));
            cells.push(show(&|it| cost(it.usage.cost_usd)));
        }
        cells.push(show(&|it| duration(it.ms_median)));
        cells
    }
}

type ByRow<'a> = BTreeMap<(String, Option<String>), Vec<&'a Line>>;

fn by_row(lines: &[Line]) -> ByRow<'_> {
    let mut rows = ByRow::new();
    for line in lines {
        rows.entry((line.row.clone(), line.model.clone())).or_default().push(line);
    }
    rows
}

#[expect(clippy::cast_precision_loss, reason = "there are few repetitions")]
fn rate(lines: &[&Line]) -> f64 {
    lines.iter().filter(|it| it.passed).count() as f64 / lines.len().max(1) as f64
}
