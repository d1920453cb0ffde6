//! Runs a compiled graph: the rules of a super-step, and the loop that follows them.
//!
//! Start with [`superstep`], which makes all decisions; then read `driver`, which carries them out.
//! - [`superstep`]: the rules; `driver`: what performs their actions; `task`: one attempt of a node.
//! - [`checkpoint`]: the journal of a run, and the trait of storage for it; [`results`]: the trait of storage for node results.
//! - [`storage`]: storage in memory, and the rules that every storage follows.
//! - `resume`, `revise`, `fork`, `migrate`, `compare`: what continues, changes, copies and moves saved runs.
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
mod fork;
mod journal_writer;
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

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use graphrun_analysis::CompiledGraph;
use graphrun_core::{
    event::{EventSink, Status},
    graph::Limits,
    id::{ChannelName, NodeName, RunId},
    state::{Channel, State, Update},
};
use serde::Serialize;
use serde_json::Value;
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
    driver::{Driver, run_end, run_finished},
    journal_writer::JournalWriter,
    lease::Lease,
    log::Log,
    resume::Resumption,
    superstep::{Action, Machine, Pauses, Terms},
};
pub use crate::checkpoint::OpenQuestion;
use crate::checkpoint::{Checkpointer, Entry, ForkSource, Mapping, Outline, Position, RunInfo};

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
    /// The id of the run, to resume it or to read its journal.
    pub run: RunId,
    /// Done, failed, paused, limit or interrupted.
    pub status: Status,
    /// The reason. A run that is done has one if a limit led it to `limits.exhausted`.
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
    /// Fails when the input lacks a declared one or does not fit the state, and when the run cannot be saved. A failing node is not an error
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
        self.check_input(&input)?;
        entrance::redact_update(&mut input);
        let (machine, first, actions) =
            Machine::start(self.graph.clone(), self.terms(), info.id.clone(), input)
                .map_err(RunError::Input)?;
        let graph = Some(Box::new(Outline::of(&self.graph)));
        let info = RunInfo { graph, ..info };
        let mut log = Log::begin(&info, events, self.clock.clone());
        if let [Action::Stop(status)] = actions.as_slice() {
            // Acceptance and status are saved together. A crash between the two would leave a run that looks
            // unfinished and gets resumed past its breakpoint.
            log.add(run_finished(&machine, status));
            let first = Entry { run_status: Some(status.clone()), ..Entry::from(first) };
            JournalWriter::create(self, &info, first, log).await?.release().await?;
            return Ok(run_end(&machine, status.clone()));
        }
        let mut journal = JournalWriter::create(self, &info, first.into(), log).await?;
        journal.publish().await?;
        Driver::new(self, machine, journal, stop).drive(actions).await
    }

    /// The checks of the data flow rely on every input that the graph declares.
    fn check_input(&self, input: &Update) -> Result<(), RunError> {
        let graph = self.graph.graph();
        let is_missing = |name: &&ChannelName| {
            let channel = graph.schema.channel(name.as_str());
            channel.is_some_and(Channel::is_needed_as_input)
                && !input.writes.iter().any(|(written, _)| written == *name)
        };
        let missing: Vec<ChannelName> = graph.input.iter().filter(is_missing).cloned().collect();
        if missing.is_empty() { Ok(()) } else { Err(RunError::MissingInput { missing }) }
    }

    /// Continues a saved run. Finished tasks do not run again. A question whose deadline has passed fails its
    /// node as `timeout` at once.
    ///
    /// # Errors
    ///
    /// Fails when there is no such run, it has ended, another process owns it, an answer matches no open
    /// question, or the run cannot be loaded or saved.
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
        let resumption = Resumption::with_answers(self, run, answers.into()).await;
        let (lease, resumption) = lease.or_give_back(resumption).await?;
        resumption.drive(self, lease, events, stop).await
    }

    /// Checks whether a saved run can continue with the current graph.
    ///
    /// # Errors
    ///
    /// Fails with [`RunError::Broken`] if it cannot, and when the run cannot be loaded.
    pub async fn check_changes(&self, run: &RunId) -> Result<(), RunError> {
        resume::check_changes(self, run).await
    }

    /// Retries the failed tasks of a failed run: all of them, or those of one node. Finished tasks are kept.
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
        let resumption = Resumption::with_failed_tasks(self, run, node).await;
        let (lease, resumption) = lease.or_give_back(resumption).await?;
        resumption.drive(self, lease, events, stop).await
    }

    /// Updates the state of a stopped run like an update by `node`. The update goes through the reducers and
    /// the schema; the routes of the node decide what runs next.
    ///
    /// If the node is in the frontier, its task counts as finished. If the run has ended, it continues at the
    /// targets of the node. Without a node, only the state changes. Results of finished tasks of the open
    /// step are kept, and open questions are asked again. The update is a separate step; the run is not
    /// driven.
    ///
    /// Returns the position after the update.
    ///
    /// # Errors
    ///
    /// Fails, and changes nothing, when another process owns the run, the update does not fit, or the node is
    /// not in the frontier.
    #[doc(alias = "update_state")]
    pub async fn update(
        &self,
        run: &RunId,
        update: Update,
        node: Option<&NodeName>,
    ) -> Result<Position, RunError> {
        let lease = Lease::acquire(&self.checkpointer, run, self.lease).await?;
        let updated = revise::update(self, &lease, update, node).await;
        let (lease, position) = lease.or_give_back(updated).await?;
        lease.forget();
        Ok(position)
    }

    /// Creates a new run from a checkpoint of another one, with other values in some channels. The other run
    /// does not change. The new run is stopped; [`Engine::resume`] continues it.
    ///
    /// Its steps and its usage start at zero. The visit counts of nodes are kept, so that loops stay bounded.
    /// If the run was migrated after the checkpoint, the same migration is applied to the checkpoint.
    ///
    /// # Errors
    ///
    /// Fails, and creates nothing, when the run had ended at that checkpoint, a value does not fit its
    /// channel, or the checkpoint does not fit the graph.
    pub async fn fork(
        &self,
        info: RunInfo,
        from: ForkSource,
        changed: BTreeMap<ChannelName, Option<Value>>,
    ) -> Result<(), RunError> {
        fork::fork(self, info, from, changed).await
    }

    /// Migrates a saved run to the graph of this engine, which changed in a way that breaks the run at its
    /// current position. The mapping renames nodes and fields; everything else in the checkpoint is kept. The
    /// run changes in place, by a separate step whose entry holds the old and the new names, and stays
    /// stopped; [`Engine::resume`] continues it.
    ///
    /// `origin` is stored for the program that resumes the run; without one, the stored origin is kept.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    ///
    /// use graphrun_analysis::compile;
    /// use graphrun_core::{
    ///     event::EventSink,
    ///     graph::{GraphBuilder, NodeContext, NodeError, node_fn},
    ///     id::NodeName,
    ///     state::Update,
    /// };
    /// use graphrun_engine::{
    ///     Answers, Engine, Stop,
    ///     checkpoint::{Mapping, RunInfo},
    ///     storage::MemoryStorage,
    ///     superstep::Pauses,
    /// };
    ///
    /// #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    /// struct Board { draft: Option<String> }
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Nothing {}
    ///
    /// # let graph = |second: &str| {
    /// #     let write = |_: Nothing, ctx: NodeContext| async move {
    /// #         Ok::<_, NodeError>(Board { draft: Some(ctx.node.to_string()) })
    /// #     };
    /// #     let graph = GraphBuilder::new::<Board>("board");
    /// #     let graph = graph.node("first", node_fn(write)).node(second, node_fn(write));
    /// #     compile(graph.entry("first").then("first", second).build()).unwrap().0
    /// # };
    /// let storage = Arc::new(MemoryStorage::default());
    /// let second = NodeName::parse("second")?;
    /// let pauses = Pauses { before: [second.clone()].into(), ..Pauses::default() };
    /// let engine = Engine::new(graph("second"), storage.clone()).with_pauses(pauses);
    /// let (info, stop) = (RunInfo::new("board"), Stop::default());
    /// let run = info.id.clone();
    /// engine.start(info, Update::default(), EventSink::default(), &stop).await?;
    ///
    /// // `second` has another name by now.
    /// let engine = Engine::new(graph("last"), storage);
    /// let mapping = Mapping::default().node(second, NodeName::parse("last")?);
    /// engine.migrate(&run, &mapping, None).await?;
    /// let end = engine.resume(&run, Answers::default(), EventSink::default(), &stop).await?;
    /// assert_eq!(end.state.get("draft").and_then(|it| it.as_str()), Some("last"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails, and changes nothing, when another process owns the run, the run has ended, or it has parts
    /// without a counterpart that the mapping does not mention: [`RunError::NoPlace`] lists them all.
    pub async fn migrate(
        &self,
        run: &RunId,
        mapping: &Mapping,
        origin: Option<Value>,
    ) -> Result<Migrated, RunError> {
        let lease = Lease::acquire(&self.checkpointer, run, self.lease).await?;
        let migrated = migrate::migrate(self, &lease, mapping.clone(), origin).await;
        let (lease, migrated) = lease.or_give_back(migrated).await?;
        lease.forget();
        Ok(migrated)
    }

    /// Returns the result [`Engine::migrate`] would have. It changes nothing and needs no lease.
    ///
    /// # Errors
    ///
    /// As [`Engine::migrate`].
    pub async fn try_migration(
        &self,
        run: &RunId,
        mapping: &Mapping,
    ) -> Result<Migrated, RunError> {
        migrate::try_migration(self, run, mapping).await
    }

    fn terms(&self) -> Terms {
        let (limits, pauses) = (self.limits.clone(), self.pauses.clone());
        Terms { limits, pauses, messages: Vec::new() }
    }
}
