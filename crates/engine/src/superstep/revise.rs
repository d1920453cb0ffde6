//! A step without tasks: a person changes the state of a stopped run.

use std::sync::Arc;

use graphrun_analysis::CompiledGraph;
use graphrun_core::{
    diagnostic::did_you_mean,
    graph::{Failure, Goto, Limits, Trigger},
    id::{NodeName, RunId},
    state::{State, StateError, Update},
};
use thiserror::Error;

use super::{
    Machine, RestoreError,
    frontier::{StepResults, next_frontier},
    indexed::{IndexedActivation, IndexedPosition},
    open_step::{Phase, TaskState},
};
use crate::checkpoint::{Checkpoint, Outcome, Position, TaskRecord};

/// The result of a state update by a person.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Revised {
    /// The new records: of the task that counts as finished, and of tasks whose routes are decided now.
    pub(crate) records: Vec<TaskRecord>,
    /// The new position of the run, one step further.
    pub(crate) position: Position,
    /// The new state.
    pub(crate) state: State,
}

/// The run cannot be changed in this way. It was not changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReviseError {
    /// The update does not fit the state, or the results of the step conflict.
    #[error("the values do not fit the state")]
    State(#[from] StateError),
    /// The node does not exist.
    #[error("there is no node `{node}`{}", nearest.as_ref().map(|it| format!("; did you mean `{it}`?")).unwrap_or_default())]
    Unknown {
        /// The node.
        node: NodeName,
        /// The node with the most similar name.
        nearest: Option<NodeName>,
    },
    /// Other nodes run next, and an update in the name of this one would not replace any of them.
    #[error("`{node}` does not run next; the next nodes are {}", list(next))]
    NotNext {
        /// The node.
        node: NodeName,
        /// The nodes that run next.
        next: Vec<NodeName>,
    },
    /// The routes of the node cannot be evaluated on this state.
    #[error("the routes of `{node}` cannot be evaluated: {reason}")]
    Route {
        /// The node.
        node: NodeName,
        /// The reason.
        reason: String,
    },
    /// The failure of one item decides where a map leads, and others of its items have not ended.
    #[error(
        "an item of `{node}` led the run elsewhere, and other items of it have not ended; retry these first"
    )]
    OpenMap {
        /// The node of the items.
        node: NodeName,
    },
    /// Nothing is left to run.
    #[error("the run has ended there")]
    AtItsEnd,
}

/// Commits the finished tasks of the open step together with an update, treated like one by `node`. The
/// other tasks stay in the frontier and ask their questions again.
///
/// A task whose route failed is decided again, on the state with the update. If the route still fails, the
/// update is refused: otherwise the result of the task would be lost.
///
/// If `node` is in the frontier, its task counts as finished. If the run has ended, it continues at the
/// targets of `node`. Without a node, only the state changes.
///
/// # Errors
///
/// Fails when the graph is not the one of the run, or the update does not fit.
pub(crate) fn revise(
    graph: CompiledGraph,
    limits: Limits,
    run: RunId,
    saved: (Checkpoint, Vec<TaskRecord>),
    (update, node): (&Update, Option<&NodeName>),
) -> Result<Result<Revised, ReviseError>, RestoreError> {
    let machine = Machine::with_records(graph, limits.into(), run, saved, None)?;
    Ok(apply_revision(&machine, update, node))
}

