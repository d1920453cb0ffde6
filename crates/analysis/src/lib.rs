//! Compiles a graph as its author defined it into an executable graph.
//!
//! [`compile`] reports all errors together, or returns an immutable [`CompiledGraph`].
//! - [`GraphBuilder`]: builds a graph in Rust.
//! - [`flow_model`]: the abstract graph on which the checks run, with what may be written where and which nodes may run concurrently.
//! - `checks`, `bounds`, `flow`, `concurrency`, `limits`: the checks of [`compile`], in their order.
//! - [`WorstCase`]: the worst case of a run.
//!
//! ```
//! use graphrun_analysis::GraphBuilder;
//! use graphrun_core::graph::{NodeError, START};
//!
//! async fn nothing() -> Result<(), NodeError> {
//!     Ok(())
//! }
//! let graph = GraphBuilder::new::<()>("misspelt")
//!     .node("write", nothing)
//!     .edge(START, "write")
//!     .edge("write", "wrte");
//! let diagnostics = graph.compile().unwrap_err();
//! assert!(diagnostics.to_string().contains("wrte"));
//! ```

// Only tests may print or unwrap.
#![warn(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]

mod bounds;
mod builder;
mod checks;
mod concurrency;
mod flow;
pub mod flow_model;
mod limits;
mod midway;
mod network;
mod worst_case;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    thread,
};

use graphrun_core::{
    diagnostic::Diagnostics,
    graph::{Edge, Graph, NodeDescription, NodeFault, NodeSpec, Policies, UncheckedGraph},
    id::NodeName,
    state::Schema,
};
use petgraph::graph::DiGraph;
pub use petgraph::graph::NodeIndex;

pub use self::{
    builder::{GraphBuilder, Names},
    midway::{FieldReader, Midway},
    network::{EdgeKind, GraphEdge, GraphNode},
    worst_case::{Cause, NodeWorstCase, VisitBound, WorstCase},
};
use self::{
    flow_model::{Draft, FlowModel},
    network::Network,
};

/// For a smaller graph, a second thread would save less than two milliseconds.
const NODES_FOR_A_THREAD: usize = 200;

/// That of most main threads: the search for cycles recurses along the edges.
const STACK_BYTES: usize = 8 << 20;

/// A graph that has passed all checks. It is immutable and cheap to clone.
#[derive(Clone, Debug)]
pub struct CompiledGraph(Arc<CompiledParts>);

#[derive(Debug)]
struct CompiledParts {
    graph: Graph,
    warnings: Diagnostics,
    network: Network,
    /// The names of the nodes, by index.
    names: Arc<[NodeName]>,
    /// For each node, the indexes of the edges that leave it.
    leaving: Vec<Vec<usize>>,
    /// The joins.
    joins: BTreeMap<NodeIndex, AwaitedNodes>,
    /// The nodes whose route decides whether they arrive, each with the join.
    routed: BTreeSet<(NodeName, NodeName)>,
    /// For each node, whether it keeps its thread.
    paces: Vec<Pace>,
    /// The nodes that run only for items.
    takes_item: BTreeSet<NodeName>,
    has_nested_runs: bool,
}

/// The nodes that a join awaits.
#[derive(Debug)]
struct AwaitedNodes {
    nodes: Vec<NodeName>,
    /// The number of arrivals that let it run.
    count: usize,
}

/// Whether a node keeps the thread that polls it, as far as this process has seen.
///
/// It holds the number of short attempts that are needed until the node counts as quick.
#[derive(Debug)]
pub struct Pace(AtomicU8);

