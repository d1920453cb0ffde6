//! What the results of an evaluation say about each model.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::results::{Evaluation, Line};
use crate::{
    cli::{
        output::{
            terminal::Paint,
            words::{clean, cost, count, duration, table, tokens},
        },
        settings::database::Database,
    },
    event::Usage,
};

/// The results of an evaluation.
#[derive(Debug, Serialize)]
pub(super) struct Summary<'a> {
    #[serde(flatten)]
    evaluation: &'a Evaluation,
    models: Vec<ModelSummary>,
    results: Vec<Line>,
}

/// The results of one model. A rate is a share of 1.
#[derive(Debug, Serialize)]
pub(super) struct ModelSummary {
    /// None for the models that the workflow names.
    pub(super) model: Option<String>,
    runs: usize,
    passed: usize,
    pub(super) pass_rate: f64,
    /// The standard deviation of the rate from repetition to repetition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pass_rate_deviation: Option<f64>,
    rows: usize,
    /// The rows that passed at least once.
    rows_passed_once: usize,
    /// The rows that passed every time.
    rows_passed_always: usize,
    /// The rate of runs that passed with at most so many rounds of a loop: the first entry is for one round.
    pass_rate_by_rounds: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score_mean: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score_deviation: Option<f64>,
    pub(super) usage: Usage,
    pub(super) ms_median: u64,
}

impl<'a> Summary<'a> {
    /// Sums up results.
    pub(super) fn new(evaluation: &'a Evaluation, results: Vec<Line>) -> Self {
        Self { evaluation, models: summaries(&results), results }
    }

    /// Returns whether each model passes at least this percentage of its runs.
    pub(super) fn passes(&self, percent: u8) -> bool {
        self.models.iter().all(|it| is_share(it.passed, it.runs, percent))
    }

    /// Returns a table of the models, then the rows that did not always pass.
    pub(super) fn draw(&self, database: &Database, paint: Paint) -> String {
        let mut text = table(&self.models.iter().map(ModelSummary::cells).collect::<Vec<_>>());
        let mut missed: BTreeMap<(&str, &Option<String>), Vec<&Line>> = BTreeMap::new();
        for line in &self.results {
            missed.entry((&line.row, &line.model)).or_default().push(line);
        }
        for ((row, model), lines) in missed {
            let passed = lines.iter().filter(|it| it.passed).count();
            let Some(failed) = lines.iter().find(|it| !it.passed) else { continue };
            let first = failed.problems.first().map_or("", String::as_str);
            text.extend([
                "\n",
                &paint.bad(&format!("{} with {}", clean(row), name(model.as_ref()))),
                &format!(": {passed} of {} passed; {}\n", lines.len(), clean(first)),
            ]);
            text += &show_command(database, failed.run.as_str());
        }
        text
    }
}

/// Returns the line with the command that shows a run, if the run can be shown later.
pub(super) fn show_command(database: &Database, run: &str) -> String {
    database.command("runs show", run).map(|it| format!("  {it}\n")).unwrap_or_default()
}

/// Sums up the results of each model.
pub(super) fn summaries(results: &[Line]) -> Vec<ModelSummary> {
    let mut by_model: BTreeMap<&Option<String>, Vec<&Line>> = BTreeMap::new();
    for line in results {
        by_model.entry(&line.model).or_default().push(line);
    }
    by_model.into_iter().map(|(model, lines)| ModelSummary::new(model.clone(), &lines)).collect()
}

