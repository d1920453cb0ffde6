//! Accepts a run: saves its beginning and takes its lease. Only then is it driven.

use std::sync::Arc;

use graphrun_core::{
    event::{Event, EventSink},
    id::{ChannelName, RunId},
    state::{Channel, Update},
};
use tracing::{Instrument as _, Span};

use super::{
    Engine, RunEnd, RunError, ShutdownHandle,
    driver::{Driver, run_end, run_finished},
    journal_writer::JournalWriter,
    log::{Log, event_of_emission},
    machine::{Action, FirstStep, Machine, RunSettings},
    nested::OuterAttempt,
    redaction,
    spans::{self, SpanPlacement},
    stream::{Sinks, StreamSender},
};
use crate::checkpoint::{Checkpoint, Entry, RunInfo, RunStatus};

/// A run that is saved and belongs to this process.
#[expect(missing_debug_implementations, reason = "only a private module has it")]
pub enum AcceptedRun {
    /// It is ready to be driven.
    Ready(Box<ReadyRun>),
    /// It has stopped before its first task.
    Stopped(Box<RunEnd>),
}

/// A run before its first action.
#[expect(missing_debug_implementations, reason = "only a private module has it")]
pub struct ReadyRun {
    pub(super) machine: Machine,
    pub(super) journal: JournalWriter,
    pub(super) actions: Vec<Action>,
    /// The span of the run in this process.
    pub(super) span: Span,
}

impl AcceptedRun {
    /// Returns a run that is ready to be driven.
    pub(super) fn ready(
        machine: Machine,
        journal: JournalWriter,
        actions: Vec<Action>,
        span: Span,
    ) -> Self {
        Self::Ready(Box::new(ReadyRun { machine, journal, actions, span }))
    }

    /// Returns a run that has stopped before its first task.
    pub(super) fn stopped(machine: &Machine, status: &RunStatus) -> Self {
        Self::Stopped(Box::new(run_end(machine, status.clone())))
    }

    pub(super) fn run(&self) -> &RunId {
        match self {
            Self::Ready(ready) => ready.machine.run(),
            Self::Stopped(end) => &end.run,
        }
    }

    pub(super) async fn drive(
        self,
        engine: &Engine,
        shutdown: &ShutdownHandle,
    ) -> Result<RunEnd, RunError> {
        let ReadyRun { machine, journal, actions, span } = match self {
            Self::Ready(ready) => *ready,
            Self::Stopped(end) => return Ok(*end),
        };
        // A future that owned the driver would have room for it twice.
        let mut driver = Box::new(Driver::new(engine, machine, journal, shutdown));
        Box::pin(async move { driver.drive(actions).await }.instrument(span)).await
    }
}

/// What a run needs to be accepted.
#[derive(Clone, Debug)]
pub struct AcceptContext<'a> {
    pub(super) engine: &'a Engine,
    /// Stops the run, also while it waits for its turn.
    pub(super) shutdown: &'a ShutdownHandle,
    pub(super) sinks: Sinks,
    /// The place of the span of the run.
    pub(super) span: SpanPlacement,
}

impl<'a> AcceptContext<'a> {
    /// The run is observed by these readers of events, by its own stream or that of the outer run, and by the outer node.
    pub(super) fn new(
        engine: &'a Engine,
        shutdown: &'a ShutdownHandle,
        events: EventSink,
        own_stream: Option<StreamSender>,
    ) -> Self {
        // Only a run in a separate task has its own stream.
        let span =
            if own_stream.is_some() { SpanPlacement::Detached } else { SpanPlacement::Current };
        let outer = engine.outer.as_ref();
        let stream = own_stream.or_else(|| outer?.stream.clone());
        let outer = outer.map(OuterAttempt::outer_reporter);
        Self { engine, shutdown, sinks: Sinks { events, stream, outer }, span }
    }
}

/// Saves that a run begins or continues, and makes it belong to this process.
pub trait Accept: Send {
    fn accept(
        self,
        context: AcceptContext<'_>,
    ) -> impl Future<Output = Result<AcceptedRun, RunError>> + Send;
}

