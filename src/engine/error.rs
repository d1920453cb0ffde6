//! Why a run could not be started or gone on with.

use thiserror::Error;

use super::{Closed, Difference, Remedy, ReviseError, retry::nothing_failed, superstep};
use crate::{
    checkpoint::CheckpointError,
    event::Status,
    id::{NodeName, RunId},
    state::{NotFields, StateError},
};

/// A run could not be started or resumed, or not be saved.
#[derive(Debug, Error)]
pub enum RunError {
    /// The input does not fit the state.
    #[error("the input does not fit the state")]
    Input(#[source] StateError),
    /// The input is no struct of channels.
    #[error("the input is no struct of channels")]
    Fields(#[source] NotFields),
    /// What was saved does not fit the graph any more.
    #[error("run `{run}` was saved by a workflow that differs from this one")]
    Changed {
        /// The run.
        run: RunId,
        /// What differs.
        #[source]
        source: superstep::RestoreError,
    },
    /// The workflow has changed in a way that breaks the run as it stands. Nothing was done.
    #[error(
        "the workflow of run `{run}` has changed since it was started, and the run cannot go on with it"
    )]
    Broken {
        /// The run.
        run: RunId,
        /// Every difference; those that break the run come first.
        differences: Vec<Difference>,
        /// What a [migration](super::Engine::migrate) would have to be told, as far as that can be guessed.
        remedies: Vec<Remedy>,
    },
    /// The run has parts without a counterpart in the workflow that it is to be carried over to.
    /// Nothing was done.
    #[error("run `{run}` has parts that the workflow has no place for")]
    NoPlace {
        /// The run.
        run: RunId,
        /// Each of them, and everything else that has changed.
        differences: Vec<Difference>,
    },
    /// An answer does not fit its question; the question stays open.
    #[error("the answer to `{key}` does not fit: {}", problems.join("; "))]
    WrongAnswer {
        /// The question.
        key: String,
        /// Every place where it does not fit.
        problems: Vec<String>,
    },
    /// An answer is for a question that is not open.
    #[error("no open question has the key `{key}`")]
    UnknownQuestion {
        /// The key.
        key: String,
        /// The keys of the open questions.
        open: Vec<String>,
    },
    /// An answer is for a question that takes none any more; nothing was changed.
    #[error("the question `{name}` takes no answer any more: {closed}")]
    Closed {
        /// The name of the question.
        name: String,
        /// Why.
        closed: Closed,
    },
    /// The run cannot be changed in this way.
    #[error(transparent)]
    Revise(#[from] ReviseError),
    /// The run has reached its end already.
    #[error("the run is {} already", .0.as_str())]
    NothingToDo(Status),
    /// The run did not fail, so that there is nothing to try again.
    #[error("the run is {}, and only what failed is tried again", .0.as_str())]
    NotFailed(Status),
    /// No task of the run failed that could be tried again.
    #[error("{}", nothing_failed(node.as_ref(), failed))]
    NothingFailed {
        /// The node that was to be tried again, if only one was.
        node: Option<NodeName>,
        /// The nodes that failed.
        failed: Vec<NodeName>,
    },
    /// The run could not be saved or loaded.
    #[error("the run could not be saved or loaded")]
    Checkpoint(#[from] CheckpointError),
}
