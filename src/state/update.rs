//! The writes of one task, and the changes that the writes of a step made.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use super::measure::size_of_saved;
use crate::id::{ChannelName, NameError};

/// What a task wants to change. Nobody sees it before the step is committed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Update {
    /// The channels to empty, or to put back to their defaults, before anything is written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clears: Vec<ChannelName>,
    /// The values to write, in order. They are shared with the state, since they may be large.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<(ChannelName, Arc<Value>)>,
}

/// A value is not a struct of channels.
#[derive(Debug, Error)]
pub enum NotFields {
    /// It is no struct.
    #[error("expected a struct of channels, got `{0}`")]
    Kind(Value),
    /// A field cannot be the name of a channel.
    #[error("a field cannot be a channel")]
    Name(#[from] NameError),
    /// It cannot be written as JSON.
    #[error("the struct cannot be written as JSON")]
    Json(#[from] serde_json::Error),
}

impl Update {
    /// A write for each field of a struct that is not null: a null field is one left alone.
    ///
    /// # Errors
    ///
    /// Fails when the value is no struct whose fields can be channels.
    pub fn of<W: Serialize>(fields: &W) -> Result<Self, NotFields> {
        let fields = match serde_json::to_value(fields)? {
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

    /// Adds a write of a value that others hold too.
    #[must_use]
    pub fn write_shared(mut self, channel: ChannelName, value: Arc<Value>) -> Self {
        self.writes.push((channel, value));
        self
    }

    /// What of it concerns some of the channels.
    #[must_use]
    pub fn limited_to(&self, includes: impl Fn(&ChannelName) -> bool) -> Self {
        Self {
            clears: self.clears.iter().filter(|it| includes(it)).cloned().collect(),
            writes: self.writes.iter().filter(|(it, _)| includes(it)).cloned().collect(),
        }
    }

    /// The size of its values.
    pub(crate) fn size(&self) -> u64 {
        self.writes.iter().map(|(_, value)| size_of_saved(value)).sum()
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
    Set(Arc<Value>),
    /// These items came after those it held.
    Appended(Vec<Value>),
    /// It holds nothing now.
    Cleared,
}
