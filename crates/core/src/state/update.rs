//! The writes of one task, and the changes that the writes of a step made.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use super::{fields::fields_of_struct, measure::size_of_saved, to_json};
use crate::id::{ChannelName, NameError};

/// The writes of a task. Other tasks see them only after the step is committed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Update {
    /// The channels to clear, or to reset to their defaults, before the writes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clears: Vec<ChannelName>,
    /// The values to write, in order. They are shared with the state, since they may be large.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<(ChannelName, Arc<Value>)>,
}

/// A value is not a struct of channels.
#[derive(Debug, Error)]
pub enum NotFields {
    /// The value is not a struct.
    #[error("expected a struct of channels, got `{0}`")]
    Kind(Value),
    /// A field name cannot be a channel name.
    #[error("a field cannot be a channel")]
    Name(#[from] NameError),
    /// The value cannot be serialised as JSON.
    #[error("the struct cannot be written as JSON")]
    Json(#[from] serde_json::Error),
}

impl Update {
    /// Makes a write for each field of a struct that is not null; a null field is not written.
    ///
    /// # Errors
    ///
    /// Fails when the value is not a struct whose fields can be channels, and for a number that JSON does not have: NaN
    /// or infinity.
    pub fn of<W: Serialize>(fields: &W) -> Result<Self, NotFields> {
        if let Some(writes) = fields_of_struct(fields) {
            return Ok(Self { clears: Vec::new(), writes });
        }
        let fields = match to_json(fields)? {
            Value::Object(fields) => fields,
            Value::Null => return Ok(Self::default()),
            other => return Err(NotFields::Kind(other)),
        };
        let mut update = Self::default();
        for (name, value) in fields {
            if !value.is_null() {
                update = update.write(ChannelName::parse(&name)?, value);
            }
        }
        Ok(update)
    }

    /// Adds a write.
    #[must_use]
    pub fn write(self, channel: ChannelName, value: impl Into<Value>) -> Self {
        self.write_shared(channel, Arc::new(value.into()))
    }

    /// Adds a write of a shared value.
    #[must_use]
    pub fn write_shared(mut self, channel: ChannelName, value: Arc<Value>) -> Self {
        self.writes.push((channel, value));
        self
    }

    /// Returns the part of the update for some of the channels.
    #[must_use]
    pub fn limited_to(&self, includes: impl Fn(&ChannelName) -> bool) -> Self {
        Self {
            clears: self.clears.iter().filter(|it| includes(it)).cloned().collect(),
            writes: self.writes.iter().filter(|(it, _)| includes(it)).cloned().collect(),
        }
    }

    /// Returns the size of its values.
    pub fn size(&self) -> u64 {
        self.writes.iter().map(|(_, value)| size_of_saved(value)).sum()
    }

    /// Returns whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.clears.is_empty() && self.writes.is_empty()
    }
}

/// The change of one channel in a committed step. Storages save changes, not whole states.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The channel.
    pub channel: ChannelName,
    /// The kind of change.
    pub kind: ChangeKind,
}

/// The kind of change of a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// The channel has this value now.
    Set(Arc<Value>),
    /// These items were appended.
    Appended(Vec<Value>),
    /// The channel is empty now.
    Cleared,
}
