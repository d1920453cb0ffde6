//! The coverage of test cases and the results of the exploration, for people and for programs.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::report::shown;
use crate::{
    cases::{Coverage, DeadEnd, ExplorationResult, Part, PartKind},
    cli::output::{
        terminal::Paint,
        words::{clean, count, table},
    },
    diagnostic::SourceSpan,
};

/// The coverage of a workflow by its test cases.
#[derive(Debug)]
pub(super) struct WorkflowCoverage {
    pub(super) workflow: PathBuf,
    pub(super) coverage: Coverage,
}

/// The result of the exploration of a workflow.
#[derive(Debug)]
pub(super) struct ExploredWorkflow {
    pub(super) workflow: PathBuf,
    pub(super) result: ExplorationResult,
}

impl WorkflowCoverage {
    pub(super) fn to_json(&self) -> Value {
        let Self { workflow, coverage } = self;
        let (parts, taken) = coverage.counts();
        let missed: Vec<Value> = coverage.missed().into_iter().map(part_to_json).collect();
        json!({
            "workflow": workflow.display().to_string(),
            "parts": parts,
            "taken": taken,
            "percent": coverage.percent(),
            "missed": missed,
        })
    }

    /// Adds a text: the percentage, and the uncovered parts.
    pub(super) fn draw(&self, paint: Paint, text: &mut String) {
        let Self { workflow, coverage } = self;
        let (parts, taken) = coverage.counts();
        let percent = paint.strong(&format!("{}%", coverage.percent()));
        let name = workflow.display().to_string();
        text.extend(["coverage of ", &paint.strong(&name), ": ", &percent]);
        text.extend([&format!(", {taken} of {}", count(parts as u64, "part")), "\n"]);
        let missed = coverage.missed();
        if !missed.is_empty() {
            text.push_str("  never taken:\n");
            let rows: Vec<Vec<String>> = missed.into_iter().map(|it| part_row(it, paint)).collect();
            table(&rows).lines().for_each(|line| text.extend(["    ", line, "\n"]));
        }
        text.push('\n');
    }
}

impl ExploredWorkflow {
    pub(super) fn to_json(&self) -> Value {
        let ExplorationResult {
            states,
            steps,
            is_complete,
            open,
            not_yet_reached,
            stuck,
            caught,
            unreached,
            gaps,
        } = &self.result;
        let step = |step: &Vec<(_, String)>| -> Vec<Value> {
            step.iter().map(|(node, outcome)| json!({"node": node, "outcome": outcome})).collect()
        };
        let paths = |ends: &[DeadEnd]| -> Vec<Value> {
            let path = |it: &DeadEnd| it.path.iter().map(step).collect::<Vec<_>>();
            ends.iter().map(|it| json!({"reason": it.reason, "path": path(it)})).collect()
        };
        json!({
            "workflow": self.workflow.display().to_string(),
            "states": states,
            "steps": steps,
            "is_complete": is_complete,
            "open": open,
            "not_yet_reached": not_yet_reached,
            "stuck": paths(stuck),
            "caught": paths(caught),
            "unreached": unreached,
            "gaps": gaps,
        })
    }

    pub(super) fn draw(&self, paint: Paint, text: &mut String) {
        let Self { workflow, result: explored } = self;
        let name = paint.strong(&workflow.display().to_string());
        let states = count(explored.states as u64, "state");
        let all = if explored.is_complete {
            "all of them".to_owned()
        } else {
            let open = count(explored.open as u64, "state");
            let more = format!("incomplete; {open} left");
            paint.loud(&format!("{more}: raise `--explore-max` or `--explore-time`"))
        };
        text.extend(["explored ", &name, ": ", &states, ", ", &all, "\n"]);
        for stuck in &explored.stuck {
            draw_dead_end(&paint.bad("stuck"), stuck, text);
        }
        for caught in &explored.caught {
            draw_dead_end(&paint.loud("fails, and is caught"), caught, text);
        }
        for node in &explored.unreached {
            text.extend(["  ", &paint.bad("never reached"), "  ", node.as_str(), "\n"]);
        }
        for node in &explored.not_yet_reached {
            text.extend(["  ", &paint.loud("not reached yet"), "  ", node.as_str(), "\n"]);
        }
        for gap in &explored.gaps {
            text.extend(["  ", &paint.loud("not tried"), "  ", &clean(gap), "\n"]);
        }
        let missed = explored.unreached.len() + explored.not_yet_reached.len();
        if explored.is_complete && explored.stuck.is_empty() && missed == 0 {
            text.extend(["  ", &paint.good("no run gets stuck, and every node is reached"), "\n"]);
        }
        text.push('\n');
    }
}

fn draw_dead_end(title: &str, end: &DeadEnd, text: &mut String) {
    text.extend(["  ", title, "  ", &clean(&end.reason), "\n"]);
    for (at, step) in (1..).zip(&end.path) {
        let nodes: Vec<String> = step
            .iter()
            .map(|(node, outcome)| match outcome.as_str() {
                "" => node.to_string(),
                outcome => format!("{node} ({})", clean(outcome)),
            })
            .collect();
        text.extend([&format!("    {at:>3}  "), &nodes.join(" + "), "\n"]);
    }
}

fn part_to_json(part: &Part) -> Value {
    let Part { kind, from, to, label, span } = part;
    let (line, column) = span.as_ref().map(SourceSpan::line_and_column).unzip();
    json!({
        "kind": kind.as_str(),
        "from": from,
        "to": to,
        "label": label,
        "file": span.as_ref().map(|it| it.file.name.as_str()),
        "line": line,
        "column": column,
    })
}

/// Returns the position of a part, its kind, its target and its condition.
fn part_row(part: &Part, paint: Paint) -> Vec<String> {
    let span = part.span.as_ref().map(shown).unwrap_or_default();
    let from = part.from.as_ref().map_or("every node", |it| it.as_str());
    let from = if part.kind == PartKind::Limit { "limits" } else { from };
    let to = part.to.as_ref().map(|it| format!(" → {it}")).unwrap_or_default();
    let label = part.label.as_ref().map(|it| format!("  {}", clean(it))).unwrap_or_default();
    vec![paint.faint(&span), part.kind.as_str().to_owned(), format!("{from}{to}{label}")]
}
