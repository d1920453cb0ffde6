//! Builds a graph in Rust.

use std::{collections::BTreeSet, time::Duration};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use graphrun_core::{
    diagnostic::{Diagnostic, Diagnostics},
    graph::{
        Catch, Command, Contract, END, Edge, ErrorKind, FAIL, Graph, IntoChoice, IntoNode, Limits,
        Node, NodeContext, NodeDescription, NodeError, NodeSpec, START, SideEffects, Target,
        UncheckedGraph, condition_fn, route_fn,
    },
    id::{ChannelName, NameError, NodeName},
    state::Schema,
};

use crate::{CompiledGraph, compile};

/// Collects nodes and edges. Its methods never fail: [`compile`](Self::compile) reports all errors together.
///
/// ```
/// use graphrun_analysis::GraphBuilder;
/// use graphrun_core::graph::{END, NodeError, START};
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Default, Serialize, Deserialize, JsonSchema)]
/// struct Count {
///     #[serde(default)]
///     count: u32,
/// }
///
/// async fn increment(reads: Count) -> Result<Count, NodeError> {
///     Ok(Count { count: reads.count + 1 })
/// }
///
/// let graph = GraphBuilder::new::<Count>("counter")
///     .node("increment", increment)
///     .edge(START, "increment")
///     .edge("increment", END)
///     .compile()?;
/// assert!(graph.warnings().is_empty());
/// # Ok::<(), graphrun_core::diagnostic::Diagnostics>(())
/// ```
#[derive(Debug)]
#[doc(alias = "StateGraph")]
pub struct GraphBuilder {
    graph: Graph,
    diagnostics: Diagnostics,
    /// The policies of nodes by name. A node may be added after its policy.
    policies: Vec<(String, NodePolicy)>,
    defaults: Defaults,
}

/// The policies of the nodes that do not set them.
#[derive(Debug, Default)]
struct Defaults {
    attempts_max: Option<u32>,
    timeout: Option<Duration>,
    catch: Vec<Catch>,
}

/// A policy that names other nodes or channels.
#[derive(Debug)]
enum NodePolicy {
    When(Box<dyn graphrun_core::graph::Condition>),
    Bound(u32, Target),
    Catch(Catch),
    Resets(Vec<NodeName>),
    Clears(Vec<ChannelName>),
    MayClear(Vec<ChannelName>),
}

/// The node of a route that leaves the start.
#[derive(Debug)]
struct Entrance;

#[async_trait]
impl Node for Entrance {
    async fn run(&self, _: NodeContext) -> Result<Command, NodeError> {
        Ok(Command::default())
    }

    fn describe(&self) -> NodeDescription {
        NodeDescription {
            kind: "start",
            contract: Contract { reads: Some(Vec::new()), writes: Some(Vec::new()) },
            calls_max: Some(0),
            side_effects: SideEffects::Nothing,
            ..NodeDescription::default()
        }
    }
}

/// One name or several: the nodes that an edge connects.
pub trait Names {
    /// Whether an edge that leaves them waits for all of them.
    const ARE_SEVERAL: bool;

    /// Returns the names.
    fn names(self) -> Vec<String>;
}

impl Names for &str {
    const ARE_SEVERAL: bool = false;

    fn names(self) -> Vec<String> {
        vec![self.to_owned()]
    }
}

impl Names for &String {
    const ARE_SEVERAL: bool = false;

    fn names(self) -> Vec<String> {
        vec![self.clone()]
    }
}

impl<const N: usize> Names for [&str; N] {
    const ARE_SEVERAL: bool = true;

    fn names(self) -> Vec<String> {
        self.map(str::to_owned).to_vec()
    }
}

impl<T: AsRef<str>> Names for &[T] {
    const ARE_SEVERAL: bool = true;

    fn names(self) -> Vec<String> {
        self.iter().map(|it| it.as_ref().to_owned()).collect()
    }
}

impl<T: AsRef<str>> Names for &Vec<T> {
    const ARE_SEVERAL: bool = true;

    fn names(self) -> Vec<String> {
        self.as_slice().names()
    }
}

impl GraphBuilder {
    /// Starts a graph whose channels are the fields of a struct.
    pub fn new<S: JsonSchema>(name: &str) -> Self {
        match Schema::of::<S>() {
            Ok(schema) => Self::with_schema(name, schema),
            Err(error) => {
                let mut builder = Self::with_schema(name, Schema::default());
                builder.diagnostics.push(Diagnostic::error("GR014", error.to_string()));
                builder
            }
        }
    }

    /// Starts a graph with the channels of a schema.
    pub fn with_schema(name: &str, schema: Schema) -> Self {
        let graph = Graph { name: name.to_owned(), schema, ..Graph::default() };
        Self {
            graph,
            diagnostics: Diagnostics::default(),
            policies: Vec::new(),
            defaults: Defaults::default(),
        }
    }

