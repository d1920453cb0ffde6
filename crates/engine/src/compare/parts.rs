//! The part that a node or a field has in a run at its current position.

use std::collections::BTreeSet;

use graphrun_core::{
    graph::Transition,
    id::{ChannelName, NodeName},
};

use super::{Comparing, list};
use crate::checkpoint::{NodeOutline, Outcome, SavedRun, TaskRecord};

impl Comparing<'_> {
    /// Describes the part that a node has in the run at its current position.
    pub(super) fn part_of(&self, name: &NodeName) -> Option<String> {
        let SavedRun { position, records, .. } = self.compared.saved;
        if self.asks(name) {
            return Some("it waits for an answer".to_owned());
        }
        if records.iter().any(|it| it.node == *name && it.outcome.is_final()) {
            return Some("it has finished in an incomplete step".to_owned());
        }
        if position.frontier.iter().any(|it| it.node == *name) {
            return Some("it runs next".to_owned());
        }
        let arrived = self.arrived_at(name);
        if !arrived.is_empty() {
            return Some(format!("it is waiting: {} arrived there", list(&arrived)));
        }
        if let Some((to, _)) = position.joins.iter().find(|(_, it)| it.contains(name)) {
            return Some(format!("it has arrived at `{to}`, which waits for it"));
        }
        if position.deferred.contains_key(name) {
            return Some("it is deferred until the other nodes have run".to_owned());
        }
        let leads_there = |it: &&TaskRecord| {
            it.outcome
                .transitions()
                .iter()
                .map(Transition::target)
                .any(|it| it.node() == Some(name))
        };
        let from = records.iter().find(leads_there);
        from.map(|it| format!("`{}` has finished and leads there", it.node))
    }

    /// Returns the nodes that have arrived at a join, including those of the open step.
    pub(super) fn arrived_at(&self, name: &NodeName) -> BTreeSet<NodeName> {
        let SavedRun { position, records, .. } = self.compared.saved;
        let before = position.joins.get(name).into_iter().flatten();
        let joins = |it: &&TaskRecord| {
            it.outcome
                .transitions()
                .iter()
                .any(|it| matches!(it, Transition::Join(to) if to == name))
        };
        before.chain(records.iter().filter(joins).map(|it| &it.node)).cloned().collect()
    }

    /// Describes the counters of a node, which would start at zero under another name.
    pub(super) fn count_of(&self, name: &NodeName, was: &NodeOutline) -> Option<String> {
        let position = &self.compared.saved.position;
        self.renamed(name, was)?;
        if let Some((max, visits)) = was.max_visits.zip(position.visits.get(name)) {
            return Some(format!(
                "it has run {visits} of {max} times, and the count would be \
                                 forgotten"
            ));
        }
        let has_usage = position.used.node_usage.contains_key(name);
        has_usage.then(|| "its usage would be forgotten".to_owned())
    }

    /// Returns whether a question of the node is open, or an answer to it is unused.
    pub(super) fn asks(&self, name: &NodeName) -> bool {
        let mut open = BTreeSet::new();
        for record in self.compared.saved.records.iter().filter(|it| it.node == *name) {
            if matches!(record.outcome, Outcome::Asked { .. } | Outcome::Answered { .. }) {
                open.insert(record.task);
            } else {
                open.remove(&record.task);
            }
        }
        !open.is_empty()
    }

    /// Returns the node that updated a field in the open step.
    pub(super) fn writer_of(&self, name: &ChannelName) -> Option<&NodeName> {
        let writes = |it: &&TaskRecord| match &it.outcome {
            Outcome::Finished { update, .. } => update.writes.iter().any(|(it, _)| it == name),
            _ => false,
        };
        let mut records = self.compared.saved.records.iter();
        records.find(|it| writes(it) && self.is_kept(it)).map(|it| &it.node)
    }

    /// Returns whether the result of a task is kept.
    pub(super) fn is_kept(&self, record: &TaskRecord) -> bool {
        !self.is_dropped(&record.node) && !self.mapping.again.contains(&record.node)
    }
}
