//! Waits between attempts, and the time limit of a run: running tasks are aborted when it ends, and finished
//! results are kept.

use std::time::Duration;

use graphrun_core::id::TaskId;
use jiff::Timestamp;
use tokio::time::{self, Instant};

use super::{Driver, Rest};
use crate::{RunError, superstep::Event};

impl Driver<'_> {
    /// Waits until the next attempt of a task; an aborted wait produces no event.
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

    /// Records when the time of the run ends for a task that is about to start. Returns whether it may start.
    pub(super) fn begins_in_time(&mut self, task: TaskId) -> bool {
        let Some(left) = self.machine.time_left(task) else { return true };
        if let Some(end) = Instant::now().checked_add(left) {
            self.ends.insert(task, end);
        }
        !left.is_zero()
    }

    /// Aborts the running tasks, and ends the step with the finished ones.
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
        self.model_budget.reopen();
        // A task that was about to start holds a slot of its node; no other task does.
        self.queue.give_back();
        let mut actions = Vec::new();
        // All open tasks may have finished at this moment.
        if self.machine.position().step == step && rest.is_none() {
            actions = self.machine.out_of_budget();
        }
        Ok(self.perform(actions).await?.or(rest))
    }
}

/// Returns the rest of a wait. A clock that was set back makes no wait longer.
fn rest_of(wait_ms: u64, now: Timestamp, wake: Timestamp) -> Duration {
    let left = Duration::try_from(wake.duration_since(now)).unwrap_or_default();
    left.min(Duration::from_millis(wait_ms))
}
