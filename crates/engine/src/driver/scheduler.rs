//! Which tasks run, and how many at once: waiting tasks, running attempts, and the waits between attempts.
//!
//! A run ends its attempts in three ways:
//! - `drain`: no task starts; running attempts get a grace period, and their results count.
//! - `abort_all`: a limit is reached; each running attempt ends with `Aborted` and its usage.
//! - `discard_unfinished`: the run leaves this process; attempts that have finished still report, the others leave
//!   nothing.

mod futures;
mod queue;

use std::{ops::Deref, sync::Arc, task::Context, time::Duration};

use graphrun_analysis::NodeIndex;
use graphrun_core::{
    event::Usage,
    graph::{DriverLink, Failure},
    id::TaskId,
};
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

use self::{futures::EventFutures, queue::Queue};
use crate::{
    machine::{AttemptStats, Task, TaskEvent, Wait},
    spans::StepSpans,
    task::{AttemptContext, FirstPoll, NewAttempt},
};

/// Replaces a grace period that an `Instant` cannot represent.
const GRACE_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Starts the attempts of one run and collects their events.
#[derive(Debug)]
pub(super) struct Scheduler {
    queue: Queue,
    futures: EventFutures,
    /// The largest number of attempts that run at once.
    running_max: usize,
    /// The context of every attempt.
    context: AttemptContext,
    /// Aborts the attempts because a limit of the run is reached.
    abort: CancellationToken,
    /// Ends all supervision; unfinished attempts leave no result.
    discard: CancellationToken,
    /// When the grace period of running attempts ends, once a drain was requested. No task starts any more.
    grace_end: Option<Instant>,
    pub(super) spans: StepSpans,
}

/// A task that holds a slot of the run and of its node: it starts, is refused, or is dropped.
#[derive(Debug)]
#[must_use = "its slots stay in use"]
pub(super) struct AdmittedTask(Box<Task>);

impl Deref for AdmittedTask {
    type Target = Task;

    fn deref(&self) -> &Task {
        &self.0
    }
}

impl Scheduler {
    pub(super) fn new(running_max: usize, context: AttemptContext) -> Self {
        let queue = Queue::default();
        let futures = EventFutures::default();
        let discard = CancellationToken::new();
        Self {
            queue,
            futures,
            running_max: running_max.max(1),
            context,
            abort: discard.child_token(),
            discard,
            grace_end: None,
            spans: StepSpans::default(),
        }
    }

    /// Returns the link through which attempts reach the driver.
    pub(super) fn link(&self) -> &Arc<DriverLink> {
        &self.context.link
    }

    /// Adds a task that waits for a slot.
    pub(super) fn push(&mut self, task: Box<Task>) {
        if self.grace_end.is_none() {
            self.queue.push(task, &self.context.graph);
        }
    }

    /// Waits until the next attempt of a task; an aborted wait produces no event.
    pub(super) fn sleep(&mut self, task: TaskId, wait: Wait) {
        let left = wait.left(self.context.clock.now());
        let abort = self.abort.clone();
        self.futures.add(async move {
            let woke = abort.run_until_cancelled_owned(time::sleep(left)).await;
            woke.map(|()| TaskEvent::Woke { task, wake: wait.wake })
        });
    }

    /// Removes and returns the first task for which the run and the node have a free slot, and takes both slots.
    pub(super) fn next_task(&mut self) -> Option<AdmittedTask> {
        let has_slot = self.queue.used_slots() < self.running_max;
        let task = if has_slot { self.queue.next(&self.context.graph) } else { None };
        task.map(AdmittedTask)
    }

    /// Starts an attempt. Returns the token that aborts it, unless its event is available already.
    pub(super) fn start(
        &mut self,
        AdmittedTask(task): AdmittedTask,
        cx: &mut Context<'_>,
    ) -> Option<CancellationToken> {
        let span = self.spans.attempt(&self.context.graph, &task);
        let attempt =
            match NewAttempt::new(&self.context, task, span).poll_inline(&self.context, cx) {
                FirstPoll::Ended(event) => {
                    if let Some(event) = event {
                        self.futures.add_inline(event);
                    }
                    return None;
                }
                FirstPoll::Pending(attempt) => attempt,
            };
        let abort = self.abort.child_token();
        let (work, supervisor) =
            attempt.into_task(&self.context, abort.clone(), self.discard.clone());
        self.futures.start(work, supervisor);
        Some(abort)
    }

    /// Ends a task with a failure instead of an attempt.
    pub(super) fn refuse(&mut self, AdmittedTask(task): AdmittedTask, failure: Failure) {
        let number = task.attempt;
        let ended = self.context.clock.now();
        let attempt = AttemptStats { number, ms: 0, usage: Usage::default(), ended };
        self.futures.add_inline(TaskEvent::Failed { task: task.id, failure, attempt }.into());
    }

    /// Drops a task that does not start.
    pub(super) fn drop_task(&mut self, AdmittedTask(task): AdmittedTask) {
        self.free_slots(Some(task.node_index));
    }

    /// Frees the slots of an attempt of this node that has ended.
    pub(super) fn free_slots(&mut self, node: Option<NodeIndex>) {
        self.queue.free_slots(node);
    }

    /// Returns whether no attempt runs.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.used_slots() == 0
    }

    /// Returns the next event of a task, or `None` when no more will come.
    ///
    /// # Cancel safety
    ///
    /// Loses nothing.
    pub(super) async fn next_event(&mut self) -> Option<Box<TaskEvent>> {
        self.futures.next().await
    }

    /// Returns the event of an attempt that ended in its first poll, or that was refused.
    pub(super) fn take_inline_event(&mut self) -> Option<Box<TaskEvent>> {
        self.futures.take_inline_event()
    }

    /// Returns the next event, if it is available now.
    pub(super) fn try_next_event(&mut self) -> Option<Box<TaskEvent>> {
        self.futures.try_next()
    }

    /// Starts no further task, and gives the running attempts a grace period.
    pub(super) fn drain(&mut self, grace: Duration) {
        let now = Instant::now();
        self.grace_end = Some(now.checked_add(grace).unwrap_or(now + GRACE_MAX));
        self.queue.clear();
    }

    /// Returns when the grace period ends, once a drain was requested.
    pub(super) fn grace_end(&self) -> Option<Instant> {
        self.grace_end
    }

    /// Aborts the running attempts; each produces an event. Waiting tasks and waits produce none.
    pub(super) fn abort_all(&mut self) {
        self.queue.clear();
        self.abort.cancel();
    }

    /// Removes the waiting tasks.
    pub(super) fn clear_queue(&mut self) {
        self.queue.clear();
    }

    /// Makes the scheduler usable again after `abort_all`, when all attempts have ended.
    pub(super) fn reopen_after_abort(&mut self) {
        self.abort = self.discard.child_token();
    }

    /// Ends the running attempts without an event. Attempts that have finished still produce theirs.
    pub(super) fn discard_unfinished(&self) {
        self.discard.cancel();
    }

    /// Aborts the running attempts, discards their results, and waits until none runs.
    pub(super) async fn discard_all_and_wait(&mut self) {
        self.discard_unfinished();
        while self.next_event().await.is_some() {}
    }
}
