//! The fields that are written whenever a run ends.
//!
//! This analysis runs backwards. After a task, a field is written if the task must-assigns it, or
//! if one of the targets it reaches together writes it; of alternative choices, all must write it.
//! Every loop has a bound, so the largest such sets (the greatest fixed point) are correct. A run
//! that fails has no end in this sense.

use super::{Arrow, Bits, Decision, FlowModel, FlowNode, Outcome};

impl FlowModel {
    /// Returns the fields that are written in every run that finishes. A field that some node
    /// clears does not count, even if a node writes it again.
    pub fn written_at_end(&self) -> Bits {
        let after = self.written_after();
        let mut written = self.written_from_start(&after);
        if let Some(arrow) = self.after_limit {
            written.keep(&self.must_assign_at_start.clone().with(&self.led_to(arrow, &after)));
        }
        self.without_cleared(written)
    }

    /// Returns those that are written in every run that finishes before it reaches a limit.
    pub fn written_within_limits(&self) -> Bits {
        self.without_cleared(self.written_from_start(&self.written_after()))
    }

    fn without_cleared(&self, mut written: Bits) -> Bits {
        for node in &self.nodes {
            written.remove(&node.clears);
        }
        written
    }

    /// Returns the fields that are written from the start of each node to the end of the run.
    fn written_after(&self) -> Vec<Bits> {
        let mut after = vec![Bits::all(self.fields); self.nodes.len()];
        loop {
            let before = after.clone();
            for (at, node) in self.nodes.iter().enumerate() {
                after[at] = self.written_from(node, &before);
            }
            if after == before {
                return after;
            }
        }
    }

    fn written_from_start(&self, after: &[Bits]) -> Bits {
        let mut written = self.must_assign_at_start.clone();
        for first in &self.start {
            // No visits are used up at the start. The limits of a node may be, by an earlier call of a used workflow.
            let is_free = self.nodes[*first].bound.is_none_or(|it| !it.has_limits);
            let begun = || after[*first].clone();
            let led_to = || self.led_to(Arrow::Node(*first), after);
            written.add(&if is_free { begun() } else { led_to() });
        }
        written
    }

    fn written_from(&self, node: &FlowNode, after: &[Bits]) -> Bits {
        let mut written = Bits::all(self.fields);
        for outcome in &node.outcomes {
            written.keep(&self.written_by(node, outcome, after));
        }
        written
    }

    fn written_by(&self, node: &FlowNode, outcome: &Outcome, after: &[Bits]) -> Bits {
        let mut written = Bits::none(self.fields);
        if outcome.ending.has_written() {
            written.add(&node.must_assign);
        }
        for Decision { alternatives, .. } in &outcome.decisions {
            let mut chosen = Bits::all(self.fields);
            for alternative in alternatives {
                let mut together = Bits::none(self.fields);
                for arrow in &alternative.arrows {
                    together.add(&self.led_to(*arrow, after));
                }
                chosen.keep(&together);
            }
            written.add(&chosen);
        }
        written
    }

    fn led_to(&self, arrow: Arrow, after: &[Bits]) -> Bits {
        let node = match arrow {
            Arrow::Node(node) | Arrow::Tasks(node) => node,
            Arrow::Join(join) => self.joins[join].node,
            Arrow::End => return Bits::none(self.fields),
            Arrow::Fail => return Bits::all(self.fields),
        };
        let mut written = after[node].clone();
        // A bound may be used up. If that leads in a circle, `compile` refuses the graph.
        let mut next = self.nodes[node].bound;
        let mut left = self.nodes.len();
        while let Some(bound) = next.take_if(|_| left > 0) {
            left -= 1;
            match bound.exhausted {
                Arrow::Node(node) => {
                    written.keep(&after[node]);
                    next = self.nodes[node].bound;
                }
                Arrow::End => written = Bits::none(self.fields),
                Arrow::Fail | Arrow::Tasks(_) | Arrow::Join(_) => (),
            }
        }
        written
    }
}
