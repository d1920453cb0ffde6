//! The loop of a run: it performs the actions of the rules and feeds the results back as events.
//!
//! The driver decides nothing. [`Machine`] has the rules; the scheduler runs tasks, the budget gate admits them and
//! their model calls, and the journal writer saves entries.

mod budget_gate;
mod scheduler;
mod yielding;

use std::{
    future::{pending, poll_fn},
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use graphrun_core::{
    event::{Event, Report, Status},
    fault::{self, Point},
    graph::{AttemptMessage, DriverLink, GRANT_MEMO, Memo, MessageContent},
    id::TaskId,
};
use graphrun_guard::redact::REDACTED;
use tokio::{
    sync::{Notify, mpsc},
    task::coop,
    time::{Instant, sleep_until},
};

use self::{budget_gate::BudgetGate, scheduler::Scheduler};
use super::{
    Engine, RunEnd, RunError, ShutdownHandle,
    journal_writer::JournalWriter,
    log::event_of_emission,
    machine::{Action, AttemptStats, Machine, TaskEvent},
    nested,
    redaction::{redact_event, redact_report},
    spans,
    task::AttemptContext,
};
use crate::checkpoint::{CheckpointError, Outcome, RunStatus};

/// The number of node messages that may wait for the driver before nodes have to wait.
const MESSAGES_CAPACITY: usize = 256;

/// The largest number of simultaneously finished tasks that one entry saves.
const EVENTS_PER_ENTRY_MAX: usize = 64;

/// Drives one run in this process.
pub(super) struct Driver<'a> {
    engine: &'a Engine,
    shutdown: &'a ShutdownHandle,
    machine: Machine,
    scheduler: Scheduler,
    budget: BudgetGate,
    journal: JournalWriter,
    messages: mpsc::Receiver<Box<AttemptMessage>>,
    /// The deadline of the next open question.
    question_deadline: Option<Instant>,
    /// The status with which the run stops, once it does. Until it is saved, finished tasks may still report.
    stop: Option<RunStatus>,
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        // Code of a node may still have its context, and with it the readers.
        if let Some(deltas) = &self.scheduler.link().deltas {
            deltas.close();
        }
    }
}

/// Every input that can wake the driver.
enum Signal {
    /// An event of a task.
    Task(Box<TaskEvent>),
    /// A message from a node.
    Message(Box<AttemptMessage>),
    /// A call of a model has ended. Others may wait for it, here or in an outer run.
    CallEnded,
    /// A drain was requested.
    Drain,
    /// A stop without a grace period was requested, or the grace period of running tasks is over.
    Abort,
    /// The deadline of an open question has passed.
    QuestionExpired,
    /// The time of the run is over.
    OutOfTime,
    /// It is no longer certain that this process owns the run.
    LeaseLost,
}

impl<'a> Driver<'a> {
    /// Drives a run that is saved and whose first events are published.
    pub(super) fn new(
        engine: &'a Engine,
        machine: Machine,
        journal: JournalWriter,
        shutdown: &'a ShutdownHandle,
    ) -> Self {
        let (sender, messages) = mpsc::channel(MESSAGES_CAPACITY);
        let context = AttemptContext {
            run: machine.run().clone(),
            graph: machine.graph().clone(),
            link: Arc::new(DriverLink {
                messages: sender,
                cancel: shutdown.abort.clone(),
                deltas: journal.delta_reader(),
                call_ended: Notify::new(),
                ended_calls: Mutex::default(),
                outer: engine.outer.as_ref().map(|it| it.reporter.clone()),
            }),
            clock: engine.clock.clone(),
            provided: nested::provided(engine, &journal, shutdown),
        };
        let mut driver = Self {
            engine,
            shutdown,
            machine,
            scheduler: Scheduler::new(engine.limits.concurrency, context),
            budget: BudgetGate::default(),
            journal,
            messages,
            question_deadline: None,
            stop: None,
        };
        driver.set_question_deadline();
        driver
    }

