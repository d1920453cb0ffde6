//! The events and actions that the rules and their driver exchange.

use std::{sync::Arc, time::Duration};

use graphrun_analysis::NodeIndex;
use graphrun_core::{
    event::{Status, Usage},
    graph::{
        Command, Failure, Input, OriginalTask, Question, RunFacts, SavedValues, Timer, Trigger,
        Visits,
    },
    id::{NodeName, Step, TaskId},
    state::{State, StateError},
};
use jiff::Timestamp;
use serde_json::Value;
use thiserror::Error;

use super::{Machine, backoff::Wait, inbox::ProcessedMessage};
use crate::checkpoint::{
    Checkpoint, Commit, EntryHash, InboxMessage, RunStatus, TaskRecord, TaskUsage,
};

/// A run at its first step, or at the first step of a turn.
#[derive(Clone, Debug)]
pub struct FirstStep {
    /// The machine of the run.
    pub machine: Machine,
    /// The commit that accepts the run or the turn. Nothing starts before it is durable.
    pub commit: Commit,
    /// The first actions.
    pub actions: Vec<Action>,
}

/// An event of a task.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskEvent {
    /// Its node returned.
    Finished {
        /// The task.
        task: TaskId,
        /// The result of the node.
        command: Command,
        /// The attempt.
        attempt: AttemptStats,
    },
    /// Its node failed.
    Failed {
        /// The task.
        task: TaskId,
        /// The reason.
        failure: Failure,
        /// The attempt.
        attempt: AttemptStats,
    },
    /// Its node was aborted because a limit of the run is reached.
    Aborted {
        /// The task.
        task: TaskId,
        /// The attempt.
        attempt: AttemptStats,
    },
    /// Its node has saved the result of a part of its work, and continues.
    MemoSaved {
        /// The task.
        task: TaskId,
        /// The name of the part.
        name: String,
        /// Its result.
        value: Value,
        /// The attempt until then.
        attempt: AttemptStats,
    },
    /// Its node asked a person.
    Asked {
        /// The task.
        task: TaskId,
        /// The question.
        question: Question,
        /// The attempt.
        attempt: AttemptStats,
    },
    /// Its node waits for a time.
    TimerSet {
        /// The task.
        task: TaskId,
        /// The wait.
        timer: Timer,
        /// The attempt.
        attempt: AttemptStats,
    },
    /// A person answered.
    Answered {
        /// The task.
        task: TaskId,
        /// The key that its node gave the question.
        key: String,
        /// The answer, checked against the question.
        answer: Value,
        /// The person who gave it, if known.
        by: Option<String>,
        /// The hash of the entry with the question, if there is one.
        question_hash: Option<EntryHash>,
    },
    /// The deadline of its question has passed.
    Expired {
        /// The task.
        task: TaskId,
    },
    /// Its wait, for the next attempt or for a time, is over.
    Woke {
        /// The task.
        task: TaskId,
        /// When the wait was due to end, which distinguishes it from earlier waits.
        wake: Timestamp,
    },
}

/// The number, the duration and the usage of one attempt at a task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttemptStats {
    /// Its number, from one.
    pub number: u32,
    /// Its duration in milliseconds.
    pub ms: u64,
    /// Its model usage.
    pub usage: Usage,
    /// When it ended; for a memo, when it was saved. The rules have no clock.
    pub ended: Timestamp,
}

impl AttemptStats {
    pub(super) fn used(&self) -> TaskUsage {
        TaskUsage { usage: self.usage, elapsed_ms: self.ms }
    }
}

/// An action for the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Save the record of a task. Nothing that follows is started or published before it is durable.
    Record(Arc<TaskRecord>),
    /// Save a step. Nothing that follows is started or published before it is durable.
    Commit(Box<Commit>),
    /// End a step of a run without storage. A summary is needed only if another step follows in the same actions, because
    /// the driver otherwise reads the number and the next nodes from the machine, once an event has a reader.
    EndStep(Option<Box<StepSummary>>),
    /// Publish that the run has reached a node, as the event that its author declared (`emits`).
    Emit {
        /// The task of the node.
        task: TaskId,
        /// The node.
        node: NodeName,
        /// The node that led there; none at the start.
        from: Option<NodeName>,
        /// The name of the event: a verb in the past tense.
        name: String,
    },
    /// Publish inbox messages; the commit that follows applies them.
    PublishMessages(Vec<ProcessedMessage>),
    /// Run a node.
    Run(Box<Task>),
    /// Wait, then deliver [`TaskEvent::Woke`].
    Sleep {
        /// The task.
        task: TaskId,
        /// The wait.
        wait: Wait,
    },
    /// Stop the run, as done, failed, paused or limit.
    Stop(RunStatus),
}

