//! How tokens go through a graph, by which it is counted how often nodes can be reached.
//!
//! Every visit of a node uses up a token. The start makes one for each first node, the limit that
//! is routed makes one, and a visit makes one for each node it leads to at once. Most nodes lead
//! to one at a time, so they only pass a token on. Thus no more tokens reach a node than the
//! maximum flow to it, where the capacity of a node is its visits; the minimum cut says why. The
//! flows are found in `flow`; here nodes get numbers, and each knows what may bring it tokens.
//!
//! A visit is a step in which a node runs, however many items it runs for. What its tasks lead to in
//! that step runs in the next one, so several that lead to one node are one token.

use std::cmp::Reverse;

use petgraph::{
    algo::{dominators, tarjan_scc},
    graphmap::DiGraphMap,
    visit::DfsPostOrder,
};

use super::{
    leads::Leads,
    scopes::Scopes,
    shares::{Departures, Shares},
};
use crate::{
    graph::{Graph, Target},
    id::NodeName,
};

/// How tokens go through a graph.
#[derive(Debug)]
pub(super) struct Tokens<'a> {
    /// The nodes, in the order of their names.
    pub(super) names: Vec<&'a NodeName>,
    pub(super) passages: Vec<Passage>,
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
    /// Whether several tasks of the node may run in one step, each with its own way to go.
    pub(super) is_wide: bool,
    /// Whether one visit may lead to several nodes.
    pub(super) splits: bool,
    /// Whether what begins its used workflow always resets it before.
    pub(super) is_begun_anew: bool,
    /// What leads to it.
    pub(super) from: Vec<Arrival>,
    /// What brings it tokens.
    pub(super) feeds: Vec<Feed>,
}

/// What brings tokens to a node.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) from: Port,
    /// No more than the visits of any of these.
    pub(super) joined: Vec<usize>,
}

/// Where tokens are on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Port {
    /// Outside, before they are made.
    Source,
    /// At a node.
    Reached(usize),
    /// Behind it: the first is the token that a visit has used up, passed on, the others are new.
    Left(usize, usize),
}

/// A way by which tokens reach a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Arrival {
    /// A visit of this node may lead to it.
    Visit(usize),
    /// A visit of this node may send items to it, though it lets others go first: items do not.
    Sent(usize),
    /// This node is one of those that it waits for.
    Join(usize),
    /// The bound of this node, or what it may take in all, may be used up when the run comes to it.
    Overflow(usize),
}

impl<'a> Tokens<'a> {
    pub(super) fn of(graph: &'a Graph) -> Self {
        let leads = Leads::of(graph);
        let names: Vec<&NodeName> = graph.nodes.keys().collect();
        let passages = names.iter().map(|_| Passage::default()).collect();
        let resetters = vec![Vec::new(); names.len()];
        let mut tokens = Self { names, passages, resetters };
        for first in &graph.entry {
            let passage = &mut tokens.passages[leads.number(first)];
            passage.is_wide |= passage.is_first;
            passage.is_first = true;
        }
        if let Some(name) = graph.limits.exhausted.as_ref().and_then(Target::node) {
            tokens.passages[leads.number(name)].is_after_limit = true;
        }
        for (number, spec) in graph.nodes.values().enumerate() {
            for reset in &spec.policies.resets {
                let resetters = &mut tokens.resetters[leads.number(reset)];
                if resetters.last() != Some(&number) {
                    resetters.push(number);
                }
            }
        }
        let departures = tokens.follow(graph, &leads);
        tokens.feed(graph, &departures);
        tokens
    }

    /// Notes where everything leads.
    fn follow(&mut self, graph: &'a Graph, leads: &Leads<'a>) -> Vec<Departures> {
        let mut departures: Vec<Departures> = Vec::new();
        for (number, (name, spec)) in graph.nodes.iter().enumerate() {
            let caught = spec.policies.catch.iter().filter_map(|it| leads.to(name, &it.to));
            departures.push(Departures { caught: caught.collect(), edges: Vec::new() });
            if let Some(next) = spec.policies.exhausted.as_ref().and_then(Target::node) {
                self.arrive(leads.number(next), Arrival::Overflow(number));
            }
        }
        for (from, choices) in graph.edges.iter().flat_map(|it| leads.along(it)) {
            departures[from].edges.push(choices);
        }
        for lead in departures.iter().flat_map(Departures::leads) {
            self.passages[lead.to].is_wide |= lead.is_dispatched;
            self.arrive(lead.to, lead.by);
        }
        departures
    }

    fn arrive(&mut self, at: usize, arrival: Arrival) {
        let from = &mut self.passages[at].from;
        if !from.contains(&arrival) {
            from.push(arrival);
        }
    }

    /// Notes which tokens of what leads to a node reach it.
    fn feed(&mut self, graph: &Graph, departures: &[Departures]) {
        let heights = self.heights();
        let scopes = Scopes::of(graph, self, departures, &heights);
        let share = |(node, departures): (usize, &Departures)| {
            let first = scopes.begun_by(node).map_or(0, |it| it.exits.len().max(1));
            Shares::of(departures, self.passages[node].is_wide, first, &heights)
        };
        let shares: Vec<Shares> = departures.iter().enumerate().map(share).collect();
        let counted = self.counted(&shares);
        let feeds: Vec<Vec<Feed>> = (0..self.names.len())
            .map(|node| self.feeds(node, &scopes, &shares, counted[node]))
            .collect();
        for (passage, (feeds, shares)) in
            self.passages.iter_mut().zip(feeds.into_iter().zip(shares))
        {
            passage.feeds = feeds;
            passage.splits = shares.splits;
        }
        for scope in &scopes.all {
            for node in &scope.begun_anew {
                self.passages[*node].is_begun_anew = true;
            }
            for (number, exit) in scope.exits.iter().enumerate() {
                let from = Port::Left(scope.user, number);
                self.passages[*exit].feeds.push(Feed { from, joined: Vec::new() });
            }
        }
    }

