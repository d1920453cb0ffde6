//! The part that a node or a field has in a run at its current position.

use std::{collections::BTreeSet, sync::Arc};

use graphrun_analysis::Midway;
use graphrun_core::{
    graph::{Question, Transition},
    id::{ChannelName, NodeName},
    words::quoted_list,
};
use serde_json::Value;

use super::{Comparison, Names};
use crate::{
    checkpoint::{NodeOutline, Outcome, SavedRun, TaskRecord, last_records, open_questions},
    machine::migrate_position,
};

/// The parts of the nodes and fields of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a> {
    pub(super) names: Names<'a>,
}

impl Parts<'_> {
    /// Describes the part that a node has in the run at its current position.
    pub(super) fn part_of(&self, name: &NodeName) -> Option<String> {
        let SavedRun { position, records, .. } = self.names.compared.saved;
        if self.asks(name) {
            return Some("it waits for an answer".to_owned());
        }
        if last_records(records).any(|it| it.node == *name && it.outcome.is_final()) {
            return Some("it has finished in an incomplete step".to_owned());
        }
        if position.frontier.iter().any(|it| it.node == *name) {
            return Some("it runs next".to_owned());
        }
        let arrived = self.arrived_at(name);
        if !arrived.is_empty() {
            return Some(format!("it is waiting: {} arrived there", quoted_list(&arrived)));
        }
        if let Some((to, _)) = position.joins.iter().find(|(_, it)| it.contains(name)) {
            return Some(format!("it has arrived at `{to}`, which waits for it"));
        }
        if position.deferred.contains_key(name) {
            return Some("it is deferred until the other nodes have run".to_owned());
        }
        let leads_there = |record: &&TaskRecord| {
            record
                .outcome
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
        let SavedRun { position, records, .. } = self.names.compared.saved;
        let before = position.joins.get(name).into_iter().flatten();
        let joins = |record: &&TaskRecord| {
            record
                .outcome
                .transitions()
                .iter()
                .any(|it| matches!(it, Transition::Join(to) if to == name))
        };
        before.chain(records.iter().filter(joins).map(|it| &it.node)).cloned().collect()
    }

    /// Describes the counters of a node, which would start at zero under another name.
    pub(super) fn count_of(&self, name: &NodeName, was: &NodeOutline) -> Option<String> {
        let position = &self.names.compared.saved.position;
        self.names.renamed(name, was)?;
        if let Some((max, visits)) = was.max_visits.zip(position.visits.get(name)) {
            return Some(format!(
                "it has run {visits} of {max} times, and the count would be forgotten"
            ));
        }
        let has_usage = position.used.node_usage.contains_key(name);
        has_usage.then(|| "its usage would be forgotten".to_owned())
    }

    /// Returns whether a question of the node is open, or an answer to it is unused.
    pub(super) fn asks(&self, name: &NodeName) -> bool {
        let mut open = BTreeSet::new();
        for record in self.names.compared.saved.records.iter().filter(|it| it.node == *name) {
            if matches!(record.outcome, Outcome::Asked { .. } | Outcome::Answered { .. }) {
                open.insert(record.task);
            } else {
                open.remove(&record.task);
            }
        }
        !open.is_empty()
    }

    /// Returns the open questions of the node.
    pub(super) fn questions(&self, name: &NodeName) -> impl Iterator<Item = Question> {
        let SavedRun { position, records, .. } = self.names.compared.saved;
        let open = open_questions(position, records).into_iter();
        open.filter(move |it| it.node == *name).map(|it| it.question)
    }

    /// Returns the node that updated a field in the open step.
    pub(super) fn writer_of(&self, name: &ChannelName) -> Option<&NodeName> {
        let writes = |record: &&TaskRecord| {
            record.outcome.update().is_some_and(|it| it.writes.iter().any(|(it, _)| it == name))
        };
        last_records(&self.names.compared.saved.records)
            .find(|it| writes(it) && self.is_kept(it))
            .map(|it| &it.node)
    }

    /// Returns whether the result of a task is kept.
    pub(super) fn is_kept(&self, record: &TaskRecord) -> bool {
        !self.names.is_dropped(&record.node) && !self.names.mapping.again.contains(&record.node)
    }

    /// Returns the position of the run in the new graph.
    pub(super) fn midway(&self) -> Midway {
        let Comparison { graph, saved, messages, .. } = self.names.compared;
        let migrated = migrate_position(graph, self.names.mapping, saved, messages);
        let position = &migrated.position;
        let mut midway = Midway { arrived: position.joins.clone(), ..Midway::default() };
        let finals = last_records(&migrated.records).filter(|it| it.outcome.is_final());
        let finals: Vec<&TaskRecord> = finals.collect();
        let settled: BTreeSet<u32> = finals.iter().map(|it| it.task.index).collect();
        let open = (0..).zip(&position.frontier).filter(|(at, _)| !settled.contains(at));
        midway.next.extend(open.map(|(_, it)| it.node.clone()));
        midway.next.extend(position.deferred.keys().cloned());
        for record in finals {
            if let Some(update) = record.outcome.update() {
                midway.held.extend(update.writes.iter().map(|(field, _)| field.clone()));
            }
            for transition in record.outcome.transitions() {
                match transition {
                    Transition::Join(to) => {
                        let arrived = midway.arrived.entry(to.clone()).or_default();
                        arrived.insert(record.node.clone());
                    }
                    transition => midway.next.extend(transition.target().node().cloned()),
                }
            }
        }
        let held = saved.values.keys().filter_map(|it| self.names.field(it));
        midway.held.extend(held.chain(self.names.mapping.set.keys().cloned()));
        let defaults = graph.schema().channels().iter().filter(|it| it.default().is_some());
        midway.held.extend(defaults.map(|it| it.name().clone()));
        midway
    }

    pub(super) fn holds(&self, name: &ChannelName) -> bool {
        self.names.compared.saved.values.contains_key(name) || self.writer_of(name).is_some()
    }

    /// Returns the updates to a field by tasks of the open step.
    pub(super) fn written(&self, name: &ChannelName) -> Vec<(NodeName, Arc<Value>)> {
        let records = last_records(&self.names.compared.saved.records);
        let records = records.filter(|it| self.is_kept(it));
        let written = records.flat_map(|record| {
            let writes = record.outcome.update().into_iter().flat_map(|it| &it.writes);
            let of_it = writes.filter(|(it, _)| it == name);
            of_it.map(|(_, value)| (record.node.clone(), Arc::clone(value)))
        });
        written.collect()
    }
}
