//! Breakpoints: places where a run stops on request.

use std::collections::BTreeSet;

use graphrun_core::{
    event::Status,
    graph::{Limits, RouteView},
    id::NodeName,
};

use super::{Action, Machine, settle::holds};
use crate::checkpoint::{Activation, InboxMessage, Outcome, TaskRecord};

/// Breakpoints between two steps, independent of the graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    /// Before a step in which one of these runs. No task of that step starts.
    #[doc(alias = "interrupt_before")]
    pub before: BTreeSet<NodeName>,
    /// After a step in which one of these ran. The whole step is saved.
    #[doc(alias = "interrupt_after")]
    pub after: BTreeSet<NodeName>,
}

/// The settings of a run apart from its graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Terms {
    /// The limits.
    pub limits: Limits,
    /// The breakpoints.
    pub pauses: Pauses,
    /// The inbox messages that are not processed yet, in the order of their numbers.
    pub messages: Vec<InboxMessage>,
}

impl From<Limits> for Terms {
    fn from(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }
}

impl Machine {
    /// Stops before the next step if there is a breakpoint. `records` are those of the previous step.
    pub(super) fn pause(&self, records: &[TaskRecord]) -> Option<Vec<Action>> {
        if self.position.frontier.is_empty() {
            return None;
        }
        let Pauses { before, after } = &self.terms.pauses;
        let ran = records.iter().filter(|it| match it.outcome {
            Outcome::Finished { .. } | Outcome::Caught { .. } => after.contains(&it.node),
            _ => false,
        });
        let next = self.position.frontier.iter();
        let next = next.filter(|it| before.contains(&it.node) && self.is_to_run(it));
        let ran: BTreeSet<&NodeName> = ran.map(|it| &it.node).collect();
        let next: BTreeSet<&NodeName> = next.map(|it| &it.node).collect();
        let words = |when: &str, nodes: BTreeSet<&NodeName>| {
            let names: Vec<String> = nodes.into_iter().map(|it| format!("`{it}`")).collect();
            (!names.is_empty()).then(|| format!("{when} {}", names.join(", ")))
        };
        let places: Vec<String> =
            words("after", ran).into_iter().chain(words("before", next)).collect();
        if places.is_empty() {
            return None;
        }
        let reason = Some(format!("breakpoint {}", places.join(" and ")));
        Some(vec![Action::Rest { status: Status::Paused, reason }])
    }

    /// Returns whether a task is not skipped. A task whose condition cannot be evaluated fails, so it counts
    /// as running.
    pub(super) fn is_to_run(&self, Activation { node, input, .. }: &Activation) -> bool {
        let view = RouteView { state: &self.state, visits: &self.visits, input };
        let when = self.graph.node(node).and_then(|it| it.when.as_ref());
        when.is_none_or(|it| !matches!(holds(it.as_ref(), &view), Ok(false)))
    }
}
