//! Steps that branches share: nodes that run side by side need as many as the longest branch, and not
//! as many as all together.
//!
//! Where a node splits the way, each branch is what only its first node leads to. From the split on, a
//! branch runs in every step until it is done, for whatever runs in it was led to by the split or by
//! the branch, in the step before. So all branches together take the steps of the longest, once for
//! each visit of the split. Branches within branches are counted first.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use petgraph::{
    algo::{dominators, is_cyclic_directed},
    graphmap::DiGraphMap,
};

use super::{
    steps::times,
    tokens::{Arrival, Tokens},
};
use crate::graph::{Defer, Graph};

/// Nodes that are counted together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared {
    /// The steps in which one of them runs.
    pub(super) steps: u64,
    /// The time of these steps.
    pub(super) time: Option<Duration>,
    /// The longest task of one of them.
    pub(super) task: Option<Duration>,
}

/// The branches that a node splits its way into.
struct Split {
    visits: u64,
    branches: Vec<Vec<usize>>,
}

/// Counts the steps of a graph, from those of each node alone.
pub(super) fn count(graph: &Graph, tokens: &Tokens<'_>, alone: Vec<Shared>) -> Shared {
    let visits: Vec<u64> = alone.iter().map(|it| it.steps).collect();
    let mut splits = splits(graph, tokens, &visits);
    // What is within a branch is smaller than the whole.
    splits.sort_by_key(|it| it.branches.iter().map(Vec::len).sum::<usize>());
    let ways = tokens.ways();
    let mut part_of: Vec<usize> = (0..alone.len()).collect();
    let mut parts = alone;
    for Split { visits, branches } in splits {
        let mut shared =
            Shared { steps: 0, time: Some(Duration::ZERO), task: Some(Duration::ZERO) };
        let mut longest = 0;
        for branch in &branches {
            let own: BTreeSet<usize> = branch.iter().map(|it| part_of[*it]).collect();
            let all = sum(own.into_iter().map(|it| parts[it]));
            let once = once_through(tokens, &ways, branch).unwrap_or(u64::MAX);
            longest = longest.max(all.steps.min(once));
            shared = shared.and(all);
        }
        shared.steps = shared.steps.min(longest.saturating_mul(visits));
        let by_steps = shared.task.map(|it| times(it, shared.steps));
        shared.time = shared.time.zip(by_steps).map(|(a, b)| a.min(b));
        let part = parts.len();
        parts.push(shared);
        for node in branches.iter().flatten() {
            part_of[*node] = part;
        }
    }
    let parts_left: BTreeSet<usize> = part_of.into_iter().collect();
    sum(parts_left.into_iter().map(|it| parts[it]))
}

impl Shared {
    /// Both, one after the other.
    fn and(self, other: Self) -> Self {
        let both = |a: Option<Duration>, b: Option<Duration>| a.zip(b);
        Self {
            steps: self.steps.saturating_add(other.steps),
            time: both(self.time, other.time).map(|(a, b)| a.saturating_add(b)),
            task: both(self.task, other.task).map(|(a, b)| a.max(b)),
        }
    }
}

/// All, one after the other.
pub(super) fn sum(all: impl Iterator<Item = Shared>) -> Shared {
    let nothing = Shared { steps: 0, time: Some(Duration::ZERO), task: Some(Duration::ZERO) };
    all.fold(nothing, Shared::and)
}

/// The most steps of a branch from one split on, if nothing in it runs twice from there.
fn once_through(
    tokens: &Tokens<'_>,
    ways: &DiGraphMap<usize, ()>,
    branch: &[usize],
) -> Option<u64> {
    if branch.iter().any(|it| tokens.splits(*it)) {
        return None;
    }
    let inside: BTreeSet<usize> = branch.iter().copied().collect();
    let mut own: DiGraphMap<usize, ()> = DiGraphMap::new();
    for &node in branch {
        for next in ways.neighbors(node).filter(|it| inside.contains(it)) {
            own.add_edge(node, next, ());
        }
    }
    (!is_cyclic_directed(&own)).then(|| u64::try_from(branch.len()).unwrap_or(u64::MAX))
}

