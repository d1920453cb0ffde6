//! The graph as a `petgraph` graph: nodes, the start and the ends, with all edges and routes between them.

use std::{collections::HashMap, fmt};

use foldhash::fast::RandomState;
use graphrun_core::{
    graph::{Edge, Graph, NodeSpec, Target},
    id::NodeName,
};
use petgraph::{
    Direction,
    graph::{DiGraph, NodeIndex},
    graphmap::DiGraphMap,
    visit::EdgeFiltered,
};

/// The edges between numbered nodes, or between ports of nodes. A fast hash will do, because the numbers are our own.
pub(crate) type Digraph<N = usize> = DiGraphMap<N, (), RandomState>;

/// A node of the graph that [`CompiledGraph::as_petgraph`](crate::CompiledGraph::as_petgraph) lends.
///
/// The nodes of the workflow come first, in the order of their names, so their indices are dense. The start, the end and the failure of a run follow.
#[derive(Clone, Debug)]
pub enum GraphNode {
    /// A node of the graph.
    Node {
        /// Its name.
        name: NodeName,
        /// Its behaviour and its policies.
        spec: Box<NodeSpec>,
    },
    /// The start of a run. Edges lead to the nodes of the first step.
    Start,
    /// The end of a branch of a run.
    End,
    /// The failure of a run.
    Fail,
}

/// An edge of the graph that [`CompiledGraph::as_petgraph`](crate::CompiledGraph::as_petgraph) lends. A join
/// is one edge from each node that it awaits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphEdge {
    /// The kind.
    pub kind: EdgeKind,
    /// The condition in words, if a route has one.
    pub label: Option<String>,
    /// The place of the edge among the edges of the definition; `None` for the edges of policies and of the start.
    pub definition: Option<usize>,
}

/// The kinds of edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EdgeKind {
    /// From the start to a node of the first step.
    Start,
    /// Unconditional.
    Then,
    /// To a node that waits for several.
    Join,
    /// By a decision of a route.
    Route,
    /// By a choice of the node itself.
    May,
    /// To the target of a used-up bound.
    Exhausted,
    /// To the target of a failure.
    Catch,
    /// From the start to the target of a limit of the run.
    Limit,
}

/// A graph with dense indices.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    graph: DiGraph<GraphNode, GraphEdge>,
    indices: HashMap<NodeName, NodeIndex, RandomState>,
}

impl Network {
    /// Returns the network of a graph whose edges all have valid targets.
    pub(crate) fn of(graph: &Graph) -> Self {
        let mut net = DiGraph::with_capacity(graph.nodes.len() + 3, graph.edges.len());
        let indices: HashMap<NodeName, NodeIndex, RandomState> = graph
            .nodes
            .iter()
            .map(|(name, spec)| {
                let node = GraphNode::Node { name: name.clone(), spec: Box::new(spec.clone()) };
                (name.clone(), net.add_node(node))
            })
            .collect();
        let [start, end, fail] =
            [GraphNode::Start, GraphNode::End, GraphNode::Fail].map(|it| net.add_node(it));
        let index = |target: &Target| match target {
            Target::Node(name) => indices[name],
            Target::End => end,
            Target::Fail => fail,
        };
        let plain = |kind| GraphEdge { kind, label: None, definition: None };
        for name in &graph.entry {
            net.add_edge(start, indices[name], plain(EdgeKind::Start));
        }
        if let Some(target) = &graph.limits.exhausted {
            net.add_edge(start, index(target), plain(EdgeKind::Limit));
        }
        for (at, edge) in graph.edges.iter().enumerate() {
            let edge_of = |kind, label| GraphEdge { kind, label, definition: Some(at) };
            for from in edge.sources().iter().map(|it| indices[it]) {
                match edge {
                    Edge::Then { to, .. } => {
                        net.add_edge(from, index(to), edge_of(EdgeKind::Then, None));
                    }
                    Edge::Join { to, .. } => {
                        net.add_edge(from, indices[to], edge_of(EdgeKind::Join, None));
                    }
                    Edge::Route { route, .. } => {
                        for target in route.targets() {
                            let weight = edge_of(EdgeKind::Route, target.label.clone());
                            net.add_edge(from, index(&target.to), weight);
                        }
                    }
                    Edge::May { to, .. } => {
                        for target in to {
                            net.add_edge(from, index(target), edge_of(EdgeKind::May, None));
                        }
                    }
                }
            }
        }
        for (name, spec) in &graph.nodes {
            if let Some(target) = &spec.policies.bounds.exhausted {
                net.add_edge(indices[name], index(target), plain(EdgeKind::Exhausted));
            }
            for catch in &spec.policies.catch {
                let label = catch.kind.map(|it| it.to_string());
                let weight = GraphEdge { label, ..plain(EdgeKind::Catch) };
                net.add_edge(indices[name], index(&catch.to), weight);
            }
        }
        Self { graph: net, indices }
    }

