//! The decisions that the tried values may not show both results of.
//!
//! The exploration tries constants of conditions and values beside them. That is enough for `score >= 8` and `verdict == "good"`,
//! but not for `title.matches("^A")` or `a + b == 7`. A decision of the second kind counts if a value that the exploration chooses can
//! reach it, directly or through computations. The search then claims of no node that nothing leads to it.

use std::collections::BTreeSet;

use super::leaves::all_of;
use crate::{
    graph::{AccessSet, Edge, Graph},
    id::ChannelName,
    state::{Channel, NumberRange},
    workflow::{
        Workflow,
        case_file::{ComputedField, accesses, computed},
    },
};

/// Returns a description of each decision that the tried values may not show both results of.
pub(super) fn undecided(definition: &Workflow, graph: &Graph) -> Vec<String> {
    let computed = computed(definition, graph);
    let mut chosen = chosen(graph, &computed);
    let accesses = accesses(definition, graph);
    let mut found = BTreeSet::new();
    let reads = |set: &AccessSet, chosen: &BTreeSet<ChannelName>| {
        set.fields.iter().any(|it| !it.is_presence && chosen.contains(&it.channel))
            || !set.item_paths.is_empty()
    };
    // A field that is computed from a chosen value varies with it.
    loop {
        let known = chosen.len();
        let varies = |it: &&ComputedField| it.from.reads_facts || reads(&it.from, &chosen);
        for it in computed.iter().filter(varies).cloned().collect::<Vec<_>>() {
            let has_others = it.from.reads_facts || it.from.is_opaque && !it.is_copy;
            if has_others && accesses.iter().any(|read| read.channel == it.to) {
                found.insert(format!(
                    "every value of `{}` that `{}` can compute: the tried values are few of many",
                    it.to, it.node
                ));
            }
            chosen.insert(it.to);
        }
        if chosen.len() == known {
            break;
        }
    }
    for edge in &graph.edges {
        let Edge::Route { from, route, .. } = edge else { continue };
        let set = route.access_set();
        if set.as_ref().is_none_or(|it| it.is_opaque && reads(it, &chosen)) {
            found.insert(format!(
                "every target of the route of `{from}`: it does more than compare values with constants"
            ));
        } else if set.is_some_and(|it| it.reads_facts) {
            found.insert(format!(
                "every target of the route of `{from}`: it reads facts of the run"
            ));
        }
    }
    for (name, spec) in &graph.nodes {
        let Some(condition) = &spec.when else { continue };
        let set = condition.access_set();
        if set.as_ref().is_none_or(|it| it.is_opaque && reads(it, &chosen)) {
            found.insert(format!(
                "both results of `when` of `{name}`: it does more than compare values with constants"
            ));
        } else if set.is_some_and(|it| it.reads_facts) {
            found.insert(format!("both results of `when` of `{name}`: it reads facts of the run"));
        }
    }
    for (name, spec) in &graph.nodes {
        let field = spec.policies.bounds.visits_field.as_ref();
        let has_few = |field: &ChannelName| {
            let channel = graph.schema.channel(field.as_str());
            let range = channel.and_then(|it| it.ty().required().range());
            range.and_then(all_of).is_some()
        };
        if let Some(field) = field.filter(|it| chosen.contains(*it) && !has_few(it)) {
            found.insert(format!(
                "every bound of `{name}`: `{field}` has more values than are tried"
            ));
        }
    }
    found.into_iter().collect()
}

/// Returns a description of each sum that may leave its range after more updates than are tried. The updates that a
/// workflow computes are checked when it is loaded.
pub(super) fn sums_in_a_range(definition: &Workflow, graph: &Graph) -> Vec<String> {
    let computed = computed(definition, graph);
    let adds_chosen = |field: &ChannelName| {
        graph.nodes.iter().any(|(name, spec)| {
            let writes = &spec.describe().contract.writes;
            let computes = computed.iter().any(|of| of.node == *name && of.to == *field);
            writes.as_ref().is_some_and(|it| it.contains(field)) && !computes
        })
    };
    let has_range = |channel: &&Channel| {
        let range = channel.ty().required().range().unwrap_or_default();
        channel.reducer().adds() && range != NumberRange::ALL && adds_chosen(channel.name())
    };
    let sums = graph.schema.channels().iter().filter(has_range);
    sums.map(|channel| {
        format!("every sum of `{}`: more updates may lead out of its range", channel.name())
    })
    .collect()
}

/// Returns the fields whose values the exploration chooses: inputs, messages, failures of items, and what a node writes that
/// does not only compute.
fn chosen(graph: &Graph, computed: &[ComputedField]) -> BTreeSet<ChannelName> {
    let mut chosen: BTreeSet<ChannelName> =
        graph.input.iter().chain(&graph.inbox).cloned().collect();
    for (name, spec) in &graph.nodes {
        let writes = spec.describe().contract.writes.iter().flatten();
        let computes =
            |it: &ChannelName| computed.iter().any(|of| of.node == *name && of.to == *it);
        chosen.extend(writes.filter(|it| !computes(it)).cloned());
        let items = spec.policies.schedule.items.as_ref();
        chosen.extend(items.and_then(|it| it.failed.clone()));
    }
    chosen
}
