//! Runs a compiled graph: the rules of a super-step, and the loop that follows them.
//!
//! Start with [`superstep`], where everything is decided, then read `driver`, which does it.

mod answers;
mod budget;
mod clock;
mod compare;
mod driver;
mod lease;
mod log;
mod migrate;
mod retry;
mod revise;
pub mod superstep;
mod task;

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

pub(crate) use self::budget::use_up;
pub use self::{
    answers::{Answers, Closed},
    clock::Clock,
    compare::{Difference, Remedy},
    migrate::Migrated,
    retry::{check_retry, failures},
    superstep::ReviseError,
};
use self::{
    compare::{Compared, compare, suggest},
    driver::{Driver, accept_at_rest},
    lease::Lease,
    log::Watched,
    retry::nothing_failed,
    superstep::{Action, Event, Machine, Pauses, Terms},
};
pub use crate::checkpoint::OpenQuestion;
use crate::{
    checkpoint::{
        Checkpoint, CheckpointError, Checkpointer, Outline, Position, Posted, RunInfo, SavedRun,
    },
    compile::CompiledGraph,
    event::{EventSink, Status},
    fault::{self, Point},
    graph::Limits,
    id::{NodeName, RunId},
    state::{NotFields, State, StateError, Update},
};

/// How long running tasks may go on after a stop was asked for.
const GRACE: Duration = Duration::from_secs(10);

/// How long a run stays in the hands of a process that is silent.
const LEASE: Duration = Duration::from_secs(15);

/// Runs one graph, saving every result in one place.
#[derive(Clone, Debug)]
pub struct Engine {
    graph: CompiledGraph,
    checkpointer: Arc<dyn Checkpointer>,
    limits: Limits,
    pauses: Pauses,
    grace: Duration,
    lease: Duration,
    clock: Clock,
}

/// How a run came to rest.
#[derive(Clone, Debug)]
pub struct RunEnd {
    /// Done, failed, paused, limit or interrupted.
    pub status: Status,
    /// Why, if not done.
    pub reason: Option<String>,
    /// Where it stands.
    pub position: Position,
    /// Its state.
    pub state: State,
    /// What it waits for.
    pub questions: Vec<OpenQuestion>,
}

/// A run could not be started or resumed, or not be saved.
#[derive(Debug, Error)]
pub enum RunError {
    /// The input does not fit the state.
    #[error("the input does not fit the state")]
    Input(#[source] StateError),
    /// The input is no struct of channels.
    #[error("the input is no struct of channels")]
    Fields(#[source] NotFields),
    /// What was saved does not fit the graph any more.
    #[error("run `{run}` was saved by a workflow that differs from this one")]
    Changed {
        /// The run.
        run: RunId,
        /// What differs.
        #[source]
        source: superstep::RestoreError,
    },
    /// The workflow has changed in a way that breaks the run as it stands. Nothing was done.
    #[error(
        "the workflow of run `{run}` has changed since it was started, and the run cannot go on with it"
    )]
    Broken {
        /// The run.
        run: RunId,
        /// Every difference; those that break the run come first.
        differences: Vec<Difference>,
        /// What a [migration](Engine::migrate) would have to be told, as far as that can be guessed.
        remedies: Vec<Remedy>,
    },
    /// The run has parts without a counterpart in the workflow that it is to be carried over to.
    /// Nothing was done.
    #[error("run `{run}` has parts that the workflow has no place for")]
    NoPlace {
        /// The run.
        run: RunId,
        /// Each of them, and everything else that has changed.
        differences: Vec<Difference>,
    },
    /// An answer does not fit its question; the question stays open.
    #[error("the answer to `{key}` does not fit: {}", problems.join("; "))]
    WrongAnswer {
        /// The question.
        key: String,
        /// Every place where it does not fit.
        problems: Vec<String>,
    },
    /// An answer is for a question that is not open.
    #[error("no open question has the key `{key}`")]
    UnknownQuestion {
        /// The key.
        key: String,
        /// The keys of the open questions.
        open: Vec<String>,
    },
    /// An answer is for a question that takes none any more; nothing was changed.
    #[error("the question `{name}` takes no answer any more: {closed}")]
    Closed {
        /// The name of the question.
        name: String,
        /// Why.
        closed: Closed,
    },
    /// The run cannot be changed in this way.
    #[error(transparent)]
    Revise(#[from] ReviseError),
    /// The run has reached its end already.
    #[error("the run is {} already", .0.as_str())]
    NothingToDo(Status),
    /// The run did not fail, so that there is nothing to try again.
    #[error("the run is {}, and only what failed is tried again", .0.as_str())]
    NotFailed(Status),
    /// No task of the run failed that could be tried again.
    #[error("{}", nothing_failed(node.as_ref(), failed))]
    NothingFailed {
        /// The node that was to be tried again, if only one was.
        node: Option<NodeName>,
        /// The nodes that failed.
        failed: Vec<NodeName>,
    },
    /// The run could not be saved or loaded.
    #[error("the run could not be saved or loaded")]
    Checkpoint(#[from] CheckpointError),
}

/// Stops runs from outside.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    drain: CancellationToken,
    now: CancellationToken,
}

impl Stop {
    /// Starts no further node; running ones have ten seconds to finish, and what they did is saved.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// Drops the running nodes at once. The last checkpoint and every finished task are kept.
    pub fn now(&self) {
        self.drain.cancel();
        self.now.cancel();
    }
}

impl Engine {
    /// An engine with the limits of the graph.
    pub fn new(graph: CompiledGraph, checkpointer: Arc<dyn Checkpointer>) -> Self {
        let limits = graph.graph().limits.clone();
        let (grace, lease, clock) = (GRACE, LEASE, Clock::default());
        let pauses = Pauses::default();
        Self { graph, checkpointer, limits, pauses, grace, lease, clock }
    }