/// Saves a new run with its input.
pub(super) async fn save_new(
    context: AcceptContext<'_>,
    info: RunInfo,
    mut input: Update,
) -> Result<AcceptedRun, RunError> {
    let AcceptContext { engine, .. } = context;
    check_input(engine, &input)?;
    redaction::redact_update(&mut input);
    save_first_step(context, info, |settings, run| {
        Machine::start(engine.graph.clone(), settings, run, input).map_err(RunError::Input)
    })
    .await
}

/// Saves a new run that begins at a checkpoint.
pub(super) async fn save_at(
    context: AcceptContext<'_>,
    info: RunInfo,
    checkpoint: Checkpoint,
) -> Result<AcceptedRun, RunError> {
    let AcceptContext { engine, .. } = context;
    save_first_step(context, info, |settings, run| {
        Machine::start_at(engine.graph.clone(), settings, run, checkpoint)
            .map_err(RunError::UnfitCheckpoint)
    })
    .await
}

/// Saves a new run; `first_step` makes its machine.
async fn save_first_step(
    context: AcceptContext<'_>,
    info: RunInfo,
    first_step: impl FnOnce(RunSettings, RunId) -> Result<FirstStep, RunError>,
) -> Result<AcceptedRun, RunError> {
    let AcceptContext { engine, sinks, span, .. } = context;
    let process_storage = engine.process_storage.as_ref().filter(|_| !info.is_thread);
    let settings =
        RunSettings { is_in_process: process_storage.is_some(), ..engine.run_settings() };
    let FirstStep { machine, commit, mut actions } = first_step(settings, info.id.clone())?;
    let span = spans::run(&machine, span, None);
    let info = RunInfo { trace: engine.trace_context.and_then(|it| it(&span)), ..info };
    let mut log = Log::begin(&info, sinks, engine.clock.clone());
    for event in take_emissions(&mut actions) {
        log.add(event);
    }
    if let Some(storage) = process_storage {
        let mut journal = JournalWriter::in_process(Arc::clone(storage), info, log);
        journal.publish().await?;
        return Ok(AcceptedRun::ready(machine, journal, actions, span));
    }
    let graph = Some(engine.outline());
    let info = RunInfo { graph, ..info };
    if let Some(status) = immediate_stop(&actions) {
        log.add(run_finished(&machine, status));
        let first = Entry { run_status: Some(status.clone()), ..Entry::from(commit) };
        JournalWriter::create(engine, &info, first, log).await?.release().await?;
        return Ok(AcceptedRun::stopped(&machine, status));
    }
    let mut journal = JournalWriter::create(engine, &info, commit.into(), log).await?;
    journal.publish().await?;
    Ok(AcceptedRun::ready(machine, journal, actions, span))
}

/// Returns the status of a run that stops before its first task.
///
/// Acceptance and status are saved together. A crash between the two would leave a run that looks unfinished and gets
/// resumed past its breakpoint. The actions are those that [`take_emissions`] has left: a report before the stop would hide
/// it.
pub(super) fn immediate_stop(actions: &[Action]) -> Option<&RunStatus> {
    match actions {
        [Action::Stop(status)] => Some(status),
        _ => None,
    }
}

/// Takes the first actions that report a reached node, as events: the commit that enters the graph saves them.
pub(super) fn take_emissions(actions: &mut Vec<Action>) -> Vec<Event> {
    let is_emission = |it: &&Action| matches!(it, Action::Emit { .. });
    let count = actions.iter().take_while(is_emission).count();
    let emitted = actions.drain(..count).filter_map(|action| match action {
        Action::Emit { task, node, from, name } => Some(event_of_emission(task, node, from, name)),
        _ => None,
    });
    emitted.collect()
}

/// The checks of the data flow rely on every input that the graph declares.
pub(super) fn check_input(engine: &Engine, input: &Update) -> Result<(), RunError> {
    let graph = engine.graph.definition();
    let is_missing = |name: &&ChannelName| {
        let channel = graph.schema.channel(name.as_str());
        channel.is_some_and(Channel::is_needed_as_input)
            && !input.writes.iter().any(|(written, _)| written == *name)
    };
    let missing: Vec<ChannelName> = graph.input.iter().filter(is_missing).cloned().collect();
    if missing.is_empty() { Ok(()) } else { Err(RunError::MissingInput { missing }) }
}
