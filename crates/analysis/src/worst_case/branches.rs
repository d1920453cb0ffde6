//! Counts shared steps of branches: concurrent nodes need as many steps as the longest branch, not
//! the sum of all.
//!
//! At a node that splits, each branch consists of the nodes that only its first node leads to. A
//! branch runs in every step from the split until it is done, because each of its nodes is reached
//! from the split or from the branch in the step before. So all branches together take the steps of
//! the longest one, once for each visit of the split. Nested branches are counted first.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use graphrun_core::graph::{Defer, Graph};
use petgraph::{Direction, algo::is_cyclic_directed};

use super::{
    steps::times,
    tokens::{Arrival, Tokens},
};
use crate::network::Digraph;

/// Nodes that are counted together.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeGroup {
    /// The steps in which at least one of them runs.
    pub(super) steps: u64,
    /// The duration of these steps.
    pub(super) time: Option<Duration>,
    /// The duration of the longest task of one of them.
    pub(super) task: Option<Duration>,
}

/// The parts whose steps are counted together: the nodes have the first numbers, then come parts of several.
#[derive(Debug)]
pub(super) struct Parts {
    /// The parts of several, those within others first.
    pub(super) parts: Vec<Part>,
    /// The parts that are within no other.
    pub(super) left: Vec<usize>,
}

/// The branches of a split.
#[derive(Debug)]
pub(super) struct Part {
    /// The numbers of the parts in it.
    pub(super) of: Vec<usize>,
    /// The node that splits; `None` for the start, which happens once.
    pub(super) split: Option<usize>,
    /// The steps of the longest branch.
    pub(super) longest: u64,
}

/// A node that splits, and its branches.
struct Split {
    node: Option<usize>,
    visits: u64,
    branches: Vec<Vec<usize>>,
}

/// Counts the steps of a graph from the steps of each single node.
pub(super) fn count(
    graph: &Graph,
    tokens: &Tokens<'_>,
    alone: Vec<NodeGroup>,
) -> (NodeGroup, Parts) {
    let visits: Vec<u64> = alone.iter().map(|it| it.steps).collect();
    let mut splits = splits(graph, tokens, &visits);
    // A nested split has smaller branches, so it comes first.
    splits.sort_by_key(|it| it.branches.iter().map(Vec::len).sum::<usize>());
    let digraph = &tokens.digraph;
    let mut part_of: Vec<usize> = (0..alone.len()).collect();
    let mut parts = alone;
    let mut merged = Vec::new();
    for Split { node, visits, branches } in splits {
        let mut of = BTreeSet::new();
        let mut shared =
            NodeGroup { steps: 0, time: Some(Duration::ZERO), task: Some(Duration::ZERO) };
        let mut longest = 0;
        for branch in &branches {
            let own: BTreeSet<usize> = branch.iter().map(|it| part_of[*it]).collect();
            let all = sum(own.iter().map(|it| parts[*it]));
            of.extend(own);
            let once = once_through(tokens, digraph, branch).unwrap_or(u64::MAX);
            longest = longest.max(all.steps.min(once));
            shared = shared.and(all);
        }
        shared.steps = shared.steps.min(longest.saturating_mul(visits));
        let by_steps = shared.task.map(|it| times(it, shared.steps));
        shared.time = shared.time.zip(by_steps).map(|(a, b)| a.min(b));
        let part = parts.len();
        parts.push(shared);
        merged.push(Part { of: of.into_iter().collect(), split: node, longest });
        for node in branches.iter().flatten() {
            part_of[*node] = part;
        }
    }
    let left: BTreeSet<usize> = part_of.into_iter().collect();
    let left: Vec<usize> = left.into_iter().collect();
    (sum(left.iter().map(|it| parts[*it])), Parts { parts: merged, left })
}

impl NodeGroup {
    /// Returns the sum for running both, one after the other.
    fn and(self, other: Self) -> Self {
        let both = |a: Option<Duration>, b: Option<Duration>| a.zip(b);
        Self {
            steps: self.steps.saturating_add(other.steps),
            time: both(self.time, other.time).map(|(a, b)| a.saturating_add(b)),
            task: both(self.task, other.task).map(|(a, b)| a.max(b)),
        }
    }
}

/// Returns the sum for running all, one after the other.
pub(super) fn sum(all: impl Iterator<Item = NodeGroup>) -> NodeGroup {
    let nothing = NodeGroup { steps: 0, time: Some(Duration::ZERO), task: Some(Duration::ZERO) };
    all.fold(nothing, NodeGroup::and)
}

/// Returns the maximum number of steps of a branch after one split, if none of its nodes runs
/// twice.
fn once_through(tokens: &Tokens<'_>, digraph: &Digraph, branch: &[usize]) -> Option<u64> {
    if branch.iter().any(|it| tokens.splits(*it)) {
        return None;
    }
    let inside: BTreeSet<usize> = branch.iter().copied().collect();
    let mut own: Digraph = Digraph::new();
    for &node in branch {
        for next in digraph.neighbors(node).filter(|it| inside.contains(it)) {
            own.add_edge(node, next, ());
        }
    }
    (!is_cyclic_directed(&own)).then(|| u64::try_from(branch.len()).unwrap_or(u64::MAX))
}

