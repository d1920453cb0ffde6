//! Which nodes may meet in one super-step.
//!
//! Looked at are pairs of places: a node that runs, a node that lets others go first, or a node
//! that has arrived at a join. Both of a pair move in the same step, each in each of its ways; a
//! pair comes from a fork. A join goes on beside something only if each of its nodes may have
//! arrived beside the same. So no meeting is missed, and where forks and joins are nested none is
//! reported that cannot be.

mod walk;

use self::walk::Walk;
use super::{Bits, Net, reach::Reach};

/// Who may be where at the same time.
#[derive(Debug, Default)]
pub(crate) struct Meetings {
    /// For each place, the places that something else may be at. Empty if nothing meets.
    with: Pairs,
    places: Places,
}

/// Which of two kinds of things go together: a row for each of the first, made when it is needed,
/// as most places of a large graph meet nothing.
#[derive(Debug, Default)]
struct Pairs {
    rows: Vec<Option<Bits>>,
    width: usize,
}

/// The numbers of the places: first the nodes, then the nodes that wait to be the last, then the
/// nodes that have arrived, join by join.
#[derive(Clone, Debug, Default)]
struct Places {
    nodes: usize,
    arrived: Vec<usize>,
    count: usize,
}

impl Meetings {
    /// The meetings of a net.
    pub(crate) fn between(net: &Net) -> Self {
        Self::of(net, &Reach::of(net))
    }

    /// For each node those that may run in the same step.
    pub(crate) fn all(&self, net: &Net) -> Vec<Bits> {
        let nodes = net.nodes.len();
        let beside = |it| self.with.row(it).map_or_else(|| Bits::none(nodes), |it| it.first(nodes));
        (0..nodes).map(beside).collect()
    }

    pub(super) fn of(net: &Net, reach: &Reach) -> Self {
        let places = Places::of(net);
        if net.forks().is_empty() {
            return Self { with: Pairs::default(), places };
        }
        let mut walk = Walk::new(net, reach, places);
        walk.run();
        walk.met()
    }

    /// The nodes that may run in the same step as this one; itself, if several of its tasks may.
    pub(super) fn of_node(&self, node: usize) -> impl Iterator<Item = usize> {
        self.nodes_beside(node)
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

impl Pairs {
    fn new(length: usize, width: usize) -> Self {
        Self { rows: vec![None; length], width }
    }

    /// What one goes together with, if anything.
    fn row(&self, one: usize) -> Option<&Bits> {
        self.rows.get(one)?.as_ref()
    }

    /// Adds a pair; whether it was not there.
    fn insert(&mut self, one: usize, other: usize) -> bool {
        self.rows[one].get_or_insert_with(|| Bits::none(self.width)).insert(other)
    }

    /// Adds several with the same first; those that were not there.
    fn insert_all(&mut self, one: usize, mut others: Bits) -> Bits {
        let row = self.rows[one].get_or_insert_with(|| Bits::none(self.width));
        others.remove(row);
        row.add(&others);
        others
    }

    /// Removes what one goes together with.
    fn take(&mut self, one: usize) -> Option<Bits> {
        self.rows[one].take()
    }
}

impl Places {
    fn of(net: &Net) -> Self {
        let nodes = net.nodes.len();
        let mut count = 2 * nodes;
        let mut arrived = Vec::new();
        for join in &net.joins {
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

    fn join_of(&self, place: usize) -> Option<usize> {
        if place < 2 * self.nodes {
            return None;
        }
        let after = self.arrived.partition_point(|it| *it <= place);
        after.checked_sub(1)
    }
}

#[cfg(test)]
mod tests;
