//! What every storage does alike: which writes it refuses, and how changes become values.

use std::collections::BTreeMap;

use serde_json::Value;
use thiserror::Error;

use crate::{
    checkpoint::CheckpointError,
    id::{ChannelName, Step, TaskId},
    state::{Change, ChangeKind},
};

/// The shortest beginning of an id that stands for the whole; all runs of one second share more.
pub(super) const ID_PREFIX_LENGTH_MIN: usize = 6;

/// A write that no correct caller makes. It is refused rather than stored, because two processes
/// that work on one run look just like this.
#[derive(Debug, PartialEq, Eq, Error)]
pub(super) enum Refusal {
    #[error("step {next} comes next, and this is about step {given}")]
    OutOfTurn { next: Step, given: Step },
    #[error("task {0} has finished already")]
    FinishedTwice(TaskId),
    #[error("event {0} is saved already")]
    EventTwice(u64),
    #[error("one step changes the channel `{0}` twice")]
    ChangedTwice(ChannelName),
}

/// Items were appended to a value that is no list.
#[derive(Debug, Error)]
#[error("items were appended to `{0}`, which holds no list")]
pub(super) struct NoList(ChannelName);

impl Refusal {
    /// The error for the caller who tried `action`.
    pub(super) fn explain(self, action: String) -> CheckpointError {
        match self {
            Self::OutOfTurn { .. } | Self::FinishedTwice(_) | Self::EventTwice(_) => {
                CheckpointError::Overtaken { action, source: self.into() }
            }
            Self::ChangedTwice(_) => CheckpointError::Storage { action, source: self.into() },
        }
    }

    /// Checks that something belongs to the step that comes next.
    pub(super) fn unless_next(last: Step, given: Step) -> Result<(), Self> {
        let next = last.next();
        if given == next { Ok(()) } else { Err(Self::OutOfTurn { next, given }) }
    }
}

/// Makes a change to values. An empty list of items still makes a list where there was nothing.
pub(super) fn apply(
    values: &mut BTreeMap<ChannelName, Value>,
    change: Change,
) -> Result<(), NoList> {
    let Change { channel, kind } = change;
    match kind {
        ChangeKind::Set(value) => {
            values.insert(channel, value);
        }
        ChangeKind::Cleared => {
            values.remove(&channel);
        }
        ChangeKind::Appended(items) => {
            let list = values.entry(channel.clone()).or_insert_with(|| Value::Array(Vec::new()));
            list.as_array_mut().ok_or(NoList(channel))?.extend(items);
        }
    }
    Ok(())
}

/// The error for the beginning of an id that several runs share.
pub(super) fn ambiguous(prefix: &str, ids: &[String]) -> CheckpointError {
    CheckpointError::Storage {
        action: format!("tell which run `{prefix}` is"),
        source: format!("several ids begin like that: {}", ids.join(", ")).into(),
    }
}
