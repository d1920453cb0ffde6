//! Runs a compiled graph: the rules of a super-step, and the loop that follows them.
//!
//! Start with [`superstep`], which makes all decisions; then read `driver`, which carries them out.
//! - [`superstep`]: the rules; `driver`: what performs their actions; `task`: one attempt of a node.
//! - [`checkpoint`]: the journal of a run, and the trait of storage for it; [`results`]: the trait of storage for node results.
//! - [`storage`]: storage in memory, and the rules that every storage follows.
//! - `resume`, `revise`, `migrate`, `compare`: what continues, changes and moves saved runs.
//!
//! ```
//! use std::sync::Arc;
//!
//! use graphrun_analysis::compile;
//! use graphrun_core::graph::{GraphBuilder, NodeContext, NodeError, node_fn};
//! use graphrun_engine::{Engine, storage::MemoryStorage};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Default, Serialize, Deserialize, JsonSchema)]
//! struct Count {
//!     #[serde(default)]
//!     count: u32,
//! }
//!
//! async fn increment(reads: Count, _: NodeContext) -> Result<Count, NodeError> {
//!     Ok(Count { count: reads.count + 1 })
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let graph = GraphBuilder::new::<Count>("counter")
//!     .node("increment", node_fn(increment))
//!     .entry("increment")
//!     .then("increment", "end");
//! let (graph, _warnings) = compile(graph.build())?;
//! let end = Engine::new(graph, Arc::new(MemoryStorage::default())).run(&Count { count: 41 }).await?;
//! assert_eq!(end.state.read::<Count>()?.count, 42);
//! # Ok(())
//! # }
//! ```

// Tests may; the library may not.
#![warn(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]

mod answers;
mod budget;
pub mod checkpoint;
mod clock;
mod compare;
mod driver;
mod entrance;
mod error;
mod lease;
mod log;
mod migrate;
pub mod results;
mod resume;
mod retry;
mod revise;
pub mod storage;
pub mod superstep;
mod task;

use std::{sync::Arc, time::Duration};

use graphrun_analysis::CompiledGraph;
use graphrun_core::{
    event::{EventSink, Status},
    graph::Limits,
    state::{State, Update},
};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

pub use self::budget::use_up;
pub use self::{
    answers::{Answers, Closed},
    clock::Clock,
    compare::{Difference, Remedy},
    error::RunError,
    migrate::Migrated,
    retry::{check_retry, failures},
    superstep::ReviseError,
};
use self::{
    driver::{Driver, accept_stopped},
    superstep::{Action, Machine, Pauses, Terms},
};
pub use crate::checkpoint::OpenQuestion;
use crate::checkpoint::{Checkpointer, Outline, Position, RunInfo};

/// How long running tasks may continue after a drain was requested.
const GRACE: Duration = Duration::from_secs(10);

/// How long a lease lasts without renewal.
const LEASE: Duration = Duration::from_secs(15);

/// Runs one graph and saves every result in one checkpointer.
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

/// The outcome of driving a run until it stopped.
#[derive(Clone, Debug)]
pub struct RunEnd {
    /// Done, failed, paused, limit or interrupted.
    pub status: Status,
    /// The reason, unless the run is done.
    pub reason: Option<String>,
    /// The position at which the run stopped.
    pub position: Position,
    /// The state of the run.
    pub state: State,
    /// The questions that are still open.
    pub questions: Vec<OpenQuestion>,
}

/// Stops runs from outside.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    drain: CancellationToken,
    now: CancellationToken,
}

impl Stop {
    /// Starts no further node. Running nodes have ten seconds to finish; their results are saved.
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
    /// Creates an engine with the limits of the graph.
    pub fn new(graph: CompiledGraph, checkpointer: Arc<dyn Checkpointer>) -> Self {
        let limits = graph.graph().limits.clone();
        let (grace, lease, clock) = (GRACE, LEASE, Clock::default());
        let pauses = Pauses::default();
        Self { graph, checkpointer, limits, pauses, grace, lease, clock }
    }

    /// Replaces the limits of the graph.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets breakpoints: the run stops there as paused, and [`Engine::resume`] continues it.
    #[must_use]
    pub fn with_pauses(mut self, pauses: Pauses) -> Self {
        self.pauses = pauses;
        self
    }

    /// Sets how long running tasks may continue after [`Stop::drain`].
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets how long a lease lasts without renewal; 15 seconds by default.
    ///
    /// The process renews its lease three times in that time. If the owner is known to be dead, another
    /// process can take the run at once.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Replaces the system clock.
    ///
    /// Events and the ends of waits get their times from it.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Returns the limits of its runs.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Starts a run with the fields of a struct as its input, and drives it without watchers until it stops.
    ///
    /// # Errors
    ///
    /// As [`Engine::start`].
    pub async fn run<I: Serialize + Sync>(&self, input: &I) -> Result<RunEnd, RunError> {
        let input = Update::of(input).map_err(RunError::Fields)?;
        let info = RunInfo::new(&self.graph.graph().name);
        self.start(info, input, EventSink::default(), &Stop::default()).await
    }

    /// Starts a run and drives it until it stops.
    ///
    /// # Errors
    ///
    /// Fails when the input does not fit the state or the run cannot be saved. A failing node is not an error
    /// here: the run stops as failed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves a run that can be resumed, like after a crash of the process.
    pub async fn start(
        &self,
        info: RunInfo,
        mut input: Update,
        events: EventSink,
        stop: &Stop,
    ) -> Result<RunEnd, RunError> {
        entrance::redact_update(&mut input);
        let (machine, first, actions) =
            Machine::start(self.graph.clone(), self.terms(), info.id.clone(), input)
                .map_err(RunError::Input)?;
        let graph = Some(Box::new(Outline::of(&self.graph)));
        let info = RunInfo { graph, ..info };
        if let [Action::Stop(status)] = actions.as_slice() {
            let status = status.clone();
            return accept_stopped(self, &machine, events, (&info, first), status).await;
        }
        let driver = Driver::accept(self, machine, events, stop, (&info, first)).await?;
        driver.drive(actions).await
    }

    fn terms(&self) -> Terms {
        let (limits, pauses) = (self.limits.clone(), self.pauses.clone());
        Terms { limits, pauses, messages: Vec::new() }
    }
}
