//! Checks of the data flow: no node reads a field that may be unwritten.

use crate::flow_model::{DefiniteAssignment, Ending, FlowModel, Gap, GapKind, field_numbers};
use graphrun_core::{
    diagnostic::{Diagnostic, Diagnostics},
    graph::{Edge, Graph, NodeSpec},
    id::{ChannelName, NodeName},
};

/// A field that must be written before a node, its route or its condition reads it.
pub(super) struct FieldNeed {
    /// The index of the node.
    pub(super) node: usize,
    pub(super) channel: ChannelName,
    reader: Reader,
}

/// The reader of a field.
#[derive(Clone, Copy)]
enum Reader {
    Node,
    Condition,
    /// A route reads the state with the writes of its node, or without them if the node was skipped.
    Route {
        is_skippable: bool,
    },
}

impl FieldNeed {
    /// Returns all needs of a graph.
    pub(super) fn all(graph: &Graph) -> Vec<Self> {
        let mut all = Vec::new();
        for (node, (name, spec)) in graph.nodes.iter().enumerate() {
            let mut add = |reader, channel| all.push(Self { node, channel, reader });
            let reads = spec.describe().contract.reads.iter().flatten();
            reads.filter(|it| it.required).for_each(|it| add(Reader::Node, it.channel.clone()));
            let condition = spec.when.iter().flat_map(|it| it.needs());
            condition.for_each(|it| add(Reader::Condition, it.clone()));
            for edge in &graph.edges {
                if let Edge::Route { from, route, .. } = edge
                    && from == name
                {
                    let reader = Reader::Route { is_skippable: spec.when.is_some() };
                    route.needs().iter().for_each(|it| add(reader, it.clone()));
                }
            }
        }
        all
    }

    /// Returns the needs that the reader of a file has checked already.
    pub(super) fn checked(graph: &Graph) -> impl Iterator<Item = Self> {
        graph.nodes.values().enumerate().flat_map(|(node, spec)| {
            let channels = spec.relies_on.iter().cloned();
            channels.map(move |channel| Self { node, channel, reader: Reader::Node })
        })
    }

    /// Returns whether the field is written on each path to the reader.
    pub(super) fn is_met(
        &self,
        model: &FlowModel,
        assigned: &DefiniteAssignment,
        field: usize,
    ) -> bool {
        let before = assigned.must_be_assigned_before(self.node).contains(field);
        let node = &model.nodes[self.node];
        match self.reader {
            Reader::Node | Reader::Condition => before,
            Reader::Route { is_skippable } => {
                (before || !is_skippable)
                    && (node.must_assign.contains(field) || before && !node.clears.contains(field))
            }
        }
    }

    /// Returns the reader in words.
    fn reader(&self, node: &NodeName) -> String {
        match self.reader {
            Reader::Node => format!("`{node}`"),
            Reader::Condition => format!("the condition of `{node}`"),
            Reader::Route { .. } => format!("the route of `{node}`"),
        }
    }
}

/// Checks definite assignment: each field that a node, its route or its condition must read was written before, on every
/// path to it.
///
/// A node without declared writes counts as writing all fields.
pub(super) fn run(graph: &Graph, model: &FlowModel, diagnostics: &mut Diagnostics) {
    let fields = field_numbers(&graph.schema);
    let assigned = DefiniteAssignment::of(model);
    let (names, specs): (Vec<&NodeName>, Vec<&NodeSpec>) = graph.nodes.iter().unzip();
    for need in FieldNeed::all(graph) {
        let at = need.node;
        let channel = &need.channel;
        let Some(&field) = fields.get(channel) else { continue };
        if need.is_met(model, &assigned, field) {
            continue;
        }
        let reader = need.reader(names[at]);
        let help = format!(
            "make `{channel}` an input, give it a default, or let an earlier node write it"
        );
        let node = &model.nodes[at];
        let is_before = assigned.may_be_assigned_before(at).contains(field);
        let is_route = matches!(need.reader, Reader::Route { .. });
        let by_itself = is_route && node.may_assign.contains(field);
        let is_cleared = is_route
            && node.clears.contains(field)
            && assigned.must_be_assigned_before(at).contains(field);
        let diagnostic = if is_before || by_itself {
            let gap = if is_cleared {
                Some(Gap { from: None, to: at, kind: GapKind::Cleared(at) })
            } else {
                is_before.then(|| assigned.gap(model, at, field)).flatten()
            };
            let message =
                format!("{reader} reads `{channel}`, which {}", described(&names, gap.as_ref()));
            Diagnostic::error("GR130", message)
        } else {
            let message = format!("{reader} reads `{channel}`, which nothing writes before it");
            Diagnostic::error("GR035", message)
        };
        diagnostics.push(diagnostic.at(specs[at].span.clone(), "reads it").help(help));
    }
}

/// Returns the gap where a field is unwritten, in words.
fn described(names: &[&NodeName], gap: Option<&Gap>) -> String {
    let Some(Gap { from, to, kind }) = gap else {
        return "not every path to it writes".to_owned();
    };
    let to = names[*to];
    match (from.map(|it| names[it]), kind) {
        (_, GapKind::Limit) => format!("may be unwritten when a limit leads to `{to}`"),
        (_, GapKind::Cleared(by)) => format!("`{}` clears", names[*by]),
        (None, _) => format!("is not written when the run starts at `{to}`"),
        (Some(from), GapKind::Omitted) => format!("`{from}` may leave unwritten"),
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
