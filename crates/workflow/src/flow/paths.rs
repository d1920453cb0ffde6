//! Queries about the data flow, for one field at a time: whether it is always, sometimes or never
//! assigned, and on which way it is not.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use graphrun_analysis::flow_model::{Assigned, Bits, Ending, FlowModel, GapKind};
use graphrun_core::{
    graph::TriggerKind,
    id::{ChannelName, NodeName},
};

use crate::written::{Presence, Without};

/// The flow model of a workflow with the assignments on it.
#[derive(Debug)]
pub(crate) struct Paths {
    pub(super) net: FlowModel,
    pub(super) assigned: Assigned,
    pub(super) fields: BTreeMap<ChannelName, usize>,
    pub(super) names: Vec<NodeName>,
    /// The place of the name of each node.
    pub(super) places: Vec<Range<usize>>,
    pub(super) start: Range<usize>,
    pub(super) limit: Range<usize>,
}

impl Paths {
    pub(crate) fn field(&self, name: &str) -> Option<usize> {
        self.fields.get(name).copied()
    }

    pub(crate) fn before(&self, node: usize, field: usize) -> Presence {
        if self.assigned.surely_before(node).contains(field) {
            Presence::Always
        } else if !self.assigned.maybe_before(node).contains(field) {
            Presence::Never
        } else {
            Presence::Sometimes
        }
    }

    /// The fields that a node has assigned before any visit but the first since its count was last
    /// reset.
    pub(crate) fn written_again(&self, node: usize) -> Bits {
        self.net.written_again(node, self.assigned.surely_before(node))
    }

    pub(crate) fn after(&self, node: usize, field: usize) -> Presence {
        let itself = &self.net.nodes[node];
        if itself.surely.contains(field) {
            Presence::Always
        } else if itself.clears.contains(field) {
            if itself.maybe.contains(field) { Presence::Sometimes } else { Presence::Never }
        } else {
            match self.before(node, field) {
                Presence::Never if itself.maybe.contains(field) => Presence::Sometimes,
                before => before,
            }
        }
    }

    /// Describes a way through a node after which a field is not assigned.
    pub(crate) fn without_after(&self, node: usize, field: usize) -> Option<Without> {
        if self.net.nodes[node].clears.contains(field) {
            return Some(self.cleared(node));
        }
        let is_assigned_before = self.assigned.maybe_before(node).contains(field);
        is_assigned_before.then(|| self.without_before(node, field)).flatten()
    }

    fn cleared(&self, by: usize) -> Without {
        Without { place: self.places[by].clone(), text: "cleared here".to_owned() }
    }

    /// How the run may reach a node.
    pub(crate) fn triggers(&self, node: usize) -> BTreeSet<TriggerKind> {
        self.assigned.triggers(&self.net, node)
    }

    pub(crate) fn at_start(&self, field: usize) -> Presence {
        if self.net.surely_at_start.contains(field) {
            Presence::Always
        } else if self.net.maybe_at_start.contains(field) {
            Presence::Sometimes
        } else {
            Presence::Never
        }
    }

    /// Describes a way to a node on which a field is not assigned.
    pub(crate) fn without_before(&self, node: usize, field: usize) -> Option<Without> {
        let gap = self.assigned.gap(&self.net, node, field)?;
        let name = |it: usize| &self.names[it];
        let to = name(gap.to);
        let Some(from) = gap.from else {
            let (place, text) = match gap.kind {
                GapKind::Limit => (&self.limit, format!("a limit may lead to `{to}` before that")),
                _ if self.net.maybe_at_start.contains(field) => {
                    (&self.start, "the input may omit it".to_owned())
                }
                _ => (&self.start, "not written when the run starts".to_owned()),
            };
            return Some(Without { place: place.clone(), text });
        };
        let whence = format!("not written when the run reaches `{to}` from `{}`", name(from));
        let (place, text) = match gap.kind {
            GapKind::Unwritten(Ending::Finished | Ending::Chosen) | GapKind::Limit => {
                (from, whence)
            }
            GapKind::Unwritten(Ending::Caught) => (from, format!("{whence} by `catch`")),
            GapKind::Unwritten(Ending::Skipped) => {
                (from, format!("not written when `{}` is skipped", name(from)))
            }
            GapKind::Spent(spent) => {
                let spent = name(spent);
                (from, format!("{whence}, with `{spent}` used up"))
            }
            GapKind::Cleared(by) => return Some(self.cleared(by)),
        };
        Some(Without { place: self.places[place].clone(), text })
    }
}
