//! Why a run could not be saved or loaded.

use std::error::Error;

use thiserror::Error;

use super::Holder;
use crate::{
    fault::Injected,
    id::{RunId, Step},
};

/// A run could not be saved or loaded. It rests where its last record is.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// There is no such run.
    #[error("there is no run `{0}`")]
    UnknownRun(String),
    /// The id or the name of a new run is the id or the name of another.
    #[error("there is a run `{0}` already")]
    Exists(String),
    /// There is no such step.
    #[error("run `{run}` has no step {step}")]
    UnknownStep {
        /// The run.
        run: RunId,
        /// The step.
        step: Step,
    },
    /// What was saved cannot be understood.
    #[error("{what} of run `{run}` is damaged")]
    Damaged {
        /// The run.
        run: String,
        /// What cannot be understood.
        what: String,
        /// Why.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The database is not one of ours, or of a newer format.
    #[error("{path} cannot be used: {reason}")]
    Unusable {
        /// The database.
        path: String,
        /// Why, and what to do.
        reason: String,
    },
    /// Another process goes on with the run.
    #[error("run `{run}` is in the hands of {}, until {} if nothing more is heard of it", holder.owner, holder.until.strftime("%FT%TZ"))]
    Owned {
        /// The run.
        run: RunId,
        /// Who has it.
        holder: Box<Holder>,
    },
    /// What comes before is not what this process saved: another one has gone on with the run.
    #[error("could not {action}")]
    Overtaken {
        /// What was tried, such as "save step 3".
        action: String,
        /// Where the two met.
        source: Box<dyn Error + Send + Sync>,
    },
    /// There is no room where it was to be saved. Once there is, the run goes on.
    #[error("could not {action}")]
    Full {
        /// What was tried, such as "save step 3".
        action: String,
        /// The failure.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The storage underneath failed.
    #[error("could not {action}")]
    Storage {
        /// What was tried, such as "save step 3".
        action: String,
        /// The failure.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl CheckpointError {
    /// The error of a point that a test told to fail.
    pub(crate) fn injected(source: Injected) -> Self {
        Self::Storage { action: "go on".to_owned(), source: source.into() }
    }
}
