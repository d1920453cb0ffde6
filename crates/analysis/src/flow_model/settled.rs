//! What a deferred node can rely on: when it starts, all other work has ended, so the branches beside it have made their writes.
//!
//! The work that a node begins ends where it reaches a deferred node, a join or the end. [`Settled`] first computes the fields
//! that the work of each node must have written by then. A branch that leads to a deferred node then adds to its own
//! writes those of the branches that began beside it.
//!
//! **Example.** The run starts at `a` and `b`. `a` leads to `a2`, which leads to `sum`, as does `b`; and `sum` has
//! `defer: true`. The edge from `b` begins in a step in which `a` began, too. The work of `a` ends in `sum`, with the writes of
//! `a` and `a2`. So `sum` starts with the writes of all three.
//!
//! **Soundness.** It promises nothing of dispatched tasks, of which there may be none, of work behind a join, which may wait for
//! the deferred node, of work in a used workflow, which may be abandoned, and no field that a node clears.

use super::{Arrow, Bits, Decision, FlowModel, Outcome, reach::Reach};

/// The fields that are written on every path when nodes start that wait for all other work of a run.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// For each node; empty if no node waits for all other work.
    fields: Vec<Option<Bits>>,
}

/// The fields that are written in any case once the work of each node has ended.
struct Work<'a> {
    model: &'a FlowModel,
    fields: Vec<Bits>,
}

impl Settled {
    pub(super) fn of(model: &FlowModel, reach: &Reach) -> Self {
        let waits = |it: &usize| waits_for_all(model, *it);
        let waiting: Vec<usize> = (0..model.nodes.len()).filter(waits).collect();
        if waiting.is_empty() {
            return Self::default();
        }
        let work = Work::of(model);
        let at = work.at_starts(reach);
        let cleared = model.cleared_by(0..model.nodes.len());
        let mut fields = vec![None; model.nodes.len()];
        for node in waiting {
            let mut settled = at[node].clone();
            settled.remove(&cleared);
            fields[node] = Some(settled);
        }
        Self { fields }
    }

    /// Returns the fields that every path has written when a node starts, if it waits for all other work.
    pub(super) fn at(&self, node: usize) -> Option<&Bits> {
        self.fields.get(node)?.as_ref()
    }
}

/// Returns whether a node starts only when nothing else runs. A task that is dispatched to it does not wait.
fn waits_for_all(model: &FlowModel, node: usize) -> bool {
    let Some(deferral) = &model.nodes[node].defers else { return false };
    let mut others = (0..model.nodes.len()).filter(|it| *it != node);
    let mut arrows = model.nodes.iter().flat_map(super::FlowNode::arrows);
    others.all(|it| deferral.first.contains(it)) && !arrows.any(|it| it == Arrow::Tasks(node))
}

impl<'a> Work<'a> {
    fn of(model: &'a FlowModel) -> Self {
        // The sets only shrink. A loop that never ends never lets a deferred node start, so it may begin with all fields.
        let fields = (0..model.nodes.len()).map(|node| {
            let in_scope = model.scopes.iter().any(|scope| scope.nodes.contains(node));
            let is_open = in_scope || model.nodes[node].defers.is_some();
            if is_open { Bits::none(model.fields) } else { Bits::all(model.fields) }
        });
        let mut work = Self { model, fields: fields.collect() };
        loop {
            let mut is_changed = false;
            for at in 0..model.nodes.len() {
                for outcome in &model.nodes[at].outcomes {
                    let mut ended = work.written(at, outcome);
                    for decision in &outcome.decisions {
                        ended.add(&work.of_decision(decision));
                    }
                    is_changed |= work.fields[at].keep(&ended);
                }
            }
            if !is_changed {
                return work;
            }
        }
    }

    /// Returns the fields that a node itself has written.
    fn written(&self, node: usize, outcome: &Outcome) -> Bits {
        if outcome.ending.has_written() {
            return self.model.nodes[node].must_assign.clone();
        }
        Bits::none(self.model.fields)
    }

