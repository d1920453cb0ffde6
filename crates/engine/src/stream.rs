//! What a run streams to its reader while it is driven.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use graphrun_analysis::CompiledGraph;
use graphrun_core::{
    event::{EVENT_VERSION, Event, EventSink, MessageDelta, Report, RunEvent},
    graph::{DeltaReader, MessagePiece, Reporter},
    id::{ChannelName, NodeName, RunId, Step, TaskId},
    state::{State, Update},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc;

use super::Clock;
use crate::checkpoint::{Outcome, TaskRecord};

/// How many chunks wait for a reader; chunks beyond them are counted as missed.
const CAPACITY: usize = 1024;

/// What a run streams. The names are those of LangGraph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamMode {
    /// The whole state without private channels, when the run starts or continues, and after each step.
    Values,
    /// The writes of each task to channels that are not private, once they are saved.
    Updates,
    /// What the nodes emit by `ctx.emit`.
    Custom,
    /// The pieces of models' answers, as they arrive.
    Messages,
    /// Every event.
    Debug,
}

/// One item of the stream of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StreamChunk {
    /// The state after a step, or before the first one.
    Values {
        /// The step; zero before the first one.
        step: Step,
        /// The state.
        state: Arc<State>,
    },
    /// The writes of a finished task.
    Updates {
        /// The task.
        task: TaskId,
        /// Its node; of a nested run, with the name of the node that runs its graph before it.
        node: NodeName,
        /// The writes.
        update: Update,
    },
    /// A value that a node emitted.
    Custom {
        /// The task.
        task: TaskId,
        /// Its node; of a nested run, with the name of the node that runs its graph before it.
        node: NodeName,
        /// The value.
        value: Value,
    },
    /// A piece of a model's answer.
    Message(Box<MessageDelta>),
    /// An event.
    Debug(Box<RunEvent>),
    /// The reader was too slow for this many chunks; the run did not wait for it.
    Missed(u64),
}

impl StreamChunk {
    /// Returns the value that a node emitted, if it is one and has this type.
    pub fn custom<T: DeserializeOwned>(&self) -> Option<T> {
        let Self::Custom { value, .. } = self else { return None };
        T::deserialize(value).ok()
    }
}

/// The readers of a run: those that it waits for, and one that it does not wait for.
#[derive(Clone, Debug, Default)]
pub(super) struct Sinks {
    pub(super) events: EventSink,
    pub(super) stream: Option<StreamSender>,
    /// The node whose nested run it is.
    pub(super) outer: Option<OuterReporter>,
}

/// Reports to the node that uses the graph of a nested run.
#[derive(Clone, Debug)]
pub(super) struct OuterReporter {
    /// Reports to the attempt of the node.
    pub(super) reporter: Reporter,
    pub(super) node: NodeName,
}

impl Sinks {
    /// Returns whether there is no reader.
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.stream.is_none() && self.outer.is_none()
    }

    /// Sends an event to all readers. The attempt of a nested run reports what its tasks do; the rest concerns only the
    /// journal of the nested run.
    pub(super) async fn send(&self, event: &RunEvent) {
        self.events.send(event).await;
        if let Some(OuterReporter { reporter, node }) = &self.outer
            && let Some(event) = event.event.clone().within(node)
        {
            // Boxed, since hardly any run is nested, and the future is part of that of each step.
            Box::pin(reporter.report(Report::Nested { event: Box::new(event) })).await;
        }
        if let Some(stream) = &self.stream {
            stream.send_event(event);
        }
    }
}

/// Gives the pieces of models' answers to the readers of a run. It is apart from the events, because nothing saves the
/// pieces and nothing waits for them.
#[derive(Debug)]
pub(super) struct DeltaPublisher {
    run: RunId,
    /// The readers, while the run is driven.
    sinks: RwLock<Option<Sinks>>,
    clock: Clock,
}

impl DeltaPublisher {
    /// Returns the publisher of a run; `None` if no reader wants pieces.
    pub(super) fn of(run: &RunId, sinks: &Sinks, clock: &Clock) -> Option<Arc<dyn DeltaReader>> {
        let is_wanted = sinks.events.wants_deltas()
            || sinks.stream.as_ref().is_some_and(|it| it.wants(StreamMode::Messages))
            || sinks.outer.as_ref().is_some_and(|it| it.reporter.wants_deltas());
        let open = || RwLock::new(Some(sinks.clone()));
        let publisher = || Self { run: run.clone(), sinks: open(), clock: clock.clone() };
        is_wanted.then(|| Arc::new(publisher()) as Arc<dyn DeltaReader>)
    }
}

impl DeltaReader for DeltaPublisher {
    fn take(&self, task: TaskId, attempt: u32, piece: MessagePiece) {
        let sinks = self.sinks.read().unwrap_or_else(PoisonError::into_inner);
        let Some(Sinks { events, stream, outer }) = sinks.as_ref() else { return };
        if let Some(OuterReporter { reporter, node }) = outer {
            reporter.send_delta(MessagePiece { node: piece.node.within(node), ..piece.clone() });
        }
        let MessagePiece { node, message, model, part, text } = piece;
        let v = EVENT_VERSION;
        let ts = self.clock.now().to_string();
        let run = self.run.clone();
        let delta =
            MessageDelta { v, ts, run, task, node, attempt, message, model, part, text, missed: 0 };
        events.send_delta(&delta);
        if let Some(stream) = stream.as_ref().filter(|it| it.wants(StreamMode::Messages)) {
            stream.send(StreamChunk::Message(Box::new(delta)));
        }
    }