/// The end of a step that another step follows in the same actions, because its nodes are skipped.
#[derive(Clone, Debug, PartialEq)]
pub struct StepSummary {
    /// The number of the step.
    pub step: Step,
    /// The nodes of the step that followed, in task order.
    pub next: Vec<NodeName>,
}

/// A node to run, with everything it can read.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The task.
    pub id: TaskId,
    /// The node.
    pub node: NodeName,
    /// The index of the node in its graph.
    pub node_index: NodeIndex,
    /// The original names of both, if a migration or messages have renamed them since the task may have begun.
    pub original: Option<OriginalTask>,
    /// The attempt, from one. A failure begins another one; a crash, an answer and the end of a wait do not.
    pub attempt: u32,
    /// Its input.
    pub input: Input,
    /// The trigger of the task.
    pub trigger: Trigger,
    /// The longest duration of an attempt, if its dispatch has one; otherwise that of the node applies.
    pub timeout: Option<Duration>,
    /// The facts of the run at the start of the step.
    pub facts: Arc<RunFacts>,
    /// How often each node has run since its count was last reset.
    pub visits: Arc<Visits>,
    /// The state at the start of the step.
    pub state: Arc<State>,
    /// The answers to its questions.
    pub answers: SavedValues,
    /// Its memos: the saved results of parts of its work.
    pub memos: SavedValues,
    /// The latest known time; it is not before the end of a wait that the task continues after.
    pub began: Timestamp,
}

impl Task {
    /// Returns the visit of its node, from one.
    pub(crate) fn visit(&self) -> u32 {
        self.visits.at(self.node_index.index()).unwrap_or(1)
    }
}

/// A saved run: its last commit, and the records and messages of the step after it.
#[derive(Clone, Debug)]
pub struct SavedStep {
    /// The last commit.
    pub checkpoint: Checkpoint,
    /// The records of the step after it, oldest first.
    pub records: Vec<TaskRecord>,
    /// The inbox messages that are not processed yet, in the order of their numbers.
    pub messages: Vec<InboxMessage>,
    /// The only node whose failed tasks run again; without it, those of all nodes.
    pub retry_only: Option<NodeName>,
}

impl SavedStep {
    /// A step without messages, in which all failed tasks run again.
    pub fn new(checkpoint: Checkpoint, records: Vec<TaskRecord>) -> Self {
        Self { checkpoint, records, messages: Vec::new(), retry_only: None }
    }
}

impl From<Checkpoint> for SavedStep {
    fn from(checkpoint: Checkpoint) -> Self {
        Self::new(checkpoint, Vec::new())
    }
}

/// The saved run does not fit the graph.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RestoreError {
    /// A node of the frontier does not exist.
    #[error("node `{0}` runs next, but the workflow has no such node")]
    Node(NodeName),
    /// A node has arrived at a node that does not wait for it.
    #[error("`{from}` has arrived at `{to}`, which does not wait for it")]
    Arrival {
        /// The node that finished.
        from: NodeName,
        /// The node at which it arrived.
        to: NodeName,
    },
    /// A value does not fit the state.
    #[error("the saved state does not fit")]
    State(#[from] StateError),
    /// A record belongs to a task that is not in the step.
    #[error("the record of task {0} belongs to no task of the step")]
    Record(TaskId),
}

impl Action {
    pub(super) fn stop(status: Status, reason: Option<String>) -> Self {
        Self::Stop(RunStatus { status, reason })
    }
}

impl From<TaskRecord> for Action {
    fn from(record: TaskRecord) -> Self {
        Self::Record(Arc::new(record))
    }
}

impl From<Arc<TaskRecord>> for Action {
    fn from(record: Arc<TaskRecord>) -> Self {
        Self::Record(record)
    }
}

impl TaskEvent {
    /// Returns the attempt that it is from.
    pub(crate) fn attempt(&self) -> Option<&AttemptStats> {
        match self {
            Self::Finished { attempt, .. }
            | Self::Failed { attempt, .. }
            | Self::Aborted { attempt, .. }
            | Self::MemoSaved { attempt, .. }
            | Self::Asked { attempt, .. }
            | Self::TimerSet { attempt, .. } => Some(attempt),
            Self::Answered { .. } | Self::Expired { .. } | Self::Woke { .. } => None,
        }
    }

    /// Returns its time, if it has one.
    pub(super) fn time(&self) -> Option<Timestamp> {
        match self {
            Self::Woke { wake, .. } => Some(*wake),
            _ => self.attempt().map(|it| it.ended),
        }
    }

    /// The task it is about.
    pub fn task(&self) -> TaskId {
        match self {
            Self::Finished { task, .. }
            | Self::Failed { task, .. }
            | Self::Aborted { task, .. }
            | Self::MemoSaved { task, .. }
            | Self::Asked { task, .. }
            | Self::TimerSet { task, .. }
            | Self::Answered { task, .. }
            | Self::Expired { task }
            | Self::Woke { task, .. } => *task,
        }
    }
}
