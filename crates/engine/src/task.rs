//! One attempt at a task: the node, which is arbitrary code, and its supervision.
//!
//! An attempt runs in its own Tokio task, so that a node that blocks its thread delays no other node. A node whose
//! attempts were short so far is first polled where it was started: most nodes are ready at once, and then need no
//! task, no token and no wake-up. Either way a panic, even one during drop, ends only the attempt.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use graphrun_analysis::{CompiledGraph, NodeIndex};
use graphrun_core::{
    fault::{self, Point},
    graph::{
        Attempts, Command, DriverLink, ErrorKind, Failure, Node, NodeContext, NodeError,
        ProvidedValues, Reporter,
    },
    id::{RunId, TaskId},
    state::panic_text,
    words::duration,
};
use tokio::{
    task::JoinError,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::{Instrument, Span};

use super::{
    Clock,
    machine::{AttemptStats, Task, TaskEvent},
};

/// How long an aborted node may take to drop. A node that blocks its thread does not react to the abort; it
/// is detached and its result discarded.
const DROP_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the first poll of a node may take before the next attempts of the node get separate tasks. Longer work
/// gains from another thread, and delays the other nodes of this one.
const QUICK_POLL_MAX: Duration = Duration::from_micros(50);

/// The end of the work of a node.
pub(super) struct NodeReturn {
    result: Result<Command, NodeError>,
    returned: Instant,
}

/// The context that a run gives to each attempt.
#[derive(Debug)]
pub(super) struct AttemptContext {
    pub(super) run: RunId,
    pub(super) graph: CompiledGraph,
    /// Takes the messages of nodes, and asks them to stop at once.
    pub(super) link: Arc<DriverLink>,
    pub(super) clock: Clock,
    pub(super) provided: ProvidedValues,
}

/// The timeouts of an attempt.
#[derive(Clone, Copy, Debug)]
struct Timeouts {
    total: Option<Duration>,
    /// The longest time without a sign of progress.
    idle: Option<Duration>,
}

impl Timeouts {
    fn is_any(self) -> bool {
        self.total.is_some() || self.idle.is_some()
    }
}

/// An attempt that has no Tokio task yet.
pub(super) struct NewAttempt {
    task: TaskId,
    number: u32,
    node: NodeIndex,
    started: Instant,
    timeouts: Timeouts,
    reporter: Reporter,
    work: BoxFuture<'static, Result<Command, NodeError>>,
}

/// The result of [`NewAttempt::poll_inline`].
pub(super) enum FirstPoll {
    /// The attempt has ended, with its event, or without one because it was cancelled.
    Ended(Option<Box<TaskEvent>>),
    /// The attempt needs a Tokio task.
    Pending(NewAttempt),
}

/// Supervises one attempt: its timeouts and its usage.
#[derive(Debug)]
pub(super) struct Supervisor {
    task: TaskId,
    number: u32,
    timeouts: Timeouts,
    started: Instant,
    reporter: Reporter,
    abort: CancellationToken,
    discard: CancellationToken,
    clock: Clock,
}

impl NewAttempt {
    pub(super) fn new(context: &AttemptContext, task: Box<Task>, span: Span) -> Self {
        let id = task.id;
        let number = task.attempt;
        let node = task.node_index;
        let reporter = Reporter::new(id, number, Arc::clone(&context.link));
        let started = reporter.started().unwrap_or_else(Instant::now);
        let spec = context.graph.spec_at(node);
        let Attempts { timeout, idle_timeout, .. } = spec.policies.attempts;
        let timeouts = Timeouts { total: task.timeout.or(timeout), idle: idle_timeout };
        let parts = ContextParts {
            max_visits: spec.policies.bounds.max_visits_in(&task.state),
            task,
            run: context.run.clone(),
            timeouts,
            reporter: reporter.clone(),
            provided: context.provided.clone(),
        };
        // The call is inside a future, so that a panic before the node returns its future is caught, too.
        let work = run_node(Arc::clone(spec.node()), parts);
        let work = if span.is_none() { work.boxed() } else { work.instrument(span).boxed() };
        Self { task: id, number, node, started, timeouts, reporter, work }
    }

    /// Polls a node whose attempts were short so far.
    ///
    /// A node with a timeout is not polled here: the timeout must be able to abandon a node that blocks its thread.
    pub(super) fn poll_inline(
        mut self,
        context: &AttemptContext,
        cx: &mut Context<'_>,
    ) -> FirstPoll {
        if self.timeouts.is_any() || !context.graph.pace(self.node).is_quick() {
            return FirstPoll::Pending(self);
        }
        let polled = catch_unwind(AssertUnwindSafe(|| self.work.poll_unpin(cx)));
        let result = match polled {
            Ok(Poll::Pending) => {
                context.graph.pace(self.node).note(self.started.elapsed() <= QUICK_POLL_MAX);
                return FirstPoll::Pending(self);
            }
            Ok(Poll::Ready(result)) => Ok(result),
            Err(panic) => Err(panic),
        };
        let Self { task, number, node, started, reporter, work, .. } = self;
        // A panic of a dropped value is one of the node as well.
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(work)));
        let result = match (result, dropped) {
            (Ok(result), Ok(())) => result,
            (Err(panic), _) | (_, Err(panic)) => {
                Err(panic_failure(panic_text(panic.as_ref())).into())
            }
        };
        let elapsed = started.elapsed();
        context.graph.pace(node).note(elapsed <= QUICK_POLL_MAX);
        if is_cancelled(&result, &reporter) {
            return FirstPoll::Ended(None);
        }
        let attempt = attempt_stats(number, elapsed, &reporter, &context.clock);
        FirstPoll::Ended(Some(Box::new(task_event(task, result, attempt))))
    }

    /// Splits the attempt into the work, which needs its own Tokio task, and its supervision.
    pub(super) fn into_task(
        self,
        context: &AttemptContext,
        abort: CancellationToken,
        discard: CancellationToken,
    ) -> (impl Future<Output = NodeReturn> + Send + 'static, Supervisor) {
        let Self { task, number, node, started, timeouts, reporter, mut work } = self;
        let clock = context.clock.clone();
        let supervisor =
            Supervisor { task, number, timeouts, started, reporter, abort, discard, clock };
        let graph = context.graph.clone();
        let work = async move {
            let begun = Instant::now();
            let first = futures_util::poll!(&mut work);
            graph.pace(node).note(begun.elapsed() <= QUICK_POLL_MAX);
            let result = match first {
                Poll::Ready(result) => result,
                Poll::Pending => work.await,
            };
            NodeReturn { result, returned: Instant::now() }
        };
        (work, supervisor)
    }
}

