//! Errors of saving and loading runs.

use std::error::Error;

use graphrun_core::{
    event::Status,
    fault::InjectedFault,
    id::{RunId, Step},
};
use thiserror::Error;

use super::LeaseInfo;

/// A run could not be saved or loaded. It stops at its last record.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The run does not exist.
    #[error("there is no run `{0}`")]
    UnknownRun(String),
    /// Several runs have ids that begin with a text.
    #[error("the ids of several runs begin with `{prefix}`: {}", ids.join(", "))]
    AmbiguousRun {
        /// The text.
        prefix: String,
        /// The ids.
        ids: Vec<String>,
    },
    /// The id or the name of a new run is already in use. Choose another one.
    #[error("there is a run `{0}` already")]
    Exists(String),
    /// The step does not exist.
    #[error("run `{run}` has no step {step}")]
    UnknownStep {
        /// The run.
        run: RunId,
        /// The step.
        step: Step,
    },
    /// Saved data is invalid.
    #[error("{what} of run `{run}` is damaged")]
    Damaged {
        /// The run.
        run: String,
        /// The invalid part.
        what: String,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The database belongs to another program, or has a newer format.
    #[error("{path} cannot be used: {reason}")]
    Unusable {
        /// The database.
        path: String,
        /// The reason and a remedy.
        reason: String,
    },
    /// The run has ended, so it reads no more messages.
    #[error("run `{run}` is {} and accepts no messages", status.as_str())]
    Ended {
        /// The run.
        run: RunId,
        /// Its status.
        status: Status,
    },
    /// Another process owns the run.
    #[error("run `{run}` is owned by {lease}")]
    Owned {
        /// The run.
        run: RunId,
        /// The owner and its lease.
        lease: Box<LeaseInfo>,
    },
    /// The journal has entries that this process did not save: another process has continued the
    /// run.
    #[error("could not {action}")]
    Overtaken {
        /// The failed action, such as "save step 3".
        action: String,
        /// The conflict.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The disk is full. The run can continue once there is space.
    #[error("could not {action}")]
    Full {
        /// The failed action, such as "save step 3".
        action: String,
        /// The failure.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The underlying storage failed.
    #[error("could not {action}")]
    Storage {
        /// The failed action, such as "save step 3".
        action: String,
        /// The failure.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl CheckpointError {
    /// Returns the error of a failure point that a test has set.
    pub fn injected(source: InjectedFault) -> Self {
        Self::Storage { action: "continue the run".to_owned(), source: source.into() }
    }
}