    fn feeds(
        &self,
        node: usize,
        scopes: &Scopes,
        shares: &[Shares],
        counted: Option<usize>,
    ) -> Vec<Feed> {
        if let Some(scope) = scopes.ended_by(node) {
            return vec![Feed { from: Port::Left(scope.user, 0), joined: Vec::new() }];
        }
        let from = &self.passages[node].from;
        let feed = |arrival: &Arrival| {
            let source = arrival.source();
            let mut joined = Vec::new();
            if scopes.left(source, node).is_some() {
                return None;
            }
            let from = match arrival {
                Arrival::Overflow(_) => Port::Reached(source),
                Arrival::Join(_) if Some(source) != counted => return None,
                Arrival::Join(_) => {
                    joined = from.iter().filter_map(|it| it.awaited()).collect();
                    Port::Left(source, shares[source].number(node, *arrival))
                }
                Arrival::Visit(_) | Arrival::Sent(_) => {
                    Port::Left(source, shares[source].number(node, *arrival))
                }
            };
            Some(Feed { from, joined })
        };
        from.iter().filter_map(feed).collect()
    }

    /// Of the nodes that each node waits for, the one whose tokens it takes.
    ///
    /// It is visited once for each visit of any of them, so one is enough: one to which the nearest
    /// node before all of them passes its own token on. Items of one node all arrive in one step, and
    /// are one arrival.
    fn counted(&self, shares: &[Shares]) -> Vec<Option<usize>> {
        let mut counted = vec![None; self.names.len()];
        let joins = |it: &Passage| it.from.iter().any(|it| it.awaited().is_some());
        if !self.passages.iter().any(joins) {
            return counted;
        }
        let root = self.names.len();
        let found = dominators::simple_fast(&self.rooted_ways(), root);
        for (node, passage) in self.passages.iter().enumerate() {
            let above = found.immediate_dominator(node);
            let is_passed_on = |source: &usize| {
                let mut below = *source;
                while let Some(next) = found.immediate_dominator(below).filter(|it| *it != root) {
                    if Some(next) == above {
                        let to = &self.passages[below].from;
                        return to
                            .iter()
                            .any(|it| it.source() == next && shares[next].number(below, *it) == 0);
                    }
                    below = next;
                }
                false
            };
            let awaited = passage.from.iter().filter_map(|it| it.awaited());
            counted[node] = awaited.max_by_key(|it| (is_passed_on(it), Reverse(*it)));
        }
        counted
    }

    /// How many nodes come after each, on the longest way that passes no loop twice.
    fn heights(&self) -> Vec<usize> {
        let ways = self.ways();
        let mut heights = vec![0; self.names.len()];
        // What comes after a loop is found before it.
        for nodes in tarjan_scc(&ways) {
            let after = nodes.iter().flat_map(|it| ways.neighbors(*it)).map(|it| heights[it]);
            let height = after.max().unwrap_or(0) + nodes.len();
            for node in nodes {
                heights[node] = height;
            }
        }
        heights
    }

    /// The nodes of a used workflow.
    pub(super) fn within(&self, scope: &str) -> impl Iterator<Item = usize> {
        let first = self.names.partition_point(|it| it.as_str() < scope);
        (first..self.names.len())
            .take_while(move |it| self.names[*it].as_str().starts_with(scope))
            .filter(move |it| self.names[*it].strip_scope(scope).is_some())
    }

    /// Whether several tasks of a node may run in one step.
    pub(super) fn is_dispatched(&self, node: usize) -> bool {
        self.passages[node].is_wide
    }

    /// Whether one visit of a node may lead to several.
    pub(super) fn splits(&self, node: usize) -> bool {
        self.passages[node].splits
    }

    /// What a number of visits follows from, as ways from node to node.
    pub(super) fn dependencies(&self) -> DiGraphMap<usize, ()> {
        let mut ways = self.ways();
        for (node, resetters) in self.resetters.iter().enumerate() {
            for &resetter in resetters {
                ways.add_edge(resetter, node, ());
            }
        }
        for (node, passage) in self.passages.iter().enumerate() {
            for source in passage.feeds.iter().filter_map(|it| it.from.node()) {
                ways.add_edge(source, node, ());
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

    /// The same from a place before everything, whose number is that of no node.
    pub(super) fn rooted_ways(&self) -> DiGraphMap<usize, ()> {
        let mut ways = self.ways();
        for (node, passage) in self.passages.iter().enumerate() {
            if passage.is_first || passage.is_after_limit {
                ways.add_edge(self.names.len(), node, ());
            }
        }
        ways
    }

    /// The ways from node to node.
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

impl Port {
    /// The node whose tokens are there.
    fn node(self) -> Option<usize> {
        match self {
            Self::Source => None,
            Self::Reached(node) | Self::Left(node, _) => Some(node),
        }
    }
}

impl Arrival {
    /// The node that is waited for.
    fn awaited(self) -> Option<usize> {
        if let Self::Join(source) = self { Some(source) } else { None }
    }

    /// The node that leads there.
    pub(super) fn source(self) -> usize {
        match self {
            Self::Visit(source)
            | Self::Sent(source)
            | Self::Join(source)
            | Self::Overflow(source) => source,
        }
    }
}
