//! The start of a run in the middle of its workflow, as a test case describes it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    checkpoint::{Activation, Checkpoint, Position, TaskUsage, UsedBudget},
    compile::CompiledGraph,
    graph::{Catch, Edge, ErrorKind, Failure, Graph, Target, Trigger},
    id::{ChannelName, NodeName},
    state::{StateError, Update},
    workflow::case_file::Beginning,
};

/// The message of a failure that only led to the start of a case.
const FAILED_BEFORE: &str = "the case starts after this failure";

/// Returns the checkpoint at which the run of a test case starts.
///
/// # Errors
///
/// Fails when a value does not fit the state.
pub(super) fn checkpoint(
    graph: &CompiledGraph,
    input: &Update,
    beginning: &Beginning,
) -> Result<Checkpoint, StateError> {
    let Beginning { nodes, state, visits, usage, node_usage } = beginning;
    let schema = graph.schema();
    let begun = schema.begin(input.clone())?;
    let channel = |name: &str| schema.channel(name).map(|it| it.name().clone());
    let held = begun.iter().filter_map(|(name, value)| Some((channel(name)?, value.clone())));
    let mut values: BTreeMap<ChannelName, Value> = held.collect();
    values.extend(state.clone());
    let state = schema.restore(values)?;

    let of_node =
        |(node, usage): (&NodeName, _)| (node.clone(), TaskUsage { usage, ..TaskUsage::default() });
    let node_usage = node_usage.iter().map(|(node, usage)| of_node((node, *usage))).collect();
    let used = UsedBudget { usage: *usage, node_usage, ..UsedBudget::default() };
    let mut position = Position { visits: visits.clone(), used, ..Position::default() };
    for node in nodes.iter().collect::<BTreeSet<_>>() {
        *position.visits.entry(node.clone()).or_default() += 1;
        let trigger = trigger_of(graph.definition(), node);
        position.frontier.push(Activation::by_edge(node.clone(), trigger));
    }
    Ok(Checkpoint { position, state })
}

/// Returns a trigger with which a run could reach a node: as at the start of the workflow, by the first edge that leads
/// there, or by the first failure, bound or limit.
fn trigger_of(graph: &Graph, node: &NodeName) -> Trigger {
    if graph.entry.contains(node) {
        return Trigger::Start;
    }
    let here = Target::Node(node.clone());
    let leads_here = |it: &&Edge| it.targets().contains(&here);
    if let Some(from) = graph.edges.iter().find(leads_here).and_then(|it| it.sources().first()) {
        return Trigger::Then { node: from.clone() };
    }
    for (from, spec) in &graph.nodes {
        let caught: Option<&Catch> = spec.policies.catch.iter().find(|it| it.to == here);
        if let Some(catch) = caught {
            let failure = Failure::new(catch.kind.unwrap_or(ErrorKind::Other), FAILED_BEFORE);
            return Trigger::Caught { node: from.clone(), failure: Box::new(failure) };
        }
    }
    let bound =
        graph.nodes.iter().find(|(_, it)| it.policies.bounds.exhausted.as_ref() == Some(&here));
    if let Some((from, spec)) = bound {
        let max_visits = spec.policies.bounds.max_visits_of(|_| None).unwrap_or(1);
        return Trigger::Exhausted { node: from.clone(), max_visits, cause: None };
    }
    if graph.limits.exhausted.as_ref() == Some(&here) {
        return Trigger::Limit { error: "the case starts after a limit".to_owned() };
    }
    Trigger::Start
}
