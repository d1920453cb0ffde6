//! The position of a run with indices in place of names, as the rules use it.
//!
//! Names stand at the edges only: in events, records and storage.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use graphrun_analysis::{CompiledGraph, NodeIndex};
use graphrun_core::{
    graph::{Input, OriginalTask, Trigger, Visits},
    id::{NodeName, Step},
    state::RemovedMessages,
};

use jiff::Timestamp;

use super::RestoreError;
use crate::checkpoint::{Activation, Conversation, EarlierTurns, Position, Round, UsedBudget};

/// A [`Position`] whose nodes are indices into the graph. The order of the indices is that of the names.
#[derive(Clone, Debug)]
pub(super) struct IndexedPosition {
    pub(super) step: Step,
    pub(super) frontier: Vec<IndexedActivation>,
    pub(super) joins: BTreeMap<NodeIndex, BTreeSet<NodeIndex>>,
    pub(super) rounds: BTreeMap<NodeIndex, IndexedRound>,
    pub(super) deferred: BTreeMap<NodeIndex, Trigger>,
    pub(super) began: Option<Timestamp>,
    /// Shared with the tasks.
    pub(super) visits: Arc<Visits>,
    pub(super) caught: BTreeMap<NodeIndex, String>,
    pub(super) original_tasks: BTreeMap<u32, OriginalTask>,
    pub(super) failure: Option<String>,
    pub(super) used: UsedBudget,
    pub(super) earlier: EarlierTurns,
    pub(super) people: Conversation,
    /// The visits of nodes that the graph does not have, for a later graph that has them again.
    pub(super) foreign_visits: BTreeMap<NodeName, u32>,
}

/// A [`Round`] by index.
pub(super) type IndexedRound = Round<NodeIndex>;

/// An [`Activation`] by index.
#[derive(Clone, Debug)]
pub(super) struct IndexedActivation {
    pub(super) node: NodeIndex,
    pub(super) input: Input,
    pub(super) trigger: Trigger,
    pub(super) timeout_ms: Option<u64>,
}

impl IndexedActivation {
    /// Returns the activation of a node by an edge: it works on the state.
    pub(super) fn by_edge(node: NodeIndex, trigger: Trigger) -> Self {
        Self { node, input: Input::State, trigger, timeout_ms: None }
    }

    /// Returns whether the task works on a dispatched item.
    pub(super) fn is_dispatched(&self) -> bool {
        matches!(self.input, Input::Value(_))
    }

    /// Returns an activation by index.
    pub(super) fn of(graph: &CompiledGraph, activation: &Activation) -> Result<Self, RestoreError> {
        let Activation { node, input, trigger, timeout_ms } = activation.clone();
        let index = graph.index(&node).ok_or(RestoreError::Node(node))?;
        Ok(Self { node: index, input, trigger, timeout_ms })
    }

    /// Returns the activation by name.
    pub(super) fn named(&self, graph: &CompiledGraph) -> Activation {
        let Self { node, input, trigger, timeout_ms } = self.clone();
        Activation { node: graph.name_at(node).clone(), input, trigger, timeout_ms }
    }
}

impl IndexedPosition {
    /// Returns the error behind a visit of a node: that of the trigger, or the last one of the node itself.
    pub(super) fn cause<'t>(&'t self, node: NodeIndex, trigger: &'t Trigger) -> Option<&'t str> {
        trigger.cause().or(self.caught.get(&node).map(String::as_str))
    }

