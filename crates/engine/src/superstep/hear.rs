//! Processes inbox messages: between two steps, as a separate step without tasks.

use std::sync::Arc;

use graphrun_core::{
    graph::{ErrorKind, Failure},
    state::{StateError, Update},
};
use serde_json::Value;

use super::{Action, Machine};
use crate::checkpoint::{Commit, InboxMessage, Message};

/// The outcome of an inbox message.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessedMessage {
    /// The message.
    pub message: Message,
    /// The reason why it was dropped, if it does not fit the state.
    pub problem: Option<String>,
}

impl Machine {
    /// Queues messages, to be processed when the current step is done. Messages that were queued or processed
    /// before change nothing.
    pub fn queue_messages(&mut self, messages: Vec<InboxMessage>) {
        let last = self.last_message();
        self.terms.messages.extend(messages.into_iter().filter(|it| it.number > last));
    }

    /// Returns the number of the last known message.
    pub fn last_message(&self) -> u64 {
        let last = self.terms.messages.last().map_or(0, |it| it.number);
        last.max(self.position.last_message)
    }

    /// Returns whether the step ends with the next finished task.
    pub fn is_at_last_task(&self) -> bool {
        self.open == 1
    }

    /// Processes the queued messages, if the frontier has a node that can read them.
    pub(super) fn take_in(&mut self) -> Vec<Action> {
        let Some(last) = self.terms.messages.last().map(|it| it.number) else { return Vec::new() };
        if self.position.frontier.is_empty() {
            return Vec::new();
        }
        let mut updates = Vec::new();
        let mut processed = Vec::new();
        for InboxMessage { message, .. } in std::mem::take(&mut self.terms.messages) {
            let items = Value::Array(vec![message.value.clone()]);
            let update = Update::default().write(message.channel.clone(), items);
            let problem = self.refuses(&update).err().map(|it| reason(&it));
            if problem.is_none() {
                updates.push(update);
            }
            processed.push(ProcessedMessage { message, problem });
        }
        let schema = self.graph.schema().clone();
        let state = std::mem::replace(&mut self.state, Arc::new(schema.empty()));
        let (state, changes) = match schema.apply(Arc::unwrap_or_clone(state), &updates) {
            Ok(taken) => taken,
            Err(refused) => {
                // Each message fits, but all together do not; none is applied.
                let problem = reason(&refused.error);
                for it in &mut processed {
                    it.problem = Some(problem.clone());
                }
                (refused.state, Vec::new())
            }
        };
        self.state = Arc::new(state);
        self.position.last_message = last.max(self.position.last_message);
        self.position.pending_messages.clear();
        self.position.step = self.position.step.next();
        let commit = Commit { position: self.position.clone(), changes };
        vec![Action::PublishMessages(processed), Action::Commit(Box::new(commit))]
    }

    fn refuses(&self, update: &Update) -> Result<(), StateError> {
        let schema = self.graph.schema();
        schema.check(update)?;
        let folded = schema.apply(self.state.as_ref().clone(), [update]);
        folded.map(drop).map_err(|refused| refused.error)
    }
}

/// Returns why the state refuses a message.
fn reason(error: &StateError) -> String {
    Failure::of(ErrorKind::Other, error).message
}
