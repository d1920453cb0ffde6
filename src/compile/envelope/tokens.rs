//! How often nodes can be reached, counted by tokens that go through the graph.
//!
//! Every visit of a node uses up a token. The start makes one for each first node, the limit that
//! is routed makes one, and a visit makes one for each node it leads to at once. Most nodes lead
//! to one at a time, so they only pass a token on. Thus no more tokens reach a node than the
//! maximum flow to it, where the capacity of a node is its visits; the minimum cut says why.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::{
    algo::ford_fulkerson,
    graph::{DiGraph, NodeIndex},
    visit::EdgeRef,
};

use super::{Cause, Visits};
use crate::{
    graph::{Edge, Graph, NodeSpec, Spread, Target},
    id::NodeName,
};

/// More than all tokens together, and little enough to be added up.
const UNLIMITED: u128 = 1 << 100;

/// How tokens go through a graph.
#[derive(Debug)]
pub(super) struct Tokens<'a> {
    start: BTreeSet<&'a NodeName>,
    after_limit: Option<&'a NodeName>,
    nodes: BTreeMap<&'a NodeName, Passage<'a>>,
    /// For each node that waits, the nodes it waits for.
    joins: Vec<(&'a NodeName, &'a [NodeName])>,
}

/// What becomes of a token that reaches a node.
#[derive(Debug, Default)]
struct Passage<'a> {
    /// Where it may go after a visit, joins aside.
    to: BTreeSet<&'a NodeName>,
    /// How many nodes and joins one task leads to at once, at most.
    at_once: usize,
    /// Where it goes instead when the bound of the node is used up.
    exhausted: Option<&'a NodeName>,
    /// Whether several tasks of the node may run in one step, each with its own way to go.
    is_wide: bool,
}

impl<'a> Tokens<'a> {
    pub(super) fn of(graph: &'a Graph) -> Self {
        let passage = |(name, spec): (&'a NodeName, &'a NodeSpec)| {
            let bounded = spec.policies.max_visits.and(spec.policies.exhausted.as_ref());
            let caught = spec.policies.catch.iter().filter_map(|it| it.to.node());
            let is_wide = graph.entry.iter().filter(|it| *it == name).count() > 1;
            let exhausted = bounded.and_then(Target::node);
            (name, Passage { to: caught.collect(), at_once: 0, exhausted, is_wide })
        };
        let mut tokens = Self {
            start: graph.entry.iter().collect(),
            after_limit: graph.limits.exhausted.as_ref().and_then(Target::node),
            nodes: graph.nodes.iter().map(passage).collect(),
            joins: Vec::new(),
        };
        for edge in &graph.edges {
            tokens.follow(edge);
        }
        tokens
    }

    fn follow(&mut self, edge: &'a Edge) {
        match edge {
            Edge::Then { from, to, .. } => self.lead(from, to.node().into_iter(), Spread::One),
            Edge::Route { from, route, .. } => {
                let ways = route.ways().iter().filter_map(|it| it.to.node());
                self.lead(from, ways, route.spread());
            }
            // A node may dispatch wherever it may go.
            Edge::May { from, to } => {
                self.lead(from, to.iter().filter_map(Target::node), Spread::Items);
            }
            Edge::Join { from, to, .. } => {
                for source in from {
                    self.passage(source).at_once += 1;
                }
                self.joins.push((to, from));
            }
        }
    }

    fn lead(&mut self, from: &'a NodeName, to: impl Iterator<Item = &'a NodeName>, spread: Spread) {
        let to: BTreeSet<&NodeName> = to.collect();
        if spread == Spread::Items {
            for name in &to {
                self.passage(name).is_wide = true;
            }
        }
        let passage = self.passage(from);
        passage.at_once += if spread == Spread::One { to.len().min(1) } else { to.len() };
        passage.to.extend(to);
    }