/// Checks a graph and makes it executable. Its diagnostics so far are kept.
///
/// # Errors
///
/// Returns all diagnostics of all checks.
pub fn compile(unchecked: UncheckedGraph) -> Result<CompiledGraph, Diagnostics> {
    let UncheckedGraph { graph, unmade, mut diagnostics } = unchecked;
    checks::run(&graph, &unmade, &mut diagnostics);
    if diagnostics.has_errors() {
        // The other checks follow edges, so every edge must have a valid target.
        return Err(diagnostics);
    }
    let network = Network::of(&graph);
    bounds::run(&graph, &network, &mut diagnostics);
    let draft = Draft::of(&graph);
    let check_flow = |diagnostics: &mut Diagnostics| {
        let model = FlowModel::of(&draft);
        flow::run(&graph, &model, diagnostics);
        concurrency::run(&graph, &model, diagnostics);
    };
    // The worst case is only known if all loops are bounded.
    if !diagnostics.has_errors() && graph.nodes.len() >= NODES_FOR_A_THREAD {
        let beyond = beside(|| limits::run(&graph), || check_flow(&mut diagnostics));
        if !diagnostics.has_errors() {
            diagnostics.extend(beyond);
        }
    } else {
        check_flow(&mut diagnostics);
        if !diagnostics.has_errors() {
            diagnostics.extend(limits::run(&graph));
        }
    }
    let index = |name: &NodeName| network.index(name).expect("the edges have valid ends");
    let mut leaving = vec![Vec::new(); network.node_count()];
    let mut joins = BTreeMap::new();
    for (position, edge) in graph.edges.iter().enumerate() {
        for from in edge.sources() {
            leaving[index(from).index()].push(position);
        }
        if let Edge::Join { from, to, count, .. } = edge {
            joins.insert(index(to), AwaitedNodes { nodes: from.clone(), count: *count });
        }
    }
    let routed = draft.routed_arrivals().into_iter();
    let routed = routed.map(|(from, to)| (from.clone(), to.clone())).collect();
    let paces = network.node_indices().map(|_| Pace::default()).collect();
    let names = graph.nodes.keys().cloned().collect();
    let takes_item = graph.nodes.iter().filter(|(_, it)| it.describe().item.is_some());
    let takes_item = takes_item.map(|(name, _)| name.clone()).collect();
    let has_nested_runs = graph.nodes.values().any(|it| it.describe().nested_levels > 0);
    let (routed, warnings) = diagnostics.or_ok(routed)?;
    let parts = CompiledParts {
        graph,
        warnings,
        network,
        names,
        leaving,
        joins,
        routed,
        paces,
        takes_item,
        has_nested_runs,
    };
    Ok(CompiledGraph(Arc::new(parts)))
}

/// Runs two checks at the same time, and returns the result of the first.
fn beside<T: Send>(first: impl Fn() -> T + Send + Sync, second: impl FnOnce()) -> T {
    thread::scope(|scope| {
        let running = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, &first);
        second();
        match running {
            Ok(running) => running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            // The process has no thread left.
            Err(_) => first(),
        }
    })
}

impl CompiledGraph {
    /// Returns the definition from which it was compiled.
    pub fn definition(&self) -> &Graph {
        &self.0.graph
    }

    /// Returns the most model calls of a run; `None` if a node does not declare them, or it takes too long to find out.
    pub fn calls_max(&self) -> Option<u64> {
        WorstCase::if_quick(self.definition(), |_| false)?.calls_max()
    }

    /// Returns an upper bound of the model calls of a retried nested run of this graph; `None` if it is not known.
    pub fn calls_again_max(&self) -> Option<u64> {
        worst_case::calls_again_max(self)
    }

    /// Returns an upper bound of a resource for a retried nested run. `all` is the amount of a whole run, `of_node` that of
    /// one task of a node. Returns `None` if `of_node` does for a node.
    pub fn most_again(&self, all: u64, of_node: impl Fn(&NodeName) -> Option<u64>) -> Option<u64> {
        worst_case::most_again(self, all, of_node)
    }

    /// Returns what the checks warn about.
    pub fn warnings(&self) -> &Diagnostics {
        &self.0.warnings
    }