    fn of_decision(&self, decision: &Decision) -> Bits {
        let alternatives = decision.alternatives.iter().map(|it| self.of_arrows(&it.arrows));
        let common = alternatives.reduce(|mut common, it| {
            common.keep(&it);
            common
        });
        common.unwrap_or_else(|| Bits::none(self.model.fields))
    }

    fn of_arrows(&self, arrows: &[Arrow]) -> Bits {
        arrows.iter().fold(Bits::none(self.model.fields), |all, it| all.with(&self.of_arrow(*it)))
    }

    fn of_arrow(&self, arrow: Arrow) -> Bits {
        let mut arrow = arrow;
        let mut common = Bits::all(self.model.fields);
        // A used-up bound leads to another node. There may be a circle of them.
        for _ in 0..=self.model.nodes.len() {
            match arrow {
                Arrow::Fail => return common,
                Arrow::Tasks(_) | Arrow::Join(_) | Arrow::End => break,
                Arrow::Node(to) => {
                    common.keep(&self.fields[to]);
                    match self.model.nodes[to].bound {
                        Some(bound) => arrow = bound.exhausted,
                        None => return common,
                    }
                }
            }
        }
        Bits::none(self.model.fields)
    }

    /// Returns the fields that are written on every path to a node once all work has ended that had begun when it started.
    fn at_starts(&self, reach: &Reach) -> Vec<Bits> {
        let mut starts = Starts::new(self.model);
        let first: Vec<Arrow> = self.model.start.iter().map(|it| Arrow::Node(*it)).collect();
        let at_start = &self.model.must_assign_at_start;
        for &to in &self.model.start {
            starts.arrive(to, &at_start.clone().with(&self.of_arrows(&first)));
        }
        if let Some(to) = self.model.node_after_limit() {
            starts.arrive(to, at_start);
        }
        while let Some(from) = starts.open.pop() {
            let before = starts.fields[from].clone();
            for outcome in &self.model.nodes[from].outcomes {
                let written = before.clone().with(&self.written(from, outcome));
                for (number, decision) in outcome.decisions.iter().enumerate() {
                    let others = outcome.decisions.iter().enumerate().filter(|it| it.0 != number);
                    let beside =
                        others.fold(written.clone(), |all, it| all.with(&self.of_decision(it.1)));
                    for alternative in &decision.alternatives {
                        let fields = beside.clone().with(&self.of_arrows(&alternative.arrows));
                        for to in alternative.arrows.iter().filter_map(|it| self.node_of(*it)) {
                            for reached in reach.reached(self.model, Some(from), to) {
                                starts.arrive(reached.node, &fields);
                            }
                        }
                    }
                }
            }
        }
        starts.fields
    }

    /// Returns the node that an arrow leads to.
    fn node_of(&self, arrow: Arrow) -> Option<usize> {
        match arrow {
            Arrow::Node(to) | Arrow::Tasks(to) => Some(to),
            Arrow::Join(join) => Some(self.model.joins[join].node),
            Arrow::End | Arrow::Fail => None,
        }
    }
}

/// The fields that are written at the start of each node, on every path that was followed so far.
struct Starts {
    fields: Vec<Bits>,
    is_reached: Vec<bool>,
    /// The nodes whose further paths must be followed again.
    open: Vec<usize>,
}

impl Starts {
    fn new(model: &FlowModel) -> Self {
        let count = model.nodes.len();
        let fields = vec![Bits::all(model.fields); count];
        Self { fields, is_reached: vec![false; count], open: Vec::new() }
    }

    /// Adds a path to a node.
    fn arrive(&mut self, to: usize, fields: &Bits) {
        let is_changed = self.fields[to].keep(fields);
        let is_first = !std::mem::replace(&mut self.is_reached[to], true);
        if is_changed || is_first {
            self.open.push(to);
        }
    }
}
