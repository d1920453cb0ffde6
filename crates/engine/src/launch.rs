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
    accept::{self, AcceptedRun},
    lease::Lease,
    resume::Resumption,
    spans::SpanPlacement,
    stream::{self, OuterNode, StreamMode},
    turn::{self, Turn},
};
use crate::checkpoint::{Checkpoint, RunInfo};

/// A run about to be driven. Await it to drive the run here until it stops, or [`start`](Self::start) it in a
/// separate task. Until then nothing happens.
///
/// Dropping the future leaves a run that can be resumed, like after a crash of the process.
#[derive(Debug)]
#[must_use = "a run begins when this is awaited or started"]
pub struct Launch {
    engine: Engine,
    kind: LaunchKind,
    events: EventSink,
    shutdown: ShutdownHandle,
    modes: Vec<StreamMode>,
}

/// What a launch does.
#[derive(Debug)]
enum LaunchKind {
    New { info: Box<RunInfo>, input: Result<Update, NotFields> },
    At { info: Box<RunInfo>, checkpoint: Box<Checkpoint> },
    Turn { thread: String, info: Box<RunInfo>, input: Result<Update, NotFields>, is_queued: bool },
    Resume { run: RunId, answers: Answers },
    Retry { run: RunId, node: Option<NodeName> },
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
        let info = new_info(engine);
        Self::with_kind(engine, LaunchKind::New { info, input: input.into_input() })
    }

    pub(super) fn run_at(engine: &Engine, checkpoint: Checkpoint) -> Self {
        let info = new_info(engine);
        Self::with_kind(engine, LaunchKind::At { info, checkpoint: Box::new(checkpoint) })
    }

    pub(super) fn resume(engine: &Engine, run: &RunId) -> Self {
        Self::with_kind(
            engine,
            LaunchKind::Resume { run: run.clone(), answers: Answers::default() },
        )
    }

    pub(super) fn retry(engine: &Engine, run: &RunId) -> Self {
        Self::with_kind(engine, LaunchKind::Retry { run: run.clone(), node: None })
    }

    fn with_kind(engine: &Engine, kind: LaunchKind) -> Self {
        let (events, shutdown) = (EventSink::default(), ShutdownHandle::default());
        Self { engine: engine.clone(), kind, events, shutdown, modes: Vec::new() }
    }

    pub(super) fn turn(engine: &Engine, thread: String, input: impl IntoInput) -> Self {
        let info = new_info(engine);
        let input = input.into_input();
        Self::with_kind(engine, LaunchKind::Turn { thread, info, input, is_queued: false })
    }

    /// Lets a turn wait until other turns of its thread have ended, here or in another process. Queued turns of this
    /// process that share a storage begin in the order in which they were launched; those of several processes in any
    /// order. Has no effect on other launches.
    pub fn queued(mut self) -> Self {
        if let LaunchKind::Turn { is_queued, .. } = &mut self.kind {
            *is_queued = true;
        }
        self
    }

    /// Sets the id, the name and the origin of a new run; a thread keeps its name. Has no effect on a run that continues.
    pub fn with_info(mut self, new: RunInfo) -> Self {
        if let LaunchKind::New { info, .. }
        | LaunchKind::At { info, .. }
        | LaunchKind::Turn { info, .. } = &mut self.kind
        {
            **info = new;
        }
        self
    }

    /// Names a new run. A name follows the rules of [`RunId::parse`], and no other run of the storage may have it. A
    /// thread has its name from the turn.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        if let LaunchKind::New { info, .. } | LaunchKind::At { info, .. } = &mut self.kind {
            info.name = name.into();
        }
        self
    }

    /// Answers a question of a run that is resumed. The answer is a JSON value, or a type that becomes one. Has no effect on
    /// other launches.
    pub fn answer(mut self, question: impl Into<String>, answer: impl Into<Value>) -> Self {
        if let LaunchKind::Resume { answers, .. } = &mut self.kind {
            answers.by_name.insert(question.into(), answer.into());
        }
        self
    }

    /// Sets all answers of a run that is resumed. Has no effect on other launches.
    pub fn with_answers(mut self, given: impl Into<Answers>) -> Self {
        if let LaunchKind::Resume { answers, .. } = &mut self.kind {
            *answers = given.into();
        }
        self
    }

    /// Retries only the failed tasks of this node; with `None`, those of all nodes. Has no effect on other launches.
    pub fn only(mut self, only: impl Into<Option<NodeName>>) -> Self {
        if let LaunchKind::Retry { node, .. } = &mut self.kind {
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
        let accepted = kind.accept(&engine, events, Some(sender)).await?;
        let id = accepted.run().clone();
        let watched = shutdown.clone();
        let task = tokio::spawn(async move { accepted.drive(&engine, &watched).await });
        Ok(Run::new(id, shutdown, chunks, task))
    }

    async fn drive(self) -> Result<RunEnd, RunError> {
        let Self { engine, kind, events, shutdown, .. } = self;
        kind.accept(&engine, events, None).await?.drive(&engine, &shutdown).await
    }
}

