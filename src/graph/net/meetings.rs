//! Which nodes may meet in one super-step.
//!
//! Looked at are pairs of places: a node that runs, a node that lets others go first, or a node
//! that has arrived at a join. Both of a pair move in the same step, each in each of its ways; a
//! pair comes from a fork. A join goes on beside something only if each of its nodes may have
//! arrived beside the same. So no meeting is missed, and where forks and joins are nested none is
//! reported that cannot be.

use std::rc::Rc;

use super::{Arrow, Bits, Join, Net, reach::Reach};

/// Who may be where at the same time.
#[derive(Debug, Default)]
pub(crate) struct Meetings {
    /// For each place, the places that something else may be at. Empty if nothing meets.
    with: Vec<Bits>,
    places: Places,
}

/// The numbers of the places: first the nodes, then the nodes that wait to be the last, then the
/// nodes that have arrived, join by join.
#[derive(Clone, Debug, Default)]
struct Places {
    nodes: usize,
    arrived: Vec<usize>,
    count: usize,
}

/// What becomes of a place by one of its arrows.
#[derive(Clone, Debug)]
struct Move {
    arrow: Arrow,
    to: Vec<usize>,
}

impl Meetings {
    /// The meetings of a net.
    pub(crate) fn between(net: &Net) -> Self {
        Self::of(net, &Reach::of(net))
    }

    /// For each node those that may run in the same step.
    pub(crate) fn all(&self, net: &Net) -> Vec<Bits> {
        let beside = |node: usize| {
            let mut all = Bits::none(net.nodes.len());
            all.extend(&self.of_node(node).collect::<Vec<_>>());
            all
        };
        (0..net.nodes.len()).map(beside).collect()
    }

    pub(super) fn of(net: &Net, reach: &Reach) -> Self {
        let places = Places::of(net);
        if net.forks().is_empty() {
            return Self { with: Vec::new(), places };
        }
        let mut walk = Walk::new(net, reach, places);
        walk.begin();
        while let Some((one, other)) = walk.open.pop() {
            walk.step(one, other);
        }
        Self { with: walk.with, places: walk.places }
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
        self.with.is_empty()
    }

    fn nodes_beside(&self, place: usize) -> impl Iterator<Item = usize> {
        let beside = self.with.get(place).into_iter().flat_map(Bits::iter);
        beside.take_while(|it| *it < self.places.nodes)
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
        let after = self.arrived.partition_point(|it| *it <= place);
        after.checked_sub(1)
    }
}

struct Walk<'a> {
    net: &'a Net,
    reach: &'a Reach,
    places: Places,
    /// What becomes of each node.
    moves: Rc<[Vec<Move>]>,
    /// For each join, what runs once it is complete.
    completed: Vec<Vec<usize>>,
    with: Vec<Bits>,
    open: Vec<(usize, usize)>,
}