    /// Performs the actions of the rules until the run stops.
    pub(super) async fn drive(&mut self, first: Vec<Action>) -> Result<RunEnd, RunError> {
        self.journal.stream_values(&self.machine, self.machine.committed_step());
        let end = match self.run_until_stop(first).await {
            Ok(status) => self.finish(status).await,
            Err(error) => Err(error),
        };
        if end.is_err() {
            // Before the lease ends: another process may start the same tasks then.
            self.scheduler.discard_all_and_wait().await;
        }
        if let Err(RunError::Checkpoint(CheckpointError::Full { .. })) = &end {
            let reason = Some("the disk is full".to_owned());
            let status = RunStatus { status: Status::Interrupted, reason };
            let event = run_finished(&self.machine, &status);
            self.journal.save_on_full_disk(status, event).await;
        }
        end
    }

    /// Performs actions until the run stops. Returns the status with which it stops.
    async fn run_until_stop(&mut self, first: Vec<Action>) -> Result<RunStatus, RunError> {
        Box::pin(self.perform(first)).await?;
        loop {
            if let Some(status) = self.stop.take() {
                return Ok(status);
            }
            self.start_tasks().await;
            if self.budget.is_closed() && self.scheduler.is_idle() {
                Box::pin(self.end_step_early()).await?;
            } else if self.must_suspend() {
                self.stop = Some(self.machine.open_status());
            } else if let Some(event) = self.take_inline_event() {
                self.handle_task_events(event).await?;
            } else {
                let signal = self.next_signal().await;
                self.handle_signal(signal).await?;
            }
        }
    }

    /// Returns the event of a task that ended in its first poll, unless the run has to stop.
    fn take_inline_event(&mut self) -> Option<Box<TaskEvent>> {
        let is_due = |it: Instant| it <= Instant::now();
        let must_stop = self.shutdown.drain.is_cancelled()
            || self.journal.is_lease_lost()
            || self.budget.time_end().is_some_and(is_due);
        if must_stop { None } else { self.scheduler.take_inline_event() }
    }

    /// Returns whether the [next wait](Machine::next_wait) is longer than `wait_max`. Waits are saved.
    fn must_suspend(&self) -> bool {
        let wait_max = self.engine.wait_max.filter(|_| self.scheduler.is_idle());
        wait_max.is_some_and(|max| {
            let next = self.machine.next_wait();
            next.is_some_and(|it| it.left(self.engine.clock.now()) > max)
        })
    }

    async fn next_signal(&mut self) -> Signal {
        let grace_end = self.scheduler.grace_end();
        let time_end = self.budget.time_end();
        let question_deadline = self.question_deadline;
        let awaits_calls = self.budget.has_planned_calls() || self.engine.outer.is_some();
        let link = Arc::clone(self.scheduler.link());
        yielding::yield_if_pending(async {
            tokio::select! {
                biased;
                () = self.journal.lease_lost() => Signal::LeaseLost,
                () = self.shutdown.abort.cancelled() => Signal::Abort,
                () = self.shutdown.drain.cancelled(), if grace_end.is_none() => Signal::Drain,
                () = until(grace_end) => Signal::Abort,
                () = until(time_end) => Signal::OutOfTime,
                () = until(question_deadline) => Signal::QuestionExpired,
                Some(message) = self.messages.recv() => Signal::Message(message),
                () = link.call_ended.notified(), if awaits_calls => Signal::CallEnded,
                Some(event) = self.scheduler.next_event() => Signal::Task(event),
            }
        })
        .await
    }

    async fn handle_signal(&mut self, signal: Signal) -> Result<(), RunError> {
        // The futures of rare signals are boxed to keep this one small.
        match signal {
            Signal::Task(event) => self.handle_task_events(event).await,
            Signal::Message(message) => {
                Box::pin(self.handle_message(*message)).await?;
                self.admit_calls().await?;
                Ok(self.journal.save().await?)
            }
            Signal::CallEnded => Box::pin(self.end_calls()).await,
            Signal::Drain => {
                fault::hit(Point::ShutdownDrain).map_err(CheckpointError::injected)?;
                self.scheduler.drain(self.engine.grace);
                self.stop_if_drained();
                Ok(())
            }
            Signal::Abort => Box::pin(self.abort_run()).await,
            Signal::QuestionExpired => Box::pin(self.expire_questions()).await,
            Signal::OutOfTime => Box::pin(self.end_step_early()).await,
            Signal::LeaseLost => {
                // The results of the running tasks can no longer be saved.
                Box::pin(self.scheduler.discard_all_and_wait()).await;
                let action = format!("continue run `{}`", self.machine.run());
                let source = "its lease has expired, and another process may own it now".into();
                Err(CheckpointError::Overtaken { action, source }.into())
            }
        }
    }