    pub(crate) fn graph(&self) -> &DiGraph<GraphNode, GraphEdge> {
        &self.graph
    }

    /// Returns the number of nodes, whose indices come first.
    pub(crate) fn node_count(&self) -> usize {
        self.indices.len()
    }

    pub(crate) fn index(&self, name: &NodeName) -> Option<NodeIndex> {
        self.indices.get(name).copied()
    }

    /// Returns the index of the start.
    pub(crate) fn start(&self) -> NodeIndex {
        NodeIndex::new(self.node_count())
    }

    /// Returns the name of a node.
    pub(crate) fn name(&self, index: NodeIndex) -> &NodeName {
        self.node(index).0
    }

    pub(crate) fn node(&self, index: NodeIndex) -> (&NodeName, &NodeSpec) {
        match &self.graph[index] {
            GraphNode::Node { name, spec } => (name, spec),
            other => unreachable!("`{other}` is not a node"),
        }
    }

    /// Returns the indices of the nodes, in the order of their names.
    pub(crate) fn node_indices(&self) -> impl Iterator<Item = NodeIndex> + Clone + use<> {
        (0..self.node_count()).map(NodeIndex::new)
    }

    pub(crate) fn is_node(&self, index: NodeIndex) -> bool {
        index.index() < self.node_count()
    }

    /// Returns the part of the network with the edges that `includes` accepts.
    pub(crate) fn with_edges<'a>(
        &'a self,
        includes: impl Fn(NodeIndex, EdgeKind) -> bool + 'a,
    ) -> EdgeFiltered<
        &'a DiGraph<GraphNode, GraphEdge>,
        impl Fn(petgraph::graph::EdgeReference<'a, GraphEdge>) -> bool + 'a,
    > {
        use petgraph::visit::EdgeRef as _;
        EdgeFiltered::from_fn(&self.graph, move |it| includes(it.source(), it.weight().kind))
    }

    /// Returns the nodes before or after a node, by the edges that `includes` accepts.
    pub(crate) fn neighbours(
        &self,
        index: NodeIndex,
        direction: Direction,
        includes: impl Fn(EdgeKind) -> bool,
    ) -> impl Iterator<Item = NodeIndex> {
        use petgraph::visit::EdgeRef as _;
        let edges = self.graph.edges_directed(index, direction);
        edges.filter(move |it| includes(it.weight().kind)).map(move |edge| match direction {
            Direction::Incoming => edge.source(),
            Direction::Outgoing => edge.target(),
        })
    }
}

impl GraphNode {
    /// Returns the name of a node.
    pub fn name(&self) -> Option<&NodeName> {
        match self {
            Self::Node { name, .. } => Some(name),
            Self::Start | Self::End | Self::Fail => None,
        }
    }
}

impl fmt::Display for GraphNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node { name, .. } => name.fmt(f),
            Self::Start => f.write_str("start"),
            Self::End => f.write_str("end"),
            Self::Fail => f.write_str("fail"),
        }
    }
}

impl fmt::Display for GraphEdge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.label, self.kind) {
            (Some(label), EdgeKind::Catch) => write!(f, "catch {label}"),
            (Some(label), _) => f.write_str(label),
            (None, EdgeKind::Then | EdgeKind::Route | EdgeKind::Start) => Ok(()),
            (None, EdgeKind::Join) => f.write_str("join"),
            (None, EdgeKind::May) => f.write_str("may go"),
            (None, EdgeKind::Exhausted) => f.write_str("exhausted"),
            (None, EdgeKind::Catch) => f.write_str("catch"),
            (None, EdgeKind::Limit) => f.write_str("limit"),
        }
    }
}
