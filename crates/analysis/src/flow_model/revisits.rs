//! Definite assignment across visits: the fields that a node itself has written before it runs again.

use super::{Arrow, Bits, Ending, FlowModel};

impl FlowModel {
    /// Returns the fields that a node has written by each visit after the first, and that no other node clears. These
    /// are the fields that it must-assigns, if its earlier visits must have finished.
    ///
    /// The path to the node makes no difference then, because all paths share one state.
    pub fn written_by_itself(&self, node: usize) -> Bits {
        if !self.must_have_finished(node) {
            return Bits::none(self.fields);
        }
        let mut written = self.nodes[node].must_assign.clone();
        for (_, other) in self.nodes.iter().enumerate().filter(|(at, _)| *at != node) {
            written.remove(&other.clears);
        }
        written
    }

    /// Returns whether a visit of a node that does not finish must be its last one.
    fn must_have_finished(&self, node: usize) -> bool {
        if self.nodes.iter().any(|other| other.arrows().any(|it| it == Arrow::Tasks(node))) {
            // One step may contain several visits.
            return false;
        }
        let unfinished = self.nodes[node].outcomes.iter().filter(|it| !it.ending.has_written());
        let mut left: Vec<usize> = self.node_after_limit().into_iter().collect();
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

    /// Returns whether a path leads from one of these nodes to another; a node always reaches
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
