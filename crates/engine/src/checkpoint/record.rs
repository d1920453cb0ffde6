//! Records of tasks.

use graphrun_core::{
    event::Usage,
    graph::{Failure, Question, Transition},
    id::{NodeName, TaskId},
    state::Update,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::EntryHash;
/// The result of a task, saved before its step commits.
///
/// With the records, a resumed run does not repeat finished tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// The task.
    pub task: TaskId,
    /// Its node.
    pub node: NodeName,
    /// The attempt.
    pub attempt: u32,
    /// The elapsed time of all attempts together.
    pub ms: u64,
    /// The usage of models in all attempts together.
    pub usage: Usage,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome of a task or an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It finished. This is final.
    Finished {
        /// The update.
        update: Update,
        /// The transitions.
        transitions: Vec<Transition>,
    },
    /// It failed, and a route caught the failure. This is final.
    Caught {
        /// The failure.
        failure: Failure,
        /// The transitions of the route.
        transitions: Vec<Transition>,
    },
    /// Its condition was false, so it did not run. This is final.
    Skipped {
        /// The condition.
        condition: String,
        /// The transitions.
        transitions: Vec<Transition>,
    },
    /// It failed and no route caught the failure. The next process that continues the run tries it
    /// again.
    Failed {
        /// The failure.
        failure: Failure,
    },
    /// An attempt failed, and another one follows.
    Retrying {
        /// The failure.
        failure: Failure,
        /// The delay before the next attempt.
        wait_ms: u64,
        /// The time when the delay ends, in any process.
        wake: Timestamp,
    },
    /// An attempt was aborted because a limit of the run was reached. This is not a failure: the
    /// same attempt starts again when the run continues.
    Aborted,
    /// It saved the result of a part of its work and continues. Elapsed time and usage are those up
    /// to this point.
    MemoSaved {
        /// The name of the part.
        name: String,
        /// Its result.
        value: Value,
    },
    /// It waits for an answer.
    Asked {
        /// The question.
        question: Question,
    },
    /// It received an answer and continues.
    Answered {
        /// The key of the question.
        key: String,
        /// The answer.
        answer: Value,
        /// The name of the sender, if given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// The hash of the entry that asked; it identifies the history that the answer is for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        question_hash: Option<EntryHash>,
    },
}

impl Outcome {
    /// Returns the update of a finished task.
    pub fn update(&self) -> Option<&Update> {
        let Self::Finished { update, .. } = self else { return None };
        Some(update)
    }

    /// Returns the transitions of a final outcome.
    pub fn transitions(&self) -> &[Transition] {
        match self {
            Self::Finished { transitions, .. }
            | Self::Caught { transitions, .. }
            | Self::Skipped { transitions, .. } => transitions,
            Self::Failed { .. }
            | Self::Retrying { .. }
            | Self::Aborted
            | Self::MemoSaved { .. }
            | Self::Asked { .. }
            | Self::Answered { .. } => &[],
        }
    }

    /// Returns whether the task never runs again.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Finished { .. } | Self::Caught { .. } | Self::Skipped { .. } => true,
            Self::Failed { .. }
            | Self::Retrying { .. }
            | Self::Aborted
            | Self::MemoSaved { .. }
            | Self::Asked { .. }
            | Self::Answered { .. } => false,
        }
    }
}
