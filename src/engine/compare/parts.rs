//! The part that a node or a field has in a run as it stands.

use std::collections::BTreeSet;

use super::{Comparing, list};
use crate::{
    checkpoint::{NodeOutline, Outcome, SavedRun, TaskRecord},
    graph::Hop,
    id::{ChannelName, NodeName},
};

impl Comparing<'_> {
    /// The part that a node has in the run as it stands.
    pub(super) fn part_of(&self, name: &NodeName) -> Option<String> {
        let SavedRun { position, records, .. } = self.compared.saved;
        if self.asks(name) {
            return Some("it waits for an answer".to_owned());
        }
        if records.iter().any(|it| it.node == *name && it.outcome.is_final()) {
            return Some("it has finished in a step that is not complete".to_owned());
        }
        if position.frontier.iter().any(|it| it.node == *name) {
            return Some("it is to run next".to_owned());
        }
        let arrived = self.arrived_at(name);
        if !arrived.is_empty() {
            return Some(format!("it has begun to wait: {} arrived there", list(&arrived)));
        }
        if let Some((to, _)) = position.joins.iter().find(|(_, it)| it.contains(name)) {
            return Some(format!("it has arrived at `{to}`, which waits for it"));
        }
        if position.deferred.contains_key(name) {
            return Some("the run has come to it, and it lets others go first".to_owned());
        }
        let leads_there = |it: &&TaskRecord| {
            it.outcome.hops().iter().map(Hop::target).any(|it| it.node() == Some(name))
        };
        let from = records.iter().find(leads_there);
        from.map(|it| format!("`{}` has finished and leads there", it.node))
    }

    /// The nodes that have arrived at one that waits, those of the open step included.
    pub(super) fn arrived_at(&self, name: &NodeName) -> BTreeSet<NodeName> {
        let SavedRun { position, records, .. } = self.compared.saved;
        let before = position.joins.get(name).into_iter().flatten();
        let joins = |it: &&TaskRecord| {
            it.outcome.hops().iter().any(|it| matches!(it, Hop::Join(to) if to == name))
        };
        before.chain(records.iter().filter(joins).map(|it| &it.node)).cloned().collect()
    }

    /// What is counted of a node and would begin from zero under another name.
    pub(super) fn count_of(&self, name: &NodeName, was: &NodeOutline) -> Option<String> {
        let position = &self.compared.saved.position;
        self.renamed(name, was)?;
        if let Some((max, visits)) = was.max_visits.zip(position.visits.get(name)) {
            return Some(format!("it has run {visits} of {max} times, which would be forgotten"));
        }
        let took = position.took.contains_key(name);
        took.then(|| "what it took of its limits would be forgotten".to_owned())
    }

    /// Whether a question of a node is open, or an answer to it is not used yet.
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

    /// The node that has written a field in a step that is not complete.
    pub(super) fn writer_of(&self, name: &ChannelName) -> Option<&NodeName> {
        let writes = |it: &&TaskRecord| match &it.outcome {
            Outcome::Finished { update, .. } => update.writes.iter().any(|(it, _)| it == name),
            _ => false,
        };
        let mut records = self.compared.saved.records.iter();
        records.find(|it| writes(it) && self.is_kept(it)).map(|it| &it.node)
    }

    /// Whether what a task has done is kept.
    pub(super) fn is_kept(&self, record: &TaskRecord) -> bool {
        !self.is_dropped(&record.node) && !self.mapping.again.contains(&record.node)
    }
}
