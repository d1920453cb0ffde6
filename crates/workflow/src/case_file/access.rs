//! What decides the routes of a workflow: the fields that its routes and conditions read, and the
//! fields from which those are computed.

use std::collections::{BTreeMap, BTreeSet};

use graphrun_core::{
    graph::{Access, AccessSet, Edge, Fraction, Graph, Scope, Spread},
    id::{ChannelName, NodeName},
};

use crate::{Expression, Workflow, kind::Computation};

/// The longest path into a field that is kept. A deeper path counts as this prefix of it.
const PATH_MAX: usize = 8;

/// A field that a node computes.
#[derive(Clone, Debug)]
pub struct ComputedField {
    /// The node.
    pub node: NodeName,
    /// The field.
    pub to: ChannelName,
    /// The fields that it is computed from.
    pub from: AccessSet,
    /// Whether the value is a plain copy.
    pub is_copy: bool,
    /// The expression, and the used workflows that it stands in.
    value: Option<(Expression, Vec<Scope>)>,
}

/// The fields collected so far, each part of the state once with all its comparisons.
#[derive(Debug, Default)]
struct AccessMap(BTreeMap<AccessedPart, ComparedConstants>);

/// The constants that a part of the state is compared with.
#[derive(Clone, Debug, Default, PartialEq)]
struct ComparedConstants {
    numbers: BTreeSet<i64>,
    fractions: BTreeSet<Fraction>,
    texts: BTreeSet<String>,
}

/// A part of the state, and how it is read: an [`Access`] without its comparisons.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AccessedPart {
    channel: ChannelName,
    path: Vec<String>,
    is_whole: bool,
    item_parts: Option<Vec<Vec<String>>>,
    is_presence: bool,
}

/// Returns everything that the routes of a graph and the conditions of its nodes read, directly or
/// through fields that nodes compute, each once.
pub fn accesses(workflow: &Workflow, graph: &Graph) -> Vec<Access> {
    let channels = graph.schema.channels().iter().map(|it| it.name().clone());
    let all: Vec<ChannelName> = channels.collect();
    let wholly = |reads: Option<&[ChannelName]>| AccessSet {
        fields: reads.unwrap_or(&all).iter().cloned().map(Access::whole).collect(),
        is_opaque: true,
        ..AccessSet::default()
    };
    let routes = graph.edges.iter().filter_map(|it| match it {
        Edge::Route { route, .. } => Some(route),
        _ => None,
    });
    let conditions = graph.nodes.values().filter_map(|it| it.when.as_ref());
    let bounds = graph.nodes.values().filter_map(|it| it.policies.bounds.visits_field.clone());
    let bounds = bounds.map(|it| Access { is_whole: false, ..Access::whole(it) });
    let by_routes = routes.clone().map(|it| it.access_set().unwrap_or_else(|| wholly(it.reads())));
    let by_conditions = conditions.map(|it| it.access_set().unwrap_or_else(|| wholly(it.reads())));
    let mut open = AccessSet { fields: bounds.collect(), ..AccessSet::default() };
    by_routes.chain(by_conditions).for_each(|it| open.extend(it));

    // If an item of a dispatched list is read, the content of that list matters too.
    let lists = routes.filter(|it| it.spread() == Spread::Items).filter_map(|it| it.access_set());
    let lists: Vec<Access> = lists
        .flat_map(|it| it.fields)
        .map(|it| Access { is_whole: true, item_parts: None, ..it })
        .collect();
    // A person can only answer with one of these.
    for definition in workflow.nodes.values() {
        let choices = definition.settings.choice_list().map(Expression::access_set);
        let scoped = |set| definition.scopes.iter().fold(set, |set, scope| scope.access_set(set));
        if let Some(choices) = choices {
            open.extend(scoped(choices));
        }
    }
    let computed = computed(workflow, graph);
    let mut found = AccessMap::default();
    loop {
        if !std::mem::take(&mut open.item_paths).is_empty() {
            let numbers = std::mem::take(&mut open.item_numbers);
            let fractions = std::mem::take(&mut open.item_fractions);
            let texts = std::mem::take(&mut open.item_texts);
            open.fields.extend(lists.iter().cloned().map(|mut list| {
                list.numbers.extend(&numbers);
                list.fractions.extend(&fractions);
                list.texts.extend(texts.iter().cloned());
                list
            }));
        }
        let Some(access) = open.fields.pop() else { break };
        if let Some(access) = found.add(access) {
            for it in computed.iter().filter(|it| it.to == access.channel) {
                open.extend(it.behind(&access));
            }
        }
    }
    found.into_accesses()
}