fn apply_revision(
    machine: &Machine,
    update: &Update,
    node: Option<&NodeName>,
) -> Result<Revised, ReviseError> {
    let Machine { graph, limits, position, open_step: step, .. } = machine;
    let schema = graph.schema();
    schema.check(update)?;
    let mut done: Vec<(usize, Arc<TaskRecord>, IndexedActivation)> = Vec::new();
    let mut made = Vec::new();
    let replaced = node.map(|it| replaced_task(machine, it)).transpose()?;
    for (index, active) in position.frontier.iter().enumerate() {
        let task = &step.tasks()[index];
        let record = match (&replaced, &task.record, task.result()) {
            (Some((replaced, _)), ..) if *replaced == index => continue,
            (_, Some(record), _) => Arc::clone(record),
            (_, None, Some((own, goto))) => {
                let updates: &[&Update] = if node.is_none() { &[own, update] } else { &[own] };
                let record = finished_record(machine, index, active, (updates, goto))?;
                made.push(record.clone());
                Arc::new(record)
            }
            (_, None, None) => continue,
        };
        done.push((index, record, active.clone()));
    }
    if let Some((index, active)) = replaced {
        let record = finished_by_person(machine, index, &active, update)?;
        if index < position.frontier.len() {
            made.push(record.clone());
        }
        done.push((index, Arc::new(record), active));
        done.sort_by_key(|it| it.0);
    }
    let updates = done.iter().filter_map(|(_, record, _)| record.outcome.update());
    let state = machine.state.as_ref().clone();
    let (mut state, _) = schema.apply(state, updates).map_err(|it| it.error)?;
    if node.is_none() {
        (state, _) = schema.apply(state, [update]).map_err(|it| it.error)?;
    }
    // The tasks without a record come after those with one, and stay.
    let is_done = |at: usize| done.iter().any(|it| it.0 == at);
    let is_open_item = |node| {
        let mut items = position.frontier.iter().enumerate();
        items.any(|(at, it)| it.node == node && it.is_dispatched() && !is_done(at))
    };
    let leads_all =
        |it: &TaskRecord| matches!(it.outcome, Outcome::Caught { for_all_items: true, .. });
    if let Some((_, record, _)) =
        done.iter().find(|(_, record, active)| leads_all(record) && is_open_item(active.node))
    {
        return Err(ReviseError::OpenMap { node: record.node.clone() });
    }
    let kept = position.frontier.iter().enumerate().filter(|(at, _)| !is_done(*at));
    let frontier = done.iter().map(|it| &it.2).chain(kept.map(|(_, it)| it)).cloned();
    let mut position = IndexedPosition { frontier: frontier.collect(), ..position.clone() };
    let records: Vec<Arc<TaskRecord>> = done.into_iter().map(|it| it.1).collect();
    position.used.elapsed_ms += records.iter().map(|it| it.ms).max().unwrap_or(0);
    let results = StepResults { records: &records, state: &state };
    next_frontier(graph, limits.into(), &mut position, results);
    // An answer to the old question must not be used for the question that is asked again.
    position.people.question_keys.extend(step.question_keys().cloned());
    position.people.grants.extend(step.grants().iter().cloned());
    Ok(Revised { records: made, position: position.named(graph), state })
}

/// Returns the task that an update in the name of a node replaces.
fn replaced_task(
    machine: &Machine,
    node: &NodeName,
) -> Result<(usize, IndexedActivation), ReviseError> {
    let (graph, frontier) = (&machine.graph, &machine.position.frontier);
    let Some(node_index) = graph.index(node) else {
        let names = graph.graph().nodes.keys();
        let nearest = did_you_mean(node.as_str(), names.map(NodeName::as_str));
        let nearest = nearest.and_then(|it| NodeName::parse(it).ok());
        return Err(ReviseError::Unknown { node: node.clone(), nearest });
    };
    let open = |(at, it): &(usize, &IndexedActivation)| {
        it.node == node_index && *machine.open_step.tasks()[*at].phase() != Phase::Settled
    };
    if let Some((at, active)) = frontier.iter().enumerate().find(open) {
        return Ok((at, active.clone()));
    }
    if frontier.is_empty() {
        return Ok((0, IndexedActivation::by_edge(node_index, Trigger::Start)));
    }
    let mut next = machine.next_nodes();
    next.dedup();
    Err(ReviseError::NotNext { node: node.clone(), next })
}

/// Returns the record of a task that counts as finished with an update.
fn finished_by_person(
    machine: &Machine,
    index: usize,
    active: &IndexedActivation,
    update: &Update,
) -> Result<TaskRecord, ReviseError> {
    let spec = machine.graph.spec_at(active.node);
    let mut update = update.clone();
    update.clears.extend(spec.policies.on_finish.clears.iter().cloned());
    finished_record(machine, index, active, (&[&update], &Goto::Edges))
}

/// Returns the record of a task whose node finished with the first of these updates and with this choice. Its
/// routes read the state with all of the updates.
fn finished_record(
    machine: &Machine,
    index: usize,
    active: &IndexedActivation,
    (updates, goto): (&[&Update], &Goto),
) -> Result<TaskRecord, ReviseError> {
    let node = machine.graph.name_at(active.node);
    let route_error =
        |Failure { message: reason, .. }| ReviseError::Route { node: node.clone(), reason };
    let mut transitions = machine.routing().by_edges(active, updates, goto).map_err(route_error)?;
    transitions.extend(goto.chosen().iter().cloned());
    let update = (*updates.first().expect("the task has an update")).clone();
    let fresh = TaskState::new(node.clone());
    let task = machine.open_step.tasks().get(index).unwrap_or(&fresh);
    Ok(task.record(machine.open_step.id(index), Outcome::Finished { update, transitions }))
}

fn list(nodes: &[NodeName]) -> String {
    nodes.iter().map(|it| format!("`{it}`")).collect::<Vec<_>>().join(", ")
}
