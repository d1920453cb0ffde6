//! One attempt at a task: the node, which is arbitrary code, and its supervision.
//!
//! Each node runs in its own Tokio task. A node that blocks its thread delays no other node, and a panic,
//! even one during drop, unwinds only that task.

use std::time::Duration;

use graphrun_core::{
    fault::{self, Point},
    graph::{
        AttemptMessage, Command, ErrorKind, Failure, Memos, NodeContext, NodeError, NodeSpec,
        Reporter,
    },
    id::{RunId, TaskId},
    state::panic_text,
};
use tokio::{
    sync::mpsc,
    task::JoinError,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    Clock,
    superstep::{Attempt, Event, Task},
};
/// How long an aborted node may take to drop. A node that blocks its thread does not react to the abort; it
/// is detached and its result discarded.
const DROP_TIMEOUT: Duration = Duration::from_secs(1);

/// The result of a node, and when it returned.
pub(super) type Returned = (Result<Command, NodeError>, Instant);

/// The context that a run gives to each attempt.
#[derive(Clone, Debug)]
pub(super) struct AttemptContext {
    pub(super) run: RunId,
    pub(super) messages: mpsc::Sender<AttemptMessage>,
    /// Asks nodes to stop at once.
    pub(super) cancel: CancellationToken,
    /// Aborts the attempt because a limit of the run is reached.
    pub(super) abort: CancellationToken,
    /// Ends all supervision; unfinished attempts leave no result.
    pub(super) discard: CancellationToken,
    pub(super) clock: Clock,
}

/// Supervises one attempt: its timeouts and its usage.
#[derive(Debug)]
pub(super) struct Watch {
    task: TaskId,
    number: u32,
    total: Option<Duration>,
    idle: Option<Duration>,
    started: Instant,
    reporter: Reporter,
    cancel: CancellationToken,
    abort: CancellationToken,
    discard: CancellationToken,
    clock: Clock,
}

/// Creates an attempt: the work, which needs its own Tokio task, and its supervision.
pub(super) fn attempt(
    attempt_context: AttemptContext,
    task: Task,
    spec: NodeSpec,
) -> (impl Future<Output = Returned> + Send + 'static, Watch) {
    let AttemptContext { run, messages, cancel, abort, discard, clock } = attempt_context;
    let reporter = Reporter::new(task.id, task.attempt, messages);
    let cancel = cancel.child_token();
    let watch = Watch {
        task: task.id,
        number: task.attempt,
        total: spec.policies.timeout,
        idle: spec.policies.idle_timeout,
        started: Instant::now(),
        reporter: reporter.clone(),
        cancel: cancel.clone(),
        abort,
        discard,
        clock,
    };
    let ctx = NodeContext {
        run,
        task: task.id,
        node: task.node,
        original: task.original,
        attempt: task.attempt,
        visits: task.visits,
        max_visits: spec.policies.max_visits,
        state: task.state,
        input: task.input,
        trigger: task.trigger,
        cancel,
        answers: task.answers,
        memos: Memos::new(task.memos),
        reporter,
    };
    // The call is inside a future, so that a panic before the node returns its future is caught, too.
    let work = async move {
        let result = run_node(&spec, ctx).await;
        (result, Instant::now())
    };
    (work, watch)
}

impl Watch {
    /// Waits for the end of the work and returns its event, or `None` if the attempt was discarded.
    ///
    /// # Cancel safety
    ///
    /// When dropped, it drops the work at its current await point. Nothing is recorded, so a resumed run
    /// starts the task again.
    pub(super) async fn over(self, mut work: AbortOnDropHandle<Returned>) -> Option<Event> {
        let (result, ended) = tokio::select! {
            // A finished result counts even if the abort arrives at the same time.
            biased;
            ended = &mut work => match ended {
                Ok(returned) => returned,
                Err(error) => (Err(panicked(error)?.into()), Instant::now()),
            },
            () = self.discard.cancelled() => {
                self.give_up(work).await;
                return None;
            }
            () = self.abort.cancelled() => {
                self.give_up(work).await;
                return Some(Event::Aborted { task: self.task, attempt: self.attempt_until(Instant::now()) });
            }
            message = self.timed_out() => {
                let message = match self.give_up(work).await {
                    Some(panic) => format!("{message}; then {}", panic.message),
                    None => message,
                };
                let failure = Failure::new(ErrorKind::Timeout, message);
                (Err(Failure { transient: true, ..failure }.into()), Instant::now())
            }
        };
        let (task, attempt) = (self.task, self.attempt_until(ended));
        Some(match result {
            Ok(command) => Event::Finished { task, command, attempt },
            Err(NodeError::Ask(question)) => Event::Asked { task, question: *question, attempt },
            Err(NodeError::Failed(failure)) => Event::Failed { task, failure: *failure, attempt },
        })
    }

    /// Returns whether a timeout may end the attempt.
    pub(super) fn keeps_time(&self) -> bool {
        self.total.is_some() || self.idle.is_some()
    }

    /// Returns the record of the attempt that ended at this time.
    fn attempt_until(&self, ended: Instant) -> Attempt {
        let ms = ended.saturating_duration_since(self.started).as_millis();
        let ms = u64::try_from(ms).unwrap_or(u64::MAX);
        let usage = self.reporter.usage();
        Attempt { number: self.number, ms, usage, ended: self.clock.now() }
    }

    /// Waits until a timeout expires and returns its description.
    async fn timed_out(&self) -> String {
        let total = async {
            match self.total {
                Some(total) => {
                    sleep_until(self.started + total).await;
                    format!("not finished within {total:?}")
                }
                None => std::future::pending().await,
            }
        };
        let idle = async {
            let Some(idle) = self.idle else { return std::future::pending().await };
            loop {
                let silent = self.reporter.last_report().unwrap_or(self.started) + idle;
                if silent <= Instant::now() {
                    return format!("no sign of progress for {idle:?}");
                }
                sleep_until(silent).await;
            }
        };
        tokio::select! {
            message = total => message,
            message = idle => message,
        }
    }

    /// Aborts the work. Returns a failure if the node panics during drop.
    async fn give_up(&self, mut work: AbortOnDropHandle<Returned>) -> Option<Failure> {
        self.cancel.cancel();
        work.abort();
        match timeout(DROP_TIMEOUT, &mut work).await {
            Ok(Err(error)) => panicked(error),
            Ok(Ok(_)) | Err(_) => None,
        }
    }
}

/// Returns the failure of a node that panicked, or `None` if it was only aborted.
fn panicked(error: JoinError) -> Option<Failure> {
    let panic = error.try_into_panic().ok()?;
    let message = format!("the node panicked: {}", panic_text(panic.as_ref()));
    Some(Failure::new(ErrorKind::Panic, message))
}

/// Runs the node between two failpoints at which tests may end the process.
async fn run_node(spec: &NodeSpec, ctx: NodeContext) -> Result<Command, NodeError> {
    let injected = |it: fault::Injected| NodeError::transient(it.to_string());
    fault::hit(Point::TaskBeforeRun).map_err(injected)?;
    let command = spec.node.run(ctx).await?;
    fault::hit(Point::TaskAfterRun).map_err(injected)?;
    Ok(command)
}
