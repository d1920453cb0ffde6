//! Whether one join may wait forever, where the whole graph has too many situations to explore.
//!
//! If a join waits forever, one of its nodes has arrived and another one has not. So for each of them, beside the first one, this
//! explores a projection of the model: the two nodes, the nodes that lead to them, and the join, which awaits the two only. Other
//! nodes end at once, so the branches of a wide fork are explored one by one instead of in all combinations.
//!
//! **Example.** `plan` leads to ten branches, and each of them may take a step more before `merge`. That makes 1,024 sets of
//! branches that have arrived, but only a few situations of the first two branches.
//!
//! **Soundness.** No node outside the projection leads into it, except through the join. The join may run in any step
//! after the two arrivals, because the others may arrive late. So each run of the graph is a run of the projection too.
//! Nodes that act otherwise on the projection belong to it: those that leave a used workflow with a node of it, and those that a
//! deferred node of it waits for.
//!
//! **Limits.** The rounds of joins that do not wait for all depend on all tasks, so a projection with such a join decides nothing.
//! All choices are independent here, because the tasks outside may change what routes read.

use super::{
    Arrow, Bits, FlowModel, FlowNode, Join, Outcome,
    choices::failing_nodes,
    explore::{JoinVerdict, check_join},
};

/// Checks one join in projections of the model.
pub fn check_join_alone(model: &FlowModel, join: usize) -> JoinVerdict {
    if model.joins[join].count == 1 {
        // It never waits after an arrival.
        return JoinVerdict::Completes;
    }
    let awaited = &model.joins[join].awaited;
    let Some((first, others)) = awaited.split_first() else { return JoinVerdict::Completes };
    let projector = Projector::new(model, join);
    let mut verdict = JoinVerdict::Completes;
    for other in others {
        let projection = projector.project([*first, *other]);
        match projection.map_or(JoinVerdict::Unknown, |it| check_join(&it, join)) {
            JoinVerdict::Completes => (),
            JoinVerdict::Unknown => verdict = JoinVerdict::Unknown,
            starves @ JoinVerdict::Starves(_) => return starves,
        }
    }
    verdict
}

struct Projector<'a> {
    model: &'a FlowModel,
    join: usize,
    /// The nodes that lead to each node, other than through the join.
    before: Vec<Vec<usize>>,
    failing: Bits,
}

impl<'a> Projector<'a> {
    fn new(model: &'a FlowModel, join: usize) -> Self {
        let mut before = vec![Vec::new(); model.nodes.len()];
        for (from, node) in model.nodes.iter().enumerate() {
            let exhausted = node.bound.map(|it| it.exhausted);
            for arrow in node.arrows().chain(exhausted) {
                match arrow {
                    Arrow::Node(to) | Arrow::Tasks(to) => before[to].push(from),
                    Arrow::Join(it) if it != join => before[model.joins[it].node].push(from),
                    Arrow::Join(_) | Arrow::End | Arrow::Fail => (),
                }
            }
        }
        Self { model, join, before, failing: failing_nodes(model) }
    }

    /// Returns the projection for two awaited nodes, unless it depends on nodes outside of it.
    fn project(&self, pair: [usize; 2]) -> Option<FlowModel> {
        let kept = self.kept(pair);
        let is_partial = |(at, join): (usize, &Join)| {
            join.is_partial() && (at == self.join || kept.contains(join.node))
        };
        if self.model.joins.iter().enumerate().any(is_partial) {
            return None;
        }
        let mut model = FlowModel {
            joins: self.model.joins.clone(),
            scopes: self.model.scopes.clone(),
            start: self.model.start.clone(),
            after_limit: self.model.after_limit,
            ..FlowModel::default()
        };
        model.joins[self.join].awaited = pair.to_vec();
        model.joins[self.join].count = 2;
        let node = |(at, node)| {
            if kept.contains(at) {
                self.node(at, node, &kept, pair)
            } else {
                FlowNode { outcomes: vec![Outcome::finished(Vec::new())], ..FlowNode::new(0) }
            }
        };
        model.nodes = self.model.nodes.iter().enumerate().map(node).collect();
        Some(model)
    }

    /// Returns the nodes of a projection.
    fn kept(&self, pair: [usize; 2]) -> Bits {
        let mut kept = Bits::none(self.model.nodes.len());
        let mut open = pair.to_vec();
        loop {
            while let Some(at) = open.pop() {
                if kept.insert(at) {
                    open.extend(&self.before[at]);
                    open.extend(self.model.nodes[at].defers.iter().flat_map(|it| it.first.iter()));
                }
            }
            open.extend(self.leaving(&kept));
            open.retain(|it| !kept.contains(*it));
            if open.is_empty() {
                return kept;
            }
        }
    }

    /// Returns the nodes that leave a used workflow with nodes of the projection, and drop their tasks; each with its
    /// target.
    fn leaving(&self, kept: &Bits) -> Vec<usize> {
        let waits = self.model.joins[self.join].node;
        let mut found = Vec::new();
        for scope in &self.model.scopes {
            if !(scope.nodes.meets(kept) || scope.nodes.contains(waits)) {
                continue;
            }
            for from in scope.nodes.iter().filter(|it| !scope.last.contains(it)) {
                for arrow in self.model.nodes[from].arrows() {
                    if let Arrow::Node(to) = arrow
                        && !scope.nodes.contains(to)
                    {
                        found.extend([from, to]);
                    }
                }
            }
        }
        found
    }

    fn node(&self, at: usize, node: &FlowNode, kept: &Bits, pair: [usize; 2]) -> FlowNode {
        let arrow = |it: Arrow| match it {
            Arrow::Node(to) | Arrow::Tasks(to) if self.failing.contains(to) => Arrow::Fail,
            Arrow::Join(join) if join == self.join && !pair.contains(&at) => Arrow::End,
            Arrow::Join(join) if join != self.join => match self.model.joins[join].node {
                // A node outside ends at once. It stays the target, so that a message can name it.
                node if kept.contains(node) => Arrow::Join(join),
                node => Arrow::Node(node),
            },
            other => other,
        };
        let mut outcomes = node.outcomes.clone();
        let decisions = outcomes.iter_mut().flat_map(|it| &mut it.decisions);
        for alternative in decisions.flat_map(|it| &mut it.alternatives) {
            alternative.known = Vec::new();
            for it in &mut alternative.arrows {
                *it = arrow(*it);
            }
        }
        let mut bound = node.bound;
        if let Some(bound) = &mut bound {
            bound.exhausted = arrow(bound.exhausted);
        }
        FlowNode {
            outcomes,
            bound,
            resets: node.resets.clone(),
            defers: node.defers.clone(),
            ends_once: node.ends_once,
            ..FlowNode::new(0)
        }
    }
}

#[cfg(test)]
mod tests;