impl IntoFuture for Launch {
    type Output = Result<RunEnd, RunError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.drive())
    }
}

impl LaunchKind {
    /// Returns the name that a new run gets.
    fn new_name(&self) -> Option<&str> {
        match self {
            Self::New { info, .. } | Self::At { info, .. } => Some(&info.name),
            Self::Turn { thread, .. } => Some(thread),
            Self::Resume { .. } | Self::Retry { .. } => None,
        }
    }

    /// Saves that the run begins or continues, and makes it belong to this process.
    async fn accept(
        self,
        engine: &Engine,
        events: EventSink,
        stream: Option<stream::Sender>,
    ) -> Result<AcceptedRun, RunError> {
        // Only a run in a separate task has a stream here.
        let span = if stream.is_some() { SpanPlacement::Detached } else { SpanPlacement::Current };
        let stream = stream.or_else(|| engine.outer.as_ref()?.stream.clone());
        let outer = engine
            .outer
            .as_ref()
            .map(|it| OuterNode { reporter: it.reporter.clone(), node: it.node.clone() });
        let sinks = stream::Sinks { events, stream, outer, span };
        // The names of nested runs are made here.
        if engine.outer.is_none()
            && let Some(name) = self.new_name()
        {
            RunId::parse(name).map_err(RunError::Name)?;
        }
        match self {
            Self::New { info, input } => {
                let input = input.map_err(RunError::Fields)?;
                accept::save_new(engine, *info, input, sinks).await
            }
            Self::At { info, checkpoint } => {
                accept::save_at(engine, *info, *checkpoint, sinks).await
            }
            Self::Turn { thread, info, input, is_queued } => {
                let input = input.map_err(RunError::Fields)?;
                let turn = Turn { thread, input, is_queued };
                turn::begin_or_continue_thread(engine, turn, *info, sinks).await
            }
            Self::Resume { run, answers } => {
                let load = Resumption::load_with_answers(engine, &run, answers);
                resume(engine, &run, load, sinks).await
            }
            Self::Retry { run, node } => {
                let load = Resumption::load_for_retry(engine, &run, node.as_ref());
                resume(engine, &run, load, sinks).await
            }
        }
    }
}

/// Acquires a run, loads it and saves that it continues.
async fn resume(
    engine: &Engine,
    run: &RunId,
    load: impl Future<Output = Result<Resumption, RunError>>,
    sinks: stream::Sinks,
) -> Result<AcceptedRun, RunError> {
    let lease = Lease::acquire(&engine.checkpointer, run, engine.lease_duration).await?;
    let (lease, resumption) = lease.or_release(load.await).await?;
    resumption.save(engine, lease, sinks).await
}

fn new_info(engine: &Engine) -> Box<RunInfo> {
    Box::new(engine.new_info())
}
