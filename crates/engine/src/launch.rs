//! A run about to be driven: started, resumed or retried, with its settings.

use std::{future::IntoFuture, pin::Pin};

use graphrun_core::{
    event::EventSink,
    id::{NodeName, RunId},
    state::{NotFields, Update},
};
use serde::Serialize;
use serde_json::Value;

use super::{
    Answers, Engine, Run, RunEnd, RunError, ShutdownHandle,
    accept::{self, Accept, AcceptContext, AcceptedRun},
    lease::Lease,
    resume::Resumption,
    stream::{self, StreamMode},
    turn::{self, TurnRequest},
};
use crate::checkpoint::{Checkpoint, RunInfo};

/// A run about to be driven. Await it to drive the run here until it stops, or [`start`](Self::start) it in a
/// separate task. Until then nothing happens.
///
/// Its kind `K` is a [`NewRun`], a [`NewTurn`], a [`Resume`] or a [`Retry`]. Each kind has its own settings.
///
/// Dropping the future leaves a run that can be resumed, like after a crash of the process.
#[derive(Debug)]
#[must_use = "a run begins when this is awaited or started"]
pub struct Launch<K> {
    engine: Engine,
    kind: K,
    events: EventSink,
    shutdown: ShutdownHandle,
    modes: Vec<StreamMode>,
}

/// A run that begins.
#[derive(Debug)]
pub struct NewRun {
    info: Box<RunInfo>,
    from: StartPoint,
}

/// Where a new run begins.
#[derive(Debug)]
enum StartPoint {
    Input(Result<Update, NotFields>),
    Checkpoint(Box<Checkpoint>),
}

/// A turn of a thread.
#[derive(Debug)]
pub struct NewTurn {
    info: Box<RunInfo>,
    thread: String,
    input: Result<Update, NotFields>,
    is_queued: bool,
}

/// A saved run that continues.
#[derive(Debug)]
pub struct Resume {
    run: RunId,
    answers: Answers,
}

/// A failed run whose failed tasks run again.
#[derive(Debug)]
pub struct Retry {
    run: RunId,
    only: Option<NodeName>,
}

/// What a [`Launch`] does. It is sealed: no other crate can name the trait that it requires.
pub trait LaunchKind: Accept {}

impl<K: Accept> LaunchKind for K {}

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

impl Launch<NewRun> {
    pub(super) fn new_run(engine: &Engine, input: impl IntoInput) -> Self {
        let from = StartPoint::Input(input.into_input());
        Self::new(engine, NewRun { info: new_info(engine), from })
    }

    pub(super) fn run_at(engine: &Engine, checkpoint: Checkpoint) -> Self {
        let from = StartPoint::Checkpoint(Box::new(checkpoint));
        Self::new(engine, NewRun { info: new_info(engine), from })
    }

    /// Sets the id, the name and the origin of the run.
    pub fn with_info(mut self, info: RunInfo) -> Self {
        *self.kind.info = info;
        self
    }

    /// Names the run. A name follows the rules of [`RunId::parse`], and no other run of the storage may have it.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.kind.info.name = name.into();
        self
    }
}

impl Launch<NewTurn> {
    pub(super) fn turn(engine: &Engine, thread: String, input: impl IntoInput) -> Self {
        let info = new_info(engine);
        let input = input.into_input();
        Self::new(engine, NewTurn { info, thread, input, is_queued: false })
    }

    /// Waits until other turns of the thread have ended, here or in another process. Queued turns of this process that
    /// share a storage begin in the order in which they were launched; those of several processes in any order. A
    /// shutdown ends the wait with [`RunError::NotBegun`].
    pub fn queued(mut self) -> Self {
        self.kind.is_queued = true;
        self
    }

    /// Sets the id and the origin of the run that a thread begins with; a thread keeps its name.
    pub fn with_info(mut self, info: RunInfo) -> Self {
        *self.kind.info = info;
        self
    }
}

impl Launch<Resume> {
    pub(super) fn resume(engine: &Engine, run: &RunId) -> Self {
        Self::new(engine, Resume { run: run.clone(), answers: Answers::default() })
    }

    /// Answers a question of the run. The answer is a JSON value, or a type that becomes one.
    pub fn answer(mut self, question: impl Into<String>, answer: impl Into<Value>) -> Self {
        self.kind.answers.by_name.insert(question.into(), answer.into());
        self
    }

    /// Sets all answers.
    pub fn with_answers(mut self, answers: impl Into<Answers>) -> Self {
        self.kind.answers = answers.into();
        self
    }
}

impl Launch<Retry> {
    pub(super) fn retry(engine: &Engine, run: &RunId) -> Self {
        Self::new(engine, Retry { run: run.clone(), only: None })
    }