    /// Puts other limits in the place of the graph's.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets breakpoints: the run rests there as paused, and [`Engine::resume`] goes on.
    #[must_use]
    pub fn with_pauses(mut self, pauses: Pauses) -> Self {
        self.pauses = pauses;
        self
    }

    /// Sets how long running tasks may go on after [`Stop::drain`].
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets how long a run stays in the hands of a process that is silent, 15 seconds unless said.
    ///
    /// The process renews its lease three times in that time. A run of a process that is known to
    /// be gone can be taken at once.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Puts another clock in the place of the system's.
    ///
    /// Events and the ends of waits are dated by it.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The limits of its runs.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Starts a run with the fields of a struct as its input, and drives it unwatched until it
    /// comes to rest.
    ///
    /// # Errors
    ///
    /// As [`Engine::start`].
    pub async fn run<I: Serialize + Sync>(&self, input: &I) -> Result<RunEnd, RunError> {
        let input = Update::of(input).map_err(RunError::Fields)?;
        let info = RunInfo::new(&self.graph.graph().name);
        self.start(info, input, EventSink::default(), &Stop::default()).await
    }

    /// Starts a run and drives it until it comes to rest.
    ///
    /// # Errors
    ///
    /// Fails when the input does not fit the state or the run cannot be saved. A node that fails
    /// is not an error here: the run rests as failed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves a run that can be resumed, as if the process had died.
    pub async fn start(
        &self,
        info: RunInfo,
        input: Update,
        events: EventSink,
        stop: &Stop,
    ) -> Result<RunEnd, RunError> {
        let (machine, first, actions) =
            Machine::start(self.graph.clone(), self.terms(), info.id.clone(), &input)
                .map_err(RunError::Input)?;
        let graph = Some(Box::new(Outline::of(&self.graph)));
        let info = RunInfo { graph, ..info };
        if let [Action::Rest { status, reason }] = actions.as_slice() {
            let rest = (*status, reason.clone());
            return accept_at_rest(self, machine, events, (&info, first), rest).await;
        }
        let driver = Driver::accept(self, machine, events, stop, (&info, first)).await?;
        driver.drive(actions).await
    }

    /// Goes on with a saved run. Finished tasks are not run again. A question whose time is over
    /// fails its node as `timeout`, now.
    ///
    /// # Errors
    ///
    /// Fails when there is no such run, it is at its end, another process has it in its hands, an
    /// answer fits no open question, or the run cannot be loaded or saved.
    ///
    /// # Cancel safety
    ///
    /// As [`Engine::start`].
    pub async fn resume(
        &self,
        run: &RunId,
        answers: impl Into<Answers> + Send,
        events: EventSink,
        stop: &Stop,
    ) -> Result<RunEnd, RunError> {
        let lease = Lease::acquire(&self.checkpointer, run, self.lease).await?;
        fault::hit(Point::AcquireAfter).map_err(CheckpointError::injected)?;
        let saved = self.checkpointer.load(run).await?;
        let last_seq = saved.last_seq;
        // A process may have died between the last step and the word that it was the last.
        let answers = answers.into();
        if saved.position.frontier.is_empty() && saved.summary.status != Status::Running {
            self.matched(run, &[], answers).await?;
            return Err(RunError::NothingToDo(saved.summary.status));
        }
        let said = self.said(&saved).await?;
        let changes = self.changes_since(&saved, &said)?;
        let said = if self.graph.graph().inbox.is_empty() { Vec::new() } else { said };
        let (mut machine, mut actions) = self.restore(saved, said, None)?;
        let open = machine.open_questions();
        let answered = self.matched(run, &open, answers).await?;
        let late = machine.expired(self.clock.now()).into_iter();
        for event in answered.into_iter().chain(late.map(|task| Event::Expired { task })) {
            // The rest that the machine asked for was for want of this.
            actions.retain(|it| !matches!(it, Action::Rest { .. }));
            actions.extend(machine.apply(event));
        }
        let watched = Watched { events, last_seq, changes };
        let driver = Driver::go_on(self, machine, lease, watched, stop).await?;
        driver.drive(actions).await
    }

