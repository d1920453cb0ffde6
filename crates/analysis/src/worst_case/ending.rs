//! Runs that fail for certain: a visit of some nodes leads to failure, and no other node can prevent that.
//!
//! **Example.** `start` leads to `work` and to `give_up`, and `give_up` leads to failure. The run fails after its second step, so
//! `work` runs once, even if it is part of a loop with a bound of ten visits.

use std::collections::{BTreeMap, VecDeque};

use graphrun_core::{
    graph::{Edge, Graph, Target},
    id::NodeName,
};

use super::{
    Cause, choosing, failing,
    tokens::{Arrival, Tokens},
};
use crate::network::Digraph;

/// The steps after which runs fail for certain.
#[derive(Debug)]
pub(super) struct CertainEnds {
    /// The most steps of a run, if each one fails for certain.
    pub(super) of_runs: Option<u64>,
    /// For each node the fewest visits that this allows, with the cause and the steps after it.
    pub(super) of_nodes: Vec<Option<(u64, Cause, u64)>>,
}

impl CertainEnds {
    pub(super) fn of(graph: &Graph, tokens: &Tokens<'_>) -> Self {
        let root = tokens.names.len();
        let mut found = Self { of_runs: None, of_nodes: vec![None; root] };
        let mut steps = steps_left(graph, tokens);
        if steps.iter().all(Option::is_none) {
            return found;
        }
        // All first nodes run in the first step, unless they wait for others.
        let runs_at_once = |node: usize| {
            let waits = graph.nodes[tokens.names[node]].policies.schedule.defer.is_some();
            tokens.passages[node].is_first && !waits
        };
        let first = steps.iter().enumerate().filter(|(it, _)| runs_at_once(*it));
        found.of_runs = first.filter_map(|(_, steps)| *steps).min();
        steps.push(found.of_runs.map(|it| it + 1));
        let digraph = tokens.rooted_digraph();
        for (from, left) in steps.into_iter().enumerate() {
            let Some(left) = left else { continue };
            let distances = distances(tokens, &digraph, from);
            let cause = match tokens.names.get(from) {
                Some(name) => Cause::Visit(NodeName::clone(name)),
                None => Cause::Start,
            };
            for (node, distance) in distances.into_iter().filter(|it| it.0 < root) {
                let is_before = tokens.before.is_below(node, from);
                let visits = left.saturating_sub(distance);
                let known = &mut found.of_nodes[node];
                if is_before && known.as_ref().is_none_or(|(least, ..)| visits < *least) {
                    *known = Some((visits, cause.clone(), left - 1));
                }
            }
        }
        found
    }
}

/// Returns the fewest steps from a visit of a node to one of each node that it leads to.
///
/// A node whose bound is used up leads on without a step. This may happen before its first visit: an edge to a deferred node
/// reserves a visit, so an item that arrives in the same step finds the bound used up.
fn distances(tokens: &Tokens<'_>, digraph: &Digraph, from: usize) -> BTreeMap<usize, u64> {
    let mut distances: BTreeMap<usize, u64> = BTreeMap::from([(from, 0)]);
    let mut open = VecDeque::from([from]);
    while let Some(node) = open.pop_front() {
        for next in digraph.neighbors(node) {
            let takes_no_step = tokens.passages[next].from.contains(&Arrival::Overflow(node));
            let distance = distances[&node] + u64::from(!takes_no_step);
            if distances.get(&next).is_some_and(|known| *known <= distance) {
                continue;
            }
            distances.insert(next, distance);
            if takes_no_step {
                open.push_front(next);
            } else {
                open.push_back(next);
            }
        }
    }
    distances
}

/// Returns the most steps of a run from a visit of each node on, its own step included, if the run fails for certain.
fn steps_left(graph: &Graph, tokens: &Tokens<'_>) -> Vec<Option<u64>> {
    let mut steps = vec![None; tokens.names.len()];
    // A limit leads to its target instead of all others.
    if graph.limits.exhausted.as_ref().is_some_and(|it| it.node().is_some()) {
        return steps;
    }
    let failing = failing(graph);
    let choosing = choosing(graph);
    // The node finishes, or the run fails. Another node may abandon the tasks of a used workflow.
    let is_sure = |name: &NodeName| {
        let policies = &graph.nodes[name].policies;
        let fails = policies.catch.iter().all(|it| it.to == Target::Fail);
        fails
            && policies.schedule.items.is_none()
            && name.scope().is_none()
            && !choosing.contains(name)
    };
    // A run that reaches it visits it, or has visited it before and failed even earlier. A bound of zero, a limit, or the
    // visit that is reserved for a deferred node may lead elsewhere at once.
    let is_visited = |node: usize| {
        let policies = &graph.nodes[tokens.names[node]].policies;
        let is_refused = policies.schedule.defer.is_some()
            && tokens.passages[node].from.iter().any(|it| matches!(it, Arrival::Sent(_)));
        let bounds = &policies.bounds;
        bounds.max_visits != Some(0) && bounds.limits.is_none() && !is_refused
    };
    let number = |name: &NodeName| tokens.names.binary_search(&name).ok();
    for (node, name) in tokens.names.iter().enumerate() {
        if failing.contains(name) && is_sure(name) && is_visited(node) {
            steps[node] = Some(1);
        }
    }
    if steps.iter().all(Option::is_none) {
        return steps;
    }
    // Each pass finds the nodes one step further away.
    for _ in 0..tokens.names.len() {
        let mut is_less = false;
        for edge in &graph.edges {
            let Edge::Then { from, to: Target::Node(to), .. } = edge else { continue };
            let (Some(node), Some(next)) = (number(from), number(to)) else { continue };
            let policies = &graph.nodes[to].policies;
            let waits = policies.schedule.defer.is_some() || to.scope().is_some();
            if waits || !is_sure(from) || !is_visited(node) || !is_visited(next) {
                continue;
            }
            let after = steps[next].map(|it: u64| it + 1);
            if let Some(after) = after.filter(|it| steps[node].is_none_or(|known| *it < known)) {
                steps[node] = Some(after);
                is_less = true;
            }
        }
        if !is_less {
            break;
        }
    }
    steps
}
