//! The loop of a run: it performs the actions of the rules and feeds the results back as events.

mod messages;
mod model_budget;
mod people;
mod queue;
mod rest;
mod tasks;
mod time;
mod turn;

use std::collections::BTreeMap;

use graphrun_core::{
    event::{Event, EventSink, Status},
    fault::{self, Point},
    graph::AttemptMessage,
    id::{NodeName, RunId, TaskId},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

pub(super) use self::rest::accept_stopped;
use self::{model_budget::ModelBudget, queue::Queue, tasks::Tasks};
use super::{
    Engine, RunEnd, RunError, Stop,
    entrance::redact_event,
    lease::Lease,
    log::{Log, Watched, event_of, event_of_message},
    superstep::{self, Action, Machine},
    task::{self, AttemptContext},
};
use crate::checkpoint::{CheckpointError, Commit, Entry, Outcome, RunInfo, RunStatus, TaskRecord};

/// The number of node messages that may wait for the driver before nodes have to wait.
const MESSAGES_CAPACITY: usize = 256;

/// The largest number of simultaneously finished tasks that one transaction saves.
const TOGETHER_MAX: usize = 64;

/// Drives one run in this process.
pub(super) struct Driver<'a> {
    engine: &'a Engine,
    run: RunId,
    machine: Machine,
    lease: Lease,
    log: Log,
    /// The entry that is not saved yet. Nothing may follow from it before it is durable.
    entry: Entry,
    stop: &'a Stop,
    tasks: Tasks,
    /// Drops all running tasks.
    dropped: CancellationToken,
    /// Aborts the running tasks when a limit of the run is reached.
    cut: CancellationToken,
    /// When the time of the run ends, per running task; absent if the time is unlimited.
    ends: BTreeMap<TaskId, Instant>,
    /// The model usage of the running tasks.
    model_budget: ModelBudget,
    queue: Queue,
    messages: MessageChannel,
    /// The nodes that wait until their memo is saved.
    noted: Vec<oneshot::Sender<()>>,
    /// When the grace period of running tasks ends, once a drain was requested.
    deadline: Option<Instant>,
    /// The deadline of the next open question.
    alarm: Option<Instant>,
}

/// Every input that can wake the driver.
enum Signal {
    /// An event of a task.
    Task(Box<superstep::Event>),
    /// A message from a node.
    Message(AttemptMessage),
    /// A drain was requested.
    Drain,
    /// The grace period of running tasks is over.
    Now,
    /// The deadline of an open question has passed.
    Late,
    /// The time of the run is over.
    OutOfTime,
    /// Another process owns the run.
    Lost,
}

/// The channel for messages from nodes to the driver.
type MessageChannel = (mpsc::Sender<AttemptMessage>, mpsc::Receiver<AttemptMessage>);

/// The status with which a run stops, and the reason.
type Rest = (Status, Option<String>);

impl<'a> Driver<'a> {
    /// Saves a new run.
    pub(super) async fn accept(
        engine: &'a Engine,
        machine: Machine,
        events: EventSink,
        stop: &'a Stop,
        (info, first): (&RunInfo, Commit),
    ) -> Result<Self, RunError> {
        let mut log = Log::new(info.id.clone(), (events, 0), engine.clock.clone());
        let (name, workflow) = (info.name.clone(), info.workflow.clone());
        log.add(Event::RunStarted { name, workflow });
        let first = Entry { events: log.unsaved(), ..Entry::from(first) };
        let lease = Lease::create(&engine.checkpointer, info, &first, engine.lease).await?;
        fault::hit(Point::AcceptAfterCommit).map_err(CheckpointError::injected)?;
        log.publish().await?;
        Ok(Self::new(engine, machine, lease, log, stop))
    }

    /// Continues a saved run.
    pub(super) async fn resume(
        engine: &'a Engine,
        machine: Machine,
        lease: Lease,
        watched: Watched,
        stop: &'a Stop,
    ) -> Result<Self, RunError> {
        let Watched { events, last_seq, changes } = watched;
        let log = Log::new(machine.run().clone(), (events, last_seq), engine.clock.clone());
        let mut driver = Self::new(engine, machine, lease, log, stop);
        driver.log.add(Event::RunResumed { step: driver.machine.position().step });
        if !changes.is_empty() {
            driver.log.add(Event::WorkflowChanged { changes });
        }
        driver.entry.run_status = Some(RunStatus { status: Status::Running, reason: None });
        driver.save().await?;
        driver.set_alarm();
        Ok(driver)
    }

    fn new(engine: &'a Engine, machine: Machine, lease: Lease, log: Log, stop: &'a Stop) -> Self {
        let dropped = CancellationToken::new();
        Self {
            engine,
            run: machine.run().clone(),
            machine,
            lease,
            log,
            entry: Entry::default(),
            stop,
            tasks: Tasks::default(),
            cut: dropped.child_token(),
            dropped,
            ends: BTreeMap::new(),
            model_budget: ModelBudget::default(),
            queue: Queue::default(),
            messages: mpsc::channel(MESSAGES_CAPACITY),
            noted: Vec::new(),
            deadline: None,
            alarm: None,
        }
    }