    /// Adds a node: an async function, a type that implements [`Node`](graphrun_core::graph::Node), or one of them
    /// with policies, such as `judge.retry(3)`. See [`IntoNode`].
    #[must_use]
    #[doc(alias = "add_node")]
    pub fn node<M>(mut self, name: &str, node: impl IntoNode<M>) -> Self {
        if let Some(name) = self.name(name) {
            let spec = node.into_node();
            if self.graph.nodes.insert(name.clone(), spec).is_some() {
                self.diagnostics
                    .push(Diagnostic::error("GR002", format!("two nodes are called `{name}`")));
            }
        }
        self
    }

    /// Runs `to` in the step after `from`. Several nodes in `to` run side by side; several in `from` are a join, for
    /// which `to` waits. The first nodes follow [`START`]; `to` may be [`END`], which is no node and waits for nothing, or
    /// [`FAIL`](graphrun_core::graph::FAIL).
    #[must_use]
    #[doc(alias = "add_edge")]
    pub fn edge<F: Names, T: Names>(mut self, from: F, to: T) -> Self {
        let from = from.names();
        let is_start = from == [START];
        for to in &to.names() {
            if F::ARE_SEVERAL && to != END && !is_start {
                self = self.join(&from, from.len(), to);
                continue;
            }
            for from in &from {
                if from == START {
                    let to = self.name(to);
                    self.graph.entry.extend(to);
                } else if let (Some(from), Some(to)) = (self.name(from), self.target(to)) {
                    self.graph.edges.push(Edge::Then { from, to, span: None });
                }
            }
        }
        self
    }

    /// Runs `to` once `count` of the nodes in `from` have finished; with 1, after the first of them.
    ///
    /// The others continue beside `to`, and their arrivals are too late: `to` runs once in a round. A round is
    /// over when no task is left that ran beside the join when it fired, or that such a task led to.
    ///
    /// ```
    /// use graphrun_analysis::GraphBuilder;
    /// use graphrun_core::graph::{END, START};
    /// # use graphrun_core::{graph::NodeError, state::Schema};
    ///
    /// # async fn work() -> Result<(), NodeError> { Ok(()) }
    /// GraphBuilder::with_schema("quorum", Schema::default())
    ///     .node("first", work)
    ///     .node("second", work)
    ///     .node("third", work)
    ///     .node("decide", work)
    ///     .edge(START, ["first", "second", "third"])
    ///     .edge_of(2, ["first", "second", "third"], "decide")
    ///     .edge("decide", END)
    ///     .compile()?;
    /// # Ok::<(), graphrun_core::diagnostic::Diagnostics>(())
    /// ```
    #[must_use]
    pub fn edge_of(self, count: usize, from: impl Names, to: &str) -> Self {
        self.join(&from.names(), count, to)
    }

    fn join(mut self, from: &[String], count: usize, to: &str) -> Self {
        let from = from.iter().filter_map(|it| self.name(it)).collect();
        if let Some(to) = self.name(to) {
            self.graph.edges.push(Edge::Join { from, to, count, span: None });
        }
        self
    }

    /// Lets a function over the state decide what runs after `from`.
    ///
    /// It returns the name of one of the targets, several of them, or items for them; see [`IntoChoice`]. A route that
    /// leaves [`START`] belongs to a node `start`, which is added and does nothing.
    #[must_use]
    #[doc(alias = "add_conditional_edges")]
    pub fn route<S, C, F>(mut self, from: &str, targets: impl Names, choose: F) -> Self
    where
        F: Fn(&S) -> C + Send + Sync + 'static,
        S: DeserializeOwned + JsonSchema + 'static,
        C: IntoChoice + 'static,
    {
        let targets = self.targets(targets);
        let is_entry = from == START;
        let from = if is_entry { self.name("start") } else { self.name(from) };
        if let Some(from) = from {
            if is_entry && !self.graph.entry.contains(&from) {
                self.graph.entry.push(from.clone());
                self = self.node("start", Entrance);
            }
            let route = std::sync::Arc::new(route_fn(targets, choose));
            self.graph.edges.push(Edge::Route { from, route, span: None });
        }
        self
    }

    /// Declares the targets that `from` itself may choose by their names, with the [`Go`](graphrun_core::graph::Go) or
    /// the [`Command`](graphrun_core::graph::Command) that it returns.
    #[must_use]
    pub fn goto(mut self, from: &str, targets: impl Names) -> Self {
        let to = self.targets(targets);
        if let Some(from) = self.name(from) {
            self.graph.edges.push(Edge::May { from, to, is_dispatched: false });
        }
        self
    }

