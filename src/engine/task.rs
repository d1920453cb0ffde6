//! One attempt at a task: the node, which may do anything, and the watch over it.
//!
//! A node runs in a task of the runtime of its own, so that one that blocks its thread keeps no
//! other waiting, and one that panics, even while it is dropped, unwinds nobody else.

use std::time::Duration;

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
use crate::{
    fault::{self, Point},
    graph::{Command, ErrorKind, Failure, Memos, NodeContext, NodeError, NodeSpec, Reporter, Word},
    id::{RunId, TaskId},
    state::panic_text,
};

/// How long a node that was given up may take to let go. One that blocks its thread does not hear
/// of it; it is left behind, and its result is nobody's.
const LET_GO: Duration = Duration::from_secs(1);

/// What a node returned, and when.
pub(super) type Returned = (Result<Command, NodeError>, Instant);

/// What an attempt of a run is given.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    pub(super) run: RunId,
    pub(super) words: mpsc::Sender<Word>,
    /// Tells nodes that the run is to stop at once.
    pub(super) now: CancellationToken,
    /// Cuts off the attempt, since a limit of the run is reached.
    pub(super) cut: CancellationToken,
    /// Ends every watch; what was not finished by then has not been done.
    pub(super) dropped: CancellationToken,
    pub(super) clock: Clock,
}

/// The watch over one attempt: its timeouts, and what it took.
#[derive(Debug)]
pub(super) struct Watch {
    task: TaskId,
    number: u32,
    total: Option<Duration>,
    idle: Option<Duration>,
    started: Instant,
    reporter: Reporter,
    cancel: CancellationToken,
    cut: CancellationToken,
    dropped: CancellationToken,
    clock: Clock,
}

/// Makes an attempt: the work, which is to run in a task of its own, and the watch over it.
pub(super) fn attempt(
    surroundings: Surroundings,
    task: Task,
    spec: NodeSpec,
) -> (impl Future<Output = Returned> + Send + 'static, Watch) {
    let Surroundings { run, words, now, cut, dropped, clock } = surroundings;
    let reporter = Reporter::new(task.id, task.attempt, words);
    let cancel = now.child_token();
    let watch = Watch {
        task: task.id,
        number: task.attempt,
        total: spec.policies.timeout,
        idle: spec.policies.idle_timeout,
        started: Instant::now(),
        reporter: reporter.clone(),
        cancel: cancel.clone(),
        cut,
        dropped,
        clock,
    };
    let ctx = NodeContext {
        run,
        task: task.id,
        node: task.node,
        began: task.began,
        attempt: task.attempt,
        visits: task.visits,
        max_visits: spec.policies.max_visits,
        state: task.state,
        input: task.input,
        via: task.via,
        cancel,
        answers: task.answers,
        memos: Memos::new(task.memos),
        reporter,
    };
    // Within a future of ours, so that a node that panics before it makes its own is caught, too.
    let work = async move {
        let result = run_node(&spec, ctx).await;
        (result, Instant::now())
    };
    (work, watch)
}

impl Watch {
    /// Waits for the end of the work and says what happened; nothing if it was dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it drops the work at its current await point. Nothing is recorded, so a resumed
    /// run starts the task again.
    pub(super) async fn over(self, mut work: AbortOnDropHandle<Returned>) -> Option<Event> {
        let (result, ended) = tokio::select! {
            // What is finished has been done, even if it comes with the word that nobody waits.
            biased;
            ended = &mut work => match ended {
                Ok(returned) => returned,
                Err(error) => (Err(panicked(error)?.into()), Instant::now()),
            },
            () = self.dropped.cancelled() => {
                self.give_up(work).await;
                return None;
            }
            () = self.cut.cancelled() => {
                self.give_up(work).await;
                return Some(Event::CutOff { task: self.task, attempt: self.took(Instant::now()) });
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
        let (task, attempt) = (self.task, self.took(ended));
        Some(match result {
            Ok(command) => Event::Finished { task, command, attempt },
            Err(NodeError::Ask(question)) => Event::Asked { task, question: *question, attempt },
            Err(NodeError::Failed(failure)) => Event::Failed { task, failure: *failure, attempt },
        })
    }

    /// Whether a timeout may end it.
    pub(super) fn keeps_time(&self) -> bool {
        self.total.is_some() || self.idle.is_some()
    }

    /// The attempt, which ended then.
    fn took(&self, ended: Instant) -> Attempt {
        let ms = ended.saturating_duration_since(self.started).as_millis();
        let ms = u64::try_from(ms).unwrap_or(u64::MAX);
        let spent = self.reporter.spent();
        Attempt { number: self.number, ms, spent, ended: self.clock.now() }
    }

    /// Waits until a timeout is over, and says which.
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
                let silent = self.reporter.heard().unwrap_or(self.started) + idle;
                if silent <= Instant::now() {
                    return format!("nothing was heard of it for {idle:?}");
                }
                sleep_until(silent).await;
            }
        };
        tokio::select! {
            message = total => message,
            message = idle => message,
        }
    }

    /// Drops the work. Gives back the failure if it panics over that.
    async fn give_up(&self, mut work: AbortOnDropHandle<Returned>) -> Option<Failure> {
        self.cancel.cancel();
        work.abort();
        match timeout(LET_GO, &mut work).await {
            Ok(Err(error)) => panicked(error),
            Ok(Ok(_)) | Err(_) => None,
        }
    }
}

/// The failure of a node that panicked; nothing if it was only dropped.
fn panicked(error: JoinError) -> Option<Failure> {
    let panic = error.try_into_panic().ok()?;
    let message = format!("the node panicked: {}", panic_text(panic.as_ref()));
    Some(Failure::new(ErrorKind::Panic, message))
}

/// Runs the node between two points at which tests may end everything.
async fn run_node(spec: &NodeSpec, ctx: NodeContext) -> Result<Command, NodeError> {
    let injected = |it: fault::Injected| NodeError::transient(it.to_string());
    fault::hit(Point::TaskBeforeRun).map_err(injected)?;
    let command = spec.node.run(ctx).await?;
    fault::hit(Point::TaskAfterRun).map_err(injected)?;
    Ok(command)
}
