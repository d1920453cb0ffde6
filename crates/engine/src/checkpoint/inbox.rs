//! The inbox: messages from people to a run that a process owns.

use graphrun_core::{
    id::{ChannelName, RunId, unique_id},
    state::measure,
};
use graphrun_guard::redact::{redact_text, redact_value};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::CheckpointError;

/// A message from a person to a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The id of the message. A message that is sent twice with the same id is saved once.
    pub id: String,
    /// The channel to which its value is appended.
    pub channel: ChannelName,
    /// The value: one item.
    pub value: Value,
    /// The name of the sender, if given.
    pub by: Option<String>,
    /// The time of sending, in RFC 3339.
    pub at: String,
}

impl Message {
    /// Makes a message that is sent now, by the system clock: the sender needs no engine. Keys are removed here, because the message is saved before a run
    /// processes it.
    pub fn new(channel: ChannelName, mut value: Value, mut by: Option<String>) -> Self {
        redact_value(&mut value);
        by.as_mut().map(redact_text);
        let id = unique_id();
        let at = jiff::Timestamp::now().to_string();
        Self { id, channel, value, by, at }
    }

    /// Checks that the run can keep it. Every storage does so before it accepts a message.
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
pub struct InboxMessage {
    /// Its number, higher than those of all earlier messages. Numbers may have gaps.
    pub number: u64,
    /// The message.
    pub message: Message,
}
