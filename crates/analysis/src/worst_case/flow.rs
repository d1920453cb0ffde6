//! Computes the maximum number of tokens that can reach a node: the maximum flow to it, within the
//! small part of the graph that determines it.
//!
//! Each node has ports where tokens reach it and where they leave it. If all paths to a node pass
//! one port, the flow to the node is limited by the flow through that port, by the nodes in
//! between, and by the tokens that they create. So the analysed region ends at the nearest such
//! port (its dominator), and the flow through that port is computed by the same method, once. Typical
//! chains, loops and branches become regions of a few nodes each.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::{
    algo::{dinics, dominators, tarjan_scc},
    graph::{DiGraph, NodeIndex},
    visit::EdgeRef,
};

use super::{
    Cause,
    tokens::{Port, Tokens},
};
use crate::network::Digraph;

/// More than all tokens together, and small enough to be summed.
const UNLIMITED: u128 = 1 << 100;

/// A number of tokens, and the causes that limit it.
pub(super) type Bounded = (u64, Vec<(Cause, u64)>);

/// Computes flows, and caches those that others depend on.
#[derive(Debug)]
pub(super) struct Flows<'a> {
    tokens: &'a Tokens<'a>,
    /// For each port its immediate dominator: the nearest port that all paths to it pass.
    dominators: BTreeMap<Port, Port>,
    /// For each node, the loop that contains it; `None` if it cannot reach itself.
    loops: Vec<Option<usize>>,
    /// The tokens that reach a node if the tokens that leave it do not come back.
    known: BTreeMap<usize, Bounded>,
    /// The number of arcs that may be examined before the search stops.
    work_left: usize,
    pub(super) gave_up: bool,
}

impl<'a> Flows<'a> {
    pub(super) fn of(tokens: &'a Tokens<'a>, work_max: usize) -> Self {
        let digraph = &tokens.digraph;
        let mut loops = vec![None; tokens.names.len()];
        for (number, nodes) in tarjan_scc(digraph).into_iter().enumerate() {
            if nodes.len() > 1 || digraph.contains_edge(nodes[0], nodes[0]) {
                for node in nodes {
                    loops[node] = Some(number);
                }
            }
        }
        let dominators = dominators_of(tokens);
        let known = BTreeMap::new();
        Self { tokens, dominators, loops, known, work_left: work_max, gave_up: false }
    }

    /// Drops the cached flows of these nodes, because the bounds of their visits are lower now.
    pub(super) fn forget(&mut self, nodes: &[usize]) {
        for node in nodes {
            self.known.remove(node);
        }
    }

    /// Returns the maximum number of tokens that can reach a node.
    pub(super) fn arrivals(&mut self, node: usize, visits: &[u64]) -> Bounded {
        let Some(own) = self.loops[node] else { return self.reaching(node, visits) };
        // Tokens that leave the node may come back to it, so it creates tokens instead of passing
        // them on.
        let mut entry = self.dominator(Port::Reached(node));
        while let Port::Reached(it) | Port::Left(it, _) = entry {
            if self.loops[it] != Some(own) {
                break;
            }
            entry = self.dominator(entry);
        }
        self.flow(node, entry, Some(node), visits)
    }

    /// Returns the same number under the condition that the tokens that leave the node do not come
    /// back.
    fn reaching(&mut self, node: usize, visits: &[u64]) -> Bounded {
        if let Some(known) = self.known.get(&node) {
            return known.clone();
        }
        let found = self.flow(node, self.dominator(Port::Reached(node)), None, visits);
        self.known.insert(node, found.clone());
        found
    }

    /// Returns the maximum number of tokens that can pass a port.
    fn through(&mut self, port: Port, visits: &[u64]) -> Bounded {
        match port {
            Port::Source => (u64::MAX, Vec::new()),
            Port::Reached(node) => self.reaching(node, visits),
            Port::Left(node, number) => {
                if number == 0 {
                    let reaching = self.reaching(node, visits);
                    if visits[node] > reaching.0 {
                        return reaching;
                    }
                }
                let cause = Cause::Visit(self.tokens.names[node].clone());
                (visits[node], vec![(cause, visits[node])])
            }
        }
    }

    fn dominator(&self, port: Port) -> Port {
        self.dominators.get(&port).copied().unwrap_or(Port::Source)
    }

    fn flow(
        &mut self,
        target: usize,
        entry: Port,
        renewed: Option<usize>,
        visits: &[u64],
    ) -> Bounded {
        let through = self.through(entry, visits);
        if self.gave_up {
            return (u64::MAX, Vec::new());
        }
        if self.tokens.passages[target].has_one_feed(entry) {
            return through;
        }
        let region = Region::before(self.tokens, target, entry, through.0, renewed, visits);
        let work = region.arcs.edge_count().saturating_mul(region.arcs.node_count());
        let Some(left) = self.work_left.checked_sub(work) else {
            self.gave_up = true;
            return (u64::MAX, Vec::new());
        };
        self.work_left = left;
        region.solve(&through.1)
    }
}