    /// Declares the nodes to which `from` itself may dispatch items, with the [`Go`](graphrun_core::graph::Go) or the
    /// [`Command`](graphrun_core::graph::Command) that it returns.
    #[must_use]
    pub fn dispatches(mut self, from: &str, nodes: impl Names) -> Self {
        let to = nodes.names().iter().filter_map(|it| self.name(it)).map(Target::Node).collect();
        if let Some(from) = self.name(from) {
            self.graph.edges.push(Edge::May { from, to, is_dispatched: true });
        }
        self
    }

    /// Limits how often a node runs until its count is reset, with the target for when that is used up. All items that are
    /// dispatched to it in a step are one visit. Every loop needs a bound.
    #[must_use]
    pub fn max_visits(mut self, node: &str, visits_max: u32, then: &str) -> Self {
        if let Some(then) = self.target(then) {
            self.policies.push((node.to_owned(), NodePolicy::Bound(visits_max, then)));
        }
        self
    }

    /// Leads failures of a node to a target: those of one kind, or with `None` all that are not for the operator.
    #[must_use]
    pub fn catch(mut self, node: &str, kind: impl Into<Option<ErrorKind>>, to: &str) -> Self {
        let kind = kind.into();
        if let Some(to) = self.target(to) {
            self.policies.push((node.to_owned(), NodePolicy::Catch(Catch { kind, to })));
        }
        self
    }

    /// Resets the visit counts of these nodes when the node finishes.
    #[must_use]
    pub fn resets(mut self, node: &str, nodes: impl Names) -> Self {
        let nodes = nodes.names().iter().filter_map(|it| self.name(it)).collect();
        self.policies.push((node.to_owned(), NodePolicy::Resets(nodes)));
        self
    }

    /// Clears these channels, or resets them to their defaults, when the node finishes, before its writes.
    #[must_use]
    pub fn clears(mut self, node: &str, channels: impl Names) -> Self {
        let channels = self.channels(channels);
        self.policies.push((node.to_owned(), NodePolicy::Clears(channels)));
        self
    }

    /// Declares the channels that the node itself may clear, by the [`Go`](graphrun_core::graph::Go) or the
    /// [`Command`](graphrun_core::graph::Command) that it returns.
    #[must_use]
    pub fn may_clear(mut self, node: &str, channels: impl Names) -> Self {
        let channels = self.channels(channels);
        self.policies.push((node.to_owned(), NodePolicy::MayClear(channels)));
        self
    }

    /// Lets a function over the state decide whether a node runs or is skipped.
    ///
    /// `condition` is the condition in words; events show it to watchers.
    #[must_use]
    pub fn when<S, F>(mut self, node: &str, condition: &str, holds: F) -> Self
    where
        F: Fn(&S) -> bool + Send + Sync + 'static,
        S: DeserializeOwned + JsonSchema + 'static,
    {
        let condition = Box::new(condition_fn(condition, holds));
        self.policies.push((node.to_owned(), NodePolicy::When(condition)));
        self
    }

    /// Declares a channel whose value each run receives as input.
    #[must_use]
    pub fn input(mut self, channel: &str) -> Self {
        let name = self.noted(ChannelName::parse(channel));
        self.graph.input.extend(name);
        self
    }

    /// Declares a channel to which the messages of people to a running workflow are appended.
    #[must_use]
    pub fn inbox(mut self, channel: &str) -> Self {
        let name = self.noted(ChannelName::parse(channel));
        self.graph.inbox.extend(name);
        self
    }

    /// Tries each node that sets no number of attempts up to this many times in all, when its failure is transient.
    #[must_use]
    pub fn default_retry(mut self, attempts_max: u32) -> Self {
        self.defaults.attempts_max = Some(attempts_max);
        self
    }

    /// Limits the duration of one attempt of each node that sets no timeout.
    #[must_use]
    pub fn default_timeout(mut self, duration: Duration) -> Self {
        self.defaults.timeout = Some(duration);
        self
    }

    /// Leads failures to a target, as [`catch`](Self::catch) does, for each node that has no target for this kind of
    /// failure. The targets of such defaults are not led to one of them.
    #[must_use]
    pub fn default_catch(mut self, kind: impl Into<Option<ErrorKind>>, to: &str) -> Self {
        let kind = kind.into();
        if let Some(to) = self.target(to) {
            self.defaults.catch.push(Catch { kind, to });
        }
        self
    }

