//! Waits between attempts, and the end of the time of a run: what is at work is cut off then, and what has finished is
//! kept.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{self, Instant};

use super::{Driver, Rest};
use crate::{
    engine::{RunError, superstep::Event},
    id::TaskId,
};

impl Driver<'_> {
    /// The wait until a task is to be tried again; nothing comes of one that is cut off.
    pub(super) fn wait(
        &self,
        task: TaskId,
        wake: Timestamp,
        wait_ms: u64,
    ) -> impl Future<Output = Option<Event>> + Send + 'static {
        let rest = rest_of(wait_ms, self.engine.clock.now(), wake);
        let cut = self.cut.clone();
        async move {
            let woke = cut.run_until_cancelled_owned(time::sleep(rest)).await;
            woke.map(|()| Event::Woke { task, wake })
        }
    }

    /// Notes when the time of the run is over if nothing else ends a task that is to begin. Says
    /// whether it may begin.
    pub(super) fn begins_in_time(&mut self, task: TaskId) -> bool {
        let Some(left) = self.machine.time_left(task) else { return true };
        if let Some(end) = Instant::now().checked_add(left) {
            self.ends.insert(task, end);
        }
        !left.is_zero()
    }

    /// Cuts off what is at work, and ends the step with what had finished.
    pub(super) async fn run_out(&mut self) -> Result<Option<Rest>, RunError> {
        let step = self.machine.position().step;
        self.queue.clear();
        self.cut.cancel();
        let mut rest = None;
        while let Some(event) = self.tasks.next().await {
            rest = self.take(event).await?.or(rest);
        }
        self.cut = self.dropped.child_token();
        self.ends.clear();
        self.purse.reopen();
        // One that was to begin has a place of its node, and nobody else has.
        self.queue.give_back();
        let mut actions = Vec::new();
        // All that was open may have finished in this moment.
        if self.machine.position().step == step && rest.is_none() {
            actions = self.machine.out_of_budget();
        }
        Ok(self.perform(actions).await?.or(rest))
    }
}

/// What is left of a wait. A clock that was set back makes none longer.
fn rest_of(wait_ms: u64, now: Timestamp, wake: Timestamp) -> Duration {
    let left = Duration::try_from(wake.duration_since(now)).unwrap_or_default();
    left.min(Duration::from_millis(wait_ms))
}
