//! A run about to be driven: started, resumed or retried, with its settings.

use std::{future::IntoFuture, pin::Pin, sync::Arc};

use graphrun_core::{
    event::{Event, EventSink},
    id::{ChannelName, NodeName, RunId},
    state::{Channel, NotFields, Update},
};
use serde::Serialize;
use serde_json::Value;
use tracing::{Instrument as _, Span};

use super::{
    Answers, Engine, Run, RunEnd, RunError, Stop,
    driver::{Driver, run_end, run_finished},
    entrance,
    journal_writer::JournalWriter,
    lease::Lease,
    log::{Log, event_of_emission},
    resume::Resumption,
    spans::{self, RunParent},
    stream::{self, StreamMode},
    superstep::{Action, Beginning, Machine, RunSettings},
    turn,
};
use crate::checkpoint::{Checkpoint, CheckpointError, Entry, RunInfo};

/// A run about to be driven. Await it to drive the run here until it stops, or [`start`](Self::start) it in a
/// separate task. Until then nothing happens.
///
/// Dropping the future leaves a run that can be resumed, like after a crash of the process.
#[derive(Debug)]
#[must_use = "a run begins when this is awaited or started"]
pub struct Launch {
    engine: Engine,
    begin: Begin,
    events: EventSink,
    stop: Stop,
    modes: Vec<StreamMode>,
}

#[derive(Debug)]
enum Begin {
    New { info: Box<RunInfo>, input: Result<Update, NotFields> },
    At { info: Box<RunInfo>, checkpoint: Box<Checkpoint> },
    Turn { thread: String, info: Box<RunInfo>, input: Result<Update, NotFields>, is_queued: bool },
    Resume { run: RunId, answers: Answers },
    Retry { run: RunId, node: Option<NodeName> },
}

/// A run that begins or continues.
pub(super) enum Start {
    /// It is saved and belongs to this process.
    Ready(Box<ReadyRun>),
    /// It has stopped before its first task.
    Stopped(Box<RunEnd>),
}

/// A run that is saved and belongs to this process, before its first action.
pub(super) struct ReadyRun {
    pub(super) machine: Machine,
    pub(super) journal: JournalWriter,
    pub(super) actions: Vec<Action>,
    /// The span of the run in this process.
    pub(super) span: Span,
}

/// The types that a run takes as its input: a reference to a struct whose fields are channels, or an [`Update`].
pub trait IntoInput {
    /// Returns the writes.
    ///
    /// # Errors
    ///
    /// Fails when the value is not a struct of channels.
    fn into_input(self) -> Result<Update, NotFields>;
}

impl<W: Serialize> IntoInput for &W {
    fn into_input(self) -> Result<Update, NotFields> {
        Update::of(self)
    }
}

impl IntoInput for Update {
    fn into_input(self) -> Result<Update, NotFields> {
        Ok(self)
    }
}

impl Launch {
    pub(super) fn new(engine: &Engine, input: impl IntoInput) -> Self {
        let info = Box::new(RunInfo::new(&engine.graph.graph().name));
        Self::of(engine, Begin::New { info, input: input.into_input() })
    }

    pub(super) fn at(engine: &Engine, checkpoint: Checkpoint) -> Self {
        let info = Box::new(RunInfo::new(&engine.graph.graph().name));
        Self::of(engine, Begin::At { info, checkpoint: Box::new(checkpoint) })
    }

    pub(super) fn resume(engine: &Engine, run: &RunId) -> Self {
        Self::of(engine, Begin::Resume { run: run.clone(), answers: Answers::default() })
    }

    pub(super) fn retry(engine: &Engine, run: &RunId) -> Self {
        Self::of(engine, Begin::Retry { run: run.clone(), node: None })
    }

    fn of(engine: &Engine, begin: Begin) -> Self {
        let (events, stop) = (EventSink::default(), Stop::default());
        Self { engine: engine.clone(), begin, events, stop, modes: Vec::new() }
    }

    pub(super) fn turn(engine: &Engine, thread: String, input: impl IntoInput) -> Self {
        let info = Box::new(RunInfo::new(&engine.graph.graph().name));
        let input = input.into_input();
        Self::of(engine, Begin::Turn { thread, info, input, is_queued: false })
    }

    /// Lets a turn wait until other turns of its thread have ended, here or in another process.
    pub fn queued(mut self) -> Self {
        if let Begin::Turn { is_queued, .. } = &mut self.begin {
            *is_queued = true;
        }
        self
    }

    /// Sets the id, the name and the origin of a new run.
    pub fn with_info(mut self, new: RunInfo) -> Self {
        if let Begin::New { info, .. } | Begin::At { info, .. } | Begin::Turn { info, .. } =
            &mut self.begin
        {
            **info = new;
        }
        self
    }

