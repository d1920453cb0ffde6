//! The rounds of joins that do not wait for all of their nodes.
//!
//! Such a join runs while other branches of its round still work. Their later arrivals must not run the join again. They
//! must not count for the next round either, which a loop may begin while they still work. So the round takes in all
//! tasks beside the join when it runs. Each step passes the membership on: a node belongs to the round if only tasks
//! of the round led to it. The round ends with its last task.
//!
//! **Example.** `ask` leads to `fast` and `slow`, `slow` to `check`, and the join `answer` waits for one of `fast` and
//! `check`. When `answer` runs, the round consists of `check`, which is missing. Its arrival is absorbed. If `answer`
//! leads back to `ask` meanwhile, neither `ask` nor a node after it is part of the round.
//!
//! The alternative, a count of late arrivals per node, would need no tasks. But a branch that ends elsewhere would leave its
//! count behind, and the next round would lose its first arrival.

use std::collections::{BTreeMap, BTreeSet};

use graphrun_analysis::{CompiledGraph, NodeIndex};

use super::{
    deferred::waits_for,
    indexed::{IndexedPosition, IndexedRound},
};

/// Follows the rounds through one step.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// Whether the graph has joins with rounds.
    is_needed: bool,
    /// Each node to which a task led, with the node of the task. A node that waits leads to itself.
    sources: Vec<(NodeIndex, NodeIndex)>,
    /// Pairs of activated node and intended node. They differ if the bound of the intended node is used up.
    entered: Vec<(NodeIndex, NodeIndex)>,
    /// The joins that run next, with the nodes that had not arrived.
    completed: Vec<(NodeIndex, BTreeSet<NodeIndex>)>,
}

impl Rounds {
    /// Begins a step at this position.
    pub(super) fn before(graph: &CompiledGraph, position: &IndexedPosition) -> Self {
        let is_needed = graph.has_partial_joins();
        if !is_needed {
            return Self::default();
        }
        let waiting = position.joins.keys().chain(position.deferred.keys());
        let sources = waiting.map(|it| (*it, *it)).collect();
        Self { is_needed, sources, ..Self::default() }
    }

    /// Notes that a task stays as it is.
    pub(super) fn note_staying(&mut self, node: NodeIndex) {
        self.note_source(node, node);
    }

    /// Notes that a task of one node leads to another one.
    pub(super) fn note_source(&mut self, to: NodeIndex, from: NodeIndex) {
        if self.is_needed {
            self.sources.push((to, from));
        }
    }

    /// Notes that a node is activated in place of the one that was meant, which may be the same.
    pub(super) fn note_activated(&mut self, node: NodeIndex, meant: NodeIndex) {
        if self.is_needed {
            self.entered.push((node, meant));
        }
    }

    /// Notes that a join runs after the arrivals of some of its nodes.
    pub(super) fn note_completed(
        &mut self,
        graph: &CompiledGraph,
        join: NodeIndex,
        arrived: &BTreeSet<NodeIndex>,
    ) {
        if self.is_needed {
            let awaited = graph.awaited_at(join).iter().filter_map(|it| graph.index(it));
            let missing = awaited.filter(|it| !arrived.contains(it)).collect();
            self.completed.push((join, missing));
        }
    }

    /// Returns the rounds after the step, in which these nodes run or wait next.
    pub(super) fn after(
        &self,
        graph: &CompiledGraph,
        mut before: BTreeMap<NodeIndex, IndexedRound>,
        active: &BTreeSet<NodeIndex>,
    ) -> BTreeMap<NodeIndex, IndexedRound> {
        for (join, missing) in &self.completed {
            before.entry(*join).or_default().missing.extend(missing);
        }
        for (join, round) in &mut before {
            let belongs = |it: &NodeIndex| belongs(graph, *join, *it);
            let stays_in_round = |node: &NodeIndex| {
                if self.completed.iter().any(|it| it.0 == *join) {
                    !self.entered.contains(&(*node, *join))
                } else {
                    self.is_led_to_only_by(*node, &round.tasks)
                }
            };
            let tasks = active.iter().copied().filter(|it| belongs(it) && stays_in_round(it));
            round.tasks = tasks.collect();
        }
        before.retain(|_, it| !it.tasks.is_empty() && !it.missing.is_empty());
        before
    }

    /// Returns whether tasks led to a node, and those of these nodes only.
    fn is_led_to_only_by(&self, node: NodeIndex, nodes: &BTreeSet<NodeIndex>) -> bool {
        let is_meant = |meant: NodeIndex| meant == node || self.entered.contains(&(node, meant));
        let mut sources = self.sources.iter().filter(|(to, _)| is_meant(*to)).peekable();
        sources.peek().is_some() && sources.all(|(_, from)| nodes.contains(from))
    }
}

/// Returns whether a task of a node that is active beside a join belongs to the round of the join.
///
/// The nodes outside its used workflow do not: a later task of theirs may begin another call of it. Nor does a
/// deferred node that waits for the join, because it runs after everything that follows the join.
fn belongs(graph: &CompiledGraph, join: NodeIndex, node: NodeIndex) -> bool {
    let (join, (name, spec)) = (graph.name_at(join), graph.at(node));
    let is_inside = join.scope().is_none_or(|it| name.strip_scope(it).is_some());
    is_inside && !spec.policies.schedule.defer.as_ref().is_some_and(|it| waits_for(name, it, join))
}