/// Returns every field that a node of a workflow computes, by its name in the graph.
pub fn computed(workflow: &Workflow, graph: &Graph) -> Vec<ComputedField> {
    let mut computed = Vec::new();
    for (name, definition) in &workflow.nodes {
        let parts = definition.settings.computes().unwrap_or_default();
        for Computation { to, from, is_copy, value } in parts {
            let to = definition.scopes.iter().fold(to, |it, scope| scope.channel_name(&it));
            let from = definition.scopes.iter().fold(from, |it, scope| scope.access_set(it));
            let channel = graph.schema.channel(to.as_str());
            let is_copy = is_copy && channel.is_some_and(|it| it.reducer().is_replace());
            let value = value.map(|it| (it, definition.scopes.clone()));
            computed.push(ComputedField { node: name.clone(), to, from, is_copy, value });
        }
    }
    computed
}

impl ComputedField {
    /// Returns the access set behind an access to the computed field.
    fn behind(&self, seen: &Access) -> AccessSet {
        if seen.is_presence && !self.is_copy {
            // It is present, independent of its inputs.
            return AccessSet::default();
        }
        let part = self.value.as_ref().filter(|_| !self.is_copy && !seen.path.is_empty());
        let part = part.map(|(value, scopes)| {
            let of = value.access_set_of(&seen.path);
            scopes.iter().fold(of, |it, scope| scope.access_set(it))
        });
        let is_part = part.is_some();
        let mut behind = part.unwrap_or_else(|| self.from.clone());
        behind.item_numbers.extend(&seen.numbers);
        behind.item_fractions.extend(&seen.fractions);
        behind.item_texts.extend(seen.texts.iter().cloned());
        for it in &mut behind.fields {
            it.numbers.extend(&seen.numbers);
            it.fractions.extend(&seen.fractions);
            it.texts.extend(seen.texts.iter().cloned());
            if self.is_copy {
                it.path.extend(seen.path.iter().cloned());
                (it.is_whole, it.is_presence) = (seen.is_whole, seen.is_presence);
                it.item_parts.clone_from(&seen.item_parts);
                it.is_whole |= it.path.len() > PATH_MAX;
                if it.path.len() > PATH_MAX {
                    it.item_parts = None;
                    it.path.truncate(PATH_MAX);
                }
            } else {
                it.is_whole |= seen.is_whole || !seen.path.is_empty() && !is_part;
            }
        }
        behind
    }
}

impl AccessMap {
    /// Adds an access. Returns it with all earlier comparisons if it adds anything new.
    fn add(&mut self, access: Access) -> Option<Access> {
        let Access { channel, path, is_whole, item_parts, is_presence, numbers, fractions, texts } =
            access;
        let part = AccessedPart { channel, path, is_whole, item_parts, is_presence };
        let is_new = !self.0.contains_key(&part);
        let known = self.0.entry(part.clone()).or_default();
        let before = known.clone();
        known.numbers.extend(numbers);
        known.fractions.extend(fractions);
        known.texts.extend(texts);
        (is_new || *known != before).then(|| part.compared_with(known.clone()))
    }

    fn into_accesses(self) -> Vec<Access> {
        self.0.into_iter().map(|(part, constants)| part.compared_with(constants)).collect()
    }
}

impl AccessedPart {
    fn compared_with(self, constants: ComparedConstants) -> Access {
        let Self { channel, path, is_whole, item_parts, is_presence } = self;
        let ComparedConstants { numbers, fractions, texts } = constants;
        Access {
            channel,
            path,
            is_whole,
            item_parts,
            is_presence,
            numbers: numbers.into_iter().collect(),
            fractions: fractions.into_iter().collect(),
            texts: texts.into_iter().collect(),
        }
    }
}