    /// Retries only the failed tasks of this node; with `None`, those of all nodes.
    pub fn only(mut self, node: impl Into<Option<NodeName>>) -> Self {
        self.kind.only = node.into();
        self
    }
}

impl<K: LaunchKind> Launch<K> {
    fn new(engine: &Engine, kind: K) -> Self {
        let events = EventSink::default();
        let shutdown = ShutdownHandle::default();
        Self { engine: engine.clone(), kind, events, shutdown, modes: Vec::new() }
    }

    /// Publishes the events of the run to these readers. A reader that falls behind slows the run down and loses no
    /// event; [`stream`](Self::stream) never does.
    pub fn with_events(mut self, events: EventSink) -> Self {
        self.events = events;
        self
    }

    /// Lets this handle stop the run from outside.
    pub fn with_shutdown(mut self, handle: &ShutdownHandle) -> Self {
        self.shutdown = handle.clone();
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
    /// Fails when a declared input field is missing, a value does not fit its channel, an answer matches no open
    /// question, another process owns the run, or it cannot be loaded or saved.
    pub async fn start(mut self) -> Result<Run, RunError> {
        if self.modes.is_empty() {
            self.modes.push(StreamMode::Debug);
        }
        let (sender, chunks) = stream::channel(&self.modes, &self.engine.graph);
        let Self { engine, kind, events, shutdown, .. } = self;
        let context = AcceptContext::new(&engine, &shutdown, events, Some(sender));
        let accepted = Box::pin(kind.accept(context)).await?;
        let id = accepted.run().clone();
        let watched = shutdown.clone();
        let task = tokio::spawn(async move { accepted.drive(&engine, &watched).await });
        Ok(Run::new(id, shutdown, chunks, task))
    }

    async fn drive(self) -> Result<RunEnd, RunError> {
        let Self { engine, kind, events, shutdown, .. } = self;
        let context = AcceptContext::new(&engine, &shutdown, events, None);
        // The room that this needs is free again while the run is active.
        let accepted = Box::pin(kind.accept(context)).await?;
        accepted.drive(&engine, &shutdown).await
    }
}

impl<K: LaunchKind + 'static> IntoFuture for Launch<K> {
    type Output = Result<RunEnd, RunError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.drive())
    }
}

impl Accept for NewRun {
    async fn accept(self, context: AcceptContext<'_>) -> Result<AcceptedRun, RunError> {
        check_name(context.engine, &self.info.name)?;
        match self.from {
            StartPoint::Input(input) => {
                let input = input.map_err(RunError::Fields)?;
                accept::save_new(context, *self.info, input).await
            }
            StartPoint::Checkpoint(checkpoint) => {
                accept::save_at(context, *self.info, *checkpoint).await
            }
        }
    }
}

impl Accept for NewTurn {
    async fn accept(self, context: AcceptContext<'_>) -> Result<AcceptedRun, RunError> {
        let Self { info, thread, input, is_queued } = self;
        check_name(context.engine, &thread)?;
        let input = input.map_err(RunError::Fields)?;
        let origin = info.origin.clone();
        let turn = TurnRequest { thread, input, is_queued, origin };
        turn::begin_or_continue_thread(context, turn, *info).await
    }
}

impl Accept for Resume {
    async fn accept(self, context: AcceptContext<'_>) -> Result<AcceptedRun, RunError> {
        let load = Resumption::load_with_answers(context.engine, &self.run, self.answers);
        resume(context, &self.run, load).await
    }
}

impl Accept for Retry {
    async fn accept(self, context: AcceptContext<'_>) -> Result<AcceptedRun, RunError> {
        let load = Resumption::load_for_retry(context.engine, &self.run, self.only.as_ref());
        resume(context, &self.run, load).await
    }
}

/// Checks the name of a run that may be new. Those of nested runs are made here.
fn check_name(engine: &Engine, name: &str) -> Result<(), RunError> {
    if engine.outer.is_none() {
        RunId::parse(name).map_err(RunError::Name)?;
    }
    Ok(())
}

/// Acquires a run, loads it and saves that it continues.
async fn resume(
    context: AcceptContext<'_>,
    run: &RunId,
    load: impl Future<Output = Result<Resumption, RunError>>,
) -> Result<AcceptedRun, RunError> {
    let AcceptContext { engine, .. } = context;
    let lease = Lease::acquire(&engine.checkpointer, run, engine.lease_duration).await?;
    let resumption = lease.release_on_error(load.await).await?;
    resumption.save(context, lease).await
}

fn new_info(engine: &Engine) -> Box<RunInfo> {
    Box::new(engine.new_info())
}
