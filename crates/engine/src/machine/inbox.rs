//! The inbox messages of a run that are not processed yet.

use graphrun_core::{
    graph::{ErrorKind, Failure},
    state::{Change, Schema, State, StateError, Update},
};
use serde_json::Value;

use crate::checkpoint::{InboxMessage, Message};

/// The outcome of an inbox message.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessedMessage {
    /// The message.
    pub message: Message,
    /// The reason why it was dropped, if it does not fit the state.
    pub problem: Option<String>,
}

/// The waiting messages, in the order of their numbers.
#[derive(Clone, Debug)]
pub(super) struct Inbox {
    waiting: Vec<InboxMessage>,
    /// The number of the last message that waits or was processed.
    last: u64,
}

/// The waiting messages after they were applied to a state.
pub(super) struct InboxChanges {
    pub(super) messages: Vec<ProcessedMessage>,
    pub(super) changes: Vec<Change>,
}

impl Inbox {
    /// Creates an inbox whose messages up to this number were processed.
    pub(super) fn new(processed: u64, waiting: Vec<InboxMessage>) -> Self {
        let last = waiting.last().map_or(processed, |it| it.number.max(processed));
        Self { waiting, last }
    }

    /// Adds messages. Those that were added or processed before change nothing.
    pub(super) fn add(&mut self, messages: Vec<InboxMessage>) {
        let last = self.last;
        self.waiting.extend(messages.into_iter().filter(|it| it.number > last));
        self.last = self.waiting.last().map_or(last, |it| it.number.max(last));
    }

    /// Returns the number of the last message that waits or was processed.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Applies the waiting messages to a state, and empties the inbox.
    pub(super) fn process(&mut self, schema: &Schema, state: &mut State) -> InboxChanges {
        let mut updates = Vec::new();
        let mut messages = Vec::new();
        for InboxMessage { message, .. } in std::mem::take(&mut self.waiting) {
            let items = Value::Array(vec![message.value.clone()]);
            let update = Update::default().write(message.channel.clone(), items);
            let problem = try_apply(schema, state, &update).err().map(|it| reason(&it));
            if problem.is_none() {
                updates.push(update);
            }
            messages.push(ProcessedMessage { message, problem });
        }
        match schema.fold_changes(state, &updates) {
            Ok(changes) => InboxChanges { messages, changes },
            Err(error) => {
                // Each message fits, but all together do not; none is applied.
                let problem = reason(&error);
                for it in &mut messages {
                    it.problem = Some(problem.clone());
                }
                InboxChanges { messages, changes: Vec::new() }
            }
        }
    }
}

fn try_apply(schema: &Schema, state: &State, update: &Update) -> Result<(), StateError> {
    schema.check(update)?;
    schema.fold(&mut state.clone(), [update])
}

/// Returns why the state refuses a message.
fn reason(error: &StateError) -> String {
    Failure::of(ErrorKind::Other, error).message
}
