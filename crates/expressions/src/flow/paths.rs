//! Queries about the data flow, for one field at a time: whether it is always, sometimes or never
//! assigned, and on which path it is not.

use std::{collections::BTreeSet, sync::OnceLock};

use graphrun_analysis::flow_model::{
    AssignmentAfterVisit, Bits, DefiniteAssignment, Ending, GapKind,
};
use graphrun_core::graph::TriggerKind;

use super::{
    FlowParts,
    guarantee::Guarantees,
    success::SuccessFields,
    written::{AssignmentGap, Presence},
};

/// The flow model of a workflow with the assignments on it.
#[derive(Debug)]
pub(super) struct Paths {
    pub(super) flow: FlowParts,
    assigned: DefiniteAssignment,
    /// The fields that are assigned after a visit of each node. They take time to find, and few conditions ask for visits.
    visits: Vec<OnceLock<VisitFields>>,
    /// The same before each node itself, for its other visits.
    own_visits: Vec<OnceLock<OwnVisitFields>>,
}

/// The fields that are assigned once a node has been visited.
#[derive(Debug)]
struct VisitFields {
    since: AssignmentAfterVisit,
    /// After another visit.
    since_next: AssignmentAfterVisit,
}

/// The fields that are assigned before a node that has been visited before.
#[derive(Debug)]
struct OwnVisitFields {
    /// `None` if no path leads back to it.
    since: Option<Bits>,
    /// The fields that the node itself has assigned before any visit but the first since its count was last reset.
    by_itself: Bits,
}

impl Paths {
    pub(super) fn of(flow: FlowParts) -> Self {
        let assigned = DefiniteAssignment::of(&flow.model);
        let visits = flow.names.iter().map(|_| OnceLock::new()).collect();
        let own_visits = flow.names.iter().map(|_| OnceLock::new()).collect();
        Self { flow, assigned, visits, own_visits }
    }

    pub(super) fn is_called(&self, node: usize, name: &str) -> bool {
        self.flow.names[node].as_str() == name
    }

    pub(super) fn success(&self) -> &SuccessFields {
        &self.flow.success
    }

    pub(super) fn field(&self, name: &str) -> Option<usize> {
        self.flow.fields.get(name).copied()
    }

    /// Returns whether a node writes a field in every task, also if it is skipped.
    pub(super) fn always_writes(&self, node: usize, field: usize) -> bool {
        let node = &self.flow.model.nodes[node];
        let is_skippable = node.outcomes.iter().any(|it| it.ending == Ending::Skipped);
        node.must_assign.contains(field) && !is_skippable
    }

    /// Returns whether a field is assigned before a node, where some nodes have run.
    pub(super) fn before(&self, node: usize, field: usize, known: &Guarantees) -> Presence {
        let mut visited = known.visited();
        if self.assigned.must_be_assigned_before(node).contains(field)
            || visited.any(|(it, again)| self.follows(node, it, again, field))
        {
            Presence::Always
        } else if !self.assigned.may_be_assigned_before(node).contains(field) {
            // A missing edge may lead from a node that writes it.
            let may_follow = self.flow.lacks_edges
                && self.flow.model.nodes.iter().any(|it| it.may_assign.contains(field));
            if may_follow { Presence::Always } else { Presence::Never }
        } else {
            Presence::Sometimes
        }
    }

    /// Returns whether a field is assigned before a node because another one has run, or itself more than once.
    fn follows(&self, node: usize, visited: &str, is_again: bool, field: usize) -> bool {
        let Ok(visited) = self.flow.names.binary_search_by(|it| it.as_str().cmp(visited)) else {
            return false;
        };
        if visited == node && !is_again {
            return false;
        }
        // Without a path from the one to the other, a missing edge leads there.
        let has =
            |fields: Option<&Bits>| fields.map_or(self.flow.lacks_edges, |it| it.contains(field));
        // The last one of a node's own visits is the current one.
        if visited == node {
            let own = self.own_visits[node].get_or_init(|| OwnVisitFields {
                since: self.assigned.since_itself(&self.flow.model, node),
                by_itself: self.flow.model.written_by_itself(node),
            });
            return has(own.since.as_ref()) || own.by_itself.contains(field);
        }
        let fields = self.visits[visited].get_or_init(|| {
            let since = self.assigned.since(&self.flow.model, visited);
            let since_next = self.assigned.since_next(&self.flow.model, visited, &since);
            VisitFields { since, since_next }
        });
        let since = if is_again { &fields.since_next } else { &fields.since };
        has(since.must_be_assigned_before(node).as_ref())
    }

    /// Returns the guarantees that hold before a node, because routes have proved them.
    pub(super) fn proved_before(&self, node: usize) -> Guarantees {
        let must_assign = self.assigned.must_be_assigned_before(node);
        self.proved_in(|it| must_assign.contains(it))
    }

    /// Returns those of them that the node itself does not change.
    pub(super) fn proved_after(&self, node: usize) -> Guarantees {
        let (must_assign, ended) =
            (self.assigned.must_be_assigned_before(node), &self.flow.model.nodes[node].clears);
        self.proved_in(|it| must_assign.contains(it) && !ended.contains(it))
    }

