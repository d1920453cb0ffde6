//! Nodes of which only some run: their conditions (`when`) exclude each other.
//!
//! A node that is skipped counts as visited, because it leads on; but it takes no calls and no time. So the work of nodes
//! whose conditions exclude each other is not added up, where all of them are decided by the same values:
//! - Nodes that are visited in the same steps see the same state. In each step, one of them runs at most.
//! - If nothing writes the fields of the conditions once one of the nodes is reached, the same one runs in the whole run.
//!
//! **Example.** `sort` writes `kind`, and leads to `bug` (`when: kind == "bug"`), which leads to `idea` (`when: kind == "idea"`).
//! Each of them may ask a model once. `sort` runs once, before both, so the two ask a model once together.

use std::collections::BTreeMap;

use graphrun_core::{
    graph::{Condition, Graph},
    id::{ChannelName, NodeName},
};

use super::{steps::plain_predecessors, tokens::Tokens};

/// The most conditions that are compared with each other.
const CONDITIONS_MAX: usize = 40;

/// Nodes of which one runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Alternatives {
    /// The nodes; at least two.
    pub(super) nodes: Vec<usize>,
    /// Whether one of them runs in each step, and not the same one in the whole run.
    pub(super) in_each_step: bool,
}

/// A node with a condition.
#[derive(Clone, Copy)]
struct Conditional<'a> {
    node: usize,
    name: &'a NodeName,
    when: &'a dyn Condition,
}

/// Returns the alternatives of a graph. A node may be in two of them, of different kinds.
pub(super) fn find(graph: &Graph, tokens: &Tokens<'_>, visits_max: &[u64]) -> Vec<Alternatives> {
    let mut all: Vec<Conditional<'_>> = Vec::new();
    for (node, (name, spec)) in graph.nodes.iter().enumerate() {
        let Some(when) = spec.when.as_deref().filter(|it| it.reads().is_some()) else { continue };
        if !tokens.is_dispatched(node) && visits_max[node] > 0 {
            all.push(Conditional { node, name, when });
        }
    }
    if all.len() < 2 || all.len() > CONDITIONS_MAX {
        return Vec::new();
    }
    let predecessors = plain_predecessors(graph);
    let mut alike: BTreeMap<_, Vec<Conditional<'_>>> = BTreeMap::new();
    for it in &all {
        if let Some(before) = predecessors.get(it.name) {
            alike.entry(before).or_default().push(*it);
        }
    }
    let in_each_step = alike.into_values().flat_map(|it| groups(&it, true));
    let settled: Vec<Conditional<'_>> = settled(graph, tokens, visits_max, all);
    in_each_step.chain(groups(&settled, false)).collect()
}

/// Returns groups of nodes whose conditions all exclude each other.
fn groups(all: &[Conditional<'_>], in_each_step: bool) -> Vec<Alternatives> {
    let mut groups: Vec<Vec<Conditional<'_>>> = Vec::new();
    for it in all {
        let excludes_all = |group: &&mut Vec<Conditional<'_>>| {
            group.iter().all(|other| it.when.excludes(other.when))
        };
        match groups.iter_mut().find(excludes_all) {
            Some(group) => group.push(*it),
            None => groups.push(vec![*it]),
        }
    }
    let several = groups.into_iter().filter(|it| it.len() > 1);
    let nodes = |group: Vec<Conditional<'_>>| group.into_iter().map(|it| it.node).collect();
    several.map(|it| Alternatives { nodes: nodes(it), in_each_step }).collect()
}

/// Returns the nodes whose conditions have the same result whenever they are decided: each writer of their fields runs
/// once, and before the node.
fn settled<'a>(
    graph: &Graph,
    tokens: &Tokens<'_>,
    visits_max: &[u64],
    all: Vec<Conditional<'a>>,
) -> Vec<Conditional<'a>> {
    let writers = Writers::of(graph);
    let is_settled = |conditional: &Conditional<'_>| {
        let Some(reads) = conditional.when.reads() else { return false };
        let fits = |writer: usize| {
            visits_max[writer] <= 1 && tokens.before.is_strictly_below(conditional.node, writer)
        };
        let is_sent = |it: &ChannelName| graph.inbox.contains(it);
        !reads.iter().any(is_sent) && writers.find(reads).all(fits)
    };
    all.into_iter().filter(is_settled).collect()
}

/// The nodes that may change each field.
#[derive(Debug)]
pub(super) struct Writers<'g> {
    of_field: BTreeMap<&'g ChannelName, Vec<usize>>,
    /// Those that may change any field.
    of_all: Vec<usize>,
}

impl<'g> Writers<'g> {
    pub(super) fn of(graph: &'g Graph) -> Self {
        let mut writers = Self { of_field: BTreeMap::new(), of_all: Vec::new() };
        for (node, spec) in graph.nodes.values().enumerate() {
            let Some(writes) = &spec.describe().contract.writes else {
                writers.of_all.push(node);
                continue;
            };
            let policies = &spec.policies;
            let failed = policies.schedule.items.as_ref().and_then(|it| it.failed.as_ref());
            let others = policies.on_finish.cleared().chain(failed);
            for field in writes.iter().chain(others) {
                writers.of_field.entry(field).or_default().push(node);
            }
        }
        writers
    }

    /// Returns the nodes that may change one of these fields.
    pub(super) fn find(&self, fields: &[ChannelName]) -> impl Iterator<Item = usize> {
        let of_fields = fields.iter().filter_map(|it| self.of_field.get(it)).flatten();
        of_fields.chain(&self.of_all).copied()
    }
}
