//! How tokens go through a graph, by which it is counted how often nodes can be reached.
//!
//! Every visit of a node uses up a token. The start makes one for each first node, the limit that
//! is routed makes one, and a visit makes one for each node it leads to at once. Most nodes lead
//! to one at a time, so they only pass a token on. Thus no more tokens reach a node than the
//! maximum flow to it, where the capacity of a node is its visits; the minimum cut says why. The
//! flows are found in `flow`; here nodes get numbers, and each knows what may lead to it.
//!
//! A visit is a step in which a node runs, however many items it runs for. What its tasks lead to in
//! that step runs in the next one, so several that lead to one node are one token.

use std::collections::BTreeSet;

use petgraph::{graphmap::DiGraphMap, visit::DfsPostOrder};

use super::leads::{Choices, Leads};
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
    /// What leads to it.
    pub(super) from: Vec<Arrival>,
    /// How many nodes and joins one task leads to at once, at most.
    at_once: usize,
    /// How many all of its tasks may lead to.
    ways: usize,
    /// Whether several tasks of the node may run in one step, each with its own way to go.
    is_wide: bool,
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
            let policies = &spec.policies;
            let caught = policies.catch.iter().filter_map(|it| it.to.node());
            for next in caught {
                tokens.arrive(leads.number(next), Arrival::Visit(number));
            }
            if let Some(next) = policies.exhausted.as_ref().and_then(Target::node) {
                tokens.arrive(leads.number(next), Arrival::Overflow(number));
            }
            for reset in &policies.resets {
                let resetters = &mut tokens.resetters[leads.number(reset)];
                if resetters.last() != Some(&number) {
                    resetters.push(number);
                }
            }
        }
        for (from, choices) in graph.edges.iter().flat_map(|it| leads.along(it)) {
            tokens.lead(from, choices);
        }
        tokens
    }

    /// Each edge is followed, in one of the ways that may be chosen there.
    fn lead(&mut self, from: usize, choices: Choices) {
        let mut most = 0;
        for choice in choices {
            let together: BTreeSet<(usize, Arrival)> =
                choice.iter().map(|it| (it.to, it.by)).collect();
            most = most.max(together.len());
            for lead in choice {
                self.passages[lead.to].is_wide |= lead.is_dispatched;
                self.arrive(lead.to, lead.by);
            }
        }
        self.passages[from].at_once += most;
    }

    fn arrive(&mut self, at: usize, arrival: Arrival) {
        let from = &mut self.passages[at].from;
        if !from.contains(&arrival) {
            from.push(arrival);
            // Where a bound leads, no visit of the node does.
            let is_visit = !matches!(arrival, Arrival::Overflow(_));
            self.passages[arrival.source()].ways += usize::from(is_visit);
        }
    }

    /// Whether several tasks of a node may run in one step.
    pub(super) fn is_dispatched(&self, node: usize) -> bool {
        self.passages[node].is_wide
    }

    /// Whether one visit of a node may lead to several.
    pub(super) fn splits(&self, node: usize) -> bool {
        let passage = &self.passages[node];
        passage.ways > 1 && (passage.is_wide || passage.at_once > 1)
    }

    /// Of the nodes that a node waits for, the one whose arrivals are counted.
    ///
    /// It is visited once for each visit of any of them, so one is enough, the one with the fewest
    /// visits. Items of one node all arrive in one step, and are one arrival.
    pub(super) fn counted(&self, node: usize, visits: &[u64]) -> Option<usize> {
        let awaited = self.passages[node].from.iter().filter_map(|it| match it {
            Arrival::Join(source) => Some(*source),
            _ => None,
        });
        awaited.min_by_key(|it| (visits[*it], self.splits(*it)))
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
            Self::Visit(source)
            | Self::Sent(source)
            | Self::Join(source)
            | Self::Overflow(source) => source,
        }
    }
}
