//! The loop of a run: do what the rules say, tell them what happened; again.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use super::{
    Engine, RunEnd, RunError, Stop,
    superstep::{self, Action, Machine, Task},
    task,
};
use crate::{
    checkpoint::{Commit, Outcome, RunInfo, TaskRecord},
    event::{EVENT_VERSION, Event, EventSink, Report, Stamped, Status},
    graph::RouteView,
    id::{NodeName, RunId, TaskId},
};

/// The number of reports that may wait for the driver before nodes wait for it.
const REPORTS_CAPACITY: usize = 256;

/// Drives one run in this process.
pub(super) struct Driver<'a> {
    engine: &'a Engine,
    run: RunId,
    machine: Machine,
    log: Log,
    stop: &'a Stop,
    /// Tasks at work, and waits for next attempts.
    tasks: JoinSet<superstep::Event>,
    /// Tasks that wait for a place.
    queue: VecDeque<Task>,
    running: usize,
    /// The running tasks of each node that has a width.
    busy: BTreeMap<NodeName, usize>,
    reports: Reports,
    /// When the time of running tasks is over, once a stop was asked for.
    deadline: Option<Instant>,
}

/// Everything that can wake the driver.
enum Signal {
    /// Something happened to a task.
    Task(superstep::Event),
    /// A node said something.
    Report(TaskId, Report),
    /// Somebody asked the run to stop.
    Drain,
    /// The time that running tasks had is over.
    Now,
}

/// What nodes say, on its way to the driver.
type Reports = (mpsc::Sender<(TaskId, Report)>, mpsc::Receiver<(TaskId, Report)>);

/// How a run rests, and why.
type Rest = (Status, Option<String>);

impl<'a> Driver<'a> {
    pub(super) fn new(
        engine: &'a Engine,
        machine: Machine,
        events: EventSink,
        stop: &'a Stop,
        last_seq: u64,
    ) -> Self {
        let run = machine.run().clone();
        let log = Log { run: run.clone(), seq: last_seq, unsaved: Vec::new(), sink: events };
        Self {
            engine,
            run,
            machine,
            log,
            stop,
            tasks: JoinSet::new(),
            queue: VecDeque::new(),
            running: 0,
            busy: BTreeMap::new(),
            reports: mpsc::channel(REPORTS_CAPACITY),
            deadline: None,
        }
    }

    /// Saves a new run.
    pub(super) async fn accept(&mut self, info: &RunInfo, first: &Commit) -> Result<(), RunError> {
        let (name, workflow) = (info.name.clone(), info.workflow.clone());
        let events = self.log.stamp([Event::RunStarted { name, workflow }]);
        self.engine.checkpointer.create(info, first, &events).await?;
        self.log.publish(events).await;
        Ok(())
    }

    /// Says that a saved run goes on here.
    pub(super) async fn go_on(&mut self, resumed: Event) -> Result<(), RunError> {
        self.set_status(Status::Running, None, resumed).await
    }

    /// Does what the rules say until the run comes to rest.
    pub(super) async fn drive(mut self, first: Vec<Action>) -> Result<RunEnd, RunError> {
        let mut rest = self.perform(first).await?;
        while rest.is_none() {
            self.start_queued().await;
            rest = match self.next_signal().await {
                Signal::Task(event) => self.take(event).await?,
                Signal::Report(task, report) => {
                    self.tell_report(task, report).await;
                    None
                }
                Signal::Drain => {
                    self.deadline = Some(Instant::now() + self.engine.grace);
                    self.queue.clear();
                    self.interrupted_if_idle()
                }
                Signal::Now => self.stop_at_once().await?,
            };
        }
        let (status, reason) = rest.unwrap_or((Status::Interrupted, None));
        self.finish(status, reason).await
    }

    /// Drops the running tasks, and keeps what the others have done.
    async fn stop_at_once(&mut self) -> Result<Option<Rest>, RunError> {
        while let Some(ended) = self.tasks.try_join_next() {
            let Ok(event) = ended else { continue };
            if let Some(rest) = self.take(event).await? {
                return Ok(Some(rest));
            }
        }
        self.tasks.shutdown().await;
        Ok(Some(interrupted()))
    }

    /// Performs actions in their order, each durable before the next.
    async fn perform(&mut self, actions: Vec<Action>) -> Result<Option<Rest>, RunError> {
        let mut rest = None;
        for action in actions {
            match action {
                Action::Record(record) => self.record(record).await?,
                Action::Commit(commit) => self.commit(commit).await?,
                Action::Run(task) if self.deadline.is_none() => self.queue.push_back(*task),
                Action::Run(_) => (),
                Action::Sleep { task, node, attempt, failure, ms } => {
                    let error = failure.message;
                    let retrying = Event::TaskRetrying { task, node, attempt, error, wait_ms: ms };
                    self.log.tell(retrying).await;
                    self.tasks.spawn(async move {
                        sleep(Duration::from_millis(ms)).await;
                        superstep::Event::Woke { task }
                    });
                }
                Action::Rest { status, reason } => rest = Some((status, reason)),
            }
        }
        Ok(rest.or_else(|| self.interrupted_if_idle()))
    }