    /// Names a new run. No other run of the storage may have the name.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        if let Begin::New { info, .. } | Begin::At { info, .. } = &mut self.begin {
            info.name = name.into();
        }
        self
    }

    /// Answers a question of a run that is resumed. The answer is a JSON value, or a type that becomes one.
    pub fn answer(mut self, question: impl Into<String>, answer: impl Into<Value>) -> Self {
        if let Begin::Resume { answers, .. } = &mut self.begin {
            answers.by_name.insert(question.into(), answer.into());
        }
        self
    }

    /// Sets all answers of a run that is resumed.
    pub fn with_answers(mut self, given: impl Into<Answers>) -> Self {
        if let Begin::Resume { answers, .. } = &mut self.begin {
            *answers = given.into();
        }
        self
    }

    /// Retries only the failed tasks of this node; with `None`, those of all nodes.
    pub fn only(mut self, only: impl Into<Option<NodeName>>) -> Self {
        if let Begin::Retry { node, .. } = &mut self.begin {
            *node = only.into();
        }
        self
    }

    /// Publishes the events of the run to these readers. A reader that falls behind slows the run down and loses no
    /// event; [`stream`](Self::stream) never does.
    pub fn with_events(mut self, events: EventSink) -> Self {
        self.events = events;
        self
    }

    /// Lets this handle stop the run from outside.
    pub fn with_stop(mut self, stop: &Stop) -> Self {
        self.stop = stop.clone();
        self
    }

    /// Gives the nodes of this run a value, which they read by `ctx.get::<T>()`. It takes the place of a value of
    /// the same type that the engine provides.
    pub fn provide<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.engine.provided.insert(value);
        self
    }

    /// Sets what the [`Run`] streams; without this, every event.
    pub fn stream(mut self, modes: impl IntoIterator<Item = StreamMode>) -> Self {
        self.modes.extend(modes);
        self
    }

    /// Drives the run in a separate Tokio task, once it is saved.
    ///
    /// # Errors
    ///
    /// Fails when the input lacks a declared one or does not fit the state, an answer matches no open question,
    /// another process owns the run, or it cannot be loaded or saved.
    pub async fn start(mut self) -> Result<Run, RunError> {
        if self.modes.is_empty() {
            self.modes.push(StreamMode::Debug);
        }
        let (sender, chunks) = stream::channel(&self.modes);
        let Self { engine, begin, events, stop, .. } = self;
        let start = begin.begin(&engine, events, Some(sender)).await?;
        let id = start.run().clone();
        let watched = stop.clone();
        let task = tokio::spawn(async move { start.drive(&engine, &watched).await });
        Ok(Run::new(id, stop, chunks, task))
    }

    async fn drive(self) -> Result<RunEnd, RunError> {
        let Self { engine, begin, events, stop, .. } = self;
        begin.begin(&engine, events, None).await?.drive(&engine, &stop).await
    }
}

impl IntoFuture for Launch {
    type Output = Result<RunEnd, RunError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.drive())
    }
}

impl Begin {
    /// Makes the run belong to this process.
    async fn begin(
        self,
        engine: &Engine,
        events: EventSink,
        stream: Option<stream::Sender>,
    ) -> Result<Start, RunError> {
        // Only a run in a separate task has a stream here.
        let span = if stream.is_some() { RunParent::Detached } else { RunParent::Current };
        let stream = stream.or_else(|| engine.parent.as_ref()?.stream.clone());
        let parent = engine.parent.as_ref().map(|it| (it.reporter.clone(), it.node.clone()));
        let sinks = stream::Sinks { events, stream, parent, span };
        match self {
            Self::New { info, input } => {
                let input = input.map_err(RunError::Fields)?;
                begin_new(engine, *info, input, sinks).await
            }
            Self::At { info, checkpoint } => {
                start(engine, *info, sinks, |settings, run| {
                    Machine::start_at(engine.graph.clone(), settings, run.clone(), *checkpoint)
                        .map_err(|source| RunError::Changed { run, source })
                })
                .await
            }
            Self::Turn { thread, info, input, is_queued } => {
                let input = input.map_err(RunError::Fields)?;
                let turn = |run| {
                    let (input, sinks) = (input.clone(), sinks.clone());
                    turn::begin(engine, &thread, run, input, is_queued, sinks)
                };
                if let Some(run) = turn::find_run(engine, &thread).await? {
                    return turn(run).await;
                }
                let info = RunInfo { name: thread.clone(), is_thread: true, ..*info };
                match begin_new(engine, info, input.clone(), sinks.clone()).await {
                    Err(RunError::Checkpoint(error @ CheckpointError::Exists(_))) => {
                        // Another turn has begun the thread meanwhile.
                        let run = turn::find_run(engine, &thread).await?;
                        turn(run.ok_or(error)?).await
                    }
                    begun => begun,
                }
            }
            Self::Resume { run, answers } => {
                let lease = Lease::acquire(&engine.checkpointer, &run, engine.lease).await?;
                let resumption = Resumption::with_answers(engine, &run, answers).await;
                let (lease, resumption) = lease.or_give_back(resumption).await?;
                resumption.begin(engine, lease, sinks).await
            }
            Self::Retry { run, node } => {
                let lease = Lease::acquire(&engine.checkpointer, &run, engine.lease).await?;
                let resumption = Resumption::with_failed_tasks(engine, &run, node.as_ref()).await;
                let (lease, resumption) = lease.or_give_back(resumption).await?;
                resumption.begin(engine, lease, sinks).await
            }
        }
    }
}

