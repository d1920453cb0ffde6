//! A run in a list, and as it was saved.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CheckpointError, Holder, Outline, Position, TaskRecord};
use crate::{
    event::Status,
    id::{ChannelName, RunId, Step},
};

/// What is known of a run from its beginning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The identity.
    pub id: RunId,
    /// The name people call it by. No other run of its database has it as its name or its id.
    pub name: String,
    /// The workflow it runs.
    pub workflow: String,
    /// When it was accepted, in RFC 3339.
    pub created: String,
    /// Whatever the program that started it needs to resume it, such as paths.
    pub origin: Value,
    /// The run it was made of, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked: Option<ForkedFrom>,
    /// The graph it was started with, so that a change of its workflow is noticed. The engine
    /// writes it; a run without one goes on with whatever fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Box<Outline>>,
}

/// Where a run was made of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkedFrom {
    /// The other run.
    pub run: RunId,
    /// Its name.
    pub name: String,
    /// The step after which it was.
    pub step: Step,
}

impl RunInfo {
    /// A run that begins now, under an id that sorts by time and serves as its name.
    pub fn new(workflow: impl Into<String>) -> Self {
        let id = ulid::Ulid::new().to_string();
        Self {
            id: RunId::parse(&id).expect("a ULID is made of letters and digits"),
            name: id.to_lowercase(),
            workflow: workflow.into(),
            created: jiff::Timestamp::now().to_string(),
            origin: Value::Null,
            forked: None,
            graph: None,
        }
    }
}

/// A run in a list.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSummary {
    /// What is known from its beginning.
    pub info: RunInfo,
    /// How it stands.
    pub status: Status,
    /// Why, if it is not done.
    pub reason: Option<String>,
    /// The committed steps.
    pub step: Step,
    /// Who goes on with it, or did when it was last heard of.
    pub holder: Option<Holder>,
}

/// A run in a list, or [`CheckpointError::Damaged`] with its id if what a list shows of it is not
/// what was written.
pub type Listed = Result<RunSummary, CheckpointError>;

/// A run as it was saved.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedRun {
    /// What a list shows of it.
    pub summary: RunSummary,
    /// Where it stands.
    pub position: Position,
    /// The values of its channels.
    pub values: BTreeMap<ChannelName, Value>,
    /// The records of the step that is not committed yet, oldest first.
    pub records: Vec<TaskRecord>,
    /// The number of its last event.
    pub last_seq: u64,
}
