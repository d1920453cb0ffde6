//! Reachability: which nodes lead to which, and where a bound may be used up.

use super::{Arrow, Bits, FlowModel};

/// The nodes that are reachable from each node, in any number of steps.
#[derive(Debug)]
pub(super) struct Reach {
    next: Vec<Vec<usize>>,
    /// For each bounded node, the nodes from which it may be reached again after a visit.
    spendable: Vec<Option<Bits>>,
}

/// A node that an arrow may lead to, and the bounds that are used up on the path to it.
#[derive(Clone, Debug)]
pub(super) struct Destination {
    pub(super) node: usize,
    pub(super) spent: Vec<usize>,
}

impl Reach {
    pub(super) fn of(model: &FlowModel) -> Self {
        let mut next: Vec<Vec<usize>> = vec![Vec::new(); model.nodes.len()];
        for (from, node) in model.nodes.iter().enumerate() {
            let exhausted = node.bound.map(|it| it.exhausted);
            for arrow in node.arrows().chain(exhausted) {
                match arrow {
                    Arrow::Node(to) | Arrow::Tasks(to) => next[from].push(to),
                    Arrow::Join(join) => next[from].push(model.joins[join].node),
                    Arrow::End | Arrow::Fail => (),
                }
            }
            next[from].sort_unstable();
            next[from].dedup();
        }
        let mut reach = Self { next, spendable: Vec::new() };
        // Any node after a fork may also run concurrently with this one.
        let beside = reach.from(model.forks());
        let spendable = |(at, node): (usize, &super::FlowNode)| {
            node.bound.map(|_| {
                let mut after = reach.from([at]);
                if beside.contains(at) {
                    after.add(&beside);
                }
                after
            })
        };
        reach.spendable = model.nodes.iter().enumerate().map(spendable).collect();
        reach
    }

    /// Narrows down where a bound may be used up: after its node, or after the nodes concurrent
    /// with it.
    pub(super) fn refine(&mut self, beside: impl Fn(usize) -> Vec<usize>) {
        for at in 0..self.spendable.len() {
            if self.spendable[at].is_some() {
                let after = self.from(beside(at).into_iter().chain([at]));
                self.spendable[at] = Some(after);
            }
        }
    }

    /// Returns these nodes and all nodes after them.
    pub(super) fn from(&self, nodes: impl IntoIterator<Item = usize>) -> Bits {
        let mut found = Bits::none(self.next.len());
        let mut open: Vec<usize> = nodes.into_iter().filter(|it| found.insert(*it)).collect();
        while let Some(node) = open.pop() {
            open.extend(self.next[node].iter().filter(|it| found.insert(**it)));
        }
        found
    }

    /// Like [`Self::from`], but only along paths that avoid one node.
    pub(super) fn around(&self, node: usize, avoided: usize) -> Bits {
        let mut found = Bits::none(self.next.len());
        found.insert(node);
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            let next = self.next[node].iter().filter(|it| **it != avoided);
            open.extend(next.filter(|it| found.insert(**it)));
        }
        found
    }

    /// Returns the nodes in an order in which most come after those that lead to them.
    pub(super) fn order(&self, start: &[usize]) -> Vec<usize> {
        let mut seen = Bits::none(self.next.len());
        let mut order = Vec::new();
        // Each node with the number of its visited successors.
        let mut path: Vec<(usize, usize)> = Vec::new();
        for &start in start {
            if seen.insert(start) {
                path.push((start, 0));
            }
            while let Some((node, at)) = path.last_mut() {
                let (node, next) = (*node, self.next[*node].get(*at));
                *at += 1;
                match next {
                    Some(&next) if seen.insert(next) => path.push((next, 0)),
                    Some(_) => (),
                    None => {
                        order.push(node);
                        path.pop();
                    }
                }
            }
        }
        order.reverse();
        order
    }

    /// Returns the nodes that may run when an arrow leads from one node to another: the target, or
    /// the nodes behind its bound. `from` is `None` at the start, where no bound is used up.
    pub(super) fn reached(
        &self,
        model: &FlowModel,
        from: Option<usize>,
        to: usize,
    ) -> Vec<Destination> {
        let mut found = vec![Destination { node: to, spent: Vec::new() }];
        self.behind_bounds(model, from, to, |spent, arrow| {
            if let Arrow::Node(node) | Arrow::Tasks(node) = arrow {
                found.push(Destination { node, spent: spent.to_vec() });
            }
        });
        found
    }

    /// Calls `tell` with each arrow that may be taken instead, and the bounds that are used up
    /// then.
    pub(super) fn behind_bounds(
        &self,
        model: &FlowModel,
        from: Option<usize>,
        to: usize,
        mut tell: impl FnMut(&[usize], Arrow),
    ) {
        let Some(from) = from else { return };
        let mut at = to;
        let mut spent = Vec::new();
        while let Some(bound) = model.nodes[at].bound
            && self.spendable[at].as_ref().is_some_and(|it| it.contains(from))
            && !model.nodes[from].resets.contains(&at)
            && !spent.contains(&at)
        {
            spent.push(at);
            tell(&spent, bound.exhausted);
            let (Arrow::Node(next) | Arrow::Tasks(next)) = bound.exhausted else { return };
            at = next;
        }
    }
}

impl FlowModel {
    /// Returns the nodes that are reachable from the start.
    pub(crate) fn reached(&self) -> Bits {
        Reach::of(self).from(self.start.iter().copied().chain(self.node_after_limit()))
    }

    /// Returns the nodes after which several tasks may continue at once, and the first nodes if
    /// there are several.
    pub(super) fn forks(&self) -> Vec<usize> {
        let goes_on = |it: &&Arrow| !matches!(it, Arrow::End | Arrow::Fail);
        let forks = |at: &usize| {
            self.nodes[*at].outcomes.iter().any(|outcome| {
                let widest = |decision: &super::Decision| {
                    let arrows = decision.alternatives.iter().map(|alternative| {
                        let arrows = &alternative.arrows;
                        let tasks = arrows.iter().any(|it| matches!(it, Arrow::Tasks(_)));
                        arrows.iter().filter(goes_on).count() + usize::from(tasks)
                    });
                    arrows.max().unwrap_or(0)
                };
                outcome.decisions.iter().map(widest).sum::<usize>() > 1
            })
        };
        let mut found: Vec<usize> = (0..self.nodes.len()).filter(forks).collect();
        if self.start.len() > 1 {
            found.extend(&self.start);
        }
        found
    }
}