impl Start {
    /// Returns a run that is ready to be driven.
    pub(super) fn ready(
        machine: Machine,
        journal: JournalWriter,
        actions: Vec<Action>,
        span: Span,
    ) -> Self {
        Self::Ready(Box::new(ReadyRun { machine, journal, actions, span }))
    }

    fn run(&self) -> &RunId {
        match self {
            Self::Ready(ready) => ready.machine.run(),
            Self::Stopped(end) => &end.run,
        }
    }

    async fn drive(self, engine: &Engine, stop: &Stop) -> Result<RunEnd, RunError> {
        let ReadyRun { machine, journal, actions, span } = match self {
            Self::Ready(ready) => *ready,
            Self::Stopped(end) => return Ok(*end),
        };
        let driver = Driver::new(engine, machine, journal, stop);
        Box::pin(driver.drive(actions).instrument(span)).await
    }
}

async fn begin_new(
    engine: &Engine,
    info: RunInfo,
    mut input: Update,
    sinks: stream::Sinks,
) -> Result<Start, RunError> {
    check_input(engine, &input)?;
    entrance::redact_update(&mut input);
    start(engine, info, sinks, |settings, run| {
        Machine::start(engine.graph.clone(), settings, run, input).map_err(RunError::Input)
    })
    .await
}

/// Makes the machine of a new run with a function, and saves the run.
async fn start(
    engine: &Engine,
    info: RunInfo,
    sinks: stream::Sinks,
    machine: impl FnOnce(RunSettings, RunId) -> Result<Beginning, RunError>,
) -> Result<Start, RunError> {
    let kept = engine.kept.as_ref().filter(|_| !info.is_thread);
    let settings = RunSettings { is_in_process: kept.is_some(), ..engine.run_settings() };
    let Beginning { machine, commit, mut actions } = machine(settings, info.id.clone())?;
    let span = spans::run(&machine, sinks.span, None);
    let info = RunInfo { trace: engine.trace_context.and_then(|it| it(&span)), ..info };
    let mut log = Log::begin(&info, sinks, engine.clock.clone());
    for event in take_emissions(&mut actions) {
        log.add(event);
    }
    if let Some(kept) = kept {
        let mut journal = JournalWriter::in_process(Arc::clone(kept), info, log);
        journal.publish().await?;
        return Ok(Start::ready(machine, journal, actions, span));
    }
    let graph = Some(engine.outline());
    let info = RunInfo { graph, ..info };
    if let [Action::Stop(status)] = actions.as_slice() {
        // Acceptance and status are saved together. A crash between the two would leave a run that looks
        // unfinished and gets resumed past its breakpoint.
        log.add(run_finished(&machine, status));
        let first = Entry { run_status: Some(status.clone()), ..Entry::from(commit) };
        JournalWriter::create(engine, &info, first, log).await?.release().await?;
        return Ok(Start::Stopped(Box::new(run_end(&machine, status.clone()))));
    }
    let mut journal = JournalWriter::create(engine, &info, commit.into(), log).await?;
    journal.publish().await?;
    Ok(Start::ready(machine, journal, actions, span))
}

/// Takes the first actions that report a reached node, as events: the commit that enters the graph saves them.
pub(super) fn take_emissions(actions: &mut Vec<Action>) -> Vec<Event> {
    let is_emission = |it: &&Action| matches!(it, Action::Emit { .. });
    let count = actions.iter().take_while(is_emission).count();
    let emitted = actions.drain(..count).filter_map(|it| match it {
        Action::Emit { task, node, from, name } => Some(event_of_emission(task, node, from, name)),
        _ => None,
    });
    emitted.collect()
}

/// The checks of the data flow rely on every input that the graph declares.
pub(super) fn check_input(engine: &Engine, input: &Update) -> Result<(), RunError> {
    let graph = engine.graph.graph();
    let is_missing = |name: &&ChannelName| {
        let channel = graph.schema.channel(name.as_str());
        channel.is_some_and(Channel::is_needed_as_input)
            && !input.writes.iter().any(|(written, _)| written == *name)
    };
    let missing: Vec<ChannelName> = graph.input.iter().filter(is_missing).cloned().collect();
    if missing.is_empty() { Ok(()) } else { Err(RunError::MissingInput { missing }) }
}
