//! Migration of a position to another graph: everything in the checkpoint gets its new name.
//!
//! Parts without a counterpart are left out here; the caller has checked that the mapping drops them. The
//! migration is a separate step, so the checkpoint before it does not change.

use std::collections::{BTreeMap, BTreeSet};

use graphrun_analysis::CompiledGraph;
use graphrun_core::{
    graph::{Dispatch, Goto, OriginalTask, Question, Target, Transition, Trigger},
    id::{ChannelName, NodeName, TaskId},
    state::{RemovedMessages, State, Update},
};
use serde_json::Value;

use super::frontier::{activate_released, is_counted_alone};
use crate::checkpoint::{
    Activation, Fate, InboxMessage, Mapping, Outcome, Position, Round, SavedRun, TaskRecord,
    UsedBudget,
};

/// The position of a run in another graph.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MigratedPosition {
    pub(crate) position: Position,
    /// The results of the tasks of the open step.
    pub(crate) records: Vec<TaskRecord>,
}

/// Migrates a run, with the inbox messages that are not processed yet.
pub(crate) fn migrate_position(
    graph: &CompiledGraph,
    mapping: &Mapping,
    saved: &SavedRun,
    messages: &[InboxMessage],
) -> MigratedPosition {
    let SavedRun { position, records, values, .. } = saved;
    let reads_bounds =
        graph.definition().nodes.values().any(|it| it.policies.bounds.visits_field.is_some());
    // A state that does not fit the graph is an error of the caller; no run continues with it.
    let state = || {
        let values = migrate_values(graph, mapping, values.clone());
        graph.schema().restore(values).ok()
    };
    let state = reads_bounds.then(state).flatten();
    PositionMigration { graph, mapping, position, records, values, state }.run(messages)
}

/// Returns the values of a run by the names of the graph. New fields get their defaults.
pub(crate) fn migrate_values(
    graph: &CompiledGraph,
    mapping: &Mapping,
    saved: BTreeMap<ChannelName, Value>,
) -> BTreeMap<ChannelName, Value> {
    let schema = graph.schema();
    let named = saved.into_iter().filter_map(|(name, value)| {
        let name = mapping.new_field_of(&name)?;
        schema.channel(name.as_str()).is_some().then_some((name, value))
    });
    let mut values: BTreeMap<ChannelName, Value> = named.collect();
    for channel in schema.channels() {
        if let Some(default) = channel.default() {
            values.entry(channel.name().clone()).or_insert_with(|| default.as_ref().clone());
        }
    }
    values.extend(mapping.set.clone());
    values
}

struct PositionMigration<'a> {
    graph: &'a CompiledGraph,
    mapping: &'a Mapping,
    position: &'a Position,
    records: &'a [TaskRecord],
    values: &'a BTreeMap<ChannelName, Value>,
    /// The state, if a bound of the graph reads it.
    state: Option<State>,
}

