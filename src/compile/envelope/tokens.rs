//! How tokens go through a graph, by which it is counted how often nodes can be reached.
//!
//! Every visit of a node uses up a token. The start makes one for each first node, the limit that
//! is routed makes one, and a visit makes one for each node it leads to at once. Most nodes lead
//! to one at a time, so they only pass a token on. Thus no more tokens reach a node than the
//! maximum flow to it, where the capacity of a node is its visits; the minimum cut says why. The
//! flows are found in `flow`; here nodes get numbers, and each knows what may lead to it.

use std::collections::BTreeMap;

use petgraph::{graphmap::DiGraphMap, visit::DfsPostOrder};

use crate::{
    graph::{Edge, Graph, Spread, Target},
    id::NodeName,
};

/// How tokens go through a graph.
#[derive(Debug)]
pub(super) struct Tokens<'a> {
    /// The nodes, in the order of their names.
    pub(super) names: Vec<&'a NodeName>,
    pub(super) passages: Vec<Passage>,
    /// For each node that waits, the nodes it waits for.
    joins: Vec<Vec<usize>>,
    /// For each node, those that begin a round of it.
    pub(super) resetters: Vec<Vec<usize>>,
}

/// What becomes of the tokens that reach a node.
#[derive(Debug, Default)]
pub(super) struct Passage {
    /// Whether the run starts with it.
    pub(super) is_first: bool,
    /// Whether a limit of the run leads to it.
    pub(super) is_after_limit: bool,
    /// What leads to it.
    pub(super) from: Vec<Arrival>,
    /// How many nodes and joins one task leads to at once, at most.
    at_once: usize,
    /// Whether several tasks of the node may run in one step, each with its own way to go.
    is_wide: bool,
}

/// A way by which tokens reach a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Arrival {
    /// A visit of this node may lead to it.
    Visit(usize),
    /// This node is one of those that a join waits for.
    Join { source: usize, join: usize },
    /// The bound of this node, or what it may take in all, may be used up when the run comes to it.
    Overflow(usize),
}

impl<'a> Tokens<'a> {
    pub(super) fn of(graph: &'a Graph) -> Self {
        let names: Vec<&NodeName> = graph.nodes.keys().collect();
        let numbers: BTreeMap<&NodeName, usize> =
            names.iter().enumerate().map(|(number, name)| (*name, number)).collect();
        let passages = names.iter().map(|_| Passage::default()).collect();
        let resetters = vec![Vec::new(); names.len()];
        let mut tokens = Self { names, passages, joins: Vec::new(), resetters };
        for first in &graph.entry {
            let passage = &mut tokens.passages[numbers[first]];
            passage.is_wide |= passage.is_first;
            passage.is_first = true;
        }
        if let Some(name) = graph.limits.exhausted.as_ref().and_then(Target::node) {
            tokens.passages[numbers[name]].is_after_limit = true;
        }
        for (number, spec) in graph.nodes.values().enumerate() {
            let policies = &spec.policies;
            let caught = policies.catch.iter().filter_map(|it| it.to.node());
            for next in caught {
                tokens.arrive(numbers[next], Arrival::Visit(number));
            }
            if let Some(next) = policies.exhausted.as_ref().and_then(Target::node) {
                tokens.arrive(numbers[next], Arrival::Overflow(number));
            }
            for reset in &policies.resets {
                let resetters = &mut tokens.resetters[numbers[reset]];
                if resetters.last() != Some(&number) {
                    resetters.push(number);
                }
            }
        }
        for edge in &graph.edges {
            tokens.follow(edge, &numbers);
        }
        tokens
    }