    /// Starts waiting tasks while slots, time and model budget are left.
    async fn start_tasks(&mut self) {
        // The token is asked here, because `select!` may report the stop only after more tasks have started.
        while !self.shutdown.drain.is_cancelled() && !self.budget.is_closed() {
            let Some(task) = self.scheduler.next_task() else { break };
            if !self.journal.confirm_lease().await {
                // The next signal ends the run.
                self.scheduler.drop_task(task);
                break;
            }
            let id = task.id;
            let number = task.attempt;
            if let Some(failure) = self.machine.node_limit_failure(id) {
                self.scheduler.refuse(task, failure);
                coop::consume_budget().await;
                continue;
            }
            let time_left = self.machine.time_left(id);
            if time_left == Some(Duration::ZERO) {
                // The end of the run's time is now, so `end_step_early` follows.
                self.scheduler.drop_task(task);
                self.budget.start_clock(id, time_left);
                break;
            }
            let graph = self.machine.graph();
            let started = || Event::TaskStarted {
                task: task.id,
                node: task.node.clone(),
                attempt: task.attempt,
                visit: task.visit(),
                max_visits: graph.policies_at(task.node_index).bounds.max_visits_in(&task.state),
            };
            self.journal.publish_early(started).await;
            // After that: a task does not use the time in which a reader of events keeps the driver waiting.
            self.budget.start_clock(id, time_left);
            let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
            let abort = self.scheduler.start(task, &mut Context::from_waker(&waker));
            match abort {
                Some(abort) => self.budget.add_attempt(id, number, abort),
                // Many nodes that are ready at once must not keep other futures of this thread from running.
                None => coop::consume_budget().await,
            }
        }
    }

    /// Applies the event of a task, and those of tasks that ended meanwhile, and saves all in one entry.
    async fn handle_task_events(&mut self, first: Box<TaskEvent>) -> Result<(), RunError> {
        self.apply_event(first).await?;
        for _ in 1..EVENTS_PER_ENTRY_MAX {
            let Some(event) = self.scheduler.try_next_event() else { break };
            self.apply_event(event).await?;
        }
        self.save_unless_stopped().await
    }

    /// Applies all events of tasks until none runs.
    async fn apply_remaining_events(&mut self) -> Result<(), RunError> {
        while let Some(event) = self.scheduler.next_event().await {
            self.apply_event(event).await?;
        }
        Ok(())
    }

    async fn apply_event(&mut self, mut event: Box<TaskEvent>) -> Result<(), RunError> {
        let redacted = redact_event(&mut event);
        // Messages that a node sent before it ended are processed before its end.
        while let Ok(message) = self.messages.try_recv() {
            Box::pin(self.handle_message(*message)).await?;
        }
        for channel in redacted {
            let message = format!("a key in `{channel}` was removed; `{REDACTED}` stands for it");
            self.publish_report(event.task(), Report::Warning { message }).await;
        }
        // The event ends an attempt, unless it is the end of a wait.
        if event.attempt().is_some() {
            self.budget.remove_attempt(event.task());
            self.scheduler.free_slots(self.machine.node_index_of(event.task()));
        }
        if self.must_read_inbox() {
            Box::pin(self.read_inbox()).await?;
        }
        let actions = self.machine.apply(*event);
        self.stage(actions).await?;
        self.admit_calls().await
    }

    /// Stages actions and saves their entry.
    async fn perform(&mut self, actions: Vec<Action>) -> Result<(), RunError> {
        self.stage(actions).await?;
        self.save_unless_stopped().await
    }

    /// Saves the pending entry, unless the run stops: its final status belongs to the same entry.
    async fn save_unless_stopped(&mut self) -> Result<(), RunError> {
        if self.stop.is_none() {
            self.journal.save().await?;
            self.stop_if_drained();
        }
        Ok(())
    }