impl PositionMigration<'_> {
    fn run(&self, messages: &[InboxMessage]) -> MigratedPosition {
        let mut position = self.renamed_position();
        let old = self.position.frontier.iter().enumerate();
        let kept = old.filter_map(|(at, it)| Some((Some(at), self.activation(it)?)));
        let mut kept: Vec<(Option<usize>, Activation)> = kept.collect();
        position.frontier = kept.iter().map(|(_, it)| it.clone()).collect();
        // A dropped node may have been the last one that a join waited for.
        let reached = activate_released(self.graph, self.state.as_ref(), &mut position)
            .expect("a migrated position names only nodes of the graph");
        let reached = reached.into_iter();
        kept.extend(reached.map(|(node, trigger)| (None, Activation::by_edge(node, trigger))));
        // Sorts like a step sorts its tasks: by node name, then dispatches in their order.
        kept.sort_by_key(|(_, it)| {
            let is_dispatched = it.is_dispatched();
            (is_dispatched, (!is_dispatched).then(|| it.node.clone()))
        });
        position.step = self.position.step.next();
        let places: BTreeMap<u32, TaskId> = (0..)
            .zip(&kept)
            .filter_map(|(new, (old, _))| {
                let task = TaskId { step: position.step.next(), index: new };
                Some((u32::try_from((*old)?).ok()?, task))
            })
            .collect();
        position.frontier = kept.into_iter().map(|(_, it)| it).collect();
        for (old, task) in &places {
            if let Some(original) = self.original_task(*old) {
                position.original_tasks.insert(task.index, original);
            }
        }
        let records = self.records.iter().filter_map(|record| {
            let task = places.get(&record.task.index).filter(|_| !self.restarts(&record.node))?;
            self.record(*task, record)
        });
        let records = records.collect();
        self.leave_behind(&mut position, &places);
        position.people.pending_messages = self.messages(messages);
        position.people.last_message =
            messages.iter().map(|it| it.number).fold(position.people.last_message, u64::max);
        MigratedPosition { position, records }
    }

    /// Returns the position with renamed entries and without a frontier.
    fn renamed_position(&self) -> Position {
        let old = self.position;
        let named = |it: &NodeName| self.new_node(it);
        let visits = old.visits.iter().filter_map(|(it, count)| Some((named(it)?, *count)));
        let caught = old.caught.iter();
        let caught = caught.filter_map(|(it, error)| Some((named(it)?, error.clone())));
        let node_usage = old.used.node_usage.iter();
        let node_usage = node_usage.filter_map(|(it, usage)| Some((named(it)?, *usage)));
        let deferred = old
            .deferred
            .iter()
            .filter_map(|(it, trigger)| Some((named(it)?, self.trigger(trigger))));
        Position {
            frontier: Vec::new(),
            original_tasks: BTreeMap::new(),
            visits: visits.collect(),
            caught: caught.collect(),
            used: UsedBudget { node_usage: node_usage.collect(), ..old.used.clone() },
            deferred: deferred.collect(),
            joins: self.joins(),
            rounds: self.rounds(),
            removed_messages: self.removed_messages(),
            ..old.clone()
        }
    }

    /// Returns the removed messages, with those in the values that are replaced.
    fn removed_messages(&self) -> RemovedMessages {
        let mut removed = self.position.removed_messages.renamed(|it| self.new_field(it));
        for (old, value) in self.values {
            let new = self.new_field(old).filter(|it| self.mapping.set.contains_key(it));
            if let Some(channel) = new.and_then(|it| self.graph.schema().channel(it.as_str())) {
                removed.note(channel, value);
            }
        }
        removed
    }

    /// Returns the arrivals at joins. Joins no longer wait for dropped nodes.
    fn joins(&self) -> BTreeMap<NodeName, BTreeSet<NodeName>> {
        let mut joins: BTreeMap<NodeName, BTreeSet<NodeName>> = BTreeMap::new();
        for (to, arrived) in &self.position.joins {
            let Some(to) = self.new_node(to) else { continue };
            let awaited = self.graph.awaited_by(&to);
            let arrived = arrived.iter().filter_map(|it| self.new_node(it));
            let arrived = arrived.filter(|it| awaited.contains(it));
            joins.entry(to.clone()).or_default().extend(arrived);
        }
        let transitions = self.records.iter().flat_map(|it| it.outcome.transitions());
        let begun = transitions.filter_map(|transition| match transition {
            Transition::Join(to) => self.new_node(to),
            _ => None,
        });
        let begun: BTreeSet<NodeName> = begun.chain(joins.keys().cloned()).collect();
        let dropped = self.dropped_targets();
        for to in self.graph.definition().nodes.keys() {
            for from in self.graph.awaited_by(to) {
                let counts_as_arrived =
                    (begun.contains(to) && self.is_dropped(from)) || dropped.contains(from);
                if counts_as_arrived && !self.graph.arrives_by_route(from, to) {
                    joins.entry(to.clone()).or_default().insert(from.clone());
                }
            }
        }
        joins.retain(|_, arrived| !arrived.is_empty());
        joins
    }

    /// Returns the rounds of joins that have run. The tasks of dropped nodes leave them.
    fn rounds(&self) -> BTreeMap<NodeName, Round> {
        let round = |(to, old): (&NodeName, &Round)| {
            let to = self.new_node(to)?;
            let awaited = self.graph.awaited_by(&to);
            let missing = old.missing.iter().filter_map(|it| self.new_node(it));
            let missing = missing.filter(|it| awaited.contains(it)).collect();
            let tasks = old.tasks.iter().filter_map(|it| self.new_node(it)).collect();
            Some((to, Round { missing, tasks }))
        };
        self.position.rounds.iter().filter_map(round).collect()
    }

    /// Returns the dropped nodes that are in the frontier, deferred, or targets of the open step.
    fn dropped_targets(&self) -> BTreeSet<NodeName> {
        let next = self.position.frontier.iter().map(|it| &it.node);
        let next = next.chain(self.position.deferred.keys()).cloned();
        let transitions = self.records.iter().flat_map(|it| it.outcome.transitions());
        let led_to = transitions.filter_map(|it| it.target().node().cloned());
        next.chain(led_to).filter(|it| self.is_dropped(it)).collect()
    }

    /// Returns whether a node of the new graph was dropped and the name is not a rename target.
    fn is_dropped(&self, node: &NodeName) -> bool {
        self.mapping.fate_of_node(node) == Fate::Dropped
            && !self.mapping.nodes.values().any(|it| it == node)
    }

    fn restarts(&self, old: &NodeName) -> bool {
        self.mapping.again.contains(old)
    }

    fn new_node(&self, old: &NodeName) -> Option<NodeName> {
        self.mapping.new_name_of(old).filter(|it| self.graph.node(it).is_some())
    }

    fn new_field(&self, old: &ChannelName) -> Option<ChannelName> {
        let schema = self.graph.schema();
        self.mapping.new_field_of(old).filter(|it| schema.channel(it.as_str()).is_some())
    }

    fn activation(&self, old: &Activation) -> Option<Activation> {
        let node = self.new_node(&old.node)?;
        Some(Activation { node, trigger: self.trigger(&old.trigger), ..old.clone() })
    }

    /// Returns the trigger by its new names. Its source node may be gone.
    fn trigger(&self, trigger: &Trigger) -> Trigger {
        let named = |it: &NodeName| self.new_node(it).unwrap_or_else(|| it.clone());
        match trigger {
            Trigger::Then { node } => Trigger::Then { node: named(node) },
            Trigger::Exhausted { node, max_visits, cause } => {
                let node = named(node);
                let max_visits = *max_visits;
                let cause = cause.clone();
                Trigger::Exhausted { node, max_visits, cause }
            }
            Trigger::Caught { node, failure } => {
                Trigger::Caught { node: named(node), failure: failure.clone() }
            }
            Trigger::Start | Trigger::Limit { .. } => trigger.clone(),
        }
    }

    /// Returns the original names of a task, unless the task starts again.
    fn original_task(&self, old: u32) -> Option<OriginalTask> {
        let node = &self.position.frontier.get(usize::try_from(old).ok()?)?.node;
        if self.restarts(node) {
            return None;
        }
        let task = TaskId { step: self.position.step.next(), index: old };
        let now = OriginalTask { task, node: node.clone() };
        Some(self.position.original_tasks.get(&old).cloned().unwrap_or(now))
    }

    fn record(&self, task: TaskId, old: &TaskRecord) -> Option<TaskRecord> {
        let node = self.new_node(&old.node)?;
        // A key that equals the node name follows the rename of the node.
        let key =
            |part: &str| if part == old.node.as_str() { node.to_string() } else { part.to_owned() };
        let outcome = match &old.outcome {
            Outcome::Finished { update, transitions } => Outcome::Finished {
                update: self.update(update),
                transitions: self.transitions(transitions),
            },
            Outcome::Undecided { update, goto, failure } => Outcome::Undecided {
                update: self.update(update),
                goto: match goto {
                    Goto::Edges => Goto::Edges,
                    Goto::Also(chosen) => Goto::Also(self.transitions(chosen)),
                    Goto::Instead(chosen) => Goto::Instead(self.transitions(chosen)),
                },
                failure: failure.clone(),
            },
            Outcome::Caught { failure, update, for_all_items, transitions } => Outcome::Caught {
                failure: failure.clone(),
                update: self.update(update),
                for_all_items: *for_all_items,
                transitions: self.transitions(transitions),
            },
            Outcome::Skipped { condition, transitions } => Outcome::Skipped {
                condition: condition.clone(),
                transitions: self.transitions(transitions),
            },
            Outcome::Asked { question } => {
                let question = Question { key: key(&question.key), ..question.clone() };
                Outcome::Asked { question }
            }
            Outcome::Answered { key: old, answer, by, question_hash } => {
                let key = key(old);
                let by = by.clone();
                let question_hash = *question_hash;
                Outcome::Answered { key, answer: answer.clone(), by, question_hash }
            }
            Outcome::Failed { .. }
            | Outcome::Retrying { .. }
            | Outcome::TimerSet { .. }
            | Outcome::Aborted
            | Outcome::MemoSaved { .. } => old.outcome.clone(),
        };
        Some(TaskRecord { task, node, outcome, ..old.clone() })
    }

    fn update(&self, old: &Update) -> Update {
        let writes =
            old.writes.iter().filter_map(|(it, value)| Some((self.new_field(it)?, value.clone())));
        let clears = old.clears.iter().filter_map(|it| self.new_field(it));
        Update { clears: clears.collect(), writes: writes.collect() }
    }

    fn transitions(&self, old: &[Transition]) -> Vec<Transition> {
        let transition = |transition: &Transition| match transition {
            Transition::To(Target::Node(to)) => {
                Some(Transition::To(Target::Node(self.new_node(to)?)))
            }
            Transition::To(target) => Some(Transition::To(target.clone())),
            Transition::Join(to) => Some(Transition::Join(self.new_node(to)?)),
            Transition::Dispatch(dispatch) => Some(Transition::Dispatch(Dispatch {
                node: self.new_node(&dispatch.node)?,
                ..dispatch.clone()
            })),
        };
        old.iter().filter_map(transition).collect()
    }

    fn messages(&self, messages: &[InboxMessage]) -> Vec<InboxMessage> {
        let all = self.position.people.pending_messages.iter().chain(messages);
        let named = all.filter_map(|sent| {
            let mut posted = sent.clone();
            posted.message.channel = self.new_field(&sent.message.channel)?;
            Some(posted)
        });
        named.collect()
    }

    /// Counts the usage of tasks whose records are dropped, and keeps their question keys, so that no old
    /// answer is used for a question that is asked again.
    fn leave_behind(&self, position: &mut Position, places: &BTreeMap<u32, TaskId>) {
        let is_left_behind = |record: &&TaskRecord| {
            !places.contains_key(&record.task.index) || self.restarts(&record.node)
        };
        let mut last: BTreeMap<TaskId, &TaskRecord> = BTreeMap::new();
        for record in self.records.iter().filter(is_left_behind) {
            if let Outcome::Asked { question } = &record.outcome {
                position.people.question_keys.insert(question.key.clone());
                // A key that equals the node name follows the rename of the node.
                let renamed =
                    self.new_node(&record.node).filter(|_| question.key == record.node.as_str());
                position.people.question_keys.extend(renamed.map(|it| it.to_string()));
            }
            last.insert(record.task, record);
        }
        for record in last.values() {
            position.used.usage.add(&record.usage);
            let node = self.new_node(&record.node).and_then(|it| self.graph.index(&it));
            if let Some(node) = node.filter(|it| is_counted_alone(self.graph, *it)) {
                let name = self.graph.name_at(node).clone();
                position.used.node_usage.entry(name).or_default().add(record.used());
            }
        }
        position.used.elapsed_ms += last.values().map(|it| it.ms).max().unwrap_or(0);
    }
}
