//! Checks whether a saved position still fits the graph, which may have changed.
//!
//! The engine follows saved decisions without evaluating them again, so every name in them must still exist.
//! A run that cannot continue is refused before anything is done.

use graphrun_analysis::CompiledGraph;
use graphrun_core::{
    graph::{Target, Transition},
    id::NodeName,
};

use super::RestoreError;
use crate::checkpoint::{Outcome, Position, TaskRecord};

/// Checks the frontier and the records of the open step.
pub(super) fn check(
    graph: &CompiledGraph,
    position: &Position,
    records: &[TaskRecord],
) -> Result<(), RestoreError> {
    for activation in &position.frontier {
        check_node(graph, &activation.node)?;
    }
    for node in position.deferred.keys() {
        check_node(graph, node)?;
    }
    for (to, arrived) in &position.joins {
        arrived.iter().try_for_each(|from| check_arrival(graph, from, to))?;
    }
    for (to, round) in &position.rounds {
        round.missing.iter().try_for_each(|from| check_arrival(graph, from, to))?;
        round.tasks.iter().try_for_each(|it| check_node(graph, it))?;
    }
    records.iter().try_for_each(|record| check_record(graph, position, record))
}

fn check_record(
    graph: &CompiledGraph,
    position: &Position,
    record: &TaskRecord,
) -> Result<(), RestoreError> {
    let index = usize::try_from(record.task.index).ok();
    let activation = index.and_then(|it| position.frontier.get(it));
    let is_of_the_step = record.task.step == position.step.next();
    if !is_of_the_step || activation.is_none_or(|it| it.node != record.node) {
        return Err(RestoreError::Record(record.task));
    }
    if let Some(update) = record.outcome.update() {
        graph.schema().check_saved(update)?;
    }
    let chosen = match &record.outcome {
        Outcome::Undecided { goto, .. } => goto.chosen(),
        _ => &[],
    };
    let mut transitions = record.outcome.transitions().iter().chain(chosen);
    transitions.try_for_each(|transition| match transition {
        Transition::To(Target::End | Target::Fail) => Ok(()),
        Transition::To(Target::Node(name)) => check_node(graph, name),
        Transition::Dispatch(dispatch) => check_node(graph, &dispatch.node),
        Transition::Join(to) => check_arrival(graph, &record.node, to),
    })
}

fn check_node(graph: &CompiledGraph, name: &NodeName) -> Result<(), RestoreError> {
    match graph.node(name) {
        Some(_) => Ok(()),
        None => Err(RestoreError::Node(name.clone())),
    }
}

fn check_arrival(
    graph: &CompiledGraph,
    from: &NodeName,
    to: &NodeName,
) -> Result<(), RestoreError> {
    if graph.awaited_by(to).contains(from) {
        return Ok(());
    }
    Err(RestoreError::Arrival { from: from.clone(), to: to.clone() })
}