    fn follow(&mut self, edge: &Edge, numbers: &BTreeMap<&NodeName, usize>) {
        match edge {
            Edge::Then { from, to, .. } => {
                let to = to.node().map(|it| numbers[it]);
                self.lead(numbers[from], to, Spread::One);
            }
            Edge::Route { from, route, .. } => {
                let ways = route.ways().iter().filter_map(|it| it.to.node());
                self.lead(numbers[from], ways.map(|it| numbers[it]), route.spread());
            }
            // A node may dispatch wherever it may go.
            Edge::May { from, to } => {
                let to = to.iter().filter_map(Target::node).map(|it| numbers[it]);
                self.lead(numbers[from], to, Spread::Items);
            }
            Edge::Join { from, to, .. } => {
                let join = self.joins.len();
                let sources: Vec<usize> = from.iter().map(|it| numbers[it]).collect();
                for &source in &sources {
                    self.passages[source].at_once += 1;
                    // To arrive at a join and to be led to the same node are two things: the join
                    // may fire later.
                    self.passages[numbers[to]].from.push(Arrival::Join { source, join });
                }
                self.joins.push(sources);
            }
        }
    }

    fn lead(&mut self, from: usize, to: impl IntoIterator<Item = usize>, spread: Spread) {
        let mut to: Vec<usize> = to.into_iter().collect();
        to.sort_unstable();
        to.dedup();
        let passage = &mut self.passages[from];
        passage.at_once += if spread == Spread::One { to.len().min(1) } else { to.len() };
        for next in to {
            self.passages[next].is_wide |= spread == Spread::Items;
            self.arrive(next, Arrival::Visit(from));
        }
    }

    fn arrive(&mut self, at: usize, arrival: Arrival) {
        let from = &mut self.passages[at].from;
        if !from.contains(&arrival) {
            from.push(arrival);
        }
    }

    /// Whether several tasks of a node may run in one step.
    pub(super) fn is_dispatched(&self, node: usize) -> bool {
        self.passages[node].is_wide
    }

    /// Whether one visit of a node may lead to several.
    pub(super) fn splits(&self, node: usize) -> bool {
        let passage = &self.passages[node];
        passage.is_wide || passage.at_once > 1
    }

    /// Whether the arrivals of a source count at a join.
    ///
    /// It fires once for each visit of any of its sources, so one is enough, the one with the
    /// fewest visits. Only several tasks of one node in one step can be used for several times, so
    /// if all nodes are like that, each counts.
    pub(super) fn counts(&self, source: usize, join: usize, visits: &[u64]) -> bool {
        let single = self.joins[join].iter().filter(|it| !self.passages[**it].is_wide);
        let fewest = single.min_by_key(|it| (visits[**it], self.splits(**it)));
        fewest.is_none_or(|it| *it == source)
    }

    /// What a number of visits follows from, as ways from node to node.
    pub(super) fn dependencies(&self) -> DiGraphMap<usize, ()> {
        let mut ways = self.ways();
        for (node, resetters) in self.resetters.iter().enumerate() {
            for &resetter in resetters {
                ways.add_edge(resetter, node, ());
            }
        }
        ways
    }

    /// For each node, its place in an order in which whatever all ways to it come through is
    /// before it.
    pub(super) fn ranks(&self) -> Vec<usize> {
        let ways = self.ways();
        let mut ranks = vec![0; self.names.len()];
        let mut visit = DfsPostOrder::empty(&ways);
        let mut rank = self.names.len();
        for (node, passage) in self.passages.iter().enumerate() {
            if passage.is_first || passage.is_after_limit {
                visit.move_to(node);
                while let Some(next) = visit.next(&ways) {
                    rank -= 1;
                    ranks[next] = rank;
                }
            }
        }
        ranks
    }

    /// The ways of tokens from node to node.
    pub(super) fn ways(&self) -> DiGraphMap<usize, ()> {
        let mut ways = DiGraphMap::new();
        for (node, passage) in self.passages.iter().enumerate() {
            ways.add_node(node);
            for arrival in &passage.from {
                ways.add_edge(arrival.source(), node, ());
            }
        }
        ways
    }
}

impl Arrival {
    /// The node that leads there.
    pub(super) fn source(self) -> usize {
        match self {
            Self::Visit(source) | Self::Join { source, .. } | Self::Overflow(source) => source,
        }
    }
}
