//! A run in a list, and a saved run.

use std::{collections::BTreeMap, sync::Arc};

use graphrun_core::{
    event::Status,
    id::{ChannelName, RunId, Step},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CheckpointError, GraphOutline, LeaseInfo, Position, TaskRecord};

/// The properties of a run that are known from its start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The id.
    pub id: RunId,
    /// The name. No other run of the database has it as its name or id.
    pub name: String,
    /// The workflow it runs.
    pub workflow: String,
    /// The time when it was accepted, in RFC 3339.
    pub created: String,
    /// Data that the program needs to resume the run, such as paths.
    pub origin: Value,
    /// Whether it is a thread: its end takes a new turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_thread: bool,
    /// Its origin, if the run is a fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork_source: Option<ForkSource>,
    /// The outline of the graph that it was started with, to detect changes of its workflow. The
    /// engine sets it. A run without one is resumed with any workflow that fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Arc<GraphOutline>>,
    /// The trace context of the span of its first process, as `traceparent` of W3C Trace Context. The engine sets it, if it
    /// [can](crate::Engine::with_trace_context).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

/// The origin of a fork.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkSource {
    /// The original run.
    pub run: RunId,
    /// Its name.
    pub name: String,
    /// The step after which the fork begins.
    pub step: Step,
}

impl RunInfo {
    /// Makes a run that starts now, by the system clock. Its id sorts by time and is also its name.
    pub fn new(workflow: impl Into<String>) -> Self {
        let id = RunId::generate();
        Self {
            name: id.as_str().to_lowercase(),
            id,
            workflow: workflow.into(),
            created: jiff::Timestamp::now().to_string(),
            origin: Value::Null,
            is_thread: false,
            fork_source: None,
            trace: None,
            graph: None,
        }
    }
}

/// A run in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSummary {
    /// The properties known from its start.
    pub info: RunInfo,
    /// The run status.
    pub status: Status,
    /// The reason, if the run is not done or has reached a limit.
    pub reason: Option<String>,
    /// The committed steps.
    pub step: Step,
    /// The owner of the run, or its last known owner.
    pub lease: Option<LeaseInfo>,
    /// The time of the last event, in RFC 3339; empty if there is none.
    pub updated: String,
    /// The turns, if the run is a thread.
    pub turns: Option<Turns>,
}

/// The turns of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turns {
    /// The number of turns, with the last one.
    pub count: u64,
    /// Whether the last turn has ended, so that the thread takes a new one.
    pub has_ended: bool,
}

impl Turns {
    /// Returns the turns of a run at this position.
    pub(crate) fn at(position: &Position) -> Self {
        Self { count: position.earlier.turns + 1, has_ended: position.frontier.is_empty() }
    }

    /// Returns whether the first turn is open, as in a run that is at work.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self { count: 1, has_ended: false }
    }
}

/// A run in a list, or [`CheckpointError::Damaged`] with its id if the listed data is not the data that was
/// written.
pub type RunListItem = Result<RunSummary, CheckpointError>;

/// A checkpoint as it is saved: without a graph, so that its values are not checked against a schema.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedCheckpoint {
    /// The position of the run.
    pub position: Position,
    /// The values of its channels.
    pub values: BTreeMap<ChannelName, Value>,
}

/// A saved run.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedRun {
    /// The listed properties.
    pub summary: RunSummary,
    /// Its position.
    pub position: Position,
    /// The values of its channels.
    pub values: BTreeMap<ChannelName, Value>,
    /// The records of the step that has not committed yet, oldest first.
    pub records: Vec<TaskRecord>,
    /// The number of its last event.
    pub last_seq: u64,
    /// The number of its last entry.
    pub last_entry: u64,
    /// The number of entries that the storage has read for it.
    pub entries_read: u64,
}
