//! The parts of a state that affect where a run continues. States that differ only in other parts
//! count as one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::{
    checkpoint::TaskRecord,
    engine::machine::Machine,
    graph::{Edge, Graph, SideEffects},
    id::{ChannelName, NodeName},
    workflow::{
        Workflow,
        case_file::{Computed, accesses, computed},
    },
};

/// The parts of a state that affect where a run continues.
#[derive(Debug)]
pub(super) struct Relevant {
    channels: BTreeSet<ChannelName>,
    visits: BTreeSet<NodeName>,
}

impl Relevant {
    /// Collects the fields that conditions and computations read.
    pub(super) fn of(definition: &Workflow, graph: &Graph) -> Self {
        let mut channels: BTreeSet<ChannelName> =
            accesses(definition, graph).into_iter().map(|it| it.channel).collect();
        let mut counted: BTreeSet<NodeName> = BTreeSet::new();
        for edge in &graph.edges {
            if let Edge::Route { route, .. } = edge {
                counted.extend(route.access_set().into_iter().flat_map(|it| it.visits));
            }
        }
        let conditions = graph.nodes.values().filter_map(|it| it.when.as_ref()?.access_set());
        counted.extend(conditions.flat_map(|it| it.visits));
        for Computed { from, .. } in computed(definition, graph) {
            channels.extend(from.fields.into_iter().map(|it| it.channel));
            counted.extend(from.visits);
        }
        for (name, spec) in &graph.nodes {
            // The loop above covers computations, and the routes cover what a `map` reads. Values
            // shown to people do not affect decisions.
            let settings = definition.nodes.get(name).map(|it| &it.settings);
            let is_known = settings.is_some_and(|it| it.computes().is_some());
            if is_known || spec.node.describe().side_effects != SideEffects::Nothing {
                continue;
            }
            let all = || graph.schema.channels().iter().map(|it| it.name().clone()).collect();
            let read = spec.node.describe().contract.reads;
            let read: Vec<ChannelName> =
                read.map_or_else(all, |it| it.into_iter().map(|it| it.channel).collect());
            channels.extend(read);
        }
        channels
            .extend(graph.nodes.values().filter_map(|it| it.policies.bounds.visits_field.clone()));
        let bounded = |name: &NodeName| graph.nodes[name].policies.bounds.max_visits.is_some();
        let visits =
            graph.nodes.keys().filter(|it| bounded(it) || counted.contains(*it)).cloned().collect();
        Self { channels, visits }
    }

    /// Returns a key that is equal for two runs that continue in the same way.
    ///
    /// The records are those of the tasks that are settled in a step that is not complete.
    pub(super) fn key(&self, machine: &Machine, records: &[TaskRecord]) -> blake3::Hash {
        let position = machine.position();
        let frontier: Vec<_> = position.frontier.iter().map(|it| (&it.node, &it.input)).collect();
        let visits: BTreeMap<_, _> =
            position.visits.iter().filter(|(name, _)| self.visits.contains(*name)).collect();
        let channels: BTreeMap<_, _> = self
            .channels
            .iter()
            .filter_map(|it| Some((it, machine.state().get(it.as_str())?)))
            .collect();
        let deferred: Vec<_> = position.deferred.keys().collect();
        let has_limit = position.used.limit.is_some();
        let settled: BTreeMap<_, _> =
            records.iter().map(|it| (it.task.index, &it.outcome)).collect();
        let (joins, rounds) = (&position.joins, &position.rounds);
        let key = json!([frontier, joins, rounds, deferred, visits, channels, has_limit, settled]);
        blake3::hash(key.to_string().as_bytes())
    }
}