    /// Returns the graph on which the rules of a run work, for algorithms of `petgraph`.
    ///
    /// The nodes come in the order of their names, then the start, the end and the failure of a run. The
    /// edges are all routes between them.
    ///
    /// ```
    /// use graphrun_analysis::GraphBuilder;
    /// use graphrun_core::graph::{END, START};
    /// # use graphrun_core::{graph::NodeError, state::Schema};
    /// use petgraph::{algo::{dominators, tarjan_scc}, dot::Dot};
    ///
    /// # async fn work() -> Result<(), NodeError> { Ok(()) }
    /// let graph = GraphBuilder::with_schema("review", Schema::default())
    ///     .node("draft", work)
    ///     .node("judge", work)
    ///     .edge(START, "draft")
    ///     .edge("draft", "judge")
    ///     .edge("judge", "draft")
    ///     .max_visits("judge", 3, END)
    ///     .compile()?;
    ///
    /// let net = graph.as_petgraph();
    /// let name = |index: petgraph::graph::NodeIndex| net[index].to_string();
    /// let start = graph.start_index();
    /// let loops: Vec<_> = tarjan_scc(net).into_iter().filter(|it| it.len() > 1).collect();
    /// assert_eq!(loops[0].len(), 2);
    /// let judge = net.node_indices().find(|it| name(*it) == "judge").expect("it is a node");
    /// let before_judge = dominators::simple_fast(net, start).immediate_dominator(judge);
    /// assert_eq!(before_judge.map(name).as_deref(), Some("draft"));
    /// assert!(Dot::new(net).to_string().contains("exhausted"));
    /// # Ok::<(), graphrun_core::diagnostic::Diagnostics>(())
    /// ```
    pub fn as_petgraph(&self) -> &DiGraph<GraphNode, GraphEdge> {
        self.0.network.graph()
    }

    /// Returns the index of a node. The indices of nodes are dense, and in the order of the names.
    pub fn index(&self, name: &NodeName) -> Option<NodeIndex> {
        self.0.network.index(name)
    }

    /// Returns the index of the start in [`CompiledGraph::as_petgraph`].
    pub fn start_index(&self) -> NodeIndex {
        self.0.network.start()
    }

    /// Returns the names of the nodes, by index.
    pub fn names(&self) -> Arc<[NodeName]> {
        Arc::clone(&self.0.names)
    }

    /// Returns the number of nodes.
    pub fn node_count(&self) -> usize {
        self.0.network.node_count()
    }

    /// Returns the node with this index.
    ///
    /// # Panics
    ///
    /// Panics if the index is not that of a node of this graph.
    pub fn at(&self, index: NodeIndex) -> (&NodeName, &NodeSpec) {
        self.0.network.node(index)
    }

    /// Returns the name of the node with this index.
    ///
    /// # Panics
    ///
    /// As [`Self::at`].
    pub fn name_at(&self, index: NodeIndex) -> &NodeName {
        self.at(index).0
    }

    /// Returns the definition of the node with this index.
    ///
    /// # Panics
    ///
    /// As [`Self::at`].
    pub fn spec_at(&self, index: NodeIndex) -> &NodeSpec {
        self.at(index).1
    }

    /// Returns the policies of the node with this index.
    ///
    /// # Panics
    ///
    /// As [`Self::at`].
    pub fn policies_at(&self, index: NodeIndex) -> &Policies {
        &self.spec_at(index).policies
    }

    /// Returns whether a node describes itself as one that runs other graphs.
    pub fn has_nested_runs(&self) -> bool {
        self.0.has_nested_runs
    }

    /// Returns whether a node keeps the thread that polls it.
    ///
    /// # Panics
    ///
    /// Panics if the index is not that of a node of this graph.
    pub fn pace(&self, index: NodeIndex) -> &Pace {
        &self.0.paces[index.index()]
    }

    /// Returns the channels of the graph.
    pub fn schema(&self) -> &Schema {
        &self.0.graph.schema
    }

