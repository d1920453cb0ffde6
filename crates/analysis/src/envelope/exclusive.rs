//! Ways of which a run takes only some: the choices of routes that exclude each other.
//!
//! A route takes one of its choices, so its own ways share the tokens of its node. Here are the ways behind several nodes,
//! where all routes decide on the same values:
//! - Nodes that are visited in the same steps see the same state. In each step, tokens take one of the ways at most.
//! - If nothing writes the fields of a route once its node is reached, the route decides alike in the whole run. So of all
//!   these ways, the run takes one.
//!
//! **Example.** `call` and `write` run in parallel. `call` leads to `phone` if `urgent`, and `write` leads to `letter` if
//! `!urgent`. No node writes `urgent`, so `phone` and `letter` are visited once together.

use std::collections::{BTreeMap, BTreeSet};

use graphrun_core::{
    graph::{Edge, Graph, NodeSpec, Route, Target},
    id::{ChannelName, NodeName},
};

use super::{alternatives::Writers, steps::plain_ways, tokens::Tokens};

/// The most ways that are compared with each other.
const WAYS_MAX: usize = 40;

/// Ways of which a run takes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExclusiveWays {
    /// The ways, each from a node to a node.
    pub(super) ways: Vec<(usize, usize)>,
    /// Whether one of them is taken after each step, and not the same one in the whole run.
    pub(super) in_each_step: bool,
}

/// A way that one route alone may take.
#[derive(Clone, Debug)]
struct Way<'a> {
    from: usize,
    to: usize,
    name: &'a NodeName,
    route: &'a dyn Route,
    /// The number of the edge.
    edge: usize,
    /// The choices of the route that take it.
    choices: Vec<usize>,
    reads: &'a [ChannelName],
}

/// Returns the ways of a graph that exclude each other. A way may be in several lists.
pub(super) fn find(graph: &Graph, tokens: &Tokens<'_>, visits_max: &[u64]) -> Vec<ExclusiveWays> {
    let all = ways(graph, tokens, visits_max);
    let nodes: BTreeSet<usize> = all.iter().map(|it| it.from).collect();
    if nodes.len() < 2 || all.len() > WAYS_MAX {
        return Vec::new();
    }
    let (mut known, writers) = (ExclusiveChoices::default(), Writers::of(graph));
    let plain = plain_ways(graph);
    let mut alike: BTreeMap<_, Vec<Way<'_>>> = BTreeMap::new();
    for way in &all {
        if let Some(before) = plain.get(way.name) {
            alike.entry(before).or_default().push(way.clone());
        }
    }
    let mut found = Vec::new();
    for ways in alike.into_values() {
        let nodes: BTreeSet<usize> = ways.iter().map(|it| it.from).collect();
        let is_read_only =
            |it: &Way<'_>| writers.find(it.reads).all(|writer| !nodes.contains(&writer));
        let ways: Vec<Way<'_>> = ways.into_iter().filter(is_read_only).collect();
        found.extend(groups(&ways, true, &mut known));
    }
    let is_settled = |it: &Way<'_>| {
        let fits =
            |writer: usize| visits_max[writer] <= 1 && tokens.before.is_below(it.from, writer);
        writers.find(it.reads).all(fits)
    };
    let settled: Vec<Way<'_>> = all.into_iter().filter(is_settled).collect();
    found.extend(groups(&settled, false, &mut known));
    found
}

/// Returns the ways that one route alone may take, for single tasks.
fn ways<'a>(graph: &'a Graph, tokens: &Tokens<'_>, visits_max: &[u64]) -> Vec<Way<'a>> {
    let mut ways = Vec::new();
    for (edge, it) in graph.edges.iter().enumerate() {
        let Edge::Route { from: name, route, .. } = it else { continue };
        let (Some(reads), Some(choices)) = (route.reads(), route.choices()) else { continue };
        let Ok(from) = tokens.names.binary_search(&name) else { continue };
        let is_sent = |it: &ChannelName| graph.inbox.contains(it);
        let is_wide = tokens.is_dispatched(from) || choices.iter().any(|it| it.is_dispatched);
        if is_wide || visits_max[from] == 0 || reads.is_empty() || reads.iter().any(is_sent) {
            continue;
        }
        let others = other_targets(graph, name, edge);
        let mut taken: BTreeMap<&NodeName, Vec<usize>> = BTreeMap::new();
        for (at, choice) in choices.iter().enumerate() {
            for to in choice.to.iter().filter_map(Target::node) {
                let Some((to, _)) = graph.nodes.get_key_value(to) else { continue };
                taken.entry(to).or_default().push(at);
            }
        }
        for (target, choices) in taken.into_iter().filter(|(to, _)| !others.contains(*to)) {
            let Ok(to) = tokens.names.binary_search(&target) else { continue };
            ways.push(Way { from, to, name, route: route.as_ref(), edge, choices, reads });
        }
    }
    ways
}

/// Returns the nodes to which a node may lead in another way than by this edge. A route to a join decides on its arrival.
fn other_targets(graph: &Graph, name: &NodeName, edge: usize) -> BTreeSet<NodeName> {
    let edges = graph.edges.iter().enumerate().filter(|(at, it)| {
        *at != edge && !matches!(it, Edge::Join { .. }) && it.sources().contains(name)
    });
    let by_edges = edges.flat_map(|(_, it)| it.targets());
    let policies = graph.nodes.get(name).map(|NodeSpec { policies, .. }| policies);
    let caught = policies.into_iter().flat_map(|it| &it.catch).map(|it| &it.to);
    let exhausted = policies.and_then(|it| it.bounds.exhausted.as_ref());
    by_edges.chain(caught.chain(exhausted).cloned()).filter_map(|it| it.node().cloned()).collect()
}

/// Which choices of routes exclude each other, as far as it is known.
#[derive(Debug, Default)]
struct ExclusiveChoices(BTreeMap<[(usize, usize); 2], bool>);

impl ExclusiveChoices {
    fn exclude(&mut self, one: &Way<'_>, other: &Way<'_>) -> bool {
        let shares = one.reads.iter().any(|it| other.reads.contains(it));
        let mut pairs = one.choices.iter().flat_map(|a| other.choices.iter().map(move |b| (a, b)));
        shares
            && pairs.all(|(&a, &b)| {
                let key = [(one.edge, a), (other.edge, b)];
                *self.0.entry(key).or_insert_with(|| one.route.excludes(a, other.route, b))
            })
    }
}

/// Returns lists of ways that all exclude each other, of several nodes.
fn groups(all: &[Way<'_>], in_each_step: bool, known: &mut ExclusiveChoices) -> Vec<ExclusiveWays> {
    let mut groups: Vec<BTreeSet<usize>> = Vec::new();
    for first in 0..all.len() {
        let mut group = BTreeSet::from([first]);
        for next in 0..all.len() {
            if !group.contains(&next)
                && group
                    .iter()
                    .all(|it| known.exclude(&all[(*it).min(next)], &all[(*it).max(next)]))
            {
                group.insert(next);
            }
        }
        let nodes: BTreeSet<usize> = group.iter().map(|it| all[*it].from).collect();
        if nodes.len() > 1 && !groups.contains(&group) {
            groups.push(group);
        }
    }
    let way = |it: usize| (all[it].from, all[it].to);
    let ways = |it: BTreeSet<usize>| it.into_iter().map(way).collect();
    groups.into_iter().map(|it| ExclusiveWays { ways: ways(it), in_each_step }).collect()
}
