//! Compares a saved run of any process with an expectation.

use std::collections::BTreeMap;

use super::{
    coverage::Trail,
    traces::{Traces, emitted, route_of, visits_of},
    verdict::{self, Problem},
};
use crate::{
    checkpoint::{CheckpointError, Checkpointer, Position, SavedRun},
    event::Status,
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
    let records = checkpointer.records(run).await?;
    let journal = checkpointer.journal_without_values(run).await?;
    let commits = journal.into_iter().filter_map(|it| it.entry.commit);
    let positions: Vec<Position> = commits.map(|it| it.position).collect();
    let traces = Traces {
        status: saved.summary.status,
        reason: saved.summary.reason.clone(),
        values: saved.values.clone(),
        route: route_of(&records),
        visits: visits_of(&records, &positions),
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
    let rounds = traces.visits.values().max().copied().unwrap_or_default();
    Ok((problems, u32::try_from(rounds).unwrap_or(u32::MAX)))
}

/// Returns a difference in one line.
fn line(problem: &Problem) -> String {
    let part = |name: &str, value: &Option<String>| {
        value.as_ref().map(|it| format!("; {name} {it}")).unwrap_or_default()
    };
    let expected = part("expected", &problem.expected);
    let actual = part("got", &problem.actual);
    format!("{}{expected}{actual}", problem.what)
}
