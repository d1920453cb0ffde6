//! What the rules and whoever drives them say to each other.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::Value;
use thiserror::Error;

use super::hear::Heard;
use crate::{
    checkpoint::{Commit, Link, TaskRecord},
    event::{Spent, Status},
    graph::{Began, Command, Failure, Input, Question, Via},
    id::{NodeName, TaskId},
    state::{State, StateError},
};

/// What happened to a task.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Its node returned.
    Finished {
        /// The task.
        task: TaskId,
        /// What the node returned.
        command: Command,
        /// The attempt.
        attempt: Attempt,
    },
    /// Its node failed.
    Failed {
        /// The task.
        task: TaskId,
        /// Why.
        failure: Failure,
        /// The attempt.
        attempt: Attempt,
    },
    /// Its node was cut off, since a limit of the run is reached.
    CutOff {
        /// The task.
        task: TaskId,
        /// The attempt.
        attempt: Attempt,
    },
    /// Its node has the result of a part of its work, and goes on.
    Noted {
        /// The task.
        task: TaskId,
        /// What the part is called.
        name: String,
        /// Its result.
        value: Value,
        /// The attempt until then.
        attempt: Attempt,
    },
    /// Its node asked a person.
    Asked {
        /// The task.
        task: TaskId,
        /// The question.
        question: Question,
        /// The attempt.
        attempt: Attempt,
    },
    /// A person answered.
    Answered {
        /// The task.
        task: TaskId,
        /// The key that its node gave the question.
        key: String,
        /// The answer, checked against the question.
        answer: Value,
        /// Who gave it, if they said so.
        by: Option<String>,
        /// The link of the entry that asked, if there is one.
        asked: Option<Link>,
    },
    /// Nobody has answered its question in time.
    Expired {
        /// The task.
        task: TaskId,
    },
    /// The wait before the next attempt is over.
    Woke {
        /// The task.
        task: TaskId,
        /// When that was to be, which tells this wait from earlier ones.
        wake: Timestamp,
    },
}

/// One attempt at a task, and what it took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attempt {
    /// Which one it is, from one.
    pub number: u32,
    /// Milliseconds.
    pub ms: u64,
    /// What models took.
    pub spent: Spent,
    /// When it ended. The rules have no clock.
    pub ended: Timestamp,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Save what became of a task, durably, before anything that follows.
    Record(Box<TaskRecord>),
    /// Save a step, durably, before anything that follows.
    Commit(Box<Commit>),
    /// Tell what was said; the commit that follows takes it in.
    Hear(Vec<Heard>),
    /// Run a node.
    Run(Box<Task>),
    /// Wait, then say [`Event::Woke`].
    Sleep {
        /// The task.
        task: TaskId,
        /// Until when.
        wake: Timestamp,
        /// For how long at most, whatever has become of the clock.
        wait_ms: u64,
    },
    /// Stop: nothing can go on.
    Rest {
        /// Done, failed, paused or limit.
        status: Status,
        /// Why, if not done.
        reason: Option<String>,
    },
}

/// A node to run, and all that it sees.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The task.
    pub id: TaskId,
    /// The node.
    pub node: NodeName,
    /// What both were called when it began, if the run was carried over to another workflow since.
    pub began: Option<Began>,
    /// The attempt, from one.
    pub attempt: u32,
    /// What it works on.
    pub input: Input,
    /// By which way the run came to it.
    pub via: Via,
    /// How often each node has run since its count was last reset.
    pub visits: Arc<BTreeMap<NodeName, u32>>,
    /// The state at the start of the step.
    pub state: Arc<State>,
    /// The answers the task has been given.
    pub answers: BTreeMap<String, Value>,
    /// The results of parts of its work that it has noted down.
    pub memos: BTreeMap<String, Value>,
}

/// What was saved does not fit the graph.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RestoreError {
    /// A node that is to run is not there.
    #[error("node `{0}` is to run next, and the workflow has no such node")]
    Node(NodeName),
    /// A node has arrived where nothing waits for it.
    #[error("`{from}` has arrived at `{to}`, which does not wait for it")]
    Arrival {
        /// The node that finished.
        from: NodeName,
        /// The node that is to wait for it.
        to: NodeName,
    },
    /// A value does not fit the state.
    #[error("the saved state does not fit")]
    State(#[from] StateError),
    /// A record is of a task that is not in the step.
    #[error("the record of task {0} belongs to no task of the step")]
    Record(TaskId),
}

impl Event {
    /// The task it is about.
    pub fn task(&self) -> TaskId {
        match self {
            Self::Finished { task, .. }
            | Self::Failed { task, .. }
            | Self::CutOff { task, .. }
            | Self::Noted { task, .. }
            | Self::Asked { task, .. }
            | Self::Answered { task, .. }
            | Self::Expired { task }
            | Self::Woke { task, .. } => *task,
        }
    }
}
