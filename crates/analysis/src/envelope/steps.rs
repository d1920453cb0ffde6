//! The super-steps of the worst case, and their duration.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use graphrun_core::{
    graph::{Edge, ErrorKind, Failure, Graph, NodeSpec, SideEffects},
    id::NodeName,
};

use super::{
    NodeEnvelope,
    branches::{self, Shared},
    tokens::Tokens,
};
/// The maximum of all steps of a run together.
#[derive(Debug)]
pub(super) struct Steps {
    pub(super) steps_max: u64,
    pub(super) time_max: Option<Duration>,
}

/// The ways to a node that only unconditional edges lead to: whether the run starts with it, and
/// the nodes before it.
type Ways<'a> = (bool, BTreeSet<&'a NodeName>);

impl Steps {
    /// Returns the minimum of two rules, which both hold for every run.
    pub(super) fn of(
        graph: &Graph,
        tokens: &Tokens<'_>,
        nodes: &BTreeMap<NodeName, NodeEnvelope>,
    ) -> Self {
        let alone = |(name, it): (&NodeName, &NodeEnvelope)| {
            let task = if it.visits_max > 0 {
                task_time(&graph.nodes[name])
            } else {
                Some(Duration::ZERO)
            };
            let time = task.map(|task| times(task, it.visits_max));
            Shared { steps: it.visits_max, time, task }
        };
        let alone: Vec<Shared> = nodes.iter().map(alone).collect();
        let together = together(graph, nodes, &alone);
        let branches = branches::count(graph, tokens, alone);
        let time_max = together.time.zip(branches.time).map(|(a, b)| a.min(b));
        Self { steps_max: together.steps.min(branches.steps), time_max }
    }
}

/// Counts one step for each visit; nodes that are always visited in the same steps count once.
fn together(graph: &Graph, nodes: &BTreeMap<NodeName, NodeEnvelope>, alone: &[Shared]) -> Shared {
    let mut all: Vec<Shared> = Vec::new();
    let mut alike: BTreeMap<Ways<'_>, Shared> = BTreeMap::new();
    let ways = plain_ways(graph);
    for (name, shared) in nodes.keys().zip(alone) {
        let Some(ways) = ways.get(name) else {
            all.push(*shared);
            continue;
        };
        let most = alike.entry(ways.clone()).or_insert(*shared);
        most.steps = most.steps.min(shared.steps);
        most.task = most.task.zip(shared.task).map(|(a, b)| a.max(b));
        most.time = most.task.map(|task| times(task, most.steps));
    }
    branches::sum(all.into_iter().chain(alike.into_values()))
}

/// Returns the maximum duration of one task of a node, all attempts together, if it is known.
///
/// A node without side effects computes synchronously or waits for a person; neither counts.
pub(super) fn task_time(spec: &NodeSpec) -> Option<Duration> {
    if spec.node.describe().side_effects == SideEffects::Nothing {
        return Some(Duration::ZERO);
    }
    Some(times(spec.policies.timeout?, attempts_max(spec).into()))
}

/// Returns the maximum number of attempts at one task of a node. Only a node that asks models has outages.
pub(super) fn attempts_max(spec: &NodeSpec) -> u32 {
    let asks_models = spec.node.describe().calls_max != Some(0);
    let attempts = ErrorKind::ALL.map(|kind| {
        let mut failure = Failure { transient: true, ..Failure::new(kind, "") };
        failure.transient = asks_models || !failure.is_outage();
        spec.policies.retry.for_failure(&failure).attempts_after(&failure)
    });
    attempts.into_iter().fold(1, u32::max)
}

/// Multiplies a duration.
pub(super) fn times(time: Duration, many: u64) -> Duration {
    match u32::try_from(many) {
        Ok(many) => time.saturating_mul(many),
        Err(_) if time.is_zero() => time,
        Err(_) => Duration::MAX,
    }
}

/// Returns the ways to each node that only unconditional edges lead to. Nodes with the same ways
/// are visited in the same steps.
fn plain_ways(graph: &Graph) -> BTreeMap<&NodeName, Ways<'_>> {
    let policies = graph.nodes.values().map(|it| &it.policies);
    let caught = policies.clone().flat_map(|it| it.catch.iter().map(|it| &it.to));
    let exhausted = policies.filter_map(|it| it.exhausted.as_ref());
    let other_ways = caught.chain(exhausted).chain(&graph.limits.exhausted);
    let mut others: BTreeSet<&NodeName> = other_ways.filter_map(|it| it.node()).collect();
    let mut before: BTreeMap<&NodeName, BTreeSet<&NodeName>> = BTreeMap::new();
    for edge in &graph.edges {
        let targets = edge.targets();
        let targets = targets.iter().filter_map(|it| graph.nodes.get_key_value(it.node()?));
        for (to, _) in targets {
            match edge {
                Edge::Then { from, .. } => before.entry(to).or_default().insert(from),
                _ => others.insert(to),
            };
        }
    }
    let is_plain = |(name, spec): &(&NodeName, &NodeSpec)| {
        spec.policies.max_visits.is_none()
            && spec.policies.defer.is_none()
            && !others.contains(*name)
    };
    let first: BTreeSet<&NodeName> = graph.entry.iter().collect();
    let plain = graph.nodes.iter().filter(is_plain);
    plain
        .map(|(name, _)| {
            (name, (first.contains(name), before.get(name).cloned().unwrap_or_default()))
        })
        .collect()
}