    /// Whether a saved run can go on with the graph as it is.
    ///
    /// # Errors
    ///
    /// Fails with [`RunError::Broken`] where it cannot, and when the run cannot be loaded.
    pub async fn check_changes(&self, run: &RunId) -> Result<(), RunError> {
        let saved = self.checkpointer.load(run).await?;
        let said = self.said(&saved).await?;
        self.changes_since(&saved, &said).map(drop)
    }

    /// Tries again what failed in a failed run: all of it, or one node only. What finished is kept.
    ///
    /// # Errors
    ///
    /// Fails when the run did not fail or none of its tasks did, and as [`Engine::resume`].
    ///
    /// # Cancel safety
    ///
    /// As [`Engine::start`].
    pub async fn retry(
        &self,
        run: &RunId,
        node: Option<&NodeName>,
        events: EventSink,
        stop: &Stop,
    ) -> Result<RunEnd, RunError> {
        let lease = Lease::acquire(&self.checkpointer, run, self.lease).await?;
        let saved = self.checkpointer.load(run).await?;
        check_retry(&saved, node)?;
        let last_seq = saved.last_seq;
        let changes = self.changes_since(&saved, &self.said(&saved).await?)?;
        let (machine, actions) = self.restore(saved, Vec::new(), node)?;
        let watched = Watched { events, last_seq, changes };
        let driver = Driver::go_on(self, machine, lease, watched, stop).await?;
        driver.drive(actions).await
    }

    fn restore(
        &self,
        saved: SavedRun,
        said: Vec<Posted>,
        only: Option<&NodeName>,
    ) -> Result<(Machine, Vec<Action>), RunError> {
        let run = saved.summary.info.id;
        let changed = |source| RunError::Changed { run: run.clone(), source };
        let state = self.graph.schema().restore(saved.values).map_err(|it| changed(it.into()))?;
        let checkpoint = Checkpoint { position: saved.position, state };
        let (graph, terms) = (self.graph.clone(), Terms { said, ..self.terms() });
        let saved = (checkpoint, saved.records);
        Machine::restore_only(graph, terms, run.clone(), saved, only).map_err(changed)
    }

    /// What was said to a run and not taken in yet, as far as it or the graph has lists for that.
    async fn said(&self, saved: &SavedRun) -> Result<Vec<Posted>, RunError> {
        let old = saved.summary.info.graph.as_deref();
        if self.graph.graph().inbox.is_empty() && old.is_none_or(|it| !it.may_be_spoken_to()) {
            return Ok(Vec::new());
        }
        Ok(self.checkpointer.inbox(&saved.summary.info.id, saved.position.heard).await?)
    }

    /// What has changed in the graph since the run was started, in words.
    fn changes_since(&self, saved: &SavedRun, said: &[Posted]) -> Result<Vec<String>, RunError> {
        let Some(old) = &saved.summary.info.graph else { return Ok(Vec::new()) };
        let new = &Outline::of(&self.graph);
        if **old == *new {
            return Ok(Vec::new());
        }
        let compared = Compared { old, new, graph: &self.graph, saved, said };
        let differences = compare(compared, None);
        if differences.iter().any(|it| it.breaks.is_some()) {
            let (run, remedies) = (saved.summary.info.id.clone(), suggest(compared));
            return Err(RunError::Broken { run, differences, remedies });
        }
        Ok(differences.into_iter().map(|it| it.what).collect())
    }

    fn terms(&self) -> Terms {
        let (limits, pauses) = (self.limits.clone(), self.pauses.clone());
        Terms { limits, pauses, said: Vec::new() }
    }
}
