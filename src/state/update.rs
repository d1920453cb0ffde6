//! The writes of one task, and the changes that the writes of a step made.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::ChannelName;

/// What a task wants to change. Nobody sees it before the step is committed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Update {
    /// The channels to empty, before anything is written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clears: Vec<ChannelName>,
    /// The values to write, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<(ChannelName, Value)>,
}

impl Update {
    /// Adds a write.
    #[must_use]
    pub fn write(mut self, channel: ChannelName, value: impl Into<Value>) -> Self {
        self.writes.push((channel, value.into()));
        self
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.clears.is_empty() && self.writes.is_empty()
    }
}

/// What a committed step changed in one channel. This, and not the state, is what is saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The channel.
    pub channel: ChannelName,
    /// What became of it.
    pub kind: ChangeKind,
}

/// What became of a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It holds this value now.
    Set(Value),
    /// These items came after those it held.
    Appended(Vec<Value>),
    /// It holds nothing now.
    Cleared,
}
