//! The engine: a graph with its storage and settings, which starts runs and changes saved ones.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use graphrun_analysis::CompiledGraph;
use graphrun_core::{
    graph::{Limits, ProvidedValues},
    id::{ChannelName, NodeName, RunId},
    state::Update,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    Clock, IntoInput, Launch, MigrationResult, NewRun, NewTurn, Resume, Retry, RunError, fork,
    lease::Lease,
    machine::{Breakpoints, RunSettings},
    migrate, nested, resume, revise,
    storage::InMemoryStorage,
};
use crate::checkpoint::{
    Checkpoint, Checkpointer, ForkSource, GraphOutline, Mapping, Position, RunInfo,
};

/// How long running tasks may continue after a drain was requested.
const GRACE_DEFAULT: Duration = Duration::from_secs(10);

/// How long a lease lasts without renewal.
const LEASE_DURATION_DEFAULT: Duration = Duration::from_secs(15);

/// Runs one graph and saves every result in one checkpointer.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(super) graph: CompiledGraph,
    /// The outline of the graph, once a run has needed it.
    pub(super) outline: Arc<OnceLock<Arc<GraphOutline>>>,
    pub(super) checkpointer: Arc<dyn Checkpointer>,
    /// Set if the engine has no storage: the same object as `checkpointer`, which keeps runs that stopped early.
    pub(super) process_storage: Option<Arc<InMemoryStorage>>,
    pub(super) limits: Limits,
    pub(super) breakpoints: Breakpoints,
    pub(super) grace: Duration,
    /// The longest wait during which a run keeps its process.
    pub(super) wait_max: Option<Duration>,
    pub(super) lease_duration: Duration,
    pub(super) clock: Clock,
    pub(super) provided: ProvidedValues,
    /// The attempt whose nested run it drives, and its node.
    pub(super) outer: Option<nested::OuterAttempt>,
    pub(super) trace_context: Option<TraceContext>,
}

/// Returns the context of a span as a `traceparent` of W3C Trace Context, if something takes part in its trace.
pub type TraceContext = fn(&tracing::Span) -> Option<String>;

/// Runs a compiled graph in memory, without an [`Engine`].
pub trait Invoke {
    /// Runs the graph in memory and reads its state as a struct.
    ///
    /// # Errors
    ///
    /// Fails when the run is not done in the end, and as [`Engine::run`].
    fn invoke<O: DeserializeOwned>(
        &self,
        input: impl IntoInput,
    ) -> impl Future<Output = Result<O, RunError>> + Send;
}

impl Invoke for CompiledGraph {
    fn invoke<O: DeserializeOwned>(
        &self,
        input: impl IntoInput,
    ) -> impl Future<Output = Result<O, RunError>> + Send {
        let launch = Engine::new(self.clone()).run(input);
        async move { launch.await?.output() }
    }
}

impl Engine {
    /// Creates an engine with the limits of the graph and without storage. It keeps no history: of a run that stopped
    /// before its end, and of a [thread](Engine::turn), it keeps the last checkpoint, as long as the engine or a
    /// clone of it lives.
    pub fn new(graph: CompiledGraph) -> Self {
        let limits = graph.definition().limits.clone();
        let process_storage = Arc::new(InMemoryStorage::of_process());
        Self {
            graph,
            outline: Arc::default(),
            checkpointer: Arc::clone(&process_storage) as _,
            process_storage: Some(process_storage),
            limits,
            breakpoints: Breakpoints::default(),
            grace: GRACE_DEFAULT,
            wait_max: None,
            lease_duration: LEASE_DURATION_DEFAULT,
            clock: Clock::default(),
            provided: ProvidedValues::default(),
            outer: None,
            trace_context: None,
        }
    }

    /// Returns the outline of the graph. It is cached: computing it costs as much as several steps.
    pub(super) fn outline(&self) -> Arc<GraphOutline> {
        Arc::clone(self.outline.get_or_init(|| Arc::new(GraphOutline::of(&self.graph))))
    }

    /// Saves the runs in this storage.
    #[must_use]
    #[doc(alias = "checkpointer")]
    pub fn with_storage(mut self, storage: Arc<dyn Checkpointer>) -> Self {
        self.checkpointer = storage;
        self.process_storage = None;
        self
    }

