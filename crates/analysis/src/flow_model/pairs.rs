//! The nodes that may run concurrently: in one super-step.
//!
//! The analysis works on pairs of places. A place (as in a Petri net) is a running node, a deferred
//! node, or a node that has arrived at a join. Both nodes of a pair move in the same step, each by
//! each of its outcomes; pairs originate at forks. A join continues beside a place only if each of its nodes may
//! have arrived beside that place.
//!
//! **Example.** `plan` leads to `write` and `draw`, `write` to `review`, `draw` to `end`:
//!
//! 1. The fork makes the pair (`write`, `draw`).
//! 2. Both move in the same step: (`review`, `end`). `end` is no place, so the analysis is done.
//! 3. `draw` and `review` are no pair. Both may write one field.
//!
//! If `draw` can lead back to itself, step 2 also makes (`review`, `draw`), which is a conflict if both write a field that
//! keeps one value.
//!
//! **Soundness.** In a run, two tasks of one step descend from two tasks of the step before, or from one task that led to both.
//! The rules above follow both cases for each outcome of a node. So by induction over steps the analysis misses no pair.
//!
//! **Limits.** It forgets which pairs exclude each other: if (`a`, `b`) and (`a`, `c`) are pairs, it does not know that `b` and
//! `c` never occur in one run. If forks and joins are nested, it reports no impossible pair; otherwise
//! [`explore`](super::explore()) confirms a conflict. The work is at most the square of the number of places.

mod walk;

use self::walk::Walk;
use super::{Bits, FlowModel, reach::Reach};

/// The places that may be occupied at the same time.
#[derive(Debug, Default)]
pub struct Concurrency {
    /// For each place, the places that may be occupied at the same time. Empty if there are no
    /// forks.
    with: Pairs,
    places: Places,
}

/// A place of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// This node runs.
    Running(usize),
    /// This deferred node waits.
    Deferred(usize),
    /// At this join, the awaited node with this position has arrived.
    Arrived(usize, usize),
}

/// A relation between numbers: one row for each first number. A row is allocated on its first use,
/// because most places of a large graph have no concurrent ones.
#[derive(Debug, Default)]
struct Pairs {
    rows: Vec<Option<Bits>>,
    width: usize,
}

/// The numbers of the places: first the running nodes, then the deferred nodes, then the arrived
/// nodes, join by join.
#[derive(Clone, Debug, Default)]
struct Places {
    nodes: usize,
    arrived: Vec<usize>,
    count: usize,
}

impl Concurrency {
    /// Returns the concurrent places of a flow model.
    pub(crate) fn between(model: &FlowModel) -> Self {
        Self::of(model, &Reach::of(model))
    }

    /// Returns for each node the nodes that may run in the same step.
    pub(crate) fn all(&self, model: &FlowModel) -> Vec<Bits> {
        let nodes = model.nodes.len();
        let beside =
            |node| self.with.row(node).map_or_else(|| Bits::none(nodes), |it| it.first(nodes));
        (0..nodes).map(beside).collect()
    }

    pub(super) fn of(model: &FlowModel, reach: &Reach) -> Self {
        let places = Places::of(model);
        if model.forks().is_empty() {
            return Self { with: Pairs::default(), places };
        }
        let mut walk = Walk::new(model, reach, places);
        walk.run();
        walk.met()
    }

    /// Returns the nodes that may run in the same step as this one, including itself if it may have
    /// several tasks.
    pub(super) fn of_node(&self, node: usize) -> impl Iterator<Item = usize> {
        self.nodes_beside(node)
    }

    /// Returns the places that may be occupied while a node runs, including itself if it may have several tasks.
    pub(super) fn beside_node(&self, node: usize) -> impl Iterator<Item = Place> {
        let beside = self.with.row(node).into_iter().flat_map(Bits::iter);
        beside.map(|it| self.places.place(it))
    }

    pub(super) fn of_deferred(&self, node: usize) -> impl Iterator<Item = usize> {
        self.nodes_beside(self.places.deferred(node))
    }

    pub(super) fn of_arrived(&self, join: usize, at: usize) -> impl Iterator<Item = usize> {
        self.nodes_beside(self.places.arrived(join, at))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.with.rows.is_empty()
    }

    fn nodes_beside(&self, place: usize) -> impl Iterator<Item = usize> {
        let beside = self.with.row(place).into_iter().flat_map(Bits::iter);
        beside.take_while(|it| *it < self.places.nodes)
    }
}

impl Place {
    /// Returns the node that runs or waits there.
    pub(super) fn node(self, model: &FlowModel) -> usize {
        match self {
            Self::Running(node) | Self::Deferred(node) => node,
            Self::Arrived(join, _) => model.joins[join].node,
        }
    }
}

impl Pairs {
    fn new(length: usize, width: usize) -> Self {
        Self { rows: vec![None; length], width }
    }

    /// Returns the numbers paired with a number, if there are any.
    fn row(&self, one: usize) -> Option<&Bits> {
        self.rows.get(one)?.as_ref()
    }

    /// Adds a pair; returns whether it is new.
    fn insert(&mut self, one: usize, other: usize) -> bool {
        self.rows[one].get_or_insert_with(|| Bits::none(self.width)).insert(other)
    }

    /// Adds several pairs with the same first number; returns the second numbers that are new.
    fn insert_all(&mut self, one: usize, mut others: Bits) -> Bits {
        let row = self.rows[one].get_or_insert_with(|| Bits::none(self.width));
        others.remove(row);
        row.add(&others);
        others
    }

    /// Removes and returns the numbers paired with a number.
    fn take(&mut self, one: usize) -> Option<Bits> {
        self.rows[one].take()
    }
}

impl Places {
    fn of(model: &FlowModel) -> Self {
        let nodes = model.nodes.len();
        let mut count = 2 * nodes;
        let mut arrived = Vec::new();
        for join in &model.joins {
            arrived.push(count);
            count += join.awaited.len();
        }
        Self { nodes, arrived, count }
    }

    fn deferred(&self, node: usize) -> usize {
        self.nodes + node
    }

    fn arrived(&self, join: usize, at: usize) -> usize {
        self.arrived[join] + at
    }

    fn place(&self, number: usize) -> Place {
        match self.join_of(number) {
            Some(join) => Place::Arrived(join, number - self.arrived[join]),
            None if number < self.nodes => Place::Running(number),
            None => Place::Deferred(number - self.nodes),
        }
    }

    fn join_of(&self, place: usize) -> Option<usize> {
        if place < 2 * self.nodes {
            return None;
        }
        let after = self.arrived.partition_point(|it| *it <= place);
        after.checked_sub(1)
    }
}

#[cfg(test)]
pub(super) mod tests;