    fn passage(&mut self, name: &'a NodeName) -> &mut Passage<'a> {
        self.nodes.entry(name).or_default()
    }

    /// Whether several tasks of a node may run in one step.
    pub(super) fn is_dispatched(&self, name: &NodeName) -> bool {
        self.nodes[name].is_wide
    }

    /// The most tokens that can reach a node, and where they all have to come through.
    pub(super) fn arrivals(
        &self,
        target: &NodeName,
        visits: &Visits<'_>,
    ) -> (u64, Vec<(Cause, u64)>) {
        let mut network = Network::new(self.nodes.keys().copied());
        for name in &self.start {
            network.make(Cause::Start, 1, name);
        }
        if let Some(name) = self.after_limit {
            network.make(Cause::Limit, 1, name);
        }
        // To arrive at a join and to be led to the same node are two things: the join may fire later.
        let mut to: BTreeMap<&NodeName, Vec<&NodeName>> =
            self.nodes.iter().map(|(name, it)| (*name, it.to.iter().copied().collect())).collect();
        for (waiting, from) in &self.joins {
            for source in self.counted(from, visits) {
                to.entry(source).or_default().push(waiting);
            }
        }
        for (name, passage) in &self.nodes {
            let capacity = visits[name];
            if passage.splits() {
                for next in &to[name] {
                    network.make(Cause::Visit((*name).clone()), capacity, next);
                }
            } else {
                // What leaves the target may come back to it, so it is not passed on but made.
                network.visit(name, capacity, *name == target);
                for next in &to[name] {
                    network.pass(name, next);
                }
            }
            if let Some(next) = passage.exhausted {
                network.overflow(name, next);
            }
        }
        network.solve(target)
    }

    /// The sources of a join that tokens are counted by.
    ///
    /// It fires once for each visit of any of them, so one is enough, the one with the fewest
    /// visits. Only several tasks of one node in one step can be used for several times, so if
    /// all nodes are like that, each counts.
    fn counted<'b>(&self, from: &'b [NodeName], visits: &Visits<'_>) -> Vec<&'b NodeName> {
        let single = from.iter().filter(|it| !self.nodes[it].is_wide);
        match single.min_by_key(|it| (visits[it], self.nodes[it].splits())) {
            Some(fewest) => vec![fewest],
            None => from.iter().collect(),
        }
    }
}

impl Passage<'_> {
    /// Whether one visit may lead to several nodes.
    fn splits(&self) -> bool {
        self.is_wide || self.at_once > 1
    }
}

/// The network of the flow to one node: each node of the graph is two, where tokens reach it and
/// where they leave it.
#[derive(Debug)]
struct Network<'a> {
    arcs: DiGraph<(), u128>,
    source: NodeIndex,
    ports: BTreeMap<&'a NodeName, Ports>,
    /// What limits each arc, in the order of the arcs.
    causes: Vec<Option<Cause>>,
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    reached: NodeIndex,
    left: NodeIndex,
}

impl<'a> Network<'a> {
    fn new(names: impl Iterator<Item = &'a NodeName>) -> Self {
        let mut arcs = DiGraph::new();
        let source = arcs.add_node(());
        let ports = names
            .map(|it| (it, Ports { reached: arcs.add_node(()), left: arcs.add_node(()) }))
            .collect();
        Self { arcs, source, ports, causes: Vec::new() }
    }

    /// New tokens.
    fn make(&mut self, cause: Cause, capacity: u64, to: &NodeName) {
        self.arc(self.source, self.ports[to].reached, capacity.into(), Some(cause));
    }

    /// Tokens that go through a node.
    fn visit(&mut self, name: &NodeName, capacity: u64, is_new: bool) {
        let Ports { reached, left } = self.ports[name];
        let from = if is_new { self.source } else { reached };
        self.arc(from, left, capacity.into(), Some(Cause::Visit(name.clone())));
    }

    fn pass(&mut self, from: &NodeName, to: &NodeName) {
        self.arc(self.ports[from].left, self.ports[to].reached, UNLIMITED, None);
    }

    fn overflow(&mut self, from: &NodeName, to: &NodeName) {
        self.arc(self.ports[from].reached, self.ports[to].reached, UNLIMITED, None);
    }

    fn arc(&mut self, from: NodeIndex, to: NodeIndex, capacity: u128, cause: Option<Cause>) {
        self.arcs.add_edge(from, to, capacity);
        self.causes.push(cause);
    }

    fn solve(&self, target: &NodeName) -> (u64, Vec<(Cause, u64)>) {
        let target = self.ports[target].reached;
        let (flow, flows) = ford_fulkerson(&self.arcs, self.source, target);
        let behind = self.behind_the_cut(target, &flows);
        let mut causes: BTreeMap<Cause, u64> = BTreeMap::new();
        for arc in self.arcs.edge_references() {
            let crosses = !behind.contains(&arc.source()) && behind.contains(&arc.target());
            if let (true, Some(cause)) = (crosses, &self.causes[arc.id().index()]) {
                let tokens = causes.entry(cause.clone()).or_default();
                *tokens = tokens.saturating_add(saturated(*arc.weight()));
            }
        }
        (saturated(flow), causes.into_iter().collect())
    }

    /// Where one token more would still reach the target: of all least cuts, the nearest to it.
    fn behind_the_cut(&self, target: NodeIndex, flows: &[u128]) -> BTreeSet<NodeIndex> {
        let mut behind = BTreeSet::from([target]);
        let mut open = vec![target];
        while let Some(place) = open.pop() {
            let entering = self.arcs.edges_directed(place, petgraph::Incoming);
            let entering = entering.filter(|it| flows[it.id().index()] < *it.weight());
            let leaving = self.arcs.edges_directed(place, petgraph::Outgoing);
            let leaving = leaving.filter(|it| flows[it.id().index()] > 0);
            let near = entering.map(|it| it.source()).chain(leaving.map(|it| it.target()));
            open.extend(near.filter(|it| behind.insert(*it)));
        }
        behind
    }
}

fn saturated(tokens: u128) -> u64 {
    u64::try_from(tokens).unwrap_or(u64::MAX)
}