    /// Replaces the limits of the graph. A run that reaches one continues where the limits of the graph lead
    /// ([`Limits::exhausted`]), because `compile` has checked that target.
    #[must_use]
    pub fn with_limits(mut self, mut limits: Limits) -> Self {
        let Limits { exhausted, span, .. } = self.limits;
        (limits.exhausted, limits.span) = (exhausted, span);
        self.limits = limits;
        self
    }

    /// Sets breakpoints: the run stops there as paused, and [`Engine::resume`] continues it.
    #[must_use]
    pub fn with_breakpoints(mut self, breakpoints: Breakpoints) -> Self {
        self.breakpoints = breakpoints;
        self
    }

    /// Sets how long running tasks may continue after [`ShutdownHandle::drain`](super::ShutdownHandle::drain).
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Suspends a run as paused when its [next wait](crate::machine::Machine::next_wait) is longer than this. By default the run waits in
    /// this process. The end of the wait is saved, and a resumed run waits only for the rest.
    #[must_use]
    pub fn with_wait_max(mut self, wait_max: Duration) -> Self {
        self.wait_max = Some(wait_max);
        self
    }

    /// Sets how long a lease lasts without renewal; 15 seconds by default.
    ///
    /// The process renews its lease three times in that time. If the owner is known to be dead, another
    /// process can take the run at once.
    #[must_use]
    pub fn with_lease_duration(mut self, duration: Duration) -> Self {
        self.lease_duration = duration;
        self
    }

