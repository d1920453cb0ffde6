//! What people say to a run while others have it in their hands.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::CheckpointError;
use crate::{
    id::{ChannelName, RunId},
    redact::{redact_text, redact_value},
    state::measure,
};

/// Something that a person says to a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Tells it from others: posted again under the same one, it is there once.
    pub id: String,
    /// The channel it is appended to.
    pub channel: ChannelName,
    /// What is appended: one item.
    pub value: Value,
    /// Who says it, if they said so.
    pub by: Option<String>,
    /// When it was said, in RFC 3339.
    pub at: String,
}

impl Message {
    /// A message that is said now. Keys are removed from it: it is saved before a run takes it in.
    pub fn new(channel: ChannelName, mut value: Value, mut by: Option<String>) -> Self {
        redact_value(&mut value);
        by.as_mut().map(redact_text);
        let (id, at) = (ulid::Ulid::new().to_string(), jiff::Timestamp::now().to_string());
        Self { id, channel, value, by, at }
    }

    /// Checks that the run can keep it. Every storage does so before it takes a message.
    ///
    /// # Errors
    ///
    /// Fails when its value is larger or deeper than one value may be.
    pub fn check(&self, run: &RunId) -> Result<(), CheckpointError> {
        measure(&self.value).map(drop).map_err(|reached| CheckpointError::Storage {
            action: format!("post a message to `{}` of run `{run}`", self.channel),
            source: reached.into(),
        })
    }
}

/// A message in the inbox of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Posted {
    /// Its number: above those that were posted before. Numbers may have gaps.
    pub number: u64,
    /// What was said.
    pub message: Message,
}
