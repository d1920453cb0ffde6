//! A step without tasks: a person changes the state of a stopped run.

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
    frontier::next_frontier,
    open_step::{Phase, TaskState},
};
use crate::checkpoint::{Activation, Checkpoint, Outcome, Position, TaskRecord};

/// The result of a state update by a person.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Revised {
    /// The record of the task that counts as finished, if there is one.
    pub(crate) record: Option<TaskRecord>,
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
    /// Nothing is left to run.
    #[error("the run has ended there")]
    AtItsEnd,
}

/// Commits the finished tasks of the open step together with an update, treated like one by `node`. The
/// other tasks stay in the frontier and ask their questions again.
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
    let machine = Machine::recalled(graph, limits.into(), run, saved, None)?;
    Ok(revised(&machine, update, node))
}

fn revised(
    machine: &Machine,
    update: &Update,
    node: Option<&NodeName>,
) -> Result<Revised, ReviseError> {
    let Machine { graph, limits, position, step, .. } = machine;
    let schema = graph.schema();
    schema.check(update)?;
    let mut done: Vec<(usize, TaskRecord, Activation)> = Vec::new();
    for (index, activation) in position.frontier.iter().enumerate() {
        if let Some(record) = &step.tasks()[index].record {
            done.push((index, TaskRecord::clone(record), activation.clone()));
        }
    }
    let mut made = None;
    if let Some(node) = node {
        let (index, activation) = replaced_task(machine, node)?;
        let record = record_of(machine, index, &activation, update)?;
        if index < position.frontier.len() {
            made = Some(record.clone());
        }
        done.push((index, record, activation));
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
    let kept = position.frontier.iter().enumerate().filter(|(at, _)| !is_done(*at));
    let frontier = done.iter().map(|it| &it.2).chain(kept.map(|(_, it)| it)).cloned();
    let before = Position { frontier: frontier.collect(), ..position.clone() };
    let records: Vec<TaskRecord> = done.into_iter().map(|it| it.1).collect();
    let mut position = next_frontier(graph, limits, &before, &records);
    // An answer to the old question must not be used for the question that is asked again.
    position.people.question_keys.extend(step.question_keys().cloned());
    Ok(Revised { record: made, position, state })
}

/// Returns the task that an update in the name of a node replaces.
fn replaced_task(machine: &Machine, node: &NodeName) -> Result<(usize, Activation), ReviseError> {
    let (graph, frontier) = (&machine.graph, &machine.position.frontier);
    if graph.node(node).is_none() {
        let names = graph.graph().nodes.keys();
        let nearest = did_you_mean(node.as_str(), names.map(NodeName::as_str));
        let nearest = nearest.and_then(|it| NodeName::parse(it).ok());
        return Err(ReviseError::Unknown { node: node.clone(), nearest });
    }
    let open = |(at, it): &(usize, &Activation)| {
        it.node == *node && *machine.step.tasks()[*at].phase() != Phase::Settled
    };
    if let Some((at, activation)) = frontier.iter().enumerate().find(open) {
        return Ok((at, activation.clone()));
    }
    if frontier.is_empty() {
        return Ok((0, Activation::by_edge(node.clone(), Trigger::Start)));
    }
    let mut next: Vec<NodeName> = frontier.iter().map(|it| it.node.clone()).collect();
    next.dedup();
    Err(ReviseError::NotNext { node: node.clone(), next })
}

fn record_of(
    machine: &Machine,
    index: usize,
    activation: &Activation,
    update: &Update,
) -> Result<TaskRecord, ReviseError> {
    let node = &activation.node;
    let spec = machine.graph.node(node).expect("the node was looked up before");
    let mut update = update.clone();
    update.clears.extend(spec.policies.clears.iter().cloned());
    let transitions = machine.routing().transitions(activation, &update, Goto::Edges).map_err(
        |Failure { message: reason, .. }| ReviseError::Route { node: node.clone(), reason },
    )?;
    let fresh = TaskState::new(node.clone());
    let task = machine.step.tasks().get(index).unwrap_or(&fresh);
    Ok(task.record(machine.step.id(index), Outcome::Finished { update, transitions }))
}

fn list(nodes: &[NodeName]) -> String {
    nodes.iter().map(|it| format!("`{it}`")).collect::<Vec<_>>().join(", ")
}
