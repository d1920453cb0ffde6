//! The model usage of running tasks. Once a limit is reached, no further model call starts.
//!
//! A call that is in progress completes, and its result is kept. A task that requests another call is
//! aborted. When no task runs any more, the run has reached its limit.

use std::collections::BTreeMap;

use graphrun_core::{event::Usage, id::TaskId};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Driver;
/// The usage of the running attempts.
#[derive(Debug, Default)]
pub(super) struct ModelBudget {
    running: BTreeMap<TaskId, Running>,
    /// Whether a call was refused.
    is_closed: bool,
}

#[derive(Debug)]
struct Running {
    usage: Usage,
    cut: CancellationToken,
}

impl ModelBudget {
    /// Registers an attempt; the token aborts it.
    pub(super) fn began(&mut self, task: TaskId, cut: CancellationToken) {
        self.running.insert(task, Running { usage: Usage::default(), cut });
    }

    /// Removes an attempt that ended: the machine counts its usage from now on.
    pub(super) fn ended(&mut self, task: TaskId) {
        self.running.remove(&task);
    }

    /// Adds usage of a running attempt.
    pub(super) fn spend(&mut self, task: TaskId, usage: &Usage) {
        if let Some(running) = self.running.get_mut(&task) {
            running.usage.add(usage);
        }
    }

    /// Returns whether no attempt may start.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Allows calls again after the step with the aborted attempts has ended.
    pub(super) fn reopen(&mut self) {
        self.is_closed = false;
    }

    fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        self.running.values().for_each(|it| usage.add(&it.usage));
        usage
    }
}

impl Driver<'_> {
    /// Handles a request for a model call: permits it, or aborts the task.
    pub(super) fn may_spend(&mut self, task: TaskId, may: oneshot::Sender<()>) {
        if self.machine.may_spend(&self.model_budget.usage()) {
            // A task that was dropped meanwhile no longer waits.
            _ = may.send(());
        } else if let Some(running) = self.model_budget.running.get(&task) {
            running.cut.cancel();
            self.model_budget.is_closed = true;
        }
    }

    /// Returns whether a call was refused and no task runs any more.
    pub(super) fn is_spent_up(&self) -> bool {
        self.model_budget.is_closed && self.queue.running() == 0
    }
}