fn splits(graph: &Graph, tokens: &Tokens<'_>, visits: &[u64]) -> Vec<Split> {
    let root = tokens.names.len();
    let digraph = tokens.rooted_digraph();
    let waiting = WaitingNodes::of(graph, tokens);
    let starts = tokens.passages.iter().filter(|it| it.is_first).count();
    // The target of a limit runs later than the first nodes, so the start is not a split then.
    let is_split = starts > 1 && !tokens.passages.iter().any(|it| it.is_after_limit);
    let splitting = (0..root).filter(|it| tokens.splits(*it)).chain(is_split.then_some(root));
    let branches = splitting.filter_map(|split| {
        // A node that waits for all others may wait for nodes outside of the branches.
        if waiting.for_all.iter().any(|it| tokens.before.is_strictly_below(*it, split)) {
            return None;
        }
        let branches = Owners::of(tokens, &digraph, &waiting, split).branches();
        let node = (split < root).then_some(split);
        let visits = node.map_or(1, |it| visits[it]);
        (branches.len() > 1).then_some(Split { node, visits, branches })
    });
    branches.collect()
}

/// The nodes that wait for others.
struct WaitingNodes<'a> {
    /// The nodes that wait for all others.
    for_all: Vec<usize>,
    /// The ends of used workflows, with the nodes that they wait for.
    for_scopes: Vec<(usize, &'a str)>,
}

impl<'a> WaitingNodes<'a> {
    fn of(graph: &'a Graph, tokens: &Tokens<'_>) -> Self {
        let mut waiting = Self { for_all: Vec::new(), for_scopes: Vec::new() };
        for (node, name) in tokens.names.iter().enumerate() {
            match &graph.nodes[*name].policies.schedule.defer {
                Some(Defer::Siblings) => waiting.for_all.push(node),
                Some(Defer::Scope(scope)) => waiting.for_scopes.push((node, scope.as_str())),
                None => (),
            }
        }
        waiting
    }
}

/// The branches of a split: for each of its successors the nodes that only this successor leads to.
///
/// Each path to a node that the split dominates enters it by a successor. So only this successor leads to a node if it
/// dominates the node too. A successor that another branch leads to, or that is reached late, begins no branch. Nor does a
/// branch contain the end of a used workflow that waits for nodes outside of the branch, or what only such nodes lead to.
struct Owners<'a> {
    tokens: &'a Tokens<'a>,
    digraph: &'a Digraph,
    split: usize,
    heads: Vec<usize>,
    /// The branch of each node that is in one.
    branch_of: BTreeMap<usize, usize>,
}

impl<'a> Owners<'a> {
    fn of(
        tokens: &'a Tokens<'a>,
        digraph: &'a Digraph,
        waiting: &WaitingNodes<'_>,
        split: usize,
    ) -> Self {
        let tree = &tokens.before;
        let heads: Vec<usize> =
            digraph.neighbors(split).filter(|it| tree.is_strictly_below(*it, split)).collect();
        let mut owners = Self { tokens, digraph, split, heads, branch_of: BTreeMap::new() };
        for (branch, &head) in owners.heads.iter().enumerate() {
            // The target of the used-up bound of the split may be reached at any time.
            let is_late = tokens.passages[head].from.contains(&Arrival::Overflow(split));
            let is_own = |from: usize| from == split || tree.is_below(from, head);
            let mut before = digraph.neighbors_directed(head, Direction::Incoming);
            if !is_late && before.all(|it| is_own(it) || !tree.is_reached(it)) {
                owners.branch_of.extend(tree.subtree(head).iter().map(|it| (*it, branch)));
            }
        }
        while let Some(shared) = owners.shared_end(waiting) {
            owners.remove_after(shared);
        }
        owners
    }

    /// Returns the end of a used workflow in a branch that waits for nodes outside of the branch.
    fn shared_end(&self, waiting: &WaitingNodes<'_>) -> Option<usize> {
        let is_shared = |(end, scope): &&(usize, &str)| {
            let branch = self.branch_of.get(end);
            branch.is_some()
                && self.tokens.within(scope).any(|it| self.branch_of.get(&it) != branch)
        };
        waiting.for_scopes.iter().find(is_shared).map(|(end, _)| *end)
    }

    /// Removes a node from the branches, with the nodes that it leads to without a visit of the split.
    fn remove_after(&mut self, node: usize) {
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            if self.branch_of.remove(&node).is_some() {
                open.extend(self.digraph.neighbors(node).filter(|it| *it != self.split));
            }
        }
    }

    /// Returns the branches that contain a node.
    fn branches(self) -> Vec<Vec<usize>> {
        let mut branches = vec![Vec::new(); self.heads.len()];
        for (node, branch) in self.branch_of {
            branches[branch].push(node);
        }
        branches.retain(|it| !it.is_empty());
        branches
    }
}
