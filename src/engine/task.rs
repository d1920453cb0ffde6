//! Running one attempt of one task: the node, its timeout, and its panics.

use std::{panic::AssertUnwindSafe, time::Instant};

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::superstep::{Attempt, Event, Task};
use crate::{
    event::Report,
    graph::{ErrorKind, Failure, NodeContext, NodeError, NodeSpec, Reporter},
    id::{RunId, TaskId},
};

/// Runs a node once and says what happened.
///
/// Cancel safety: dropping this future drops the node's future at its current await point.
/// Nothing is recorded, so a resumed run starts the task again.
pub(super) async fn attempt(
    run: RunId,
    task: Task,
    spec: NodeSpec,
    reports: mpsc::Sender<(TaskId, Report)>,
    cancel: CancellationToken,
) -> Event {
    let (id, number) = (task.id, task.attempt);
    let reporter = Reporter::new(id, reports);
    let ctx = NodeContext {
        run,
        task: id,
        node: task.node,
        attempt: task.attempt,
        visits: task.visits,
        max_visits: spec.policies.max_visits,
        state: task.state,
        input: task.input,
        via: task.via,
        cancel,
        answers: task.answers,
        reporter: reporter.clone(),
    };
    let started = Instant::now();
    let result = guarded(&spec, ctx).await;
    let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let attempt = Attempt { number, ms, spent: reporter.spent() };
    match result {
        Ok(command) => Event::Finished { task: id, command, attempt },
        Err(NodeError::Ask(question)) => Event::Asked { task: id, question: *question, attempt },
        Err(NodeError::Failed(failure)) => Event::Failed { task: id, failure: *failure, attempt },
    }
}

/// Runs the node within its timeout; a panic becomes its failure.
async fn guarded(spec: &NodeSpec, ctx: NodeContext) -> Result<crate::graph::Command, NodeError> {
    // Within a future of ours, so that a node that panics before it makes its own is caught, too.
    let work = AssertUnwindSafe(async { spec.node.run(ctx).await }).catch_unwind();
    let finished = match spec.policies.timeout {
        Some(timeout) => tokio::time::timeout(timeout, work).await.map_err(|_| {
            let message = format!("not finished within {timeout:?}");
            NodeError::from(Failure {
                transient: true,
                ..Failure::new(ErrorKind::Timeout, message)
            })
        })?,
        None => work.await,
    };
    finished.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let message = format!("the node panicked: {}", text.unwrap_or("no message"));
        Err(Failure::new(ErrorKind::Panic, message).into())
    })
}