    /// Stages actions: results into the next entry, tasks into the queue. Nothing starts here; `start_tasks` runs after
    /// the entry is saved.
    async fn stage(&mut self, actions: Vec<Action>) -> Result<(), RunError> {
        for action in actions {
            match action {
                Action::Record(record) => {
                    self.scheduler.spans.note(&record);
                    if matches!(record.outcome, Outcome::Asked { .. }) {
                        self.set_question_deadline();
                    }
                    self.journal.add_record(record).await?;
                }
                Action::Commit(commit) => {
                    let values = self.journal.wants_values().then(|| self.machine.state().clone());
                    self.journal.add_commit(*commit, values).await?;
                    self.budget.reopen();
                }
                Action::EndStep(summary) => {
                    self.journal.end_step(&self.machine, summary.map(|it| *it));
                    self.budget.reopen();
                }
                Action::Emit { task, node, from, name } => {
                    let emitted = || event_of_emission(task, node, from, name);
                    Box::pin(self.journal.emit(emitted)).await;
                }
                Action::PublishMessages(messages) => {
                    Box::pin(self.journal.add_messages(&messages)).await?;
                }
                Action::Run(mut task) => {
                    if let Some(outer) = &self.engine.outer {
                        outer.add_grants(&mut task.memos);
                    }
                    self.scheduler.push(task);
                }
                Action::Sleep { task, wait } => self.scheduler.sleep(task, wait),
                Action::Stop(status) => self.stop = Some(status),
            }
        }
        Ok(())
    }

    /// Handles a message of a node: publishes a report, admits a model call, or saves a memo.
    async fn handle_message(&mut self, message: AttemptMessage) -> Result<(), RunError> {
        let AttemptMessage { task, attempt, content } = message;
        match content {
            MessageContent::Report(report) => {
                if let Some(usage) = report.usage() {
                    self.budget.add_usage(task, usage);
                    if let Some(outer) = &self.engine.outer {
                        outer.reporter.add_usage(usage);
                    }
                }
                self.publish_report(task, report).await;
                Ok(())
            }
            MessageContent::PlannedCall(call) => {
                self.budget.add_planned_call(task, attempt, call);
                Ok(())
            }
            MessageContent::Memo(memo) => self.add_memo(task, attempt, memo).await,
        }
    }

    /// Gives the permits of outer runs back, after they have the usage of the calls that have ended.
    async fn end_calls(&mut self) -> Result<(), RunError> {
        let ended = self.scheduler.link().take_ended_calls();
        // A call reports its usage before its permit is dropped.
        while let Ok(message) = self.messages.try_recv() {
            self.handle_message(*message).await?;
        }
        self.admit_calls().await?;
        self.journal.save().await?;
        drop(ended);
        Ok(())
    }

    /// Gives a permit to each planned call that fits into the limits.
    async fn admit_calls(&mut self) -> Result<(), RunError> {
        if self.budget.has_planned_calls() {
            Box::pin(self.admit_planned_calls()).await
        } else {
            Ok(())
        }
    }

    async fn admit_planned_calls(&mut self) -> Result<(), RunError> {
        let link = Arc::clone(self.scheduler.link());
        loop {
            // A call reports its usage before its permit is dropped, so the report of each call that has ended by now is
            // among the messages.
            self.budget.end_reservations();
            while let Ok(message) = self.messages.try_recv() {
                self.handle_message(*message).await?;
            }
            let Some(call) = self.budget.admit_next_call(&self.machine, &link) else {
                return Ok(());
            };
            match &self.engine.outer {
                Some(outer) => outer.reporter.forward_call(call).await,
                None => call.permit(),
            }
        }
    }

    async fn publish_report(&mut self, task: TaskId, mut report: Report) {
        redact_report(&mut report);
        // Code that a node has spawned may still send messages after the step has ended.
        if let Some(node) = self.machine.node_of(task).cloned() {
            let reported = || Event::TaskReported { task, node, report };
            self.journal.publish_early(reported).await;
        }
    }

    async fn add_memo(&mut self, task: TaskId, number: u32, memo: Memo) -> Result<(), RunError> {
        let Memo { name, value, ms, usage, saved } = memo;
        if let Some(outer) = self.engine.outer.as_ref().filter(|_| name.starts_with(GRANT_MEMO)) {
            // A grant of a nested run is one of the outer run. An outer run that has ended does not need it.
            drop(outer.reporter.note(&name, value.clone()).await);
        }
        let attempt = AttemptStats { number, ms, usage, ended: self.engine.clock.now() };
        let mut event = TaskEvent::MemoSaved { task, name, value, attempt };
        redact_event(&mut event);
        let actions = self.machine.apply(event);
        // A memo of an abandoned attempt is not kept, and its sender gets no confirmation.
        if !actions.is_empty() {
            self.stage(actions).await?;
            self.journal.confirm_when_saved(saved);
        }
        Ok(())
    }

