//! The parts of a state that affect where a run continues. States that differ only in other parts
//! count as one.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::{
    checkpoint::TaskRecord,
    engine::machine::Machine,
    event::Usage,
    graph::{Access, Edge, Graph, Input, SideEffects},
    id::{ChannelName, NodeName},
    state::{Channel, NumberRange, Reducer},
    workflow::{
        Workflow,
        case_file::{ComputedField, accesses, computed},
    },
};

/// The parts of a state that affect where a run continues.
#[derive(Debug)]
pub(super) struct Relevant {
    /// The fields that matter, each with the parts of its value.
    fields: BTreeMap<ChannelName, Vec<Access>>,
    visits: BTreeSet<NodeName>,
    /// The nodes whose visits an expression counts.
    counted: BTreeSet<NodeName>,
    /// The nodes whose items matter.
    items: BTreeSet<NodeName>,
    /// The nodes with limits.
    limited: BTreeSet<NodeName>,
    /// For each node, what matters from it on.
    ahead: BTreeMap<NodeName, Ahead>,
}

/// What matters from a node on: later nodes read nothing else.
#[derive(Clone, Debug, Default)]
struct Ahead {
    /// The node, and those that it may lead to.
    nodes: BTreeSet<NodeName>,
    /// The fields that these nodes read.
    fields: BTreeSet<ChannelName>,
}

impl Relevant {
    /// Collects the fields that conditions read, also through computations, and those that a computation may fail on.
    pub(super) fn of(definition: &Workflow, graph: &Graph) -> Self {
        let mut read: Vec<Access> = accesses(definition, graph);
        let mut counted: BTreeSet<NodeName> = BTreeSet::new();
        let mut items: BTreeSet<NodeName> = BTreeSet::new();
        for edge in &graph.edges {
            let Edge::Route { from, route, .. } = edge else { continue };
            let set = route.access_set();
            items.extend(set.iter().filter(|it| !it.item_paths.is_empty()).map(|_| from.clone()));
            counted.extend(set.into_iter().flat_map(|it| it.visits));
        }
        for (name, spec) in &graph.nodes {
            let set = spec.when.as_ref().and_then(|it| it.access_set());
            items.extend(set.iter().filter(|it| !it.item_paths.is_empty()).map(|_| name.clone()));
            counted.extend(set.into_iter().flat_map(|it| it.visits));
            let policy = spec.policies.schedule.items.as_ref();
            let is_collected = |it: &ChannelName| read.iter().any(|access| access.channel == *it);
            if policy.is_some_and(|policy| {
                policy.order.is_some() || policy.failed.as_ref().is_some_and(is_collected)
            }) {
                items.insert(name.clone());
            }
        }
        for ComputedField { node, to, from, .. } in computed(definition, graph) {
            let is_read = read.iter().any(|it| it.channel == to);
            if is_read || from.may_fail {
                counted.extend(from.visits.iter().cloned());
                items.extend((!from.item_paths.is_empty()).then_some(node));
            }
            if from.may_fail {
                read.extend(from.fields.into_iter().map(|it| Access::whole(it.channel)));
            }
        }
        for (name, spec) in &graph.nodes {
            // The loop above covers computations, and the routes cover what a `map` reads. Values
            // shown to people do not affect decisions.
            let settings = definition.nodes.get(name).map(|it| &it.settings);
            let is_known = settings.is_some_and(|it| it.computes().is_some());
            if is_known || spec.describe().side_effects != SideEffects::Nothing {
                continue;
            }
            let all = || graph.schema.channels().iter().map(|it| it.name().clone()).collect();
            let reads: Vec<ChannelName> = match &spec.describe().contract.reads {
                Some(reads) => reads.iter().map(|it| it.channel.clone()).collect(),
                None => all(),
            };
            read.extend(reads.into_iter().map(Access::whole));
            items.insert(name.clone());
        }
        // A sum fails where it leaves its range.
        let fails = |channel: &&Channel| {
            let range = channel.ty().required().range().unwrap_or_default();
            channel.reducer().adds() && range != NumberRange::ALL
        };
        let sums = graph.schema.channels().iter().filter(fails);
        read.extend(sums.map(|it| Access::whole(it.name().clone())));
        let mut fields: BTreeMap<ChannelName, Vec<Access>> = BTreeMap::new();
        for access in read {
            let channel = graph.schema.channel(access.channel.as_str());
            // Other reducers look at more of the value than its readers do.
            let is_plain = channel
                .is_some_and(|it| matches!(it.reducer(), Reducer::Replace | Reducer::Append));
            let part = if is_plain { access } else { Access::whole(access.channel) };
            let parts = fields.entry(part.channel.clone()).or_default();
            if !parts.iter().any(|it| is_same_part(it, &part)) {
                parts.push(part);
            }
        }
        let ahead = ahead(definition, graph, &fields);
        let bounded = |name: &NodeName| graph.nodes[name].policies.bounds.max_visits.is_some();
        let visits =
            graph.nodes.keys().filter(|it| bounded(it) || counted.contains(*it)).cloned().collect();
        let limited = graph.nodes.iter().filter(|it| it.1.policies.bounds.limits.is_some());
        let limited = limited.map(|it| it.0.clone()).collect();
        Self { fields, visits, counted, items, limited, ahead }
    }

