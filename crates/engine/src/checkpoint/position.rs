//! The position of a run between two steps.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use graphrun_core::{
    event::Usage,
    graph::{Input, Limits, OriginalTask, Trigger},
    id::{NodeName, Step, TaskId},
    state::{Change, RemovedMessages, State},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{InboxMessage, RunStatus};

/// The position of a run between two steps, without its state.
///
/// It contains the next tasks explicitly; nothing is inferred.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// The committed steps.
    pub step: Step,
    /// The tasks of the next step, in the order in which their updates are applied; empty at the
    /// end.
    pub frontier: Vec<Activation>,
    /// For each waiting join, the nodes that have arrived.
    pub joins: BTreeMap<NodeName, BTreeSet<NodeName>>,
    /// The rounds of joins that have run before all of their nodes arrived, while tasks of the round are left.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rounds: BTreeMap<NodeName, Round>,
    /// The deferred nodes that the run has reached, each with its trigger.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub deferred: BTreeMap<NodeName, Trigger>,
    /// When the next step began, if the graph needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began: Option<Timestamp>,
    /// How often each node has run since its count was last reset.
    pub visits: BTreeMap<NodeName, u32>,
    /// The last failure, in words, of each node with a bound whose failure was caught and that has not finished since.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub caught: BTreeMap<NodeName, String>,
    /// The tasks of the next step that may have begun under other names, before a migration or a step of messages, by their
    /// index in the frontier.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub original_tasks: BTreeMap<u32, OriginalTask>,
    /// Why the run will fail, if a route led to failure.
    pub failure: Option<String>,
    /// The part of the budget that the run has used, in its current turn.
    pub used: UsedBudget,
    /// The earlier turns, if the run is a thread.
    #[serde(default, skip_serializing_if = "EarlierTurns::is_empty")]
    pub earlier: EarlierTurns,
    /// The questions and messages that the run has exchanged with people.
    #[serde(default, skip_serializing_if = "Conversation::is_empty")]
    pub people: Conversation,
    /// The messages that were removed from lists of the state, as far as the ids of later ones depend on them.
    #[serde(default, skip_serializing_if = "RemovedMessages::is_empty")]
    pub removed_messages: RemovedMessages,
}

/// A round of a join that has run before all of its nodes arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound(serialize = "N: Serialize", deserialize = "N: Deserialize<'de> + Ord"))]
pub struct Round<N: Ord = NodeName> {
    /// The awaited nodes that had not arrived.
    pub missing: BTreeSet<N>,
    /// The nodes with tasks of the round, in the next step or waiting: those beside the join when it ran, and the nodes
    /// that only they led to.
    pub tasks: BTreeSet<N>,
}

impl<N: Ord> Round<N> {
    /// Returns whether an arrival of this node is late: it neither runs the join again nor counts for its next round.
    pub fn absorbs(&self, from: &N) -> bool {
        self.missing.contains(from) && self.tasks.contains(from)
    }
}

impl<N: Ord> Default for Round<N> {
    fn default() -> Self {
        Self { missing: BTreeSet::new(), tasks: BTreeSet::new() }
    }
}

/// The part of its budget that a run has used, and the limit that it has reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsedBudget {
    /// The usage of models so far.
    pub usage: Usage,
    /// The elapsed time of work so far.
    pub elapsed_ms: u64,
    /// The usage so far of each node that has limits, or whose usage the graph needs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_usage: BTreeMap<NodeName, TaskUsage>,
    /// The limit that was reached and routed, if there was one; a run routes a limit once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The limits at that time. They are exhausted: each has no effect until it is replaced by another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exhausted_limits: Option<ExhaustedLimits>,
}

impl UsedBudget {
    /// Exhausts the current limits, because one of them is reached and the run is routed to `limits.exhausted`. This
    /// happens once. A limit with another value, such as a higher one on resume, applies again.
    pub(crate) fn exhaust(&mut self, limits: &Limits, reason: String) {
        self.limit = Some(reason);
        self.exhausted_limits = Some(ExhaustedLimits::of(limits));
    }
}

/// The turns of a thread before its current one, summed. Limits and visit counts begin anew with each turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EarlierTurns {
    /// The number of turns.
    pub turns: u64,
    /// The committed steps, with the one that took in the input of the current turn.
    pub steps: u64,
    /// The usage of models.
    pub usage: Usage,
    /// The elapsed time of work.
    pub elapsed_ms: u64,
}