/// Returns the immediate dominator of each port. New tokens come from the node that creates them
/// here.
fn dominators_of(tokens: &Tokens<'_>) -> BTreeMap<Port, Port> {
    let mut digraph: Digraph<Port> = Digraph::new();
    digraph.add_node(Port::Source);
    for (node, passage) in tokens.passages.iter().enumerate() {
        let reached = Port::Reached(node);
        if passage.is_first || passage.is_after_limit {
            digraph.add_edge(Port::Source, reached, ());
        }
        for feed in &passage.feeds {
            digraph.add_edge(feed.from, reached, ());
            if let Port::Left(source, _) = feed.from {
                digraph.add_edge(Port::Reached(source), feed.from, ());
            }
        }
    }
    let found = dominators::simple_fast(&digraph, Port::Source);
    digraph.nodes().filter_map(|port| Some((port, found.immediate_dominator(port)?))).collect()
}

/// The part of the network between an entry and a target.
#[derive(Debug)]
struct Region {
    arcs: DiGraph<(), u128>,
    source: NodeIndex,
    target: NodeIndex,
    /// The limit of each arc, in the order of the arcs.
    limits: Vec<Limit>,
}

/// The limit of an arc.
#[derive(Debug)]
enum Limit {
    Nothing,
    Cause(Cause),
    /// The flow through the entry.
    Entry,
}

/// The construction of a region, from its target backwards.
struct RegionSearch {
    region: Region,
    places: BTreeMap<Port, NodeIndex>,
    open: Vec<Port>,
}

impl Region {
    fn before(
        tokens: &Tokens<'_>,
        target: usize,
        entry: Port,
        through: u64,
        renewed: Option<usize>,
        visits: &[u64],
    ) -> Self {
        let mut search = RegionSearch::from(Port::Reached(target));
        while let Some(port) = search.open.pop() {
            match port {
                Port::Source => (),
                port if port == entry => search.make(through, port, Limit::Entry),
                Port::Left(node, number) => {
                    let limit = Limit::Cause(Cause::Visit(tokens.names[node].clone()));
                    if number > 0 || renewed == Some(node) {
                        search.make(visits[node], port, limit);
                    } else {
                        search.arc(Port::Reached(node), port, visits[node].into(), limit);
                    }
                }
                Port::Reached(node) => search.reach(tokens, node, visits),
            }
        }
        search.region
    }

    fn solve(&self, through_entry: &[(Cause, u64)]) -> Bounded {
        let (flow, flows) = dinics(&self.arcs, self.source, self.target);
        let behind = self.behind_the_cut(&flows);
        let mut causes: BTreeMap<Cause, u64> = BTreeMap::new();
        let mut add = |cause: &Cause, tokens: u64| {
            let sum = causes.entry(cause.clone()).or_default();
            *sum = sum.saturating_add(tokens);
        };
        for arc in self.arcs.edge_references() {
            if behind.contains(&arc.source()) || !behind.contains(&arc.target()) {
                continue;
            }
            match &self.limits[arc.id().index()] {
                Limit::Nothing => (),
                Limit::Cause(cause) => add(cause, saturated(*arc.weight())),
                Limit::Entry => through_entry.iter().for_each(|(cause, it)| add(cause, *it)),
            }
        }
        (saturated(flow), causes.into_iter().collect())
    }

    /// Returns the places from which one more token could reach the target; this selects, of all
    /// minimum cuts, the one nearest to the target.
    fn behind_the_cut(&self, flows: &[u128]) -> BTreeSet<NodeIndex> {
        let mut behind = BTreeSet::from([self.target]);
        let mut open = vec![self.target];
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

impl RegionSearch {
    fn from(target: Port) -> Self {
        let mut arcs = DiGraph::new();
        let source = arcs.add_node(());
        let reached = arcs.add_node(());
        let region = Region { arcs, source, target: reached, limits: Vec::new() };
        let places = BTreeMap::from([(Port::Source, source), (target, reached)]);
        Self { region, places, open: vec![target] }
    }

    /// Adds all arcs that lead to a node.
    fn reach(&mut self, tokens: &Tokens<'_>, node: usize, visits: &[u64]) {
        let passage = &tokens.passages[node];
        let reached = Port::Reached(node);
        if passage.is_first {
            self.make(1, reached, Limit::Cause(Cause::Start));
        }
        if passage.is_after_limit {
            self.make(1, reached, Limit::Cause(Cause::Limit));
        }
        for feed in &passage.feeds {
            let fewest = feed.joined.iter().min_by_key(|it| visits[**it]);
            let (capacity, limit) = match (fewest, feed.from) {
                (Some(fewest), Port::Left(source, _)) if visits[*fewest] < visits[source] => {
                    let cause = Cause::Visit(tokens.names[*fewest].clone());
                    (visits[*fewest].into(), Limit::Cause(cause))
                }
                _ => (UNLIMITED, Limit::Nothing),
            };
            self.arc(feed.from, reached, capacity, limit);
        }
    }

    /// Adds an arc for new tokens.
    fn make(&mut self, tokens: u64, to: Port, limit: Limit) {
        self.arc(Port::Source, to, tokens.into(), limit);
    }

    fn arc(&mut self, from: Port, to: Port, capacity: u128, limit: Limit) {
        let from = self.place(from);
        let to = self.place(to);
        self.region.arcs.add_edge(from, to, capacity);
        self.region.limits.push(limit);
    }

    fn place(&mut self, port: Port) -> NodeIndex {
        *self.places.entry(port).or_insert_with(|| {
            self.open.push(port);
            self.region.arcs.add_node(())
        })
    }
}

fn saturated(tokens: u128) -> u64 {
    u64::try_from(tokens).unwrap_or(u64::MAX)
}
