//! Checks of a run in progress: the analyses of a whole graph, started from the position of the
//! run.

use std::collections::{BTreeMap, BTreeSet};

use crate::flow_model::{Bits, DefiniteAssignment, Draft, FlowModel, field_numbers};
use graphrun_core::{
    graph::{Edge, Target},
    id::{ChannelName, NodeName},
};

use super::{CompiledGraph, flow::FieldNeed};

/// The part of a run's position that determines which nodes it may still reach.
#[derive(Clone, Debug, Default)]
pub struct Midway {
    /// The nodes that run next, and the deferred ones.
    pub next: BTreeSet<NodeName>,
    /// For each waiting join, the nodes that have arrived.
    pub arrived: BTreeMap<NodeName, BTreeSet<NodeName>>,
    /// The fields that have a value now or after the current step.
    pub held: BTreeSet<ChannelName>,
}

/// The reader of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldReader {
    /// A node, its condition or its route.
    Node(NodeName),
    /// The result of the run.
    Output,
}

impl CompiledGraph {
    /// Returns whether a path leads from the next nodes to a node without passing another one.
    pub fn comes_to(&self, midway: &Midway, to: &NodeName, not_by: &NodeName) -> bool {
        let mut seen = BTreeSet::new();
        let mut open: Vec<NodeName> = midway.next.iter().cloned().collect();
        while let Some(name) = open.pop() {
            if name == *to {
                return true;
            }
            if name == *not_by || !seen.insert(name.clone()) {
                continue;
            }
            let by_edges = self.leaving(&name).flat_map(Edge::targets);
            let policies = self.node(&name).map(|it| &it.policies);
            let caught = policies
                .into_iter()
                .flat_map(|policies| policies.catch.iter().map(|it| it.to.clone()));
            let exhausted = policies.and_then(|it| it.bounds.exhausted.clone());
            let all = by_edges.chain(caught).chain(exhausted);
            open.extend(all.filter_map(|it| match it {
                Target::Node(name) => Some(name),
                Target::End | Target::Fail => None,
            }));
        }
        false
    }

    /// Returns the fields that a run from its start writes before they are read, and that this one may leave unwritten,
    /// each with the first reader that the run may reach.
    pub fn unwritten(&self, midway: &Midway) -> BTreeMap<ChannelName, FieldReader> {
        let graph = self.definition();
        let names: Vec<&NodeName> = graph.nodes.keys().collect();
        let number = |name: &NodeName| names.binary_search(&name).ok();
        let fields = field_numbers(&graph.schema);
        let whole = FlowModel::of(&Draft::of(graph));
        let mut model = whole.clone();
        model.start = midway.next.iter().filter_map(number).collect();
        // Exactly the fields with a value are written: the run starts here and not with its input.
        let mut held = Bits::none(model.fields);
        for field in &midway.held {
            if let Some(&at) = fields.get(field) {
                held.insert(at);
            }
        }
        (model.may_assign_at_start, model.must_assign_at_start) = (held.clone(), held);
        for join in &mut model.joins {
            let arrived = midway.arrived.get(names[join.node]).into_iter().flatten();
            let arrived: BTreeSet<usize> = arrived.filter_map(number).collect();
            let before = join.awaited.len();
            join.awaited.retain(|it| !arrived.contains(it));
            join.count = join.count.saturating_sub(before - join.awaited.len());
        }
        let (assigned, from_start) =
            (DefiniteAssignment::of(&model), DefiniteAssignment::of(&whole));
        let mut found = BTreeMap::new();
        for need in FieldNeed::all(graph).into_iter().chain(FieldNeed::checked(graph)) {
            let Some(&field) = fields.get(&need.channel) else { continue };
            let is_met = need.is_met(&model, &assigned, field);
            if !is_met && need.is_met(&whole, &from_start, field) {
                let reader = || FieldReader::Node(names[need.node].clone());
                found.entry(need.channel).or_insert_with(reader);
            }
        }
        // Without a next node, the run has its result already.
        if !model.start.is_empty() {
            let at_end = model.written_at_end();
            let always = whole.written_at_end();
            let outputs = graph.output.iter().filter(|channel| {
                fields.get(*channel).is_some_and(|&it| always.contains(it) && !at_end.contains(it))
            });
            for field in outputs {
                found.entry(field.clone()).or_insert(FieldReader::Output);
            }
        }
        found
    }
}