    async fn take(&mut self, event: superstep::Event) -> Result<Option<Rest>, RunError> {
        // What a node said before it ended comes before its end.
        while let Ok((task, report)) = self.reports.1.try_recv() {
            self.tell_report(task, report).await;
        }
        if !matches!(event, superstep::Event::Woke { .. }) {
            self.running -= 1;
            if let Some(node) = self.machine.node_of(event.task())
                && let Some(busy) = self.busy.get_mut(node)
            {
                *busy = busy.saturating_sub(1);
            }
        }
        let actions = self.machine.apply(event);
        self.perform(actions).await
    }

    async fn start_queued(&mut self) {
        while self.running < self.engine.limits.concurrency.max(1) {
            // The signal of a stop comes by and by; from now on nothing starts.
            if self.stop.drain.is_cancelled() {
                break;
            }
            let Some(task) = self.next_task() else { break };
            let graph = self.machine.graph();
            let spec = graph.node(&task.node).expect("the rules run only nodes of the graph");
            let spec = spec.clone();
            self.log
                .tell(Event::TaskStarted {
                    task: task.id,
                    node: task.node.clone(),
                    attempt: task.attempt,
                    visit: task.visits.get(&task.node).copied().unwrap_or(1),
                    max_visits: spec.policies.max_visits,
                })
                .await;
            let (run, reports) = (self.run.clone(), self.reports.0.clone());
            self.tasks.spawn(task::attempt(run, task, spec, reports, self.stop.now.clone()));
            self.running += 1;
        }
    }

    /// The first task in the queue whose node has room for one more.
    fn next_task(&mut self) -> Option<Task> {
        let graph = self.machine.graph();
        let has_room = |it: &Task| {
            let width = graph.node(&it.node).and_then(|it| it.policies.width_max);
            width.is_none_or(|max| self.busy.get(&it.node).is_none_or(|&busy| busy < max))
        };
        let at = self.queue.iter().position(has_room)?;
        let task = self.queue.remove(at)?;
        let graph = self.machine.graph();
        if graph.node(&task.node).is_some_and(|it| it.policies.width_max.is_some()) {
            *self.busy.entry(task.node.clone()).or_default() += 1;
        }
        Some(task)
    }

    async fn next_signal(&mut self) -> Signal {
        loop {
            tokio::select! {
                biased;
                () = self.stop.now.cancelled() => return Signal::Now,
                () = self.stop.drain.cancelled(), if self.deadline.is_none() => return Signal::Drain,
                () = until(self.deadline), if self.deadline.is_some() => return Signal::Now,
                Some((task, report)) = self.reports.1.recv() => return Signal::Report(task, report),
                Some(ended) = self.tasks.join_next() => match ended {
                    Ok(event) => return Signal::Task(event),
                    Err(error) => assert!(error.is_cancelled(), "a task contains its panics"),
                },
            }
        }
    }

    /// When a stop was asked for and nothing runs any more, the run is interrupted.
    fn interrupted_if_idle(&self) -> Option<Rest> {
        (self.deadline.is_some() && self.running == 0).then(interrupted)
    }

    async fn record(&mut self, record: TaskRecord) -> Result<(), RunError> {
        let events = self.log.stamp([event_of(&record)]);
        self.engine.checkpointer.record(&self.run, &record, &events).await?;
        self.log.publish(events).await;
        Ok(())
    }

    async fn commit(&mut self, commit: Commit) -> Result<(), RunError> {
        let position = &commit.position;
        let next = position.frontier.iter().map(|it| it.node.clone()).collect();
        let mut events = vec![Event::StepCommitted { step: position.step, next }];
        for (index, activation) in (0..).zip(&position.frontier) {
            let spec = self.machine.graph().node(&activation.node);
            let skipped = spec.and_then(|it| it.when.as_ref()).is_some_and(|when| {
                // Where the whole step is skipped the machine is further, but its state is the same.
                let (state, visits) = (self.machine.state(), &position.visits);
                let view = RouteView { state, visits, input: &activation.input };
                matches!(when.holds(&view), Ok(false))
            });
            let name = spec.and_then(|it| it.policies.emits.clone());
            if let Some(name) = name.filter(|_| !skipped) {
                let node = activation.node.clone();
                let message = match activation.via.node() {
                    Some(from) => format!("{from} {name} to {node}"),
                    None => format!("{node} {name}"),
                };
                let task = TaskId { step: position.step.next(), index };
                events.push(Event::Emitted { task, node, name, message });
            }
        }
        let events = self.log.stamp(events);
        self.engine.checkpointer.commit(&self.run, &commit, &events).await?;
        self.log.publish(events).await;
        Ok(())
    }

