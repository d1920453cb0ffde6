//! What comes from people while a run is at work: lateness, and what they say.

use std::time::Duration;

use tokio::time::Instant;

use super::{Driver, Rest};
use crate::engine::{RunError, superstep::Event};

impl Driver<'_> {
    /// Sets the alarm for the next question whose time will be over.
    pub(super) fn set_alarm(&mut self) {
        let now = self.engine.clock.now();
        let left = self.machine.next_deadline().map(|it| it.duration_since(now));
        let left = left.map(|it| Duration::try_from(it).unwrap_or_default());
        self.alarm = left.and_then(|it| Instant::now().checked_add(it));
    }

    /// Takes in that nobody has answered in time.
    pub(super) async fn expire(&mut self) -> Result<Option<Rest>, RunError> {
        // The alarm was set for the next of them, by a clock that may differ from the one on the wall.
        let now = self.engine.clock.now();
        let now = self.machine.next_deadline().map_or(now, |it| it.max(now));
        let mut actions = Vec::new();
        for task in self.machine.expired(now) {
            actions.extend(self.machine.apply(Event::Expired { task }));
        }
        self.set_alarm();
        self.perform(actions).await
    }

    /// Looks what was said, when the step is about to be done.
    pub(super) async fn listen(&mut self) -> Result<(), RunError> {
        if self.machine.is_at_last_task() && !self.machine.graph().graph().inbox.is_empty() {
            let storage = &self.engine.checkpointer;
            let said = storage.inbox(&self.run, self.machine.heard()).await?;
            self.machine.hear(said);
        }
        Ok(())
    }
}
