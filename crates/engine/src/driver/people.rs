//! Input from people while a run is driven: expired questions and inbox messages.

use std::time::Duration;

use tokio::time::Instant;

use super::{Driver, Rest};
use crate::{RunError, superstep::Event};

impl Driver<'_> {
    /// Sets the alarm to the next deadline of a question.
    pub(super) fn set_alarm(&mut self) {
        let now = self.engine.clock.now();
        let left = self.machine.next_deadline().map(|it| it.duration_since(now));
        let left = left.map(|it| Duration::try_from(it).unwrap_or_default());
        self.alarm = left.and_then(|it| Instant::now().checked_add(it));
    }

    /// Fails the tasks whose questions have expired.
    pub(super) async fn expire(&mut self) -> Result<Option<Rest>, RunError> {
        // The alarm was set for the next deadline, by a clock that may differ from the engine's.
        let now = self.engine.clock.now();
        let now = self.machine.next_deadline().map_or(now, |it| it.max(now));
        let mut actions = Vec::new();
        for task in self.machine.expired(now) {
            actions.extend(self.machine.apply(Event::Expired { task }));
        }
        self.set_alarm();
        self.perform(actions).await
    }

    /// Reads the inbox when the step is about to end.
    pub(super) async fn listen(&mut self) -> Result<(), RunError> {
        if self.machine.is_at_last_task() && !self.machine.graph().graph().inbox.is_empty() {
            let storage = &self.engine.checkpointer;
            let messages = storage.inbox(&self.run, self.machine.last_message()).await?;
            self.machine.queue_messages(messages);
        }
        Ok(())
    }
}