    /// Returns a key that is equal for two runs that continue alike.
    ///
    /// The records are those of the tasks that are settled in a step that is not complete.
    pub(super) fn key(&self, machine: &Machine, records: &[TaskRecord]) -> blake3::Hash {
        let position = machine.position();
        let waiting = position.joins.keys().chain(position.deferred.keys());
        let active = position.frontier.iter().map(|it| &it.node).chain(waiting);
        let active = active.chain(records.iter().map(|it| &it.node));
        let mut later = Ahead::default();
        for it in active.filter_map(|it| self.ahead.get(it)) {
            later.nodes.extend(it.nodes.iter().cloned());
            later.fields.extend(it.fields.iter().cloned());
        }
        let input = |node: &NodeName, input: &Input| {
            if self.items.contains(node) { json!(input) } else { json!(*input == Input::State) }
        };
        let frontier: Vec<_> =
            position.frontier.iter().map(|it| (&it.node, input(&it.node, &it.input))).collect();
        let is_counted = |name: &NodeName| {
            self.counted.contains(name) || self.visits.contains(name) && later.nodes.contains(name)
        };
        let visits: BTreeMap<_, _> =
            position.visits.iter().filter(|(name, _)| is_counted(name)).collect();
        let fields: BTreeMap<_, Vec<Value>> = self
            .fields
            .iter()
            .filter(|(name, _)| later.fields.contains(*name))
            .map(|(name, parts)| {
                let value = machine.state().get(name.as_str());
                (name, parts.iter().map(|it| part_of(value, it)).collect())
            })
            .collect();
        let is_used_up = |name: &&NodeName| {
            let used = position.used.node_usage.get(*name);
            used.is_some_and(|it| it.elapsed_ms > 0 || it.usage != Usage::default())
        };
        let limited: Vec<&NodeName> =
            self.limited.iter().filter(|it| later.nodes.contains(*it)).filter(is_used_up).collect();
        let deferred: Vec<_> = position.deferred.keys().collect();
        let has_limit = position.used.limit.is_some();
        let settled: BTreeMap<_, _> =
            records.iter().map(|it| (it.task.index, &it.outcome)).collect();
        let joins = &position.joins;
        let rounds = &position.rounds;
        let key =
            json!([frontier, joins, rounds, deferred, visits, fields, limited, has_limit, settled]);
        blake3::hash(key.to_string().as_bytes())
    }
}

