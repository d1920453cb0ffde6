//! The budget of the running step: which attempts have time left, and which model calls may start.
//!
//! The limits themselves are rules. A call waits while running calls may still use the tokens it needs. When a limit is
//! reached, a model call in progress completes, and its result is kept. A task that requests another call is aborted. When
//! the last task has ended, the run has reached its limit.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Weak},
    time::Duration,
};

use graphrun_core::{
    event::Usage,
    graph::{DriverLink, PlannedCall},
    id::TaskId,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::machine::Machine;

/// The usage and the time limits of the running attempts.
#[derive(Debug, Default)]
pub(super) struct BudgetGate {
    /// Boxed, because one node of a `BTreeMap` has room for eleven values.
    attempts: BTreeMap<TaskId, Box<RunningAttempt>>,
    /// The calls that wait for calls in progress, with their tasks, oldest first.
    planned: VecDeque<(TaskId, PlannedCall)>,
    /// The least usage of each call in progress, as long as its permit is held.
    reserved: Vec<(Usage, Weak<()>)>,
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
        let attempt = RunningAttempt { number, usage: Usage::default(), abort };
        self.attempts.insert(task, Box::new(attempt));
    }

    /// Removes an attempt that ended: the machine counts its usage from now on.
    pub(super) fn remove_attempt(&mut self, task: TaskId) {
        self.attempts.remove(&task);
        self.time_ends.remove(&task);
        self.planned.retain(|it| it.0 != task);
    }

    /// Adds usage of a running attempt.
    pub(super) fn add_usage(&mut self, task: TaskId, usage: &Usage) {
        if let Some(attempt) = self.attempts.get_mut(&task) {
            attempt.usage.add(usage);
        }
    }

    /// Adds a planned call. A call of an earlier attempt is dropped: code that outlived its attempt may not use the budget
    /// of the next one.
    pub(super) fn add_planned_call(&mut self, task: TaskId, number: u32, call: PlannedCall) {
        if self.attempts.get(&task).is_none_or(|it| it.number != number) {
            return;
        }
        if call.is_permitted {
            // Those in front may wait for this one to end.
            self.planned.push_front((task, call));
        } else {
            self.planned.push_back((task, call));
        }
    }

    /// Drops the planned calls: the step ends.
    pub(super) fn refuse_planned_calls(&mut self) {
        self.planned.clear();
    }

    /// Ends the reservations of the calls whose permits are dropped.
    pub(super) fn end_reservations(&mut self) {
        self.reserved.retain(|(_, permit)| permit.strong_count() > 0);
    }

    /// Admits the next planned call that fits into the limits, and returns it. Its usage is reserved until its permit is
    /// dropped, which wakes this driver.
    ///
    /// A call that exceeds the limits gets no permit: this aborts its task, and no further attempt may start. A call
    /// that exceeds them only together with calls in progress waits, and those behind it wait, too. A call that has a permit
    /// already gets an answer at once.
    pub(super) fn admit_next_call(
        &mut self,
        machine: &Machine,
        link: &Arc<DriverLink>,
    ) -> Option<PlannedCall> {
        while let Some((task, mut call)) = self.planned.pop_front() {
            if call.is_dropped() {
                continue;
            }
            let mut used = Usage::default();
            self.attempts.values().for_each(|it| used.add(&it.usage));
            if !machine.admits_call(&used, call.usage_min) {
                if let Some(attempt) = self.attempts.get(&task) {
                    attempt.abort.cancel();
                    self.refused_call.get_or_insert(call.usage_min);
                }
                continue;
            }
            if call.is_permitted {
                return Some(call);
            }
            if !self.reserved.is_empty() {
                self.reserved.iter().for_each(|(usage, _)| used.add(usage));
                if !machine.admits_call(&used, call.usage_min) {
                    self.planned.push_front((task, call));
                    return None;
                }
            }
            let permit = call.admit(link);
            if call.usage_min != Usage::default() {
                self.reserved.push((call.usage_min, permit));
            }
            return Some(call);
        }
        None
    }

    /// Returns whether a planned call waits for calls in progress.
    pub(super) fn has_planned_calls(&self) -> bool {
        !self.planned.is_empty()
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
