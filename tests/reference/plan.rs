//! Random plans of graphs: data that both the engine and the reference interpreter run.

use rand::{RngExt as _, rngs::StdRng};

/// A graph. The first node is its entry.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) nodes: Vec<NodePlan>,
}

/// Where a way leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Node(usize),
    End,
    Fail,
}

/// When the attempts of a node fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fails {
    Never,
    FirstVisit,
    OddItems,
}

/// A node. If several ways are given, its route takes one of them by the sum.
#[derive(Clone, Debug)]
pub(super) struct NodePlan {
    pub(super) ways: Vec<Vec<Way>>,
    /// The node that is dispatched to, and the number of items.
    pub(super) dispatches: Option<(usize, u64)>,
    /// The nodes it waits for, and how many of them.
    pub(super) join: Vec<usize>,
    pub(super) join_count: usize,
    /// How often it runs, and what runs instead after that.
    pub(super) bound: Option<(u32, Way)>,
    pub(super) resets: Vec<usize>,
    /// Whether it clears the sum.
    pub(super) clears: bool,
    pub(super) fails: Fails,
    pub(super) catch: Option<Way>,
    /// Whether its items are those of a map, which ends once.
    pub(super) is_map: bool,
    /// Whether the failures of its items are data.
    pub(super) is_collecting: bool,
    /// Whether its route fails the first time it is asked about a task.
    pub(super) has_broken_route: bool,
    /// The graph that it runs as a nested run.
    pub(super) inner: Option<Box<Plan>>,
}

impl Plan {
    /// Makes a plan of the outer graph, or of one of a nested run, which neither fails nor has another one within.
    pub(super) fn random(random: &mut StdRng, is_outer: bool) -> Self {
        let count = random.random_range(if is_outer { 3..7 } else { 2..4 });
        let joins: Vec<bool> = (0..count).map(|at| at > 2 && random.random_ratio(1, 4)).collect();
        let mut nodes: Vec<NodePlan> = Vec::new();
        for at in 0..count {
            let bound = random
                .random_ratio(2, 5)
                .then(|| (random.random_range(1..4), way(random, at + 1..count, &joins, is_outer)));
            // A node with a bound may lead anywhere: each loop needs one.
            let from = if bound.is_some() { 0 } else { at + 1 };
            let ways = (0..random.random_range(1..3)).map(|_| {
                let width = if random.random_ratio(1, 3) { 3 } else { 1 };
                let ways = (0..width).map(|_| way(random, from..count, &joins, is_outer));
                distinct(ways.collect())
            });
            let ways = ways.collect();
            let fails = match random.random_range(0..8) {
                0 => Fails::FirstVisit,
                1 | 2 => Fails::OddItems,
                _ => Fails::Never,
            };
            let is_collecting = fails == Fails::OddItems && random.random_bool(0.5);
            let catch = (fails != Fails::Never && !is_collecting)
                .then(|| way(random, at + 1..count, &joins, is_outer));
            let join = if joins[at] {
                let earlier = (0..3).map(|_| random.random_range(0..at)).collect();
                distinct(earlier)
            } else {
                Vec::new()
            };
            let join = if join.len() > 1 { join } else { Vec::new() };
            let resets = (0..count).filter(|it| *it > at && random.random_ratio(1, 16)).collect();
            let all = join.len().max(1);
            nodes.push(NodePlan {
                ways,
                dispatches: None,
                // Joins of all nodes are refused more often.
                join_count: random.random_range(1..=2 * all).min(all),
                join,
                bound,
                resets,
                clears: random.random_ratio(1, 8),
                fails,
                catch,
                is_map: is_collecting || random.random_bool(0.5),
                is_collecting,
                has_broken_route: is_outer && fails == Fails::Never && random.random_ratio(1, 8),
                inner: (is_outer && random.random_ratio(1, 5))
                    .then(|| Box::new(Self::random(random, false))),
            });
        }
        for at in 0..count {
            let bounded: Vec<bool> = nodes.iter().map(|it| it.bound.is_some()).collect();
            nodes[at].resets.retain(|it| bounded[*it]);
        }
        // Each node that does not wait has a node that leads to it.
        for at in 1..count {
            let parent = random.random_range(0..at);
            if !nodes[at].join.is_empty() {
                continue;
            }
            if nodes[parent].dispatches.is_none() && random.random_ratio(1, 3) {
                nodes[parent].dispatches = Some((at, random.random_range(0..4)));
                continue;
            }
            let choices = nodes[parent].ways.len();
            let to = &mut nodes[parent].ways[random.random_range(0..choices)];
            to.push(Way::Node(at));
            *to = distinct(std::mem::take(to));
        }
        Self { nodes }
    }
}

/// Returns the end, or one of these nodes that waits for no others.
fn way(random: &mut StdRng, nodes: std::ops::Range<usize>, joins: &[bool], may_fail: bool) -> Way {
    let nodes: Vec<usize> = nodes.filter(|it| !joins[*it]).collect();
    match random.random_range(0..nodes.len() + 2) {
        at if at < nodes.len() => Way::Node(nodes[at]),
        at if at == nodes.len() || !may_fail || random.random_ratio(2, 3) => Way::End,
        _ => Way::Fail,
    }
}

fn distinct<T: PartialEq>(all: Vec<T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for it in all {
        if !distinct.contains(&it) {
            distinct.push(it);
        }
    }
    distinct
}