    /// Performs the actions of the rules until the run stops.
    pub(super) async fn drive(mut self, first: Vec<Action>) -> Result<RunEnd, RunError> {
        match self.go_to_rest(first).await {
            Ok((status, reason)) => self.finish(status, reason).await,
            Err(RunError::Checkpoint(full @ CheckpointError::Full { .. })) => {
                Err(self.stop_on_full_disk(full).await)
            }
            Err(error) => Err(error),
        }
    }

    async fn go_to_rest(&mut self, first: Vec<Action>) -> Result<Rest, RunError> {
        let mut rest = self.perform(first).await?;
        while rest.is_none() {
            self.start_queued().await;
            if self.is_spent_up() {
                rest = self.run_out().await?;
                continue;
            }
            rest = match self.next_signal().await {
                Signal::Task(event) => self.take_all(*event).await?,
                Signal::Message(message) => {
                    self.handle_message(message).await?;
                    self.save().await?;
                    None
                }
                Signal::Drain => {
                    fault::hit(Point::ShutdownDrain).map_err(CheckpointError::injected)?;
                    self.deadline = Some(Instant::now() + self.engine.grace);
                    self.queue.clear();
                    self.interrupted_if_idle()
                }
                Signal::Now => self.stop_at_once().await?,
                Signal::Late => self.expire().await?,
                Signal::OutOfTime => self.run_out().await?,
                Signal::Lost => return Err(self.lost().await),
            };
        }
        Ok(rest.unwrap_or_else(interrupted))
    }

    /// Aborts the running tasks and keeps the results of the finished ones.
    async fn stop_at_once(&mut self) -> Result<Option<Rest>, RunError> {
        let mut rest = None;
        self.dropped.cancel();
        while let Some(event) = self.tasks.next().await {
            rest = self.take(event).await?.or(rest);
        }
        Ok(rest.or_else(|| Some(interrupted())))
    }

    /// Aborts the running tasks and discards their unsaved results.
    async fn drop_tasks(&mut self) {
        self.dropped.cancel();
        while self.tasks.next().await.is_some() {}
    }

    /// Aborts the running tasks after the lease was lost: their results can no longer be saved.
    async fn lost(&mut self) -> RunError {
        self.drop_tasks().await;
        let action = format!("continue run `{}`", self.run);
        let source = "its lease has expired, and another process may own it now".into();
        CheckpointError::Overtaken { action, source }.into()
    }

    /// Performs actions in their order. Actions that depend on a result wait until it is durable.
    async fn perform(&mut self, actions: Vec<Action>) -> Result<Option<Rest>, RunError> {
        let rest = self.note(actions).await?;
        if rest.is_none() {
            self.save().await?;
        }
        Ok(rest.or_else(|| self.interrupted_if_idle()))
    }

    /// Adds results to the next entry, and tasks to the queue.
    async fn note(&mut self, actions: Vec<Action>) -> Result<Option<Rest>, RunError> {
        let mut rest = None;
        for action in actions {
            match action {
                Action::Record(record) => self.record(*record).await?,
                Action::Commit(commit) => self.commit(*commit).await?,
                Action::Emit { task, node, from, name } => {
                    self.emit(task, node, from.as_ref(), name).await;
                }
                Action::PublishMessages(messages) => {
                    if self.entry.commit.is_some() {
                        self.save().await?;
                    }
                    for it in &messages {
                        self.log.add(event_of_message(it));
                    }
                }
                Action::Run(task) if self.deadline.is_none() => self.queue.push(task),
                Action::Run(_) => (),
                Action::Sleep { task, wake, wait_ms } => {
                    let wait = self.wait(task, wake, wait_ms);
                    self.tasks.add(wait);
                }
                Action::Rest { status, reason } => rest = Some((status, reason)),
            }
        }
        Ok(rest)
    }

    /// Applies the event of a task, and those of tasks that ended meanwhile, and saves them at once.
    async fn take_all(&mut self, first: superstep::Event) -> Result<Option<Rest>, RunError> {
        let mut rest = self.take(first).await?;
        for _ in 1..TOGETHER_MAX {
            let Some(event) = self.tasks.next_now() else { break };
            rest = self.take(event).await?.or(rest);
        }
        if rest.is_none() {
            self.save().await?;
        }
        Ok(rest.or_else(|| self.interrupted_if_idle()))
    }

    async fn take(&mut self, mut event: superstep::Event) -> Result<Option<Rest>, RunError> {
        redact_event(&mut event);
        // Messages that a node sent before it ended are processed before its end.
        while let Ok(message) = self.messages.1.try_recv() {
            self.handle_message(message).await?;
        }
        if !matches!(event, superstep::Event::Woke { .. }) {
            self.ends.remove(&event.task());
            self.model_budget.ended(event.task());
            self.queue.ended(self.machine.node_of(event.task()));
        }
        self.listen().await?;
        let actions = self.machine.apply(event);
        self.note(actions).await
    }