impl<'a> Walk<'a> {
    fn new(net: &'a Net, reach: &'a Reach, places: Places) -> Self {
        let with = vec![Bits::none(places.count); places.count];
        let mut walk = Self {
            net,
            reach,
            places,
            moves: Rc::from([]),
            completed: Vec::new(),
            with,
            open: Vec::new(),
        };
        walk.moves = (0..net.nodes.len()).map(|it| walk.moves_of(it)).collect();
        let completed = |join: &Join| {
            let mut all: Vec<usize> =
                join.awaited.iter().flat_map(|it| walk.entered(Some(*it), join.node)).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        walk.completed = net.joins.iter().map(completed).collect();
        walk
    }

    /// The places where something is once an arrow led to a node.
    fn entered(&self, from: Option<usize>, to: usize) -> Vec<usize> {
        let place = |node: usize| {
            if self.net.nodes[node].defers.is_some() { self.places.deferred(node) } else { node }
        };
        self.reach.reached(self.net, from, to).into_iter().map(|it| place(it.node)).collect()
    }

    fn move_by(&self, from: usize, arrow: Arrow) -> Move {
        let to = match arrow {
            Arrow::Node(to) | Arrow::Tasks(to) => self.entered(Some(from), to),
            Arrow::Join(join) => {
                let at = self.net.joins[join].position(from);
                at.map(|it| self.places.arrived(join, it)).into_iter().collect()
            }
            Arrow::End | Arrow::Fail => Vec::new(),
        };
        Move { arrow, to }
    }

    fn moves_of(&self, node: usize) -> Vec<Move> {
        let mut arrows: Vec<Arrow> = self.net.nodes[node].arrows().collect();
        arrows.sort_unstable();
        arrows.dedup();
        arrows.into_iter().map(|it| self.move_by(node, it)).collect()
    }

    /// The pairs that come from the start and from forks.
    fn begin(&mut self) {
        let first = |it: &usize| Move { arrow: Arrow::Node(*it), to: self.entered(None, *it) };
        let mut start = self.net.start.clone();
        start.sort_unstable();
        start.dedup();
        let start: Vec<Move> = start.iter().map(first).collect();
        self.pair_all(&start);
        let reached = self.reach.from(self.net.start.iter().copied().chain(self.net.after_limit));
        for node in reached.iter() {
            for outcome in &self.net.nodes[node].outcomes {
                // What is decided independently goes on together, whatever it is.
                let mut earlier: Vec<Move> = Vec::new();
                for decision in &outcome.decisions {
                    let mut all = Vec::new();
                    for alternative in &decision.alternatives {
                        let arrows = alternative.arrows.iter();
                        let moves: Vec<Move> = arrows.map(|it| self.move_by(node, *it)).collect();
                        self.pair_all(&moves);
                        for one in &moves {
                            for it in &earlier {
                                self.pair(it, one);
                            }
                        }
                        all.extend(moves);
                    }
                    earlier.extend(all);
                }
            }
        }
    }

    fn pair_all(&mut self, moves: &[Move]) {
        for (at, one) in moves.iter().enumerate() {
            if let Arrow::Tasks(_) = one.arrow {
                self.pair(one, one);
            }
            moves[at + 1..].iter().for_each(|it| self.pair(one, it));
        }
    }

    /// Both moves are made in the same step.
    fn pair(&mut self, one: &Move, other: &Move) {
        let tasks = |it: usize| [one, other].iter().any(|by| by.arrow == Arrow::Tasks(it));
        if one.arrow == other.arrow {
            // What is reached twice runs once, and what is used up is so for both.
            if let Arrow::Tasks(node) = one.arrow {
                self.add(node, node);
            }
            return;
        }
        for &first in &one.to {
            for &second in &other.to {
                if first != second || tasks(first) {
                    self.add(first, second);
                }
            }
        }
    }

    fn add(&mut self, one: usize, other: usize) {
        if !self.with[one].insert(other) {
            return;
        }
        self.with[other].insert(one);
        self.open.push((one, other));
        self.complete(one, other);
        self.complete(other, one);
    }

    /// Goes on from a join if all of its nodes may have arrived beside the same.
    fn complete(&mut self, arrived: usize, beside: usize) {
        let Some(join) = self.places.join_of(arrived) else { return };
        if self.places.join_of(beside) == Some(join) {
            return;
        }
        let awaited = 0..self.net.joins[join].awaited.len();
        let mut arrived = awaited.map(|it| self.places.arrived(join, it));
        if arrived.all(|it| self.with[it].contains(beside)) {
            for at in 0..self.completed[join].len() {
                let node = self.completed[join][at];
                if node != beside {
                    self.add(node, beside);
                }
            }
        }
    }

    fn step(&mut self, one: usize, other: usize) {
        let nodes = self.places.nodes;
        let runs = |it: usize| it < nodes;
        let is_deferred = |it: usize| (nodes..2 * nodes).contains(&it);
        match (runs(one), runs(other)) {
            (true, true) => {
                let moves = Rc::clone(&self.moves);
                for first in &moves[one] {
                    moves[other].iter().for_each(|it| self.pair(first, it));
                }
            }
            (true, false) => self.step_beside(one, other),
            (false, true) => self.step_beside(other, one),
            (false, false) => {
                // Nothing runs here, so what let others go first may go on, with all that did.
                let first = if is_deferred(one) { one - nodes } else { one };
                let second = if is_deferred(other) { other - nodes } else { other };
                for (one, other) in [(first, second), (first, other), (one, second)] {
                    if runs(one) || runs(other) {
                        self.add(one, other);
                    }
                }
            }
        }
    }

    /// One moves while the other waits.
    fn step_beside(&mut self, runs: usize, waits: usize) {
        let moves = Rc::clone(&self.moves);
        if let Some(defers) = waits
            .checked_sub(self.places.nodes)
            .and_then(|it| self.net.nodes.get(it).and_then(|node| node.defers.as_ref()))
            && !defers.first.contains(runs)
        {
            // It does not wait for this one, but for others that may have run until now.
            self.add(waits - self.places.nodes, runs);
        }
        for place in moves[runs].iter().flat_map(|it| &it.to).filter(|it| **it != waits) {
            self.add(*place, waits);
        }
    }
}
