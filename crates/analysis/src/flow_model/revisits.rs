//! Definite assignment across visits: the fields that a node has written before it runs again.

use super::{Arrow, Assigned, Bits, Ending, FlowModel};

impl FlowModel {
    /// Returns the fields that are written at each visit of a node after the first since its count was last reset:
    /// those that the node itself has written, and if the workflow does one thing at a time, those that are written
    /// on every way from the node back to it. `before` are the fields that are written before any visit.
    pub fn written_again(&self, node: usize, before: &Bits) -> Bits {
        let mut written = self.written_by_itself(node);
        if self.is_sequential() && !self.lead_to(self.after_limit.into_iter().collect(), node) {
            written.add(&self.written_around(node, before));
        }
        written
    }

    /// Returns whether at most one task runs at a time.
    fn is_sequential(&self) -> bool {
        let defers = self.nodes.iter().any(|it| it.defers.is_some());
        self.start.len() == 1 && self.joins.is_empty() && !defers && self.forks().is_empty()
    }

    /// Returns the fields that every way from a node back to it has written, in a workflow without concurrent tasks:
    /// the data flow of a run that begins at the node.
    fn written_around(&self, node: usize, before: &Bits) -> Bits {
        let begins_there = Self {
            start: vec![node],
            after_limit: None,
            surely_at_start: before.clone(),
            maybe_at_start: Bits::all(self.fields),
            ..self.clone()
        };
        Assigned::of(&begins_there).written_along_lines_into(node, self.fields)
    }

    /// Returns the fields that a node has written by each visit after the first, and that no other node clears. These
    /// are the fields that it must-assigns, if its earlier visits must have finished.
    ///
    /// The way to the node makes no difference then, because all ways share one state.
    fn written_by_itself(&self, node: usize) -> Bits {
        if !self.must_have_finished(node) {
            return Bits::none(self.fields);
        }
        let mut written = self.nodes[node].surely.clone();
        for (_, other) in self.nodes.iter().enumerate().filter(|(at, _)| *at != node) {
            written.remove(&other.clears);
        }
        written
    }

    /// Returns whether a visit of a node that does not finish must be its last one.
    fn must_have_finished(&self, node: usize) -> bool {
        if self.nodes.iter().any(|it| it.arrows().any(|it| it == Arrow::Tasks(node))) {
            // One step may contain several visits.
            return false;
        }
        let unfinished = self.nodes[node].outcomes.iter().filter(|it| !it.ending.has_written());
        let mut left: Vec<usize> = self.after_limit.into_iter().collect();
        for outcome in unfinished {
            if outcome.ending == Ending::Skipped || self.lead_to(self.forks(), node) {
                // A skipped node may be reached again, and a concurrent node may lead to it.
                return false;
            }
            let arrows = outcome.alternatives().flat_map(|it| &it.arrows);
            left.extend(arrows.filter_map(|it| self.node_of(*it)));
        }
        !self.lead_to(left, node)
    }

    /// Returns whether a way leads from one of these nodes to another; a node always reaches
    /// itself.
    fn lead_to(&self, from: Vec<usize>, to: usize) -> bool {
        let mut seen = Bits::none(self.nodes.len());
        let mut open: Vec<usize> = from.into_iter().filter(|it| seen.insert(*it)).collect();
        while let Some(at) = open.pop() {
            let node = &self.nodes[at];
            let arrows = node.arrows().chain(node.bound.map(|it| it.exhausted));
            open.extend(arrows.filter_map(|it| self.node_of(it)).filter(|it| seen.insert(*it)));
        }
        seen.contains(to)
    }

    fn node_of(&self, arrow: Arrow) -> Option<usize> {
        match arrow {
            Arrow::Node(to) | Arrow::Tasks(to) => Some(to),
            Arrow::Join(join) => Some(self.joins[join].node),
            Arrow::End | Arrow::Fail => None,
        }
    }
}