/// Returns what matters from each node on.
fn ahead(
    definition: &Workflow,
    graph: &Graph,
    fields: &BTreeMap<ChannelName, Vec<Access>>,
) -> BTreeMap<NodeName, Ahead> {
    let mut reads: BTreeMap<&NodeName, BTreeSet<ChannelName>> = BTreeMap::new();
    let mut leads: BTreeMap<&NodeName, BTreeSet<&NodeName>> = BTreeMap::new();
    let all = || fields.keys().cloned().collect::<BTreeSet<ChannelName>>();
    for edge in &graph.edges {
        for from in edge.sources() {
            let targets = edge.targets();
            let to = targets.iter().filter_map(|it| graph.nodes.get_key_value(it.node()?));
            leads.entry(from).or_default().extend(to.map(|it| it.0));
        }
        if let Edge::Route { from, route, .. } = edge {
            let read =
                route.access_set().map(|reads| reads.fields.into_iter().map(|it| it.channel));
            reads.entry(from).or_default().extend(read.map_or_else(all, Iterator::collect));
        }
    }
    let computed = computed(definition, graph);
    for (name, spec) in &graph.nodes {
        let policies = &spec.policies;
        let of_node = reads.entry(name).or_default();
        let set = spec.when.as_ref().map(|it| it.access_set());
        of_node.extend(match set {
            None => BTreeSet::new(),
            Some(None) => all(),
            Some(Some(set)) => set.fields.into_iter().map(|it| it.channel).collect(),
        });
        of_node.extend(policies.bounds.visits_field.clone());
        let settings = definition.nodes.get(name).map(|it| &it.settings);
        let is_known = settings.is_some_and(|it| it.computes().is_some());
        let description = spec.describe();
        if is_known {
            let read = computed.iter().filter(|it| it.node == *name).flat_map(|it| &it.from.fields);
            of_node.extend(read.map(|it| it.channel.clone()));
        } else if description.side_effects == SideEffects::Nothing {
            of_node.extend(all());
        }
        // A reducer reads the value before.
        let adds = |name: &&ChannelName| {
            graph.schema.channel(name.as_str()).is_some_and(|it| it.reducer().adds())
        };
        of_node.extend(description.contract.writes.iter().flatten().filter(adds).cloned());
        let caught = policies.catch.iter().map(|it| &it.to);
        let others = caught.chain(&policies.bounds.exhausted).chain(&graph.limits.exhausted);
        let others = others.filter_map(|it| graph.nodes.get_key_value(it.node()?));
        leads.entry(name).or_default().extend(others.map(|it| it.0));
    }
    let ahead_of = |name: &NodeName| {
        let mut found = Ahead::default();
        let mut open = vec![name];
        while let Some(next) = open.pop() {
            if found.nodes.insert(next.clone()) {
                found.fields.extend(reads.get(next).into_iter().flatten().cloned());
                open.extend(leads.get(next).into_iter().flatten());
            }
        }
        (name.clone(), found)
    };
    graph.nodes.keys().map(ahead_of).collect()
}

fn is_same_part(one: &Access, other: &Access) -> bool {
    let part = |access: &Access| {
        (access.path.clone(), access.is_whole, access.item_parts.clone(), access.is_presence)
    };
    part(one) == part(other)
}

/// Returns the part of a value that an access reads; null if it is absent.
fn part_of(value: Option<&Value>, access: &Access) -> Value {
    let found = access.path.iter().try_fold(value, |value, name| Some(value?.get(name)));
    let Some(value) = found.flatten().filter(|it| !it.is_null()) else { return Value::Null };
    if access.is_presence {
        return Value::Bool(true);
    }
    match (value, &access.item_parts) {
        (Value::Array(items), Some(parts)) => {
            items.iter().map(|item| with_parts(item, parts)).collect()
        }
        _ => value.clone(),
    }
}

/// Returns the values at some paths of an item.
fn with_parts(item: &Value, parts: &[Vec<String>]) -> Value {
    if parts.iter().any(Vec::is_empty) {
        return item.clone();
    }
    let part = |path: &Vec<String>| {
        let value = path.iter().try_fold(item, |value, name| value.get(name));
        (path.join("."), value.cloned().unwrap_or_default())
    };
    Value::Object(parts.iter().map(part).collect::<Map<String, Value>>())
}
