//! What must hold of the flow of data: nothing is read that nothing has written.

use std::collections::{BTreeMap, BTreeSet};

use super::ways;
use crate::{
    diagnostic::{Diagnostic, Diagnostics},
    graph::Graph,
    id::{ChannelName, NodeName},
};

/// What is known of the state before a node runs.
type Written = BTreeSet<ChannelName>;

/// Checks that what a node must read may have been written before it runs, by some way at least.
///
/// A node that does not say what it writes may write everything.
pub(super) fn run(graph: &Graph, findings: &mut Diagnostics) {
    let before = possibly_written(graph);
    for (name, spec) in &graph.nodes {
        for read in spec.node.contract().reads.into_iter().flatten() {
            if read.required && !before[name].contains(&read.channel) {
                let channel = &read.channel;
                let message = format!("`{name}` reads `{channel}`, which nothing writes before it");
                let finding = Diagnostic::error("GR035", message);
                let finding = finding.at(spec.place.clone(), "reads it");
                findings.push(finding.help(format!(
                    "make `{channel}` an input, give it a default, or let an earlier node write it"
                )));
            }
        }
    }
}

fn possibly_written(graph: &Graph) -> BTreeMap<&NodeName, Written> {
    let all: Written = graph.schema.channels().iter().map(|it| it.name().clone()).collect();
    let mut start: Written = graph.input.iter().cloned().collect();
    let defaults = graph.schema.channels().iter().filter(|it| it.default().is_some());
    start.extend(defaults.map(|it| it.name().clone()));

    let ways = ways(graph, |_, _| true);
    let mut before: BTreeMap<&NodeName, Written> =
        graph.nodes.keys().map(|it| (it, start.clone())).collect();
    let mut open: Vec<&NodeName> = graph.nodes.keys().collect();
    while let Some(name) = open.pop() {
        let mut after = before[name].clone();
        after.extend(
            graph.nodes[name]
                .node
                .contract()
                .writes
                .unwrap_or_else(|| all.iter().cloned().collect()),
        );
        for next in ways.neighbors(name) {
            let known = before.entry(next).or_default();
            let fresh: Vec<ChannelName> = after.difference(known).cloned().collect();
            if !fresh.is_empty() {
                known.extend(fresh);
                open.push(next);
            }
        }
    }
    before
}
