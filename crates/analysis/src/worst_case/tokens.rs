//! The tokens of a graph, which count how often nodes can be reached.
//!
//! Every visit of a node uses up a token. The start creates one for each first node, a routed limit
//! creates one, and a visit creates one for each node it leads to at once. Most nodes lead to one
//! node at a time, so they only pass a token on. Thus at most as many tokens reach a node as the
//! maximum flow to it, where the capacity of a node is its visits; the minimum cut gives the
//! reason. `flow` computes the flows. This module numbers the nodes and records for each the
//! sources of its tokens.
//!
//! A visit is a step in which a node runs, for any number of items. All targets that its tasks
//! choose in that step run in the next one, so several transitions to one node are one token.

use std::cmp::Reverse;

use graphrun_core::{
    graph::{Graph, Policies, Target},
    id::NodeName,
};
use petgraph::{algo::tarjan_scc, visit::DfsPostOrder};

use super::{
    dominators::DominatorTree,
    failing,
    leads::Leads,
    scopes::Scopes,
    shares::{Departures, Shares},
};
use crate::network::Digraph;

/// The tokens of a graph.
#[derive(Debug)]
pub(super) struct Tokens<'a> {
    /// The nodes, in the order of their names.
    pub(super) names: Vec<&'a NodeName>,
    pub(super) passages: Vec<Passage>,
    /// The edges between nodes.
    pub(super) digraph: Digraph,
    /// For each node, the nodes that start a round of it.
    pub(super) resetters: Vec<Vec<usize>>,
    /// The nodes before each node on all paths to it.
    pub(super) before: DominatorTree,
}

/// The handling of the tokens that reach a node.
#[derive(Debug, Default)]
pub(super) struct Passage {
    /// Whether the run starts with it.
    pub(super) is_first: bool,
    /// Whether a limit of the run leads to it.
    pub(super) is_after_limit: bool,
    /// Whether several tasks of the node may run in one step, each with separate choices.
    pub(super) is_wide: bool,
    /// Whether one visit may lead to several nodes.
    pub(super) splits: bool,
    /// Whether the start of its used workflow always resets it.
    pub(super) is_begun_anew: bool,
    /// Whether all paths to it pass a node that resets it.
    pub(super) is_after_reset: bool,
    /// The edges that lead to it.
    pub(super) from: Vec<Arrival>,
    /// The sources of its tokens.
    pub(super) feeds: Vec<Feed>,
}

impl Passage {
    /// Returns whether all tokens come from this port, and nothing else limits them.
    pub(super) fn has_one_feed(&self, from: Port) -> bool {
        let is_fed = |it: &[Feed]| matches!(it, [it] if it.from == from && it.joined.is_empty());
        !self.is_first && !self.is_after_limit && is_fed(&self.feeds)
    }
}

/// A source of tokens of a node.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) from: Port,
    /// The tokens are limited by the visits of each of these nodes.
    pub(super) joined: Vec<usize>,
}

/// A place in the network that tokens pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Port {
    /// Outside the graph, before the tokens exist.
    Source,
    /// At the entry of a node.
    Reached(usize),
    /// At an exit of a node: the first is for the token that a visit has used up, passed on; the
    /// others are for new tokens.
    Left(usize, usize),
}

/// An edge by which tokens reach a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Arrival {
    /// A visit of this node may lead to it.
    Visit(usize),
    /// A visit of this node may dispatch items to it. The node is deferred, but dispatched items do
    /// not wait.
    Sent(usize),
    /// It awaits this node, and all others that it awaits.
    Join(usize),
    /// It awaits this node, or enough of the others that it awaits.
    PartialJoin(usize),
    /// The bound or the limits of this node may be used up when the run reaches it.
    Overflow(usize),
}

impl<'a> Tokens<'a> {
    /// `overflows` are the nodes whose bounds may be used up.
    pub(super) fn of(graph: &'a Graph, overflows: &[bool]) -> Self {
        let leads = Leads::of(graph);
        let names: Vec<&NodeName> = graph.nodes.keys().collect();
        let passages = names.iter().map(|_| Passage::default()).collect();
        let resetters = vec![Vec::new(); names.len()];
        let digraph = Digraph::default();
        let before = DominatorTree::default();
        let mut tokens = Self { names, passages, digraph, resetters, before };
        for first in &graph.entry {
            let passage = &mut tokens.passages[leads.number(first)];
            passage.is_wide |= passage.is_first;
            passage.is_first = true;
        }
        if let Some(name) = graph.limits.exhausted.as_ref().and_then(Target::node) {
            tokens.passages[leads.number(name)].is_after_limit = true;
        }
        for (number, spec) in graph.nodes.values().enumerate() {
            for reset in &spec.policies.on_finish.resets {
                let resetters = &mut tokens.resetters[leads.number(reset)];
                if resetters.last() != Some(&number) {
                    resetters.push(number);
                }
            }
        }
        let departures = tokens.follow(graph, &leads, overflows);
        tokens.digraph = tokens.edges();
        tokens.before = DominatorTree::of(&tokens.rooted_digraph(), tokens.names.len());
        tokens.feed(graph, &departures);
        for (node, resetters) in tokens.resetters.iter().enumerate() {
            let is_earlier = |it: &usize| tokens.before.is_strictly_below(node, *it);
            tokens.passages[node].is_after_reset = resetters.iter().any(is_earlier);
        }
        tokens
    }

