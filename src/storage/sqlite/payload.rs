//! What is written into a row as JSON, with a checksum: SQLite does not notice a flipped bit in a
//! value.

use std::{error::Error, fmt};

use rusqlite::{Row, types::ValueRef};
use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;

use super::fault::Fault;
use crate::{
    checkpoint::CheckpointError,
    id::{Step, TaskId},
};

/// The place of a payload.
///
/// The checksum covers it, so that a row that damage made one of another run, step or channel is
/// found as well.
#[derive(Clone, Copy, Debug)]
pub(super) enum Slot<'a> {
    Info,
    Standing,
    Position(Step),
    Change { channel: &'a str, step: Step },
    Record(TaskId),
    Event(u64),
}

/// JSON and its checksum, ready to be written.
#[derive(Debug)]
pub(super) struct Payload {
    pub(super) json: String,
    pub(super) checksum: [u8; blake3::OUT_LEN],
}

#[derive(Debug, Error)]
enum Damage {
    #[error("its checksum does not fit")]
    Checksum,
    #[error("it is not of the form that was written")]
    Form(#[from] serde_json::Error),
}

impl Payload {
    pub(super) fn of<T: Serialize>(run: &str, slot: Slot<'_>, value: &T) -> Result<Self, Fault> {
        let json = serde_json::to_string(value).map_err(Fault::Unwritable)?;
        let checksum = slot.checksum(run, json.as_bytes());
        Ok(Self { json, checksum })
    }

    /// Reads a value out of two columns of a row, the JSON and its checksum.
    pub(super) fn read<T: DeserializeOwned>(
        run: &str,
        slot: Slot<'_>,
        row: &Row<'_>,
        columns: [&str; 2],
    ) -> Result<T, Fault> {
        let json = bytes(row.get_ref(columns[0])?);
        let found = if slot.checksum(run, json) == bytes(row.get_ref(columns[1])?) {
            serde_json::from_slice(json).map_err(Damage::Form)
        } else {
            Err(Damage::Checksum)
        };
        found.map_err(|damage| damaged(run, slot, damage.into()))
    }
}

impl Slot<'_> {
    /// The tags and their order are part of the format: to change them is to make a new version.
    fn checksum(self, run: &str, json: &[u8]) -> [u8; blake3::OUT_LEN] {
        let (tag, numbers, name) = match self {
            Self::Info => ("info", [0, 0], ""),
            Self::Standing => ("standing", [0, 0], ""),
            Self::Position(step) => ("position", [step.0, 0], ""),
            Self::Change { channel, step } => ("change", [step.0, 0], channel),
            Self::Record(task) => ("record", [task.step.0, u64::from(task.index)], ""),
            Self::Event(seq) => ("event", [seq, 0], ""),
        };
        let mut hasher = blake3::Hasher::new();
        for text in [tag, run, name] {
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        }
        for number in numbers {
            hasher.update(&number.to_le_bytes());
        }
        hasher.update(json).finalize().into()
    }
}

impl fmt::Display for Slot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Info => f.write_str("the description"),
            Self::Standing => f.write_str("the status"),
            Self::Position(step) => write!(f, "the position after step {step}"),
            Self::Change { channel, step } => write!(f, "the channel `{channel}` at step {step}"),
            Self::Record(task) => write!(f, "a record of task {task}"),
            Self::Event(seq) => write!(f, "event {seq}"),
        }
    }
}

/// The error for a part of a run that is not what was written.
pub(super) fn damaged(
    run: &str,
    what: impl fmt::Display,
    source: Box<dyn Error + Send + Sync>,
) -> Fault {
    let (run, what) = (run.to_owned(), what.to_string());
    Fault::Known(CheckpointError::Damaged { run, what, source })
}

/// The bytes of a text or a blob. Damage may have made it a number; no checksum fits that.
fn bytes(value: ValueRef<'_>) -> &[u8] {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => &[],
    }
}