    fn close(&self) {
        drop(self.sinks.write().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// The end of the stream at the run.
#[derive(Clone, Debug)]
pub(super) struct StreamSender {
    modes: Vec<StreamMode>,
    chunks: mpsc::Sender<StreamChunk>,
    missed: Arc<AtomicU64>,
    /// The outermost task whose nested run it is, and its node.
    outer: Option<(TaskId, NodeName)>,
    /// The private channels, which no reader gets.
    private: Arc<BTreeSet<ChannelName>>,
}

/// The end of the stream at the reader.
#[derive(Debug)]
pub(super) struct StreamReceiver {
    pub(super) chunks: mpsc::Receiver<StreamChunk>,
    missed: Arc<AtomicU64>,
}

/// Makes a stream of these modes for a run of the graph.
pub(super) fn channel(
    modes: &[StreamMode],
    graph: &CompiledGraph,
) -> (StreamSender, StreamReceiver) {
    let (sender, receiver) = mpsc::channel(CAPACITY);
    let missed = Arc::new(AtomicU64::new(0));
    let modes = modes.to_vec();
    let chunks = sender;
    let private = Arc::new(private_channels(graph));
    let sender = StreamSender { modes, chunks, missed: Arc::clone(&missed), outer: None, private };
    (sender, StreamReceiver { chunks: receiver, missed })
}

impl StreamSender {
    pub(super) fn wants(&self, mode: StreamMode) -> bool {
        self.modes.contains(&mode)
    }

    /// Returns the stream of the nested run of a task. The outer run streams all but the updates itself.
    pub(super) fn of_nested_run(
        &self,
        task: TaskId,
        node: &NodeName,
        graph: &CompiledGraph,
    ) -> Self {
        let outer = match &self.outer {
            Some((outermost, outer)) => (*outermost, node.within(outer)),
            None => (task, node.clone()),
        };
        let private = Arc::new(private_channels(graph));
        Self { modes: vec![StreamMode::Updates], outer: Some(outer), private, ..self.clone() }
    }

    /// Sends the writes of a task that finished.
    pub(super) fn send_update(&self, record: &TaskRecord) {
        if let (Outcome::Finished { update, .. }, true) =
            (&record.outcome, self.wants(StreamMode::Updates))
        {
            let (task, node) = match &self.outer {
                Some((task, outer)) => (*task, record.node.within(outer)),
                None => (record.task, record.node.clone()),
            };
            let mut update = update.clone();
            update.clears.retain(|it| !self.private.contains(it));
            update.writes.retain(|(it, _)| !self.private.contains(it));
            self.send(StreamChunk::Updates { task, node, update });
        }
    }

    /// Sends the state after a step.
    pub(super) fn send_values(&self, step: Step, mut state: Arc<State>) {
        if !self.private.is_empty() {
            state = Arc::new(state.without_private());
        }
        self.send(StreamChunk::Values { step, state });
    }

    /// Sends an event, and the value in it if a node emitted one.
    pub(super) fn send_event(&self, event: &RunEvent) {
        if let Event::TaskReported { task, node, report } = &event.event
            && self.wants(StreamMode::Custom)
            && let Some((node, value)) = custom_value(node, report)
        {
            self.send(StreamChunk::Custom { task: *task, node, value: value.clone() });
        }
        if self.wants(StreamMode::Debug) {
            self.send(StreamChunk::Debug(Box::new(event.clone())));
        }
    }

    /// Sends a chunk if there is room, and the number of those for which there was none.
    fn send(&self, chunk: StreamChunk) {
        let missed = self.missed.swap(0, Ordering::Relaxed);
        if missed > 0 && self.chunks.try_send(StreamChunk::Missed(missed)).is_err() {
            self.missed.fetch_add(missed + 1, Ordering::Relaxed);
        } else if self.chunks.try_send(chunk).is_err() {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn private_channels(graph: &CompiledGraph) -> BTreeSet<ChannelName> {
    let private = graph.schema().channels().iter().filter(|it| it.is_private());
    private.map(|it| it.name().clone()).collect()
}

/// Returns the value that a node or one of its nested run emitted, with the name of that node.
fn custom_value<'a>(node: &NodeName, report: &'a Report) -> Option<(NodeName, &'a Value)> {
    match report {
        Report::Custom { value } => Some((node.clone(), value)),
        Report::Nested { event } => match event.as_ref() {
            Event::TaskReported { node, report, .. } => custom_value(node, report),
            _ => None,
        },
        _ => None,
    }
}

impl StreamReceiver {
    /// Returns the number of chunks missed at the end of the stream, once.
    pub(super) fn take_missed(&self) -> Option<StreamChunk> {
        let missed = self.missed.swap(0, Ordering::Relaxed);
        (missed > 0).then_some(StreamChunk::Missed(missed))
    }
}
