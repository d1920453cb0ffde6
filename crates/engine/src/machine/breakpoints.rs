//! Breakpoints: places where a run stops on request.

use std::collections::BTreeSet;

use graphrun_core::{id::NodeName, words::quoted_list};

/// Breakpoints between two steps, independent of the graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breakpoints {
    /// Before a step in which one of these runs. No task of that step starts.
    #[doc(alias = "interrupt_before")]
    pub before: BTreeSet<NodeName>,
    /// After a step in which one of these ran. The whole step is saved.
    #[doc(alias = "interrupt_after")]
    pub after: BTreeSet<NodeName>,
}

impl Breakpoints {
    /// Returns whether there is no breakpoint.
    pub fn is_empty(&self) -> bool {
        self.before.is_empty() && self.after.is_empty()
    }

    /// Describes the breakpoints between a step in which some nodes ran and the tasks that are next, by their index.
    pub(super) fn between<'a>(
        &self,
        ran: impl Iterator<Item = &'a NodeName>,
        next: impl Iterator<Item = (&'a NodeName, usize)>,
        will_run: impl Fn(usize) -> bool,
    ) -> Option<String> {
        let ran: BTreeSet<&NodeName> = ran.filter(|&it| self.after.contains(it)).collect();
        // A condition is evaluated only where a breakpoint depends on it.
        let next = next.filter(|(node, index)| self.before.contains(*node) && will_run(*index));
        let next: BTreeSet<&NodeName> = next.map(|it| it.0).collect();
        let places: Vec<String> = [("after", ran), ("before", next)]
            .into_iter()
            .filter(|(_, nodes)| !nodes.is_empty())
            .map(|(when, nodes)| format!("{when} {}", quoted_list(nodes)))
            .collect();
        (!places.is_empty()).then(|| format!("breakpoint {}", places.join(" and ")))
    }
}