    /// Replaces the system clock.
    ///
    /// Events, new runs without an own [`RunInfo`], and the ends of waits get their times from it.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        // Nested runs use it, too.
        self.provided.insert(clock.clone());
        self.clock = clock;
        self
    }

    /// Saves the trace context of the first span of each run with the run. The spans of later processes have it in their
    /// field `first_trace`, so that a subscriber can link them.
    #[must_use]
    pub fn with_trace_context(mut self, of_span: TraceContext) -> Self {
        self.trace_context = Some(of_span);
        self
    }

    /// Returns the limits of its runs.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Gives the nodes of its runs a value, such as a client or a pool, which they read by `ctx.get::<T>()`.
    #[must_use]
    pub fn provide<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.provided.insert(value);
        self
    }

    /// Starts a run with the fields of a struct, or an [`Update`], as its input. Await the [`Launch`] to drive the run
    /// until it stops, or [`start`](Launch::start) it in a separate task.
    ///
    /// # Errors
    ///
    /// Fails when a declared input field is missing, a value does not fit its channel, or the run cannot be saved. A
    /// failing node is not an error here: the run stops as failed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves a run that can be resumed, like after a crash of the process.
    pub fn run(&self, input: impl IntoInput) -> Launch<NewRun> {
        Launch::new_run(self, input)
    }

    /// Starts a run at a position of the graph, in a state that it could have there, instead of at the first nodes: for
    /// tests of a part of a graph. A position without next tasks stands for the first nodes. The checks of the data flow
    /// do not hold for such a run, so that a node may find a field without a value.
    ///
    /// # Errors
    ///
    /// Fails when the checkpoint does not fit the graph, and when the run cannot be saved.
    ///
    /// # Cancel safety
    ///
    /// As [`Engine::run`].
    ///
    /// ```
    /// # use graphrun_analysis::GraphBuilder;
    /// # use graphrun_core::{graph::{END, NodeError, START, Trigger}, id::{ChannelName, NodeName}};
    /// # use graphrun_engine::{Engine, checkpoint::{Activation, Checkpoint, Position}};
    /// # use serde_json::json;
    /// #[derive(Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    /// struct Count {
    ///     #[serde(default)]
    ///     count: u32,
    /// }
    ///
    /// async fn first(it: Count) -> Result<Count, NodeError> { Ok(Count { count: it.count + 1 }) }
    /// async fn second(it: Count) -> Result<Count, NodeError> { Ok(Count { count: it.count * 10 }) }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let graph = GraphBuilder::new::<Count>("count").node("first", first).node("second", second);
    /// let graph = graph.edge(START, "first").edge("first", "second").edge("second", END).compile()?;
    /// let state = graph.schema().restore([(ChannelName::parse("count")?, json!(7))])?;
    /// let trigger = Trigger::Then { node: NodeName::parse("first")? };
    /// let frontier = vec![Activation::by_edge(NodeName::parse("second")?, trigger)];
    /// let position = Position { frontier, ..Position::default() };
    /// let end = Engine::new(graph).run_at(Checkpoint { position, state }).await?;
    /// assert_eq!(end.output::<Count>()?.count, 70);
    /// # Ok(())
    /// # }
    /// ```
    pub fn run_at(&self, checkpoint: Checkpoint) -> Launch<NewRun> {
        Launch::run_at(self, checkpoint)
    }

    /// Adds a turn to a thread: new input on the state that the turns before it have left. The first turn starts a run
    /// with the name of the thread. Limits and visit counts begin anew with each turn; the totals are kept.
    ///
    /// A thread has one turn at a time. A second one is refused, or [waits](Launch::queued) for the first.
    ///
    /// # Errors
    ///
    /// Fails when the last turn has not ended (it waits for an answer, failed, or reached a limit: resume or retry it
    /// first), another process owns the thread, the graph has changed in a way that breaks its run, and as
    /// [`Engine::run`].
    ///
    /// # Cancel safety
    ///
    /// As [`Engine::run`].
    ///
    /// ```
    /// # use graphrun_analysis::GraphBuilder;
    /// # use graphrun_core::graph::{END, NodeError, START};
    /// # use graphrun_engine::Engine;
    /// #[derive(Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    /// struct Chat {
    ///     line: Option<String>,
    ///     #[serde(default)]
    ///     #[schemars(extend("x-merge" = "append"))]
    ///     lines: Vec<String>,
    /// }
    ///
    /// async fn keep(chat: Chat) -> Result<Chat, NodeError> {
    ///     Ok(Chat { lines: chat.line.into_iter().collect(), ..Chat::default() })
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let graph = GraphBuilder::new::<Chat>("chat").node("keep", keep);
    /// let engine = Engine::new(graph.edge(START, "keep").edge("keep", END).compile()?);
    /// let say = |text: &str| Chat { line: Some(text.to_owned()), ..Chat::default() };
    /// engine.turn("thread-7", &say("hello")).await?;
    /// let end = engine.turn("thread-7", &say("goodbye")).await?;
    /// assert_eq!(end.output::<Chat>()?.lines, ["hello", "goodbye"]);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "thread_id")]
    pub fn turn(&self, thread: impl Into<String>, input: impl IntoInput) -> Launch<NewTurn> {
        Launch::turn(self, thread.into(), input)
    }

    /// Continues a saved run, with the [answers](Launch::answer) that it waits for. Finished tasks do not run again. A
    /// question whose deadline has passed fails its node as `timeout` at once.
    ///
    /// # Errors
    ///
    /// Fails when there is no such run, it has ended, another process owns it, an answer matches no open
    /// question, or the run cannot be loaded or saved.
    ///
    /// # Cancel safety
    ///
    /// As [`Engine::run`].
    pub fn resume(&self, run: &RunId) -> Launch<Resume> {
        Launch::resume(self, run)
    }

    /// Retries the failed tasks of a failed run: all of them, or those of [one node](Launch::only). Finished tasks are
    /// kept.
    ///
    /// # Errors
    ///
    /// Fails when the run did not fail or none of its tasks did, and as [`Engine::resume`].
    ///
    /// # Cancel safety
    ///
    /// As [`Engine::run`].
    pub fn retry(&self, run: &RunId) -> Launch<Retry> {
        Launch::retry(self, run)
    }

    /// Checks whether a saved run can continue with the current graph.
    ///
    /// # Errors
    ///
    /// Fails with [`RunError::Broken`] if it cannot, and when the run cannot be loaded.
    pub async fn check_compatibility(&self, run: &RunId) -> Result<(), RunError> {
        resume::check_compatibility(self, run).await
    }

    /// Updates the state of a stopped run like an update by `node`. The update goes through the reducers and
    /// the schema; the routes of the node decide what runs next.
    ///
    /// If the node is in the frontier, its task counts as finished. If the run has ended, it continues at the
    /// targets of the node. Without a node, only the state changes. Results of finished tasks of the open
    /// step are kept, and open questions are asked again. The update is a separate step; the run is not
    /// driven.
    ///
    /// A task that has begun begins anew, on the new state: its memos, its answers and its idempotency key belong to the
    /// state before.
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
        let lease = Lease::acquire(&self.checkpointer, run, self.lease_duration).await?;
        let updated = revise::update(self, &lease, update, node).await;
        let position = lease.release_on_error(updated).await?;
        lease.forget();
        Ok(position)
    }

    /// Creates a new run from a checkpoint of another one, with other values in some channels. The other run
    /// does not change. The new run is stopped; [`Engine::resume`] continues it. A fork from the end of a turn is a thread
    /// that has ended, like the original there; [`Engine::turn`] with its name begins the next turn.
    ///
    /// Its steps and its usage start at zero. The visit counts of nodes are kept, so that loops stay bounded.
    /// If the run was migrated after the checkpoint, the same migration is applied to the checkpoint.
    ///
    /// # Errors
    ///
    /// Fails, and creates nothing, when the run is no thread and had ended at that checkpoint, a value does not fit its
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
    /// use graphrun_analysis::GraphBuilder;
    /// use graphrun_core::{graph::{NodeContext, NodeError, START}, id::NodeName};
    /// use graphrun_engine::{
    ///     Engine, checkpoint::Mapping, storage::InMemoryStorage, machine::Breakpoints,
    /// };
    ///
    /// #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    /// struct Board { draft: Option<String> }
    ///
    /// # async fn write(ctx: NodeContext) -> Result<Board, NodeError> {
    /// #     Ok(Board { draft: Some(ctx.node.to_string()) })
    /// # }
    /// # let graph = |second: &str| {
    /// #     let graph = GraphBuilder::new::<Board>("board").node("first", write).node(second, write);
    /// #     graph.edge(START, "first").edge("first", second).compile().unwrap()
    /// # };
    /// let storage = Arc::new(InMemoryStorage::default());
    /// let second = NodeName::parse("second")?;
    /// let breakpoints = Breakpoints { before: [second.clone()].into(), ..Breakpoints::default() };
    /// let engine = Engine::new(graph("second")).with_storage(storage.clone()).with_breakpoints(breakpoints);
    /// let run = engine.run(&()).await?.run;
    ///
    /// // `second` has another name by now.
    /// let engine = Engine::new(graph("last")).with_storage(storage);
    /// let mapping = Mapping::default().node(second, NodeName::parse("last")?);
    /// engine.migrate(&run, &mapping, None).await?;
    /// let end = engine.resume(&run).await?;
    /// assert_eq!(end.state.get("draft").and_then(|it| it.as_str()), Some("last"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails, and changes nothing, when another process owns the run, the run has ended, or it has parts
    /// without a counterpart that the mapping does not mention: [`RunError::NoCounterpart`] lists them all.
    pub async fn migrate(
        &self,
        run: &RunId,
        mapping: &Mapping,
        origin: Option<Value>,
    ) -> Result<MigrationResult, RunError> {
        let lease = Lease::acquire(&self.checkpointer, run, self.lease_duration).await?;
        let migrated = migrate::migrate(self, &lease, mapping.clone(), origin).await;
        let migrated = lease.release_on_error(migrated).await?;
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
    ) -> Result<MigrationResult, RunError> {
        migrate::try_migration(self, run, mapping).await
    }

    /// Returns the properties of a new run, which the clock of the engine dates.
    pub(super) fn new_info(&self) -> RunInfo {
        let created = self.clock.now().to_string();
        RunInfo { created, ..RunInfo::new(&self.graph.definition().name) }
    }

    pub(super) fn run_settings(&self) -> RunSettings {
        let limits = self.limits.clone();
        let breakpoints = self.breakpoints.clone();
        RunSettings { limits, breakpoints, now: self.clock.now(), ..RunSettings::default() }
    }
}
