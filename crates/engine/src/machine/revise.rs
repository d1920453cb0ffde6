//! A step without tasks: a person changes the state of a stopped run.

use std::{collections::BTreeSet, sync::Arc};

use graphrun_analysis::NodeIndex;
use graphrun_core::{
    diagnostic::did_you_mean,
    graph::{Failure, Goto, ItemPolicy, Transition, Trigger},
    id::NodeName,
    state::{State, StateError, Update},
    words::quoted_list,
};
use thiserror::Error;

use super::{
    Machine,
    frontier::{StepResults, count_usage, next_frontier},
    indexed::{IndexedActivation, IndexedPosition},
    start::step_began,
    task_state::{Phase, TaskState},
};
use crate::checkpoint::{Outcome, Position, TaskRecord};

/// A step that a person made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Revision {
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
    #[error("`{node}` does not run next; the next nodes are {}", quoted_list(next))]
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
    /// Some items of a map have ended and others have not, and these depend on those.
    #[error(
        "some items of `{node}` have ended and others have not, and these depend on the whole list (`index`, `after` or `failed`); end these first"
    )]
    PartlyDone {
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
/// Fails when the update does not fit.
pub(crate) fn revise(
    machine: &Machine,
    update: &Update,
    node: Option<&NodeName>,
) -> Result<Revision, ReviseError> {
    let schema = machine.graph.schema();
    schema.check(update)?;
    let FinishedTasks { tasks, decided } = finish_tasks(machine, update, node)?;
    check_open_maps(machine, &tasks)?;
    let updates = tasks.iter().filter_map(|it| it.record.outcome.update());
    let state = machine.state.as_ref().clone();
    let (mut state, _) = schema.apply(state, updates)?;
    if node.is_none() {
        (state, _) = schema.apply(state, [update])?;
    }
    Ok(Revision { records: decided, position: position_after(machine, tasks, &state), state })
}

/// A task that finishes in the step of a person.
struct FinishedTask {
    /// Its index in the frontier; beyond it, if the run had ended.
    index: usize,
    record: Arc<TaskRecord>,
    active: IndexedActivation,
}

/// The tasks that finish in the step of a person, in task order, and the records that are new.
#[derive(Default)]
struct FinishedTasks {
    tasks: Vec<FinishedTask>,
    decided: Vec<TaskRecord>,
}

/// Returns the tasks of the open step that finish: those that are settled, those whose routes are decided now, and the
/// one that the update replaces.
fn finish_tasks(
    machine: &Machine,
    update: &Update,
    node: Option<&NodeName>,
) -> Result<FinishedTasks, ReviseError> {
    let frontier = &machine.position.frontier;
    let replaced = node.map(|it| replaced_task(machine, it)).transpose()?;
    let mut finished = FinishedTasks::default();
    for (index, active) in frontier.iter().enumerate() {
        let task = &machine.open_step.tasks()[index];
        if replaced.as_ref().is_some_and(|it| it.0 == index) {
            continue;
        }
        let record = match (&task.record, task.undecided.as_deref()) {
            (Some(record), _) => Arc::clone(record),
            (None, Some((own, goto))) => {
                let updates: &[&Update] = if node.is_none() { &[own, update] } else { &[own] };
                let transitions = decide(machine, active, updates, goto)?;
                let record = finished_record(machine, index, active, own.clone(), transitions);
                finished.decided.push(record.clone());
                Arc::new(record)
            }
            (None, None) => continue,
        };
        finished.tasks.push(FinishedTask { index, record, active: active.clone() });
    }
    if let Some((index, active)) = replaced {
        let record = finished_by_person(machine, index, &active, update)?;
        if index < frontier.len() {
            finished.decided.push(record.clone());
        }
        finished.tasks.push(FinishedTask { index, record: Arc::new(record), active });
        finished.tasks.sort_by_key(|it| it.index);
    }
    Ok(finished)
}

/// Checks that no item of a map stays without those that it depends on. The remaining items are a separate list in the
/// next step: they have other numbers, and the items before them are gone.
fn check_open_maps(machine: &Machine, finished: &[FinishedTask]) -> Result<(), ReviseError> {
    let open = unfinished(machine, finished).filter(|it| it.1.is_dispatched());
    let open: BTreeSet<NodeIndex> = open.map(|it| it.1.node).collect();
    let partly_done = |it: &&FinishedTask| open.contains(&it.active.node);
    let node_of = |it: &FinishedTask| it.record.node.clone();
    // Such an item has led all of them elsewhere.
    let leads_all = |it: &&FinishedTask| {
        matches!(it.record.outcome, Outcome::Caught { for_all_items: true, .. })
    };
    if let Some(leading) = finished.iter().filter(partly_done).find(leads_all) {
        return Err(ReviseError::OpenMap { node: node_of(leading) });
    }
    let reads_index = machine.graph.definition().facts.item_index;
    let depends = |it: &&FinishedTask| {
        let items = machine.graph.policies_at(it.active.node).schedule.items.as_ref();
        let has_numbers =
            |it: &ItemPolicy| it.order.is_some() || it.failed.is_some() || reads_index;
        it.active.is_dispatched() && items.is_some_and(has_numbers)
    };
    let dependent = finished.iter().filter(partly_done).find(depends);
    dependent.map_or(Ok(()), |it| Err(ReviseError::PartlyDone { node: node_of(it) }))
}

/// Returns the tasks of the frontier that stay, with their indexes.
fn unfinished<'a>(
    machine: &'a Machine,
    finished: &[FinishedTask],
) -> impl Iterator<Item = (usize, &'a IndexedActivation)> + use<'a> {
    let finished: BTreeSet<usize> = finished.iter().map(|it| it.index).collect();
    let stays = move |index: &usize| !finished.contains(index);
    machine.position.frontier.iter().enumerate().filter(move |it| stays(&it.0))
}

/// Returns the position after the step of a person, in this state.
fn position_after(machine: &Machine, finished: Vec<FinishedTask>, state: &State) -> Position {
    let Machine { graph, limits, position, open_step, .. } = machine;
    let staying: Vec<(usize, &IndexedActivation)> = unfinished(machine, &finished).collect();
    // The tasks without a record come after those with one, and stay.
    let active = finished.iter().map(|it| &it.active).chain(staying.iter().map(|it| it.1));
    let mut position = IndexedPosition { frontier: active.cloned().collect(), ..position.clone() };
    // They begin anew in the next step, and their usage so far counts.
    for (index, active) in staying {
        count_usage(graph, &mut position, active.node, open_step.tasks()[index].used);
    }
    position.used.elapsed_ms += open_step.elapsed_ms();
    let records: Vec<Arc<TaskRecord>> = finished.into_iter().map(|it| it.record).collect();
    let results = StepResults { records: &records, state };
    next_frontier(graph, limits.into(), &mut position, results);
    position.began = step_began(&machine.graph, machine.now);
    // An answer to the old question must not be used for the question that is asked again.
    open_step.extend_conversation(&mut position.people);
    position.named(graph, state.removed_messages())
}

/// Returns the task that an update in the name of a node replaces.
fn replaced_task(
    machine: &Machine,
    node: &NodeName,
) -> Result<(usize, IndexedActivation), ReviseError> {
    let graph = &machine.graph;
    let frontier = &machine.position.frontier;
    let Some(node_index) = graph.index(node) else {
        let names = graph.definition().nodes.keys();
        let nearest = did_you_mean(node.as_str(), names.map(NodeName::as_str));
        let nearest = nearest.and_then(|it| NodeName::parse(it).ok());
        return Err(ReviseError::Unknown { node: node.clone(), nearest });
    };
    let open = |(at, it): &(usize, &IndexedActivation)| {
        it.node == node_index && machine.open_step.tasks()[*at].phase != Phase::Settled
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
    let transitions = decide(machine, active, &[&update], &Goto::Edges)?;
    Ok(finished_record(machine, index, active, update, transitions))
}

/// Returns where a task leads whose node made this choice. Its routes read the state with all of the updates.
fn decide(
    machine: &Machine,
    active: &IndexedActivation,
    updates: &[&Update],
    goto: &Goto,
) -> Result<Vec<Transition>, ReviseError> {
    let route_error = |Failure { message: reason, .. }| ReviseError::Route {
        node: machine.graph.name_at(active.node).clone(),
        reason,
    };
    let mut transitions = machine.routing().by_edges(active, updates, goto).map_err(route_error)?;
    transitions.extend(goto.chosen().iter().cloned());
    Ok(transitions)
}

fn finished_record(
    machine: &Machine,
    index: usize,
    active: &IndexedActivation,
    update: Update,
    transitions: Vec<Transition>,
) -> TaskRecord {
    let fresh = TaskState::new(machine.graph.name_at(active.node).clone());
    let task = machine.open_step.tasks().get(index).unwrap_or(&fresh);
    task.make_record(machine.open_step.id(index), Outcome::Finished { update, transitions })
}
