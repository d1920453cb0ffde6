//! What running tasks spend on models: once a limit is reached, no further call begins.
//!
//! A call that is under way ends, and what was answered is kept. Who is about to make another one
//! is cut off, and when nobody is at work any more, the run has reached its limit.

use std::collections::BTreeMap;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Driver;
use crate::{event::Spent, id::TaskId};

/// What is spent by the attempts that run.
#[derive(Debug, Default)]
pub(super) struct Purse {
    running: BTreeMap<TaskId, Running>,
    /// Whether somebody was refused.
    is_closed: bool,
}

#[derive(Debug)]
struct Running {
    spent: Spent,
    cut: CancellationToken,
}

impl Purse {
    /// An attempt begins, which this token cuts off.
    pub(super) fn began(&mut self, task: TaskId, cut: CancellationToken) {
        self.running.insert(task, Running { spent: Spent::default(), cut });
    }

    /// An attempt has ended: what it spent is known to the machine.
    pub(super) fn ended(&mut self, task: TaskId) {
        self.running.remove(&task);
    }

    /// A running attempt has spent something.
    pub(super) fn spend(&mut self, task: TaskId, spent: &Spent) {
        if let Some(running) = self.running.get_mut(&task) {
            running.spent.add(spent);
        }
    }

    /// Whether nobody is to begin.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// What was cut off is over, and so is its step: who comes next may ask again.
    pub(super) fn reopen(&mut self) {
        self.is_closed = false;
    }

    fn spent(&self) -> Spent {
        let mut spent = Spent::default();
        self.running.values().for_each(|it| spent.add(&it.spent));
        spent
    }
}

impl Driver<'_> {
    /// A task is about to call a model: it is told that it may, or cut off.
    pub(super) fn may_spend(&mut self, task: TaskId, may: oneshot::Sender<()>) {
        if self.machine.may_spend(&self.purse.spent()) {
            // One that was dropped meanwhile waits for nothing.
            _ = may.send(());
        } else if let Some(running) = self.purse.running.get(&task) {
            running.cut.cancel();
            self.purse.is_closed = true;
        }
    }

    /// Whether somebody was refused to spend more, and nobody is at work any more.
    pub(super) fn is_spent_up(&self) -> bool {
        self.purse.is_closed && self.queue.running() == 0
    }
}
