//! The outcome of a run, and the handle of one that is driven in a separate task.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::Stream;
use graphrun_core::{
    event::Status,
    graph::Failure,
    id::{NodeName, RunId},
    state::State,
};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

use super::{RunError, ShutdownHandle, StreamChunk, stream::StreamReceiver};
use crate::checkpoint::{OpenQuestion, Position};

/// The outcome of driving a run until it stopped.
#[derive(Clone, Debug)]
pub struct RunEnd {
    /// The id of the run, to resume it or to read its journal.
    pub run: RunId,
    /// Done, failed, paused, limit or interrupted.
    pub status: Status,
    /// The reason. A run that is done has one if a limit led it to `limits.exhausted`.
    pub reason: Option<String>,
    /// The position at which the run stopped.
    pub position: Position,
    /// The state of the run, without private fields: only nodes can use those. If the run stopped within a step, it also
    /// has the results of the tasks that have finished, unless they conflict. Results of the other tasks may precede them in lists after the step.
    pub state: State,
    /// The questions that are still open.
    pub questions: Vec<OpenQuestion>,
    /// The nodes that failed for good, each with its failure and the kind of it. A run that an edge or a bound leads to
    /// [`FAIL`](graphrun_core::graph::FAIL) has none.
    pub failures: Vec<(NodeName, Failure)>,
}

/// A run that is driven in a separate Tokio task: a stream of [`StreamChunk`]s, and then an [outcome](Self::outcome).
///
/// The run does not wait for the reader of the stream; missed chunks are [counted](StreamChunk::Missed). Dropping the
/// handle does not stop the run.
///
/// ```
/// use futures_util::StreamExt;
/// use graphrun_analysis::GraphBuilder;
/// use graphrun_core::graph::{END, NodeContext, NodeError, START};
/// use graphrun_engine::{Engine, StreamMode};
///
/// #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
/// struct Text { text: Option<String> }
///
/// async fn write(_: (), ctx: NodeContext) -> Result<Text, NodeError> {
///     ctx.emit("half of it").await?;
///     Ok(Text { text: Some("all of it".to_owned()) })
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let graph = GraphBuilder::new::<Text>("text").node("write", write);
/// let graph = graph.edge(START, "write").edge("write", END).compile()?;
/// let mut run = Engine::new(graph).run(&()).stream([StreamMode::Custom]).start().await?;
/// let chunk = run.next().await.expect("the node emits a text");
/// assert_eq!(chunk.custom::<String>().as_deref(), Some("half of it"));
/// assert_eq!(run.outcome().await?.output::<Text>()?.text.as_deref(), Some("all of it"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Run {
    id: RunId,
    shutdown: ShutdownHandle,
    stream: StreamReceiver,
    task: JoinHandle<Result<RunEnd, RunError>>,
}

impl RunEnd {
    /// Reads the state of a run that is done as a struct whose fields are channels.
    ///
    /// # Errors
    ///
    /// Fails when the run is not done, or the state has another form.
    pub fn output<O: DeserializeOwned>(&self) -> Result<O, RunError> {
        if self.status != Status::Done {
            let run = self.run.clone();
            let status = self.status;
            let reason = self.reason.clone();
            return Err(RunError::NotDone { run, status, reason });
        }
        self.state.read().map_err(RunError::Output)
    }
}

impl Run {
    pub(super) fn new(
        id: RunId,
        shutdown: ShutdownHandle,
        stream: StreamReceiver,
        task: JoinHandle<Result<RunEnd, RunError>>,
    ) -> Self {
        Self { id, shutdown, stream, task }
    }

    /// Returns the id of the run, to resume it or to read its journal.
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// Returns the handle that stops the run.
    pub fn shutdown(&self) -> &ShutdownHandle {
        &self.shutdown
    }

    /// Drops the running nodes at once. The last checkpoint and every finished task are kept, so that the run can be
    /// resumed.
    pub fn abort(&self) {
        self.shutdown.abort();
    }

    /// Waits until the run stops.
    ///
    /// # Errors
    ///
    /// Fails when the run cannot be saved. A failing node is not an error here: the run stops as failed.
    pub async fn outcome(self) -> Result<RunEnd, RunError> {
        // Nothing reads the stream any longer.
        drop(self.stream);
        match self.task.await {
            Ok(end) => end,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(RunError::Dropped { run: self.id }),
            },
        }
    }
}

impl Stream for Run {
    type Item = StreamChunk;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<StreamChunk>> {
        match self.stream.chunks.poll_recv(context) {
            Poll::Ready(None) => Poll::Ready(self.stream.take_missed()),
            other => other,
        }
    }
}