    async fn tell_report(&mut self, task: TaskId, report: Report) {
        // A node may have left something behind that still talks once its step is over.
        if let Some(node) = self.machine.node_of(task).cloned() {
            self.log.tell(Event::TaskReported { task, node, report }).await;
        }
    }

    async fn finish(mut self, status: Status, reason: Option<String>) -> Result<RunEnd, RunError> {
        self.tasks.shutdown().await;
        let position = self.machine.position().clone();
        let finished = Event::RunFinished {
            status,
            reason: reason.clone(),
            steps: position.step.0,
            spent: position.spent,
        };
        self.set_status(status, reason.as_deref(), finished).await?;
        let questions = self.machine.open_questions();
        let state = self.machine.state().as_ref().clone();
        Ok(RunEnd { status, reason, position, state, questions })
    }

    async fn set_status(
        &mut self,
        status: Status,
        reason: Option<&str>,
        event: Event,
    ) -> Result<(), RunError> {
        let events = self.log.stamp([event]);
        self.engine.checkpointer.set_status(&self.run, status, reason, &events).await?;
        self.log.publish(events).await;
        Ok(())
    }
}

/// Numbers the events of a run, and keeps those that are not saved yet.
struct Log {
    run: RunId,
    seq: u64,
    /// Told already, and saved with the next thing that is.
    unsaved: Vec<Stamped>,
    sink: EventSink,
}

impl Log {
    /// Tells what need not be durable first: that something began or was said.
    async fn tell(&mut self, event: Event) {
        let stamped = self.number(event);
        self.sink.send(&stamped).await;
        self.unsaved.push(stamped);
    }

    /// Numbers events that become true when they are saved, and hands them out to be saved with
    /// all that were told before.
    fn stamp(&mut self, events: impl IntoIterator<Item = Event>) -> Vec<Stamped> {
        let mut stamped = std::mem::take(&mut self.unsaved);
        for event in events {
            stamped.push(self.number(event));
        }
        stamped
    }

    /// Tells events that are saved now. Those that were told before are not told again.
    async fn publish(&self, saved: Vec<Stamped>) {
        for stamped in saved.iter().filter(|it| is_told_when_saved(&it.event)) {
            self.sink.send(stamped).await;
        }
    }

    fn number(&mut self, event: Event) -> Stamped {
        self.seq += 1;
        let ts = jiff::Timestamp::now().to_string();
        Stamped { v: EVENT_VERSION, seq: self.seq, ts, run: self.run.clone(), event }
    }
}

fn is_told_when_saved(event: &Event) -> bool {
    !matches!(
        event,
        Event::TaskStarted { .. } | Event::TaskReported { .. } | Event::TaskRetrying { .. }
    )
}

async fn until(deadline: Option<Instant>) {
    if let Some(deadline) = deadline {
        sleep_until(deadline).await;
    }
}

fn interrupted() -> Rest {
    (Status::Interrupted, Some("somebody stopped it".to_owned()))
}

/// What a record says to watchers.
fn event_of(record: &TaskRecord) -> Event {
    let TaskRecord { task, node, attempt, ms, spent, outcome } = record;
    let (task, node, attempt, ms, spent) = (*task, node.clone(), *attempt, *ms, *spent);
    let to = |hops: &[crate::graph::Hop]| hops.iter().map(|it| it.target().to_string()).collect();
    match outcome {
        Outcome::Finished { update, hops } => {
            let wrote = update.writes.iter().map(|(name, _)| name.to_string()).collect();
            Event::TaskFinished { task, node, attempt, ms, wrote, to: to(hops), spent }
        }
        Outcome::Skipped { condition, hops } => {
            Event::TaskSkipped { task, node, condition: condition.clone(), to: to(hops) }
        }
        Outcome::Caught { failure, hops } => {
            let (kind, error) = (failure.kind.to_string(), failure.message.clone());
            Event::TaskFailed { task, node, attempt, ms, kind, error, to: to(hops), spent }
        }
        Outcome::Failed { failure } => {
            let (kind, error) = (failure.kind.to_string(), failure.message.clone());
            Event::TaskFailed { task, node, attempt, ms, kind, error, to: Vec::new(), spent }
        }
        Outcome::Asked { question } => {
            let (key, prompt) = (question.key.clone(), question.prompt.clone());
            Event::QuestionAsked { task, node, key, prompt, schema: question.schema.clone() }
        }
        Outcome::Answered { key, .. } => Event::QuestionAnswered { task, node, key: key.clone() },
    }
}
