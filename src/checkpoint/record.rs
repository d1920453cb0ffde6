//! What became of tasks.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Link;
use crate::{
    event::Spent,
    graph::{Failure, Hop, Question},
    id::{NodeName, TaskId},
    state::Update,
};

/// What became of a task, saved before its step is committed.
///
/// With these a resumed run does not repeat the tasks that had finished.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// The task.
    pub task: TaskId,
    /// Its node.
    pub node: NodeName,
    /// The attempt it is about.
    pub attempt: u32,
    /// The time it took, all attempts together.
    pub ms: u64,
    /// What its models took, all attempts together.
    pub spent: Spent,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It finished. This is final.
    Finished {
        /// What it writes.
        update: Update,
        /// Where it leads.
        hops: Vec<Hop>,
    },
    /// It failed, and a route caught the failure. This is final.
    Caught {
        /// Why it failed.
        failure: Failure,
        /// Where the route leads.
        hops: Vec<Hop>,
    },
    /// It was not to run, by its condition. This is final.
    Skipped {
        /// The condition that did not hold.
        condition: String,
        /// Where it leads.
        hops: Vec<Hop>,
    },
    /// It failed and nothing caught it; a resumed run tries it again.
    Failed {
        /// Why.
        failure: Failure,
    },
    /// An attempt failed, and another one follows.
    Retrying {
        /// Why.
        failure: Failure,
        /// How long the run waits before the next attempt.
        wait_ms: u64,
        /// When that wait is over, whichever process waits.
        wake: Timestamp,
    },
    /// An attempt was cut off, since a limit of the run was reached. That is no failure: whoever goes on
    /// begins the same attempt anew.
    CutOff,
    /// It has noted down the result of a part of its work, and goes on. The time and what models took
    /// are those until then.
    Noted {
        /// What the part is called.
        name: String,
        /// Its result.
        value: Value,
    },
    /// It waits for an answer.
    Asked {
        /// The question.
        question: Question,
    },
    /// It was given an answer and goes on.
    Answered {
        /// The key of the question.
        key: String,
        /// The answer.
        answer: Value,
        /// Who gave it, if they said so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// The link of the entry that asked, and so of all that the answer was given to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asked: Option<Link>,
    },
}

impl Outcome {
    /// Where it leads, once it is final.
    pub fn hops(&self) -> &[Hop] {
        match self {
            Self::Finished { hops, .. }
            | Self::Caught { hops, .. }
            | Self::Skipped { hops, .. } => hops,
            Self::Failed { .. }
            | Self::Retrying { .. }
            | Self::CutOff
            | Self::Noted { .. }
            | Self::Asked { .. }
            | Self::Answered { .. } => &[],
        }
    }

    /// Whether the task never runs again.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Finished { .. } | Self::Caught { .. } | Self::Skipped { .. } => true,
            Self::Failed { .. }
            | Self::Retrying { .. }
            | Self::CutOff
            | Self::Noted { .. }
            | Self::Asked { .. }
            | Self::Answered { .. } => false,
        }
    }
}