    /// Returns the node with this name.
    pub fn node(&self, name: &NodeName) -> Option<&NodeSpec> {
        self.index(name).map(|it| self.spec_at(it))
    }

    /// Returns the graph of the nested runs of a node.
    pub fn nested_graph_of(&self, name: &NodeName) -> Option<&Self> {
        self.node(name)?.describe().nested.as_ref()?.downcast_ref()
    }

    /// Returns the edges that leave a node.
    pub fn leaving(&self, name: &NodeName) -> impl Iterator<Item = &Edge> {
        self.index(name).into_iter().flat_map(|it| self.leaving_at(it))
    }

    /// Returns the edges that leave the node with this index.
    pub fn leaving_at(&self, index: NodeIndex) -> impl Iterator<Item = &Edge> {
        self.0.leaving[index.index()].iter().map(|&position| &self.0.graph.edges[position])
    }

    /// Returns whether a node runs only for the items that are dispatched to it.
    pub fn takes_item(&self, name: &NodeName) -> bool {
        self.0.takes_item.contains(name)
    }

    /// Returns whether a route of `from` decides if it arrives at `to`, which awaits it.
    ///
    /// Without such a route it arrives whenever it has finished.
    pub fn arrives_by_route(&self, from: &NodeName, to: &NodeName) -> bool {
        !self.0.routed.is_empty() && self.0.routed.contains(&(from.clone(), to.clone()))
    }

    /// Returns the nodes that a join awaits.
    pub fn awaited_by(&self, name: &NodeName) -> &[NodeName] {
        self.index(name).map_or(&[], |it| self.awaited_at(it))
    }

    /// Returns the nodes that the join with this index awaits.
    pub fn awaited_at(&self, index: NodeIndex) -> &[NodeName] {
        self.0.joins.get(&index).map_or(&[], |it| &it.nodes)
    }

    /// Returns how many awaited nodes must arrive before the join with this index runs.
    pub fn arrivals_needed_at(&self, index: NodeIndex) -> usize {
        self.0.joins.get(&index).map_or(0, |it| it.count)
    }

    /// Returns what does not fit when code gives this graph its input and reads its result. `code` describes it as a node
    /// that writes the input and reads the result.
    pub fn misfits(&self, code: &NodeDescription) -> Vec<NodeFault> {
        checks::nested::misfits(self.definition(), code)
    }

    /// Returns whether some join runs before all of its nodes have arrived.
    pub fn has_partial_joins(&self) -> bool {
        self.0.joins.values().any(|it| it.count < it.nodes.len())
    }
}

impl Pace {
    /// The short attempts after which a node counts as quick again, once it has blocked its thread.
    const PROBATION: u8 = 16;

    /// Returns whether an attempt of this node hardly delays what else the thread has to do.
    pub fn is_quick(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Notes whether the first poll of an attempt was short.
    pub fn note(&self, is_short: bool) {
        let left = self.0.load(Ordering::Relaxed);
        match (is_short, left) {
            (false, _) => self.0.store(Self::PROBATION, Ordering::Relaxed),
            (true, 0) => (),
            (true, left) => self.0.store(left - 1, Ordering::Relaxed),
        }
    }
}

impl Default for Pace {
    /// The first attempt of a node has to show that it is short.
    fn default() -> Self {
        Self(AtomicU8::new(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_checks_run_on_two_threads() {
        let mut other = None;
        let one = beside(|| thread::current().id(), || other = Some(thread::current().id()));
        assert_eq!(other, Some(thread::current().id()));
        assert_ne!(Some(one), other);
    }

    #[test]
    fn a_node_is_quick_after_a_short_attempt_until_it_blocks() {
        let pace = Pace::default();
        assert!(!pace.is_quick());
        pace.note(true);
        assert!(pace.is_quick());
        pace.note(false);
        for _ in 0..Pace::PROBATION {
            assert!(!pace.is_quick());
            pace.note(true);
        }
        assert!(pace.is_quick());
    }
}