impl ModelSummary {
    fn new(model: Option<String>, lines: &[&Line]) -> Self {
        let mut by_repeat: BTreeMap<u32, Vec<bool>> = BTreeMap::new();
        let mut by_row: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
        let mut usage = Usage::default();
        for line in lines {
            by_repeat.entry(line.repeat).or_default().push(line.passed);
            by_row.entry(&line.row).or_default().push(line.passed);
            usage.add(&line.usage);
        }
        let rates: Vec<f64> = by_repeat.values().map(|it| rate(it)).collect();
        let scores: Vec<f64> = lines.iter().filter_map(|it| it.score).collect();
        let mut times: Vec<u64> = lines.iter().map(|it| it.ms).collect();
        times.sort_unstable();
        let passed: Vec<bool> = lines.iter().map(|it| it.passed).collect();
        let rounds: BTreeSet<u32> =
            lines.iter().filter(|it| it.passed).map(|it| it.rounds).collect();
        let within = |most: u32| {
            let passed: Vec<bool> = lines.iter().map(|it| it.passed && it.rounds <= most).collect();
            rate(&passed)
        };
        Self {
            model,
            runs: lines.len(),
            passed: passed.iter().filter(|it| **it).count(),
            pass_rate: rate(&passed),
            pass_rate_deviation: deviation(&rates),
            rows: by_row.len(),
            rows_passed_once: by_row.values().filter(|it| it.contains(&true)).count(),
            rows_passed_always: by_row.values().filter(|it| !it.contains(&false)).count(),
            pass_rate_by_rounds: (1..=rounds.last().copied().unwrap_or(0)).map(within).collect(),
            score_mean: mean(&scores),
            score_deviation: deviation(&scores),
            usage,
            ms_median: times.get(times.len() / 2).copied().unwrap_or_default(),
        }
    }

    fn cells(&self) -> Vec<String> {
        let spread = self.pass_rate_deviation.map(|it| format!(" ± {}", percent(it)));
        let mut cells = vec![
            name(self.model.as_ref()),
            format!(
                "{}/{} passed, {}{}",
                self.passed,
                self.runs,
                percent(self.pass_rate),
                spread.unwrap_or_default()
            ),
        ];
        if self.runs > self.rows {
            let once = self.rows_passed_once;
            let always = self.rows_passed_always;
            let rows = count(self.rows as u64, "row");
            cells.push(format!("{rows}: {once} once, {always} always"));
        }
        if let [first, .., _] = &*self.pass_rate_by_rounds {
            cells.push(format!("{} in the first round", percent(*first)));
        }
        if let Some(mean) = self.score_mean {
            let spread = self.score_deviation.map(|it| format!(" ± {it:.2}"));
            cells.push(format!("score {mean:.2}{}", spread.unwrap_or_default()));
        }
        if self.usage.tokens.calls > 0 {
            cells.push(tokens(self.usage.total_tokens()));
            cells.push(cost(self.usage.cost_usd));
        }
        cells.push(format!("{} a run", duration(self.ms_median)));
        cells
    }
}

/// Returns the line that shows a result when it is there.
pub(super) fn line(at: &str, line: &Line, paint: Paint) -> String {
    let verdict = if line.passed { paint.good("passed") } else { paint.bad("failed") };
    let model = line.model.as_ref().map(|it| format!(" with {it}")).unwrap_or_default();
    let repeat = if line.repeat > 1 { format!(" ({})", line.repeat) } else { String::new() };
    let what = line.problems.first().map(|it| format!(": {}", clean(it))).unwrap_or_default();
    format!("{at} {verdict} {}{model}{repeat}, {}{what}", clean(&line.row), duration(line.ms))
}

/// Returns the name of a model for people.
pub(super) fn name(model: Option<&String>) -> String {
    model.map_or_else(|| "the models of the workflow".to_owned(), |it| clean(it))
}

/// Returns a share as a percentage.
pub(super) fn percent(rate: f64) -> String {
    format!("{:.0} %", rate * 100.0)
}

fn rate(passed: &[bool]) -> f64 {
    let numbers: Vec<f64> = passed.iter().map(|it| f64::from(u8::from(*it))).collect();
    mean(&numbers).unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "there are few numbers")]
fn mean(numbers: &[f64]) -> Option<f64> {
    (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64)
}

/// Returns the sample standard deviation; none of fewer than two numbers.
#[expect(clippy::cast_precision_loss, reason = "there are few numbers")]
fn deviation(numbers: &[f64]) -> Option<f64> {
    let mean = mean(numbers).filter(|_| numbers.len() > 1)?;
    let squares: f64 = numbers.iter().map(|it| (it - mean).powi(2)).sum();
    Some((squares / (numbers.len() - 1) as f64).sqrt())
}

/// Returns whether a number is at least this percentage of another one. A quotient would be rounded.
fn is_share(part: usize, whole: usize, percent: u8) -> bool {
    part * 100 >= whole * usize::from(percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_percentage_is_enough() {
        for percent in 0..=100 {
            let part = usize::from(percent);
            assert!(is_share(part, 100, percent) && is_share(2 * part, 200, percent));
            assert!(part == 0 || !is_share(part - 1, 100, percent));
        }
    }
}