fn splits(graph: &Graph, tokens: &Tokens<'_>, visits: &[u64]) -> Vec<Split> {
    let root = tokens.names.len();
    let ways = tokens.rooted_ways();
    let found = dominators::simple_fast(&ways, root);
    let mut below: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for node in 0..root {
        if let Some(above) = found.immediate_dominator(node) {
            below.entry(above).or_default().push(node);
        }
    }
    let starts = tokens.passages.iter().filter(|it| it.is_first).count();
    // Where a limit leads comes to run later than what the run starts with.
    let is_split = starts > 1 && !tokens.passages.iter().any(|it| it.is_after_limit);
    let splitting = (0..root).filter(|it| tokens.splits(*it)).chain(is_split.then_some(root));
    let branches = splitting.filter_map(|split| {
        let within = descendants(&below, split);
        let waits =
            |it: &usize| graph.nodes[tokens.names[*it]].policies.defer == Some(Defer::Siblings);
        // Who waits for all others may wait for what is outside.
        if within.iter().any(waits) {
            return None;
        }
        let waits = |it: &usize, owners: &Owners| waits_elsewhere(graph, tokens, *it, owners);
        let branches = branches(tokens, &ways, (split, &within), waits);
        let visits = visits.get(split).copied().unwrap_or(1);
        (branches.len() > 1).then_some(Split { visits, branches })
    });
    branches.collect()
}

/// Everything that all ways to come through a node.
fn descendants(below: &BTreeMap<usize, Vec<usize>>, node: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut open = vec![node];
    while let Some(node) = open.pop() {
        for next in below.get(&node).into_iter().flatten() {
            found.insert(*next);
            open.push(*next);
        }
    }
    found
}

/// Whose a node is: a branch, or nobody's alone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Branch(usize),
    Several,
}

type Owners = BTreeMap<usize, Owner>;

/// What only one of the nodes behind a split leads to, for each of them.
fn branches(
    tokens: &Tokens<'_>,
    ways: &DiGraphMap<usize, ()>,
    (split, within): (usize, &BTreeSet<usize>),
    waits_elsewhere: impl Fn(&usize, &Owners) -> bool,
) -> Vec<Vec<usize>> {
    let mut owners = Owners::new();
    let heads: Vec<usize> = ways.neighbors(split).filter(|it| within.contains(it)).collect();
    let owner = |(branch, head): (usize, &usize)| {
        // Where the bound of the split leads, the run may come at any time.
        let is_late = tokens.passages[*head].from.contains(&Arrival::Overflow(split));
        (*head, if is_late { Owner::Several } else { Owner::Branch(branch) })
    };
    let mut open: Vec<(usize, Owner)> = heads.iter().enumerate().map(owner).collect();
    while !open.is_empty() {
        while let Some((node, owner)) = open.pop() {
            let owner = match owners.get(&node) {
                Some(known) if *known == owner || *known == Owner::Several => continue,
                Some(_) => Owner::Several,
                None => owner,
            };
            owners.insert(node, owner);
            let next = ways.neighbors(node).filter(|it| *it != split && within.contains(it));
            open.extend(next.map(|it| (it, owner)));
        }
        let waiting = owners.keys().filter(|it| waits_elsewhere(it, &owners));
        open.extend(waiting.map(|it| (*it, Owner::Several)));
    }
    let mut branches = vec![Vec::new(); heads.len()];
    for (node, owner) in owners {
        if let Owner::Branch(branch) = owner {
            branches[branch].push(node);
        }
    }
    branches.retain(|it| !it.is_empty());
    branches
}

/// Whether a node is the end of a used workflow some of which is not in its branch: it waits for all
/// of it.
fn waits_elsewhere(graph: &Graph, tokens: &Tokens<'_>, node: usize, owners: &Owners) -> bool {
    let owner = owners.get(&node);
    match &graph.nodes[tokens.names[node]].policies.defer {
        Some(Defer::Scope(scope)) if owner != Some(&Owner::Several) => {
            tokens.within(scope.as_str()).any(|it| owners.get(&it) != owner)
        }
        _ => false,
    }
}
