//! Errors of starting, resuming and changing a run.

use graphrun_core::{
    event::Status,
    graph::with_causes,
    id::{ChannelName, NameError, NodeName, RunId},
    state::{NotFields, StateError, ViewError},
    words::quoted_list,
};
use thiserror::Error;

use super::{ClosedReason, Difference, Remedy, ReviseError, machine, retry::nothing_failed};
use crate::checkpoint::CheckpointError;

/// A run could not be started, resumed or saved.
///
/// The text includes the cause, except for those that have a [`source`](std::error::Error::source).
#[derive(Debug, Error)]
pub enum RunError {
    /// The input does not fit the state.
    #[error("the input does not fit the state: {}", with_causes(.0))]
    Input(StateError),
    /// The input lacks fields that the graph declares as its input.
    #[error("the input lacks {}", quoted_list(missing))]
    MissingInput {
        /// The fields.
        missing: Vec<ChannelName>,
    },
    /// The input does not serialise as a struct of channels.
    #[error("the input is not a struct of channels: {}", with_causes(.0))]
    Fields(NotFields),
    /// The checkpoint at which a run should start does not fit the graph.
    #[error("the checkpoint does not fit the graph: {}", with_causes(.0))]
    UnfitCheckpoint(machine::RestoreError),
    /// The saved run no longer fits the graph.
    #[error(
        "run `{run}` was saved by a workflow that differs from this one: {}",
        with_causes(reason)
    )]
    Changed {
        /// The run.
        run: RunId,
        /// What differs.
        reason: machine::RestoreError,
    },
    /// The run cannot have this name.
    #[error("the run cannot have this name: {}", with_causes(.0))]
    Name(NameError),
    /// A turn names a run that is no thread. It was not changed.
    #[error("`{name}` is a run and no thread, so it takes no turns")]
    NotThread {
        /// The name.
        name: String,
    },
    /// The workflow changed in a way that breaks the run at its current position. The run was not changed.
    #[error(
        "the workflow of run `{run}` has changed since the start, and the run cannot continue \
         with it"
    )]
    Broken {
        /// The run.
        run: RunId,
        /// Every difference; those that break the run come first.
        differences: Vec<Difference>,
        /// The arguments that a [migration](super::Engine::migrate) needs, as far as they can be guessed.
        remedies: Vec<Remedy>,
        /// The first difference that breaks the run.
        #[source]
        first: Option<Box<Difference>>,
    },
    /// Parts of the run have no counterpart in the target workflow of the migration. The run was not changed.
    #[error("parts of run `{run}` have no counterpart in the workflow")]
    NoCounterpart {
        /// The run.
        run: RunId,
        /// Each of these parts, and every other change.
        differences: Vec<Difference>,
        /// The first of these parts.
        #[source]
        first: Option<Box<Difference>>,
    },
    /// An answer does not fit its question; the question stays open.
    #[error("the answer to `{name}` does not fit: {}", problems.join("; "))]
    WrongAnswer {
        /// The name of the question.
        name: String,
        /// Every place where it does not fit.
        problems: Vec<String>,
    },
    /// An answer names a question that is not open.
    #[error("no open question has the name `{name}`{}", list_open(open))]
    UnknownQuestion {
        /// The name.
        name: String,
        /// The names of the open questions.
        open: Vec<String>,
    },
    /// An answer names a question that no longer accepts one. The run was not changed.
    #[error("the question `{name}` no longer accepts an answer: {closed}")]
    Closed {
        /// The name of the question.
        name: String,
        /// The reason.
        closed: ClosedReason,
    },
    /// The run cannot be changed in this way.
    #[error(transparent)]
    Revise(#[from] ReviseError),
    /// The run has already ended.
    #[error("the run is {} already", .0.as_str())]
    AlreadyEnded(Status),
    /// The run did not fail, so there is nothing to retry. A run that is not done can be resumed.
    #[error("the run is {}, and only failed runs can be retried", .0.as_str())]
    NotFailed(Status),
    /// The run has no failed task that could be retried.
    #[error("{}", nothing_failed(node.as_ref(), failed))]
    NothingFailed {
        /// The node to retry, if only one was requested.
        node: Option<NodeName>,
        /// The nodes that failed.
        failed: Vec<NodeName>,
    },
    /// The last turn of the thread has not ended. Resume or retry it first; nothing was changed.
    #[error("the last turn of `{thread}` is {}, so a new one cannot begin", status.as_str())]
    TurnOpen {
        /// The thread.
        thread: String,
        /// The status of its run.
        status: Status,
    },
    /// A queued turn was stopped from outside before it could begin. The thread was not changed.
    #[error("the turn of `{thread}` was stopped in the queue, before it began")]
    NotBegun {
        /// The thread.
        thread: String,
    },
    /// The run stopped before it was done.
    #[error("run `{run}` is {}{}", status.as_str(), reason.as_ref().map(|it| format!(": {it}")).unwrap_or_default())]
    NotDone {
        /// The run.
        run: RunId,
        /// The status.
        status: Status,
        /// The reason.
        reason: Option<String>,
    },
    /// The state at the end does not have the form of the output.
    #[error("the state at the end has another form than the output: {}", with_causes(.0))]
    Output(ViewError),
    /// The Tokio runtime ended before the run stopped. The run can be resumed.
    #[error("the runtime ended before run `{run}` stopped; the run can be resumed")]
    Dropped {
        /// The run.
        run: RunId,
    },
    /// The run could not be saved or loaded.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

impl RunError {
    /// Returns the error for a run that cannot continue with these differences.
    pub(super) fn broken(run: RunId, differences: Vec<Difference>, remedies: Vec<Remedy>) -> Self {
        let first = Difference::first_break(&differences);
        Self::Broken { run, differences, remedies, first }
    }

    /// Returns the error for a saved run that does not fit the current graph.
    pub(super) fn changed(run: &RunId, reason: machine::RestoreError) -> Self {
        Self::Changed { run: run.clone(), reason }
    }

    /// Returns the error for a run that these differences break.
    pub(super) fn no_counterpart(run: RunId, differences: Vec<Difference>) -> Self {
        let first = Difference::first_break(&differences);
        Self::NoCounterpart { run, differences, first }
    }
}

fn list_open(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; open are {}", quoted_list(names)) }
}