    async fn start_queued(&mut self) {
        while self.queue.running() < self.engine.limits.concurrency.max(1) {
            // The stop signal may arrive later through `select!`; from here on, no task starts.
            if self.stop.drain.is_cancelled() || self.model_budget.is_closed() {
                break;
            }
            let Some(task) = self.queue.next(self.machine.graph()) else { break };
            if !self.begins_in_time(task.id) {
                break;
            }
            let graph = self.machine.graph();
            let spec = graph.node(&task.node).cloned();
            let spec = spec.expect("the rules run only nodes of the graph");
            self.log
                .publish_early(Event::TaskStarted {
                    task: task.id,
                    node: task.node.clone(),
                    attempt: task.attempt,
                    visit: task.visits.get(&task.node).copied().unwrap_or(1),
                    max_visits: spec.policies.max_visits,
                })
                .await;
            let cut = self.cut.child_token();
            self.model_budget.began(task.id, cut.clone());
            let (work, watch) = task::attempt(self.attempt_context(cut), *task, spec);
            self.tasks.begin(work, watch);
            self.queue.began();
        }
    }

    fn attempt_context(&self, cut: CancellationToken) -> AttemptContext {
        AttemptContext {
            run: self.run.clone(),
            messages: self.messages.0.clone(),
            now: self.stop.now.clone(),
            cut,
            dropped: self.dropped.clone(),
            clock: self.engine.clock.clone(),
        }
    }

    async fn next_signal(&mut self) -> Signal {
        let end = self.ends.values().min().copied();
        turn::ending_with(async {
            tokio::select! {
                biased;
                () = self.lease.lost() => Signal::Lost,
                () = self.stop.now.cancelled() => Signal::Now,
                () = self.stop.drain.cancelled(), if self.deadline.is_none() => Signal::Drain,
                () = until(self.deadline), if self.deadline.is_some() => Signal::Now,
                () = until(end), if end.is_some() => Signal::OutOfTime,
                () = until(self.alarm), if self.alarm.is_some() => Signal::Late,
                Some(message) = self.messages.1.recv() => Signal::Message(message),
                Some(event) = self.tasks.next() => Signal::Task(Box::new(event)),
            }
        })
        .await
    }

    /// Returns `Interrupted` when a stop was requested and no task runs.
    fn interrupted_if_idle(&self) -> Option<Rest> {
        (self.deadline.is_some() && self.queue.running() == 0).then(interrupted)
    }

    async fn record(&mut self, record: TaskRecord) -> Result<(), RunError> {
        if self.entry.commit.is_some() {
            // The event belongs to the next step.
            self.save().await?;
        }
        if matches!(record.outcome, Outcome::Asked { .. }) {
            self.set_alarm();
        }
        self.log.add(event_of(&record));
        self.entry.records.push(record);
        Ok(())
    }

    async fn commit(&mut self, commit: Commit) -> Result<(), RunError> {
        if self.entry.commit.is_some() {
            self.save().await?;
        }
        let position = &commit.position;
        let next = position.frontier.iter().map(|it| it.node.clone()).collect();
        self.log.add(Event::StepCommitted { step: position.step, next });
        self.entry.commit = Some(commit);
        self.model_budget.reopen();
        Ok(())
    }

    /// Reports that the run has reached a node. The step that reached it is durable before that.
    async fn emit(&mut self, task: TaskId, node: NodeName, from: Option<&NodeName>, name: String) {
        let message = match from {
            Some(from) => format!("{from} {name} to {node}"),
            None => format!("{node} {name}"),
        };
        let event = Event::TaskEmitted { task, node, name, message };
        if self.entry.commit.is_some() {
            self.log.add(event);
        } else {
            self.log.publish_early(event).await;
        }
    }

    /// Saves the pending entry, then publishes its events.
    async fn save(&mut self) -> Result<(), RunError> {
        if self.entry.is_empty() {
            return Ok(());
        }
        self.entry.events = self.log.unsaved();
        self.engine.checkpointer.append(self.lease.hold(), &self.entry).await?;
        let entry = std::mem::take(&mut self.entry);
        fault::hit_each(entry.points_after_commit()).map_err(CheckpointError::injected)?;
        for waiting in self.noted.drain(..) {
            // A node that was dropped meanwhile no longer waits.
            _ = waiting.send(());
        }
        self.log.publish().await?;
        Ok(())
    }
}

async fn until(deadline: Option<Instant>) {
    if let Some(deadline) = deadline {
        sleep_until(deadline).await;
    }
}

fn interrupted() -> Rest {
    (Status::Interrupted, Some("it was stopped".to_owned()))
}