    /// Sets the alarm to the next deadline of a question.
    fn set_question_deadline(&mut self) {
        let now = self.engine.clock.now();
        let left = self.machine.next_deadline().map(|it| it.duration_since(now));
        let left = left.map(|it| Duration::try_from(it).unwrap_or_default());
        self.question_deadline = left.and_then(|it| Instant::now().checked_add(it));
    }

    /// Fails the tasks whose questions have expired.
    async fn expire_questions(&mut self) -> Result<(), RunError> {
        // The alarm may fire before the clock of the engine reaches the deadline, which counts as reached.
        let now = self.engine.clock.now();
        let now = self.machine.next_deadline().map_or(now, |it| it.max(now));
        let mut actions = Vec::new();
        for task in self.machine.expired(now) {
            actions.extend(self.machine.apply(TaskEvent::Expired { task }));
        }
        self.set_question_deadline();
        self.perform(actions).await
    }

    /// Returns whether the step is about to end and may have messages to process.
    fn must_read_inbox(&self) -> bool {
        // No process can send messages to a run that no storage contains.
        self.machine.is_at_last_task()
            && !self.machine.graph().definition().inbox.is_empty()
            && self.engine.process_storage.is_none()
    }

    async fn read_inbox(&mut self) -> Result<(), RunError> {
        let storage = &self.engine.checkpointer;
        let messages = storage.inbox(self.machine.run(), self.machine.last_message()).await?;
        self.machine.queue_messages(messages);
        Ok(())
    }

    /// Ends the step at a limit: aborts the running tasks and keeps the results of the finished ones.
    async fn end_step_early(&mut self) -> Result<(), RunError> {
        let step = self.machine.committed_step();
        self.budget.refuse_planned_calls();
        self.scheduler.abort_all();
        self.apply_remaining_events().await?;
        self.scheduler.reopen_after_abort();
        let refused_call = self.budget.refused_call();
        self.budget.reset();
        let mut actions = Vec::new();
        // All open tasks may have finished at this moment.
        if self.machine.committed_step() == step && self.stop.is_none() {
            // An item whose predecessor has just finished waits to start in the step that ends here.
            self.scheduler.clear_queue();
            actions = self.machine.end_step_at_limit(refused_call);
        }
        self.perform(actions).await
    }

    /// Stops the run at once: discards the running tasks and keeps the results of the finished ones.
    async fn abort_run(&mut self) -> Result<(), RunError> {
        self.budget.refuse_planned_calls();
        self.scheduler.discard_unfinished();
        self.apply_remaining_events().await?;
        self.stop.get_or_insert_with(interrupted);
        Ok(())
    }

    /// Stops the run if a stop was requested and no task runs.
    fn stop_if_drained(&mut self) {
        if self.scheduler.grace_end().is_some() && self.scheduler.is_idle() {
            self.stop.get_or_insert_with(interrupted);
        }
    }

    /// Saves the final entry.
    async fn finish(&mut self, status: RunStatus) -> Result<RunEnd, RunError> {
        self.scheduler.discard_all_and_wait().await;
        spans::note_stop(&self.machine, &status);
        self.journal.add_status(status.clone(), run_finished(&self.machine, &status));
        self.journal.keep(&self.machine, &status);
        self.journal.save().await?;
        Ok(run_end(&self.machine, status))
    }
}

/// Waits until a time, or for ever without one.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}

fn interrupted() -> RunStatus {
    RunStatus { status: Status::Interrupted, reason: Some("it was stopped".to_owned()) }
}

/// Returns the event of a run that stops with this status.
pub(super) fn run_finished(machine: &Machine, run_status: &RunStatus) -> Event {
    let RunStatus { status, reason } = run_status.clone();
    Event::RunFinished { status, reason, steps: machine.committed_step().0, usage: machine.usage() }
}

/// Returns the outcome of a run that stopped with this status.
pub(super) fn run_end(machine: &Machine, RunStatus { status, reason }: RunStatus) -> RunEnd {
    let position = machine.position();
    let state = machine.state_so_far().public();
    let run = machine.run().clone();
    let (questions, failures) = (machine.open_questions(), machine.failures());
    RunEnd { run, status, reason, position, state, questions, failures }
}