    /// Returns the position by index.
    ///
    /// Fails when it names a node that the graph does not have.
    pub(super) fn of(graph: &CompiledGraph, position: Position) -> Result<Self, RestoreError> {
        let Position {
            step,
            frontier,
            joins,
            rounds,
            deferred,
            began,
            visits,
            caught,
            original_tasks,
            failure,
            used,
            earlier,
            people,
            // They belong to the state.
            removed_messages: _,
        } = position;
        let caught = caught.into_iter();
        let caught = caught.filter_map(|(it, error)| Some((graph.index(&it)?, error))).collect();
        let index =
            |name: &NodeName| graph.index(name).ok_or_else(|| RestoreError::Node(name.clone()));
        let join = |(to, arrived): (NodeName, BTreeSet<NodeName>)| {
            let arrived: Result<BTreeSet<_>, RestoreError> = arrived.iter().map(index).collect();
            Ok::<_, RestoreError>((index(&to)?, arrived?))
        };
        let round = |(join, Round { missing, tasks }): (NodeName, Round)| {
            let missing: Result<_, RestoreError> = missing.iter().map(index).collect();
            let tasks: Result<_, RestoreError> = tasks.iter().map(index).collect();
            Ok::<_, RestoreError>((index(&join)?, Round { missing: missing?, tasks: tasks? }))
        };
        let mut counts = Visits::new(graph.names());
        let mut foreign_visits = BTreeMap::new();
        for (name, count) in visits {
            match graph.index(&name) {
                Some(index) => counts.set(index.index(), Some(count)),
                None => drop(foreign_visits.insert(name, count)),
            }
        }
        Ok(Self {
            step,
            frontier: frontier
                .iter()
                .map(|it| IndexedActivation::of(graph, it))
                .collect::<Result<_, _>>()?,
            joins: joins.into_iter().map(join).collect::<Result<_, _>>()?,
            rounds: rounds.into_iter().map(round).collect::<Result<_, _>>()?,
            deferred: deferred
                .into_iter()
                .map(|(it, trigger)| Ok::<_, RestoreError>((index(&it)?, trigger)))
                .collect::<Result<_, _>>()?,
            began,
            visits: Arc::new(counts),
            caught,
            original_tasks,
            failure,
            used,
            earlier,
            people,
            foreign_visits,
        })
    }

    /// Returns the position by name, with the removed messages of the state.
    pub(super) fn named(
        &self,
        graph: &CompiledGraph,
        removed_messages: &RemovedMessages,
    ) -> Position {
        let name = |it: NodeIndex| graph.name_at(it).clone();
        let visits = self.visits.iter().map(|(name, count)| (name.clone(), count));
        let mut visits: BTreeMap<NodeName, u32> = visits.collect();
        visits.extend(self.foreign_visits.iter().map(|(name, count)| (name.clone(), *count)));
        let join = |(to, arrived): (&NodeIndex, &BTreeSet<NodeIndex>)| {
            (name(*to), arrived.iter().map(|&it| name(it)).collect())
        };
        let names = |nodes: &BTreeSet<NodeIndex>| nodes.iter().map(|&it| name(it)).collect();
        let round = |(join, it): (&NodeIndex, &IndexedRound)| {
            (name(*join), Round { missing: names(&it.missing), tasks: names(&it.tasks) })
        };
        Position {
            step: self.step,
            frontier: self.frontier.iter().map(|it| it.named(graph)).collect(),
            joins: self.joins.iter().map(join).collect(),
            rounds: self.rounds.iter().map(round).collect(),
            deferred: self
                .deferred
                .iter()
                .map(|(it, trigger)| (name(*it), trigger.clone()))
                .collect(),
            began: self.began,
            visits,
            caught: self.caught.iter().map(|(it, error)| (name(*it), error.clone())).collect(),
            original_tasks: self.original_tasks.clone(),
            failure: self.failure.clone(),
            used: self.used.clone(),
            earlier: self.earlier,
            people: self.people.clone(),
            removed_messages: removed_messages.clone(),
        }
    }

    /// Returns the visits, to change them. They are copied if a task still reads them.
    pub(super) fn visits_mut(&mut self) -> &mut Visits {
        Arc::make_mut(&mut self.visits)
    }

    /// Returns the number of committed steps of the current turn.
    pub(super) fn steps_of_turn(&self) -> u64 {
        self.step.0.saturating_sub(self.earlier.steps)
    }

    /// Returns how often a node has run.
    pub(super) fn visits_of(&self, node: NodeIndex) -> u32 {
        self.visits.at(node.index()).unwrap_or(0)
    }

    /// Counts a visit of a node.
    pub(super) fn count_visit(&mut self, node: NodeIndex) {
        let count = self.visits_of(node).saturating_add(1);
        self.visits_mut().set(node.index(), Some(count));
    }

    /// Takes back that a visit of a node was counted.
    pub(super) fn uncount_visit(&mut self, node: NodeIndex) {
        let count = self.visits_of(node).saturating_sub(1);
        self.visits_mut().set(node.index(), Some(count));
    }
}
