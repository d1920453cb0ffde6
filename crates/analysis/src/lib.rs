//! Compiles a graph as its author defined it into an executable graph.
//!
//! [`compile`] reports all errors together, or returns an immutable [`CompiledGraph`].
//! - [`flow_model`]: the abstract graph on which the checks run, with what may be written where and which nodes may run concurrently.
//! - `checks`, `bounds`, `flow`, `concurrency`, `limits`: the checks of [`compile`], in their order.
//! - [`Envelope`]: the worst case of a run.
//!
//! ```
//! use graphrun_analysis::compile;
//! use graphrun_core::graph::{GraphBuilder, NodeContext, NodeError, node_fn};
//! use graphrun_core::state::Schema;
//!
//! async fn nothing(_: (), _: NodeContext) -> Result<(), NodeError> {
//!     Ok(())
//! }
//! let graph = GraphBuilder::with_schema("misspelt", Ok(Schema::default()))
//!     .node("write", node_fn(nothing))
//!     .entry("write")
//!     .then("write", "wrte");
//! let diagnostics = compile(graph.build()).unwrap_err();
//! assert!(diagnostics.to_string().contains("wrte"));
//! ```

// Tests may; the library may not.
#![warn(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]

mod bounds;
mod checks;
mod concurrency;
mod envelope;
mod flow;
pub mod flow_model;
mod limits;
mod midway;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::flow_model::{Draft, FlowModel};
use graphrun_core::{
    diagnostic::Diagnostics,
    graph::{Edge, Graph, NodeSpec, Target},
    id::NodeName,
    state::Schema,
};
use petgraph::graphmap::DiGraphMap;

pub use self::envelope::{Cause, Envelope, NodeEnvelope, Why};
pub use self::midway::Midway;
/// A graph that has passed all checks. It is immutable and cheap to clone.
#[derive(Clone, Debug)]
pub struct CompiledGraph(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    graph: Graph,
    /// For each node, the indexes of the edges that leave it.
    leaving: BTreeMap<NodeName, Vec<usize>>,
    /// For each join, the nodes that it awaits.
    joins: BTreeMap<NodeName, Vec<NodeName>>,
    /// The nodes whose route decides whether they arrive, each with the join.
    routed: BTreeSet<(NodeName, NodeName)>,
}

/// Checks a graph and makes it executable; also returns the warnings.
///
/// # Errors
///
/// Returns all diagnostics of all checks.
pub fn compile(
    (graph, mut findings): (Graph, Diagnostics),
) -> Result<(CompiledGraph, Diagnostics), Diagnostics> {
    checks::run(&graph, &mut findings);
    if !findings.has_errors() {
        // These checks follow edges, so every edge must have a valid target.
        bounds::run(&graph, &mut findings);
        let model = FlowModel::of(&Draft::of(&graph));
        flow::run(&graph, &model, &mut findings);
        concurrency::run(&graph, &model, &mut findings);
    }
    if !findings.has_errors() {
        // The worst case is only known if all loops are bounded.
        limits::run(&graph, &mut findings);
    }
    let mut leaving: BTreeMap<NodeName, Vec<usize>> = BTreeMap::new();
    let mut joins = BTreeMap::new();
    for (position, edge) in graph.edges.iter().enumerate() {
        for from in edge.sources() {
            leaving.entry(from.clone()).or_default().push(position);
        }
        if let Edge::Join { from, to, .. } = edge {
            joins.insert(to.clone(), from.clone());
        }
    }
    let routed = routed_arrivals(&graph);
    findings.or_ok(CompiledGraph(Arc::new(Parts { graph, leaving, joins, routed })))
}

impl CompiledGraph {
    /// Returns the definition that it was compiled from.
    pub fn graph(&self) -> &Graph {
        &self.0.graph
    }

    /// Returns the channels of the graph.
    pub fn schema(&self) -> &Schema {
        &self.0.graph.schema
    }

    /// Returns the node with this name.
    pub fn node(&self, name: &NodeName) -> Option<&NodeSpec> {
        self.0.graph.nodes.get(name)
    }

    /// Returns the edges that leave a node.
    pub fn leaving(&self, name: &NodeName) -> impl Iterator<Item = &Edge> {
        let positions = self.0.leaving.get(name).map_or(&[][..], Vec::as_slice);
        positions.iter().map(|&position| &self.0.graph.edges[position])
    }

    /// Returns whether a route of `from` decides if it arrives at `to`, which awaits it.
    ///
    /// Without such a route it arrives whenever it has finished.
    pub fn arrives_by_route(&self, from: &NodeName, to: &NodeName) -> bool {
        !self.0.routed.is_empty() && self.0.routed.contains(&(from.clone(), to.clone()))
    }

    /// Returns the nodes that a join awaits.
    pub fn awaited_by(&self, name: &NodeName) -> &[NodeName] {
        self.0.joins.get(name).map_or(&[], Vec::as_slice)
    }
}

/// Returns the nodes with a route to a join that awaits them.
fn routed_arrivals(graph: &Graph) -> BTreeSet<(NodeName, NodeName)> {
    let mut awaited: BTreeMap<&NodeName, Vec<&NodeName>> = BTreeMap::new();
    for edge in &graph.edges {
        if let Edge::Join { from, to, .. } = edge {
            for from in from {
                awaited.entry(from).or_default().push(to);
            }
        }
    }
    let mut routed = BTreeSet::new();
    for edge in &graph.edges {
        let Edge::Route { from, route, .. } = edge else { continue };
        for to in awaited.get(from).into_iter().flatten() {
            if route.targets().iter().any(|it| it.to.node() == Some(to)) {
                routed.insert((from.clone(), (*to).clone()));
            }
        }
    }
    routed
}

/// Returns the ways between nodes, limited to the kinds that `include` accepts.
fn ways<'a>(
    graph: &'a Graph,
    include: impl Fn(&'a NodeName, Connection) -> bool,
) -> DiGraphMap<&'a NodeName, ()> {
    let mut ways = DiGraphMap::new();
    for name in graph.nodes.keys() {
        ways.add_node(name);
    }
    let mut add = |from, to: &'a Target, way| {
        if let (Target::Node(to), true) = (to, include(from, way)) {
            ways.add_edge(from, to, ());
        }
    };
    for edge in &graph.edges {
        for from in edge.sources() {
            match edge {
                Edge::Then { to, .. } => add(from, to, Connection::Edge),
                Edge::Route { route, .. } => {
                    route.targets().iter().for_each(|it| add(from, &it.to, Connection::Edge));
                }
                Edge::May { to, .. } => to.iter().for_each(|it| add(from, it, Connection::Edge)),
                Edge::Join { .. } => (),
            }
        }
    }
    for (from, spec) in &graph.nodes {
        spec.policies.exhausted.iter().for_each(|it| add(from, it, Connection::Exhausted));
        spec.policies.catch.iter().for_each(|it| add(from, &it.to, Connection::Catch));
    }
    for edge in &graph.edges {
        if let Edge::Join { from, to, .. } = edge {
            for from in from {
                if include(from, Connection::Edge) {
                    ways.add_edge(from, to, ());
                }
            }
        }
    }
    ways
}

/// The kinds of ways between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    /// Along an edge.
    Edge,
    /// To the target of a used-up bound.
    Exhausted,
    /// To the target of a failure.
    Catch,
}