    /// Records the targets of all nodes.
    fn follow(
        &mut self,
        graph: &'a Graph,
        leads: &Leads<'a>,
        overflows: &[bool],
    ) -> Vec<Departures> {
        let mut departures: Vec<Departures> = Vec::new();
        for (number, (name, spec)) in graph.nodes.iter().enumerate() {
            let Policies { bounds, schedule, catch, .. } = &spec.policies;
            // A map may reach a limit amid its items.
            let amid = bounds.exhausted.iter();
            let amid = amid.filter(|_| bounds.limits.is_some() && schedule.items.is_some());
            let targets = catch.iter().map(|it| &it.to).chain(amid);
            let caught = targets.filter_map(|it| leads.to(name, it));
            departures.push(Departures { caught: caught.collect(), edges: Vec::new() });
            let exhausted = spec.policies.bounds.exhausted.as_ref().filter(|_| overflows[number]);
            if let Some(next) = exhausted.and_then(Target::node) {
                self.arrive(leads.number(next), Arrival::Overflow(number));
            }
        }
        // A run fails at once where an edge leads to failure, so the other edges of that node lead nowhere.
        let failing = failing(graph);
        for (from, choices) in graph.edges.iter().flat_map(|it| leads.along(it)) {
            if !failing.contains(self.names[from]) {
                departures[from].edges.push(choices);
            }
        }
        for lead in departures.iter().flat_map(Departures::leads) {
            self.passages[lead.to].is_wide |= lead.is_dispatched;
            self.arrive(lead.to, lead.by);
        }
        departures
    }

    /// Returns the edges between nodes, by which tokens arrive.
    fn edges(&self) -> Digraph {
        let mut digraph = Digraph::new();
        for (node, passage) in self.passages.iter().enumerate() {
            digraph.add_node(node);
            for arrival in &passage.from {
                digraph.add_edge(arrival.source(), node, ());
            }
        }
        digraph
    }

    /// Returns for each node whether it runs for nothing but the items of a map, which ends once for all of them.
    fn maps(&self, graph: &Graph, departures: &[Departures]) -> Vec<bool> {
        let passages = self.passages.iter();
        let is_plain = |passage: &Passage| {
            let is_other = |it: &Arrival| !matches!(it, Arrival::Visit(_) | Arrival::Sent(_));
            passage.is_first || passage.is_after_limit || passage.from.iter().any(is_other)
        };
        let mut maps: Vec<bool> = (graph.nodes.values().zip(passages))
            .zip(departures)
            .map(|((spec, it), to)| {
                let has_choice = to.edges.iter().any(|it| it.len() > 1);
                spec.policies.schedule.items.is_some() && !is_plain(it) && !has_choice
            })
            .collect();
        for lead in departures.iter().flat_map(Departures::leads).filter(|it| !it.is_dispatched) {
            maps[lead.to] = false;
        }
        maps
    }

    fn arrive(&mut self, at: usize, arrival: Arrival) {
        let from = &mut self.passages[at].from;
        if !from.contains(&arrival) {
            from.push(arrival);
        }
    }