impl Supervisor {
    /// Waits for the end of the work and returns its event, or `None` if the attempt was discarded.
    ///
    /// # Cancel safety
    ///
    /// When dropped, it drops the work at its current await point. Nothing is recorded, so a resumed run
    /// starts the task again.
    pub(super) async fn supervise(
        self,
        mut work: AbortOnDropHandle<NodeReturn>,
    ) -> Option<TaskEvent> {
        let returned = tokio::select! {
            // A finished result counts even if the abort arrives at the same time.
            biased;
            ended = &mut work => match ended {
                Ok(returned) if is_cancelled(&returned.result, &self.reporter) => return None,
                Ok(returned) => self.in_time(returned),
                // A task that the runtime cancelled, because it shuts down, has no event.
                Err(error) => NodeReturn::failed(panicked(error)?),
            },
            () = self.discard.cancelled() => {
                self.abort_and_wait(work).await;
                return None;
            }
            () = self.abort.cancelled() => {
                self.abort_and_wait(work).await;
                return Some(TaskEvent::Aborted { task: self.task, attempt: self.stats_until(Instant::now()) });
            }
            message = self.wait_for_timeout() => {
                let message = match self.abort_and_wait(work).await {
                    Some(panic) => format!("{message}; then {}", panic.message),
                    None => message,
                };
                NodeReturn::failed(timed_out(message))
            }
        };
        Some(task_event(self.task, returned.result, self.stats_until(returned.returned)))
    }

    /// Replaces a result that comes after a timeout. On the only thread of a runtime, a node that blocks it also keeps
    /// this supervision from running.
    fn in_time(&self, returned: NodeReturn) -> NodeReturn {
        let since = |it| returned.returned.saturating_duration_since(it);
        let total = self.timeouts.total.filter(|it| since(self.started) > *it).map(not_within);
        let last = self.reporter.last_report().unwrap_or(self.started);
        let idle = self.timeouts.idle.filter(|it| since(last) > *it);
        match total.or_else(|| idle.map(silent_for)) {
            Some(message) => NodeReturn { result: Err(timed_out(message).into()), ..returned },
            None => returned,
        }
    }

    /// Returns whether a timeout may end the attempt.
    pub(super) fn has_timeout(&self) -> bool {
        self.timeouts.is_any()
    }

    /// Returns the duration and the usage until this moment.
    fn stats_until(&self, moment: Instant) -> AttemptStats {
        let elapsed = moment.saturating_duration_since(self.started);
        attempt_stats(self.number, elapsed, &self.reporter, &self.clock)
    }