    /// Sets the limits of a run.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.graph.limits = limits;
        self
    }

    /// Checks the graph and makes it executable. Its [warnings](CompiledGraph::warnings) are kept.
    ///
    /// # Errors
    ///
    /// Returns the diagnostics of all checks.
    pub fn compile(self) -> Result<CompiledGraph, Diagnostics> {
        compile(self.build())
    }

    /// Returns the graph, and the diagnostics for the names in it.
    pub fn build(mut self) -> UncheckedGraph {
        for (name, policy) in std::mem::take(&mut self.policies) {
            let parsed = self.name(&name);
            let Some(spec) = parsed.and_then(|it| self.graph.nodes.get_mut(&it)) else {
                let message = format!("a policy names `{name}`, which is not a node");
                self.diagnostics.push(Diagnostic::error("GR010", message));
                continue;
            };
            policy.apply(spec);
        }
        self.defaults.apply(&mut self.graph);
        self.check_numbers();
        self.check_leaving_edges();
        UncheckedGraph {
            graph: self.graph,
            diagnostics: self.diagnostics,
            ..UncheckedGraph::default()
        }
    }

    /// Reports numbers and durations of zero, with which nothing could run.
    fn check_numbers(&mut self) {
        let Self { graph, diagnostics, .. } = self;
        let mut report = |whose: &str, what: &str| {
            let diagnostic = Diagnostic::error("GR005", format!("{whose} has {what}"));
            diagnostics.push(diagnostic.help("set at least one, or leave it out"));
        };
        for (name, NodeSpec { policies, .. }) in &graph.nodes {
            let zeros = [
                (policies.attempts.retry.attempts_max == Some(0), "no attempts"),
                (policies.attempts.timeout == Some(Duration::ZERO), "a timeout of zero"),
                (policies.attempts.idle_timeout == Some(Duration::ZERO), "an idle timeout of zero"),
                (policies.schedule.width_max == Some(0), "no concurrent tasks"),
                (policies.bounds.max_visits == Some(0), "a bound of no visits"),
            ];
            for (_, what) in zeros.into_iter().filter(|it| it.0) {
                report(&format!("`{name}`"), what);
            }
        }
        if graph.limits.steps == 0 {
            report("the graph", "a limit of no steps");
        }
        if graph.limits.concurrency == 0 {
            report("the graph", "a limit of no concurrent tasks");
        }
    }

    /// Warns of nodes that no edge leaves: an edge may have been forgotten. A workflow file states even the end.
    fn check_leaving_edges(&mut self) {
        let sources: BTreeSet<&NodeName> =
            self.graph.edges.iter().flat_map(Edge::sources).collect();
        for name in self.graph.nodes.keys().filter(|it| !sources.contains(it)) {
            let diagnostic = Diagnostic::warning("GR006", format!("no edge leaves `{name}`"));
            self.diagnostics.push(diagnostic.help(format!("add `.edge(\"{name}\", END)`")));
        }
    }

    fn targets(&mut self, names: impl Names) -> Vec<Target> {
        names.names().iter().filter_map(|it| self.target(it)).collect()
    }

    fn channels(&mut self, names: impl Names) -> Vec<ChannelName> {
        names.names().iter().filter_map(|it| self.noted(ChannelName::parse(it))).collect()
    }

    fn name(&mut self, name: &str) -> Option<NodeName> {
        if matches!(name, START | END | FAIL) {
            let message = format!("`{name}` is built in and cannot name a node");
            self.diagnostics.push(Diagnostic::error("GR016", message));
            return None;
        }
        self.noted(NodeName::parse_path(name))
    }

    fn target(&mut self, name: &str) -> Option<Target> {
        match name {
            END => Some(Target::End),
            FAIL => Some(Target::Fail),
            name => self.name(name).map(Target::Node),
        }
    }

    fn noted<T>(&mut self, name: Result<T, NameError>) -> Option<T> {
        name.map_err(|error| self.diagnostics.push(Diagnostic::error("GR009", error.to_string())))
            .ok()
    }
}

impl Defaults {
    fn apply(&self, graph: &mut Graph) {
        for (name, NodeSpec { policies, .. }) in &mut graph.nodes {
            policies.attempts.retry.attempts_max =
                policies.attempts.retry.attempts_max.or(self.attempts_max);
            policies.attempts.timeout = policies.attempts.timeout.or(self.timeout);
            let handles = |it: &Catch| matches!(&it.to, Target::Node(to) if to == name);
            if self.catch.iter().any(handles) {
                continue;
            }
            Catch::complete(&mut policies.catch, &self.catch);
        }
    }
}

impl NodePolicy {
    fn apply(self, spec: &mut NodeSpec) {
        let policies = &mut spec.policies;
        match self {
            Self::When(condition) => spec.when = Some(condition.into()),
            Self::Bound(visits_max, then) => {
                policies.bounds.max_visits = Some(visits_max);
                policies.bounds.exhausted = Some(then);
            }
            Self::Catch(catch) => policies.catch.push(catch),
            Self::Resets(nodes) => policies.on_finish.resets.extend(nodes),
            Self::Clears(channels) => policies.on_finish.clears.extend(channels),
            Self::MayClear(channels) => policies.on_finish.may_clear.extend(channels),
        }
    }
}
