//! The budget of the running step: which attempts have time left, and which model calls may start.
//!
//! The limits themselves are rules. When one is reached, a model call in progress completes, and its result is
//! kept. A task that requests another call is aborted. When no task runs any more, the run has reached its limit.

use std::{collections::BTreeMap, time::Duration};

use graphrun_core::{event::Usage, id::TaskId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::superstep::Machine;

/// The usage and the time limits of the running attempts.
#[derive(Debug, Default)]
pub(super) struct BudgetGate {
    attempts: BTreeMap<TaskId, RunningAttempt>,
    /// When the time of the run ends, per running task; absent if the time is unlimited.
    time_ends: BTreeMap<TaskId, Instant>,
    /// The least usage of the model call that was refused in this step, if one was.
    refused_call: Option<Usage>,
}

#[derive(Debug)]
struct RunningAttempt {
    usage: Usage,
    abort: CancellationToken,
}

impl BudgetGate {
    /// Notes when the run's time ends for a task that starts now; `left` is its time, if that is limited.
    pub(super) fn start_clock(&mut self, task: TaskId, left: Option<Duration>) {
        if let Some(end) = left.and_then(|it| Instant::now().checked_add(it)) {
            self.time_ends.insert(task, end);
        }
    }

    /// Adds an attempt; the token aborts it.
    pub(super) fn add_attempt(&mut self, task: TaskId, abort: CancellationToken) {
        self.attempts.insert(task, RunningAttempt { usage: Usage::default(), abort });
    }

    /// Removes an attempt that ended: the machine counts its usage from now on.
    pub(super) fn remove_attempt(&mut self, task: TaskId) {
        self.attempts.remove(&task);
        self.time_ends.remove(&task);
    }

    /// Adds usage of a running attempt.
    pub(super) fn add_usage(&mut self, task: TaskId, usage: &Usage) {
        if let Some(attempt) = self.attempts.get_mut(&task) {
            attempt.usage.add(usage);
        }
    }

    /// Returns whether the run admits a model call of a task with at least this usage. If it does not, this aborts the
    /// task, and no further attempt may start.
    pub(super) fn admits_call(
        &mut self,
        task: TaskId,
        usage_min: Usage,
        machine: &Machine,
    ) -> bool {
        let mut usage = Usage::default();
        self.attempts.values().for_each(|it| usage.add(&it.usage));
        if machine.admits_call(&usage, usage_min) {
            return true;
        }
        if let Some(attempt) = self.attempts.get(&task) {
            attempt.abort.cancel();
            self.refused_call.get_or_insert(usage_min);
        }
        false
    }

    /// Returns whether a model call was refused, so that no attempt may start.
    pub(super) fn is_closed(&self) -> bool {
        self.refused_call.is_some()
    }

    /// Returns the least usage of the refused call; nothing, if none was refused.
    pub(super) fn refused_call(&self) -> Usage {
        self.refused_call.unwrap_or_default()
    }

    /// Returns when the time of the run ends, if it is limited.
    pub(super) fn time_end(&self) -> Option<Instant> {
        self.time_ends.values().min().copied()
    }

    /// Allows calls again after the step with the aborted attempts has ended.
    pub(super) fn reopen(&mut self) {
        self.refused_call = None;
    }

    /// Forgets the times of a step that was ended early, and allows calls again.
    pub(super) fn reset(&mut self) {
        self.time_ends.clear();
        self.reopen();
    }
}
