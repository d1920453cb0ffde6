//! The time limit and the cost limits of a run, which do not wait for the end of a step.

use std::time::Duration;

use graphrun_core::{
    event::{Status, Usage},
    id::TaskId,
};

use super::{Action, Machine, Phase, budget, settle::record};
use crate::checkpoint::{Outcome, TaskRecord};

impl Machine {
    /// Returns how long a task of the step may still work before the run is out of time, if the time is
    /// limited.
    pub fn time_left(&self, task: TaskId) -> Option<Duration> {
        let total = self.index(task).map_or(0, |it| self.tasks[it].total.ms);
        let elapsed_ms = self.position.elapsed_ms.saturating_add(total);
        budget::time_left(&self.terms.limits, self.position.exhausted_limits, elapsed_ms)
    }

    /// Returns whether the run may spend more on models, given the usage of its running attempts.
    pub fn may_spend(&self, running: &Usage) -> bool {
        let mut usage = self.usage();
        usage.add(running);
        budget::out_of_budget(&self.terms.limits, self.position.exhausted_limits, &usage).is_none()
    }

    /// Ends the step early: running tasks were aborted, and a limit of the run is reached.
    ///
    /// The run stops as `limit`, or is routed to `limits.exhausted` with the finished results. If a task has
    /// failed for good, it stops as failed, as it would have done without the limit.
    pub fn out_of_budget(&mut self) -> Vec<Action> {
        if self.tasks.iter().any(|it| matches!(it.phase, Phase::Failed(_))) {
            return vec![self.rest_open()];
        }
        let goes_on = self.terms.limits.exhausted.is_some() && self.position.limit.is_none();
        if !goes_on {
            let reason =
                budget::reached(&self.terms.limits, self.position.exhausted_limits, &self.used());
            return vec![Action::Rest { status: Status::Limit, reason }];
        }
        let mut actions = Vec::new();
        for index in 0..self.tasks.len() {
            if self.tasks[index].record.is_none() {
                // The task waits for its turn, its next attempt or a person.
                actions.push(Action::Record(Box::new(self.cut_off(index))));
            }
        }
        actions.extend(self.commit());
        actions
    }

    /// Aborts a running task. The task counts as busy until the step is ended.
    pub(super) fn cut_off(&mut self, index: usize) -> TaskRecord {
        self.set_phase(index, Phase::Aborted);
        let (task, node) = (self.id(index), self.position.frontier[index].node.clone());
        let record = record(task, node, &self.tasks[index], Outcome::Aborted);
        self.tasks[index].record = Some(Box::new(record.clone()));
        record
    }
}