impl EarlierTurns {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Position {
    /// Returns the number of each task of the current step among the items of its map, from zero. It is the `index` that the
    /// node reads.
    pub fn item_numbers(&self) -> Vec<Option<u64>> {
        let mut counts: BTreeMap<&NodeName, u64> = BTreeMap::new();
        let numbers = self.frontier.iter().map(|it| {
            let next = it.is_dispatched().then(|| counts.entry(&it.node).or_default())?;
            Some(std::mem::replace(next, *next + 1))
        });
        numbers.collect()
    }

    /// Returns what the end of a turn keeps for the next one.
    pub(crate) fn for_next_turn(&self) -> Self {
        let Self { step, failure, used, earlier, people, removed_messages, .. } = self.clone();
        let used = UsedBudget { node_usage: BTreeMap::new(), ..used };
        Self { step, failure, used, earlier, people, removed_messages, ..Self::default() }
    }

    /// Returns the status of a run that no task continues; `None` if tasks are left.
    pub(crate) fn end_status(&self) -> Option<RunStatus> {
        let has_ended = self.frontier.is_empty();
        has_ended.then(|| RunStatus::at_end(self.failure.as_ref(), &self.used))
    }

    /// Returns the usage of models in all turns together.
    pub fn total_usage(&self) -> Usage {
        let mut usage = self.earlier.usage;
        usage.add(&self.used.usage);
        usage
    }

    /// Returns the id that a task of the next step had when it began, before a migration of the run or a step of messages.
    pub fn original_task(&self, task: TaskId) -> TaskId {
        self.original_tasks.get(&task.index).map_or(task, |it| it.task)
    }
}

/// The questions and messages that a run has exchanged with people.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// The keys of the questions of all steps so far. If a key is used again, the task
    /// distinguishes the questions.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub question_keys: BTreeSet<String>,
    /// What people have allowed for the rest of the run, by the names that the nodes gave it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub grants: BTreeSet<String>,
    /// The number of the last message taken in from the inbox.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub last_message: u64,
    /// The messages that were sent to the run but not taken in when it was migrated, with the new
    /// names of their channels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_messages: Vec<InboxMessage>,
}

impl Conversation {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The limits of a run that was routed because one of them was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExhaustedLimits {
    /// Super-steps.
    pub steps: u64,
    /// Calls of models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// Tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
    /// Milliseconds of work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
}

impl ExhaustedLimits {
    /// Returns the current limits, of which one is reached.
    pub(crate) fn of(limits: &Limits) -> Self {
        let ms = |it: Duration| u64::try_from(it.as_millis()).unwrap_or(u64::MAX);
        let Limits { steps, calls, tokens, usd, time, .. } = limits;
        Self { steps: *steps, calls: *calls, tokens: *tokens, usd: *usd, time_ms: time.map(ms) }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is that of serde")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The usage of a task, or of all tasks of a node together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskUsage {
    /// The usage of their models.
    pub usage: Usage,
    /// The elapsed time of their work.
    pub elapsed_ms: u64,
}

impl TaskUsage {
    /// Adds other usage.
    pub(crate) fn add(&mut self, other: Self) {
        self.usage.add(&other.usage);
        self.elapsed_ms = self.elapsed_ms.saturating_add(other.elapsed_ms);
    }
}

/// A task of the next step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activation {
    /// The node.
    pub node: NodeName,
    /// Its input.
    #[serde(default)]
    pub input: Input,
    /// Its trigger.
    pub trigger: Trigger,
    /// The longest duration of an attempt, if its dispatch has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl Activation {
    /// Returns the activation of a node by an edge: it works on the state.
    pub fn by_edge(node: NodeName, trigger: Trigger) -> Self {
        Self { node, input: Input::State, trigger, timeout_ms: None }
    }

    /// Returns whether the node was dispatched with its own input.
    pub fn is_dispatched(&self) -> bool {
        self.input != Input::State
    }
}

/// A checkpoint: a position with its state.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// The position of the run.
    pub position: Position,
    /// Its state.
    pub state: State,
}

impl Checkpoint {
    /// Returns its position and its state. The state has what the position notes about it.
    pub(crate) fn into_parts(self) -> (Position, State) {
        let Self { position, state } = self;
        let state = state.with_removed_messages(position.removed_messages.clone());
        (position, state)
    }
}

/// The effect of a step: the new position, and the changed part of the state.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// The new position.
    pub position: Position,
    /// The changes of the step.
    pub changes: Vec<Change>,
}