    fn proved_in(&self, holds: impl Fn(usize) -> bool) -> Guarantees {
        let proved = self.flow.proved.iter().enumerate();
        let proved = proved
            .filter(|(at, _)| self.flow.has_incomplete_nodes || holds(self.flow.fields.len() + at));
        proved.map(|(_, guarantee)| guarantee.clone()).collect()
    }

    pub(super) fn after(&self, node: usize, field: usize, known: &Guarantees) -> Presence {
        let itself = &self.flow.model.nodes[node];
        let (before, may_assign) =
            (|| self.before(node, field, known), itself.may_assign.contains(field));
        let finished = if itself.must_assign.contains(field) {
            Presence::Always
        } else if itself.clears.contains(field) {
            if may_assign { Presence::Sometimes } else { Presence::Never }
        } else {
            match before() {
                Presence::Never if may_assign => Presence::Sometimes,
                before => before,
            }
        };
        // A node that is skipped leaves the field as it was, and its routes are evaluated, too.
        if self.may_be_skipped(node) && finished != before() {
            return Presence::Sometimes;
        }
        finished
    }

    fn may_be_skipped(&self, node: usize) -> bool {
        self.flow.model.nodes[node].outcomes.iter().any(|it| it.ending == Ending::Skipped)
    }

    /// Describes a path through a node after which a field is not assigned.
    pub(super) fn gap_after(&self, node: usize, field: usize) -> Option<AssignmentGap> {
        if self.may_be_skipped(node) && self.flow.model.nodes[node].must_assign.contains(field) {
            let text = format!("not written when `{}` is skipped", self.flow.names[node]);
            return Some(AssignmentGap { span: self.flow.spans[node].clone(), text, help: None });
        }
        if self.flow.model.nodes[node].clears.contains(field) {
            return Some(self.cleared(node));
        }
        let is_assigned_before = self.assigned.may_be_assigned_before(node).contains(field);
        is_assigned_before.then(|| self.gap_before(node, field)).flatten()
    }

    fn cleared(&self, by: usize) -> AssignmentGap {
        AssignmentGap {
            span: self.flow.spans[by].clone(),
            text: "cleared here".to_owned(),
            help: None,
        }
    }

    /// How the run may reach a node.
    pub(super) fn triggers(&self, node: usize) -> BTreeSet<TriggerKind> {
        self.assigned.triggers(&self.flow.model, node)
    }

    pub(super) fn at_start(&self, field: usize) -> Presence {
        if self.flow.model.must_assign_at_start.contains(field) {
            Presence::Always
        } else if self.flow.model.may_assign_at_start.contains(field) {
            Presence::Sometimes
        } else {
            Presence::Never
        }
    }

    /// Describes a path to a node on which a field is not assigned.
    pub(super) fn gap_before(&self, node: usize, field: usize) -> Option<AssignmentGap> {
        let gap = self.assigned.gap(&self.flow.model, node, field)?;
        let name = |it: usize| &self.flow.names[it];
        let to = name(gap.to);
        let Some(from) = gap.from else {
            let (span, text) = match gap.kind {
                GapKind::Cleared(by) => return Some(self.cleared(by)),
                GapKind::Limit => {
                    (&self.flow.limit, format!("a limit may lead to `{to}` before that"))
                }
                _ if self.flow.model.may_assign_at_start.contains(field) => {
                    (&self.flow.start, "the input may omit it".to_owned())
                }
                _ => (&self.flow.start, "not written when the run starts".to_owned()),
            };
            return Some(AssignmentGap { span: span.clone(), text, help: None });
        };
        let whence = format!("not written when the run reaches `{to}` from `{}`", name(from));
        let text = match gap.kind {
            GapKind::Unwritten(Ending::Finished | Ending::Chosen) | GapKind::Limit => whence,
            GapKind::Omitted => format!("`{}` may finish without writing it", name(from)),
            GapKind::Unwritten(Ending::Caught) => format!("{whence} by `catch`"),
            GapKind::Unwritten(Ending::Exhausted) => format!("{whence} by `exhausted`"),
            GapKind::Unwritten(Ending::Skipped) => {
                format!("not written when `{}` is skipped", name(from))
            }
            GapKind::Spent(spent) => format!("{whence}, with `{}` used up", name(spent)),
            GapKind::Cleared(by) => return Some(self.cleared(by)),
        };
        let help = self.wait_for_writer(from, gap.to, field);
        Some(AssignmentGap { span: self.flow.spans[from].clone(), text, help })
    }

    /// Advises how the node `to` waits for the branches beside `from`, which leads to it, if one of them writes a field.
    fn wait_for_writer(&self, from: usize, to: usize, field: usize) -> Option<String> {
        if self.flow.model.nodes[to].defers.is_some()
            || !self.assigned.is_written_beside(&self.flow.model, from, field)
        {
            return None;
        }
        let name = &self.flow.names[to];
        let has_join =
            self.flow.model.joins.iter().any(|it| it.node == to && it.count < it.awaited.len());
        Some(if has_join {
            format!(
                "a `join` with `count` leaves some branches out: to wait for all that run, give `{name}` \
                 `defer: true` in its place"
            )
        } else {
            format!(
                "to wait for all branches that run, give `{name}` `defer: true`, or a `join` of them"
            )
        })
    }
}
