//! Compares a saved run of any process with an expectation.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    coverage::Trail,
    run::{Traces, emitted, route_of},
    verdict::{self, Problem},
};
use crate::{
    checkpoint::{CheckpointError, Checkpointer, SavedRun},
    event::Status,
    id::NodeName,
    workflow::case_file::Expectation,
};

/// Compares a saved run with an expectation; without one, the run should be done. Returns a line for each difference, and how
/// often the most visited node ran.
///
/// # Errors
///
/// Fails when the database cannot be read.
pub(crate) async fn judge(
    expect: Option<&Expectation>,
    checkpointer: &dyn Checkpointer,
    saved: &SavedRun,
) -> Result<(Vec<String>, u32), CheckpointError> {
    let run = &saved.summary.info.id;
    let traces = Traces {
        status: saved.summary.status,
        reason: saved.summary.reason.clone(),
        values: saved.values.clone(),
        route: route_of(&checkpointer.records(run).await?),
        events: emitted(checkpointer.events(run, 0).await?),
        // A run keeps none.
        prompts: BTreeMap::new(),
        trail: Trail::default(),
    };
    let problems = match expect {
        Some(expect) => verdict::compare(expect, &traces).iter().map(line).collect(),
        None if traces.status == Status::Done => Vec::new(),
        None => {
            let reason = traces.reason.as_deref().unwrap_or("it has no reason");
            vec![format!("the run is {}: {reason}", traces.status.as_str())]
        }
    };
    Ok((problems, rounds(&traces)))
}

/// Returns a difference in one line.
fn line(problem: &Problem) -> String {
    let part = |name: &str, value: &Option<String>| {
        value.as_ref().map(|it| format!("; {name} {it}")).unwrap_or_default()
    };
    let (expected, actual) = (part("expected", &problem.expected), part("got", &problem.actual));
    format!("{}{expected}{actual}", problem.what)
}

/// Returns how often the node ran that ran most often: 1 if no loop went back. The items of a `map` run together.
fn rounds(traces: &Traces) -> u32 {
    let mut rounds: BTreeMap<&NodeName, u32> = BTreeMap::new();
    for step in &traces.route {
        for node in step.iter().collect::<BTreeSet<_>>() {
            *rounds.entry(node).or_default() += 1;
        }
    }
    rounds.into_values().max().unwrap_or_default()
}