    /// Records for each node which tokens reach it.
    fn feed(&mut self, graph: &Graph, departures: &[Departures]) {
        let heights = self.heights();
        let scopes = Scopes::of(graph, self, departures, &heights);
        let ends_once = self.maps(graph, departures);
        let share = |(node, departures): (usize, &Departures)| {
            let first = scopes.begun_by(node).map_or(0, |it| it.exits.len().max(1));
            let is_wide = self.passages[node].is_wide && !ends_once[node];
            Shares::of(departures, is_wide, first, &heights)
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
                Arrival::Visit(_) | Arrival::Sent(_) | Arrival::PartialJoin(_) => {
                    Port::Left(source, shares[source].number(node, *arrival))
                }
            };
            Some(Feed { from, joined })
        };
        from.iter().filter_map(feed).collect()
    }

    /// Returns for each join the awaited node whose tokens it takes.
    ///
    /// A join is visited once for each visit of any awaited node, so one of them is enough: one
    /// that gets the original token of the nearest common node before all of them. The items of one
    /// node arrive in one step, and count as one arrival.
    fn counted(&self, shares: &[Shares]) -> Vec<Option<usize>> {
        let mut counted = vec![None; self.names.len()];
        let joins = |passage: &Passage| passage.from.iter().any(|it| it.awaited().is_some());
        if !self.passages.iter().any(joins) {
            return counted;
        }
        let root = self.names.len();
        for (node, passage) in self.passages.iter().enumerate() {
            let above = self.before.parent(node);
            let is_passed_on = |source: &usize| {
                let mut below = *source;
                while let Some(next) = self.before.parent(below).filter(|it| *it != root) {
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

    /// Returns the number of nodes after each node, on the longest path that passes no loop twice.
    fn heights(&self) -> Vec<usize> {
        let mut heights = vec![0; self.names.len()];
        // The search finds the nodes after a loop before the loop itself.
        for nodes in tarjan_scc(&self.digraph) {
            let after = nodes.iter().flat_map(|it| self.digraph.neighbors(*it));
            let after = after.map(|it| heights[it]);
            let height = after.max().unwrap_or(0) + nodes.len();
            for node in nodes {
                heights[node] = height;
            }
        }
        heights
    }

    /// Returns the nodes of a used workflow.
    pub(super) fn within(&self, scope: &str) -> impl Iterator<Item = usize> {
        let first = self.names.partition_point(|it| it.as_str() < scope);
        (first..self.names.len())
            .take_while(move |it| self.names[*it].as_str().starts_with(scope))
            .filter(move |it| self.names[*it].strip_scope(scope).is_some())
    }

    /// Returns whether several tasks of a node may run in one step.
    pub(super) fn is_dispatched(&self, node: usize) -> bool {
        self.passages[node].is_wide
    }

    /// Returns whether one visit of a node may lead to several nodes.
    pub(super) fn splits(&self, node: usize) -> bool {
        self.passages[node].splits
    }

    /// Returns whether a run never has several tokens at a time, apart from those within a used workflow, for which the
    /// outer ones wait.
    pub(super) fn is_single(&self) -> bool {
        let starts = self.passages.iter().filter(|it| it.is_first).count();
        starts == 1 && !self.passages.iter().any(|it| it.splits)
    }

    /// Returns the dependencies of the numbers of visits, as a graph of nodes.
    pub(super) fn dependencies(&self) -> Digraph {
        let mut digraph = self.digraph.clone();
        for (node, resetters) in self.resetters.iter().enumerate() {
            for &resetter in resetters {
                digraph.add_edge(resetter, node, ());
            }
        }
        for (node, passage) in self.passages.iter().enumerate() {
            for source in passage.feeds.iter().filter_map(|it| it.from.node()) {
                digraph.add_edge(source, node, ());
            }
        }
        digraph
    }

    /// Returns the rank of each node, in an order in which a dominator comes before the nodes it
    /// dominates.
    pub(super) fn ranks(&self) -> Vec<usize> {
        let mut ranks = vec![0; self.names.len()];
        let mut visit = DfsPostOrder::empty(&self.digraph);
        let mut rank = self.names.len();
        for (node, passage) in self.passages.iter().enumerate() {
            if passage.is_first || passage.is_after_limit {
                visit.move_to(node);
                while let Some(next) = visit.next(&self.digraph) {
                    rank -= 1;
                    ranks[next] = rank;
                }
            }
        }
        ranks
    }

    /// Returns the same graph with a root before the first nodes; its number belongs to no node.
    pub(super) fn rooted_digraph(&self) -> Digraph {
        let mut digraph = self.digraph.clone();
        for (node, passage) in self.passages.iter().enumerate() {
            if passage.is_first || passage.is_after_limit {
                digraph.add_edge(self.names.len(), node, ());
            }
        }
        digraph
    }
}

impl Passage {
    /// Returns whether its first round needs no reset. A node that resets it runs before its first visit otherwise, so
    /// that one of the resets begins the first round, or none does.
    pub(super) fn is_first_free(&self) -> bool {
        !self.is_begun_anew && !self.is_after_reset
    }
}

impl Port {
    /// Returns the node of the port.
    pub(super) fn node(self) -> Option<usize> {
        match self {
            Self::Source => None,
            Self::Reached(node) | Self::Left(node, _) => Some(node),
        }
    }
}

impl Arrival {
    /// Returns the awaited node.
    fn awaited(self) -> Option<usize> {
        if let Self::Join(source) = self { Some(source) } else { None }
    }

    /// Returns the node that leads there.
    pub(super) fn source(self) -> usize {
        match self {
            Self::Visit(source)
            | Self::Sent(source)
            | Self::Join(source)
            | Self::PartialJoin(source)
            | Self::Overflow(source) => source,
        }
    }
}
