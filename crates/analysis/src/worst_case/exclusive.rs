//! Edges of which a run takes only some: the choices of routes that exclude each other.
//!
//! A route takes one of its choices, so its own edges share the tokens of its node. Here are the edges that leave several nodes,
//! where all routes decide on the same values:
//! - Nodes that are visited in the same steps see the same state. In each step, tokens take one of the edges at most.
//! - If nothing writes the fields of a route once its node is reached, the route decides alike in the whole run. So of all
//!   these edges, the run takes one.
//!
//! **Example.** `call` and `write` run in parallel. `call` leads to `phone` if `urgent`, and `write` leads to `letter` if
//! `!urgent`. No node writes `urgent`, so `phone` and `letter` are visited once together.

use std::collections::{BTreeMap, BTreeSet};

use graphrun_core::{
    graph::{Edge, Graph, NodeSpec, Route, Target},
    id::{ChannelName, NodeName},
};

use super::{alternatives::Writers, steps::plain_predecessors, tokens::Tokens};

/// The most edges that are compared with each other.
const EDGES_MAX: usize = 40;

/// Edges of which a run takes one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExclusiveEdges {
    /// The edges, each from a node to a node.
    pub(super) edges: Vec<(usize, usize)>,
    /// Whether one of them is taken after each step, and not the same one in the whole run.
    pub(super) in_each_step: bool,
}

/// An edge that one route alone may take.
#[derive(Clone, Debug)]
struct RouteEdge<'a> {
    from: usize,
    to: usize,
    name: &'a NodeName,
    route: &'a dyn Route,
    /// The number of the route among the edges of the graph.
    number: usize,
    /// The choices of the route that take it.
    choices: Vec<usize>,
    reads: &'a [ChannelName],
}

/// Returns the edges of a graph that exclude each other. An edge may be in several lists.
pub(super) fn find(graph: &Graph, tokens: &Tokens<'_>, visits_max: &[u64]) -> Vec<ExclusiveEdges> {
    let all = route_edges(graph, tokens, visits_max);
    let nodes: BTreeSet<usize> = all.iter().map(|it| it.from).collect();
    if nodes.len() < 2 || all.len() > EDGES_MAX {
        return Vec::new();
    }
    let mut known = ExclusiveChoices::default();
    let writers = Writers::of(graph);
    let predecessors = plain_predecessors(graph);
    let mut alike: BTreeMap<_, Vec<RouteEdge<'_>>> = BTreeMap::new();
    for edge in &all {
        if let Some(before) = predecessors.get(edge.name) {
            alike.entry(before).or_default().push(edge.clone());
        }
    }
    let mut found = Vec::new();
    for edges in alike.into_values() {
        let nodes: BTreeSet<usize> = edges.iter().map(|it| it.from).collect();
        let is_read_only =
            |it: &RouteEdge<'_>| writers.find(it.reads).all(|writer| !nodes.contains(&writer));
        let edges: Vec<RouteEdge<'_>> = edges.into_iter().filter(is_read_only).collect();
        found.extend(groups(&edges, true, &mut known));
    }
    let is_settled = |edge: &RouteEdge<'_>| {
        let fits =
            |writer: usize| visits_max[writer] <= 1 && tokens.before.is_below(edge.from, writer);
        writers.find(edge.reads).all(fits)
    };
    let settled: Vec<RouteEdge<'_>> = all.into_iter().filter(is_settled).collect();
    found.extend(groups(&settled, false, &mut known));
    found
}

/// Returns the edges that one route alone may take, for single tasks.
fn route_edges<'a>(
    graph: &'a Graph,
    tokens: &Tokens<'_>,
    visits_max: &[u64],
) -> Vec<RouteEdge<'a>> {
    let mut edges = Vec::new();
    for (number, it) in graph.edges.iter().enumerate() {
        let Edge::Route { from: name, route, .. } = it else { continue };
        let (Some(reads), Some(choices)) = (route.reads(), route.choices()) else { continue };
        let Ok(from) = tokens.names.binary_search(&name) else { continue };
        let is_sent = |it: &ChannelName| graph.inbox.contains(it);
        let is_wide = tokens.is_dispatched(from) || choices.iter().any(|it| it.is_dispatched);
        if is_wide || visits_max[from] == 0 || reads.is_empty() || reads.iter().any(is_sent) {
            continue;
        }
        let others = other_targets(graph, name, number);
        let mut taken: BTreeMap<&NodeName, Vec<usize>> = BTreeMap::new();
        for (at, choice) in choices.iter().enumerate() {
            for to in choice.to.iter().filter_map(Target::node) {
                let Some((to, _)) = graph.nodes.get_key_value(to) else { continue };
                taken.entry(to).or_default().push(at);
            }
        }
        for (target, choices) in taken.into_iter().filter(|(to, _)| !others.contains(*to)) {
            let Ok(to) = tokens.names.binary_search(&target) else { continue };
            edges.push(RouteEdge { from, to, name, route: route.as_ref(), number, choices, reads });
        }
    }
    edges
}

/// Returns the nodes to which a node may lead other than by the edge with this number. A route to a join decides on its arrival.
fn other_targets(graph: &Graph, name: &NodeName, number: usize) -> BTreeSet<NodeName> {
    let edges = graph.edges.iter().enumerate().filter(|(at, edge)| {
        *at != number && !matches!(edge, Edge::Join { .. }) && edge.sources().contains(name)
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
    fn exclude(&mut self, one: &RouteEdge<'_>, other: &RouteEdge<'_>) -> bool {
        let shares = one.reads.iter().any(|it| other.reads.contains(it));
        let mut pairs = one.choices.iter().flat_map(|a| other.choices.iter().map(move |b| (a, b)));
        shares
            && pairs.all(|(&a, &b)| {
                let key = [(one.number, a), (other.number, b)];
                *self.0.entry(key).or_insert_with(|| one.route.excludes(a, other.route, b))
            })
    }
}

/// Returns lists of edges that all exclude each other, of several nodes.
fn groups(
    all: &[RouteEdge<'_>],
    in_each_step: bool,
    known: &mut ExclusiveChoices,
) -> Vec<ExclusiveEdges> {
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
    let ends = |it: usize| (all[it].from, all[it].to);
    let edges = |group: BTreeSet<usize>| group.into_iter().map(ends).collect();
    groups.into_iter().map(|it| ExclusiveEdges { edges: edges(it), in_each_step }).collect()
}