    /// Waits until a timeout expires and returns its description.
    async fn wait_for_timeout(&self) -> String {
        let total = async {
            let Some(total) = self.timeouts.total else { return std::future::pending().await };
            // A clock cannot count to the end of a very long timeout.
            let Some(end) = self.started.checked_add(total) else {
                return std::future::pending().await;
            };
            sleep_until(end).await;
            not_within(total)
        };
        let idle = async {
            let Some(idle) = self.timeouts.idle else { return std::future::pending().await };
            loop {
                let last_sign = self.reporter.last_report().unwrap_or(self.started);
                let Some(idle_end) = last_sign.checked_add(idle) else {
                    return std::future::pending().await;
                };
                if idle_end <= Instant::now() {
                    return silent_for(idle);
                }
                sleep_until(idle_end).await;
            }
        };
        tokio::select! {
            message = total => message,
            message = idle => message,
        }
    }

    /// Aborts the work. Returns a failure if the node panics during drop.
    async fn abort_and_wait(&self, mut work: AbortOnDropHandle<NodeReturn>) -> Option<Failure> {
        self.reporter.cancel().cancel();
        work.abort();
        match timeout(DROP_TIMEOUT, &mut work).await {
            Ok(Err(error)) => panicked(error),
            Ok(Ok(_)) | Err(_) => None,
        }
    }
}

impl NodeReturn {
    fn failed(failure: Failure) -> Self {
        Self { result: Err(failure.into()), returned: Instant::now() }
    }
}

/// Returns the figures of an attempt that took this long. Its end is read from the clock now.
fn attempt_stats(
    number: u32,
    elapsed: Duration,
    reporter: &Reporter,
    clock: &Clock,
) -> AttemptStats {
    AttemptStats { number, ms: millis(elapsed), usage: reporter.usage(), ended: clock.now() }
}

/// Returns whether a node has failed because its run is aborted. The task runs again when the run is resumed.
fn is_cancelled(result: &Result<Command, NodeError>, reporter: &Reporter) -> bool {
    matches!(result, Err(NodeError::Failed(_))) && reporter.cancel().is_cancelled()
}

/// Returns the event of an attempt that ended.
fn task_event(
    task: TaskId,
    result: Result<Command, NodeError>,
    attempt: AttemptStats,
) -> TaskEvent {
    match result {
        Ok(command) => TaskEvent::Finished { task, command, attempt },
        Err(NodeError::Ask(question)) => TaskEvent::Asked { task, question: *question, attempt },
        Err(NodeError::Wait(timer)) => TaskEvent::TimerSet { task, timer: *timer, attempt },
        Err(NodeError::Failed(failure)) => TaskEvent::Failed { task, failure: *failure, attempt },
    }
}

fn not_within(total: Duration) -> String {
    format!("not finished within {}", duration(total))
}

fn silent_for(idle: Duration) -> String {
    format!("no sign of progress for {}", duration(idle))
}

fn timed_out(message: String) -> Failure {
    Failure { transient: true, ..Failure::new(ErrorKind::Timeout, message) }
}

/// Returns the failure of a node that panicked, or `None` if it was only aborted.
fn panicked(error: JoinError) -> Option<Failure> {
    Some(panic_failure(panic_text(error.try_into_panic().ok()?.as_ref())))
}

fn panic_failure(text: impl AsRef<str>) -> Failure {
    Failure::new(ErrorKind::Panic, format!("the node panicked: {}", text.as_ref()))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The parts of a [`NodeContext`]. It is made when the node is called: it is large, and would otherwise be moved several
/// times with the future of the attempt.
struct ContextParts {
    task: Box<Task>,
    run: RunId,
    max_visits: Option<u32>,
    timeouts: Timeouts,
    reporter: Reporter,
    provided: ProvidedValues,
}

impl ContextParts {
    fn into_context(self) -> NodeContext {
        let Self { task, run, max_visits, timeouts, reporter, provided } = self;
        let task = *task;
        NodeContext {
            run,
            task: task.id,
            node: task.node,
            original: task.original,
            attempt: task.attempt,
            visits: task.visits,
            max_visits,
            began: task.began,
            timeout: timeouts.total,
            idle_timeout: timeouts.idle,
            state: task.state,
            input: task.input,
            trigger: task.trigger,
            cancel: reporter.cancel(),
            answers: task.answers,
            memos: task.memos,
            reporter,
            facts: task.facts,
            provided,
        }
    }
}

/// Runs the node between two failpoints at which tests may end the process.
async fn run_node(node: Arc<dyn Node>, parts: ContextParts) -> Result<Command, NodeError> {
    let injected = |it: fault::InjectedFault| NodeError::transient(it.to_string());
    fault::hit(Point::TaskBeforeRun).map_err(injected)?;
    let command = node.run(parts.into_context()).await?;
    fault::hit(Point::TaskAfterRun).map_err(injected)?;
    Ok(command)
}
