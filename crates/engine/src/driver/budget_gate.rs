//! The budget of the running step: which attempts have time left, and which model calls may start.
//!
//! The limits themselves are rules. A call that needs what calls in progress may still use waits for them. When a limit is
//! reached, a model call in progress completes, and its result is kept. A task that requests another call is aborted. When
//! no task runs any more, the run has reached its limit.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use graphrun_core::{event::Usage, graph::PlannedCall, id::TaskId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::machine::Machine;

/// The usage and the time limits of the running attempts.
#[derive(Debug, Default)]
pub(super) struct BudgetGate {
    attempts: BTreeMap<TaskId, RunningAttempt>,
    /// The calls that wait for calls in progress, with their tasks, oldest first.
    waiting: VecDeque<(TaskId, PlannedCall)>,
    /// When the time of the run ends, per running task; absent if the time is unlimited.
    time_ends: BTreeMap<TaskId, Instant>,
    /// The least usage of the model call that was refused in this step, if one was.
    refused_call: Option<Usage>,
}

#[derive(Debug)]
struct RunningAttempt {
    /// Its number, from one.
    number: u32,
    usage: Usage,
    /// The least usage of its call in progress. A call that fails reports none, so this holds until the attempt plans
    /// another call, or ends.
    planned: Usage,
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
    pub(super) fn add_attempt(&mut self, task: TaskId, number: u32, abort: CancellationToken) {
        let (usage, planned) = (Usage::default(), Usage::default());
        self.attempts.insert(task, RunningAttempt { number, usage, planned, abort });
    }

    /// Removes an attempt that ended: the machine counts its usage from now on.
    pub(super) fn remove_attempt(&mut self, task: TaskId) {
        self.attempts.remove(&task);
        self.time_ends.remove(&task);
        self.waiting.retain(|it| it.0 != task);
    }

    /// Adds usage of a running attempt, whose call has ended.
    pub(super) fn add_usage(&mut self, task: TaskId, usage: &Usage) {
        if let Some(attempt) = self.attempts.get_mut(&task) {
            attempt.usage.add(usage);
            attempt.planned = Usage::default();
        }
    }

    /// Adds a call that an attempt plans. That of an attempt which has ended is dropped: a task that an attempt has left
    /// behind may not spend the budget of the next one.
    pub(super) fn plan_call(&mut self, task: TaskId, number: u32, call: PlannedCall) {
        if let Some(attempt) = self.attempts.get_mut(&task).filter(|it| it.number == number) {
            attempt.planned = Usage::default();
            self.waiting.push_back((task, call));
        }
    }

    /// Returns the next planned call that the run admits. Its usage counts as used until the call has ended.
    ///
    /// A call that exceeds the limits gets no permit: this aborts its task, and no further attempt may start. A call
    /// that exceeds them only together with calls in progress waits, and those behind it wait, too.
    pub(super) fn next_admitted(&mut self, machine: &Machine) -> Option<PlannedCall> {
        while let Some((task, call)) = self.waiting.pop_front() {
            let (mut used, mut planned) = (Usage::default(), Usage::default());
            for attempt in self.attempts.values() {
                used.add(&attempt.usage);
                planned.add(&attempt.planned);
            }
            let Some(attempt) = self.attempts.get_mut(&task) else { continue };
            if !machine.admits_call(&used, call.usage_min) {
                attempt.abort.cancel();
                self.refused_call.get_or_insert(call.usage_min);
                continue;
            }
            used.add(&planned);
            if planned != Usage::default() && !machine.admits_call(&used, call.usage_min) {
                self.waiting.push_front((task, call));
                return None;
            }
            attempt.planned = call.usage_min;
            return Some(call);
        }
        None
    }

    /// Returns whether a planned call waits for calls in progress.
    pub(super) fn has_waiting_calls(&self) -> bool {
        !self.waiting.is_empty()
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

    /// Forgets the times and the calls of a step that was ended early, and allows calls again.
    pub(super) fn reset(&mut self) {
        self.time_ends.clear();
        self.waiting.clear();
        self.reopen();
    }
}
