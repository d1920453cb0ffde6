//! Checks of the data flow: no node reads a field that may be unwritten.

use crate::flow_model::{Assigned, Ending, FlowModel, Gap, GapKind, field_numbers};
use graphrun_core::{
    diagnostic::{Diagnostic, Diagnostics},
    graph::Graph,
    id::NodeName,
};

/// Checks definite assignment: each field that a node must read was written before, on every way to
/// the node.
///
/// A node without declared writes counts as writing all fields.
pub(super) fn run(graph: &Graph, model: &FlowModel, findings: &mut Diagnostics) {
    let fields = field_numbers(&graph.schema);
    let assigned = Assigned::of(model);
    let names: Vec<&NodeName> = graph.nodes.keys().collect();
    for (at, (name, spec)) in graph.nodes.iter().enumerate() {
        for read in
            spec.node.describe().contract.reads.into_iter().flatten().filter(|it| it.required)
        {
            let channel = &read.channel;
            let Some(&field) = fields.get(channel) else { continue };
            if assigned.must_be_assigned_before(at).contains(field) {
                continue;
            }
            let help = format!(
                "make `{channel}` an input, give it a default, or let an earlier node write it"
            );
            let finding = if assigned.may_be_assigned_before(at).contains(field) {
                let gap = assigned.gap(model, at, field);
                let message =
                    format!("`{name}` reads `{channel}`, which {}", way(&names, gap.as_ref()));
                Diagnostic::error("GR130", message)
            } else {
                let message = format!("`{name}` reads `{channel}`, which nothing writes before it");
                Diagnostic::error("GR035", message)
            };
            findings.push(finding.at(spec.place.clone(), "reads it").help(help));
        }
    }
}

/// Returns the way on which a field is unwritten, in words.
fn way(names: &[&NodeName], gap: Option<&Gap>) -> String {
    let Some(Gap { from, to, kind }) = gap else {
        return "not every path to it writes".to_owned();
    };
    let to = names[*to];
    match (from.map(|it| names[it]), kind) {
        (_, GapKind::Limit) => format!("may be unwritten when a limit leads to `{to}`"),
        (_, GapKind::Cleared(by)) => format!("`{}` clears", names[*by]),
        (None, _) => format!("is not written when the run starts at `{to}`"),
        (Some(from), GapKind::Spent(spent)) => {
            let spent = names[*spent];
            format!("is not written when `{to}` comes after `{from}`, with `{spent}` used up")
        }
        (Some(from), GapKind::Unwritten(Ending::Finished | Ending::Chosen)) => {
            format!("is not written when `{to}` comes after `{from}`")
        }
        (Some(from), GapKind::Unwritten(Ending::Caught)) => {
            format!("is not written when `{from}` fails and `catch` leads to `{to}`")
        }
        (Some(from), GapKind::Unwritten(Ending::Exhausted)) => {
            format!("is not written when `{from}` reaches a limit and `exhausted` leads to `{to}`")
        }
        (Some(from), GapKind::Unwritten(Ending::Skipped)) => {
            format!("is not written when `{from}` is skipped, because `{from}` writes it")
        }
    }
}
