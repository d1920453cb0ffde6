//! How pairs of places follow from each other.
//!
//! A pair of nodes that both move would take as long as both have moves together. So one moves at
//! a time: what matters of the first is only which move it made, and each move is made beside each
//! node once, whoever made it, and with each other move once.

use std::collections::{HashMap, VecDeque};

use super::{Meetings, Pairs, Places};
use crate::graph::net::{Arrow, Bits, Decision, Join, Net, reach::Reach};

/// What becomes of a node by one of its arrows. Nodes with the same moves share them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Move {
    arrow: Arrow,
    to: Vec<usize>,
}

/// The moves that a node may make.
#[derive(Debug, Default)]
struct Moves {
    /// Each with its arrow, in the order of the arrows.
    each: Vec<(Arrow, usize)>,
    numbers: Vec<usize>,
    /// The same, if that is shorter.
    set: Option<Bits>,
}

pub(super) struct Walk<'a> {
    net: &'a Net,
    reach: &'a Reach,
    places: Places,
    moves: Vec<Move>,
    of_nodes: Vec<Moves>,
    /// For each join, what runs once it is complete.
    completed: Vec<Vec<usize>>,
    /// For each join and a place beside it, how many have arrived there.
    arrived: HashMap<(usize, usize), usize>,
    with: Pairs,
    /// The pairs that were not yet gone on from, by their first.
    fresh: Pairs,
    /// The places that have some.
    open: VecDeque<usize>,
    /// The places beside which a move was made, while they had not moved.
    beside: Pairs,
    /// The moves that were made in the same step.
    made: Pairs,
    /// How often moves were put together, or a move and a set of places.
    work: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(net: &'a Net, reach: &'a Reach, places: Places) -> Self {
        let count = places.count;
        let mut walk = Self {
            net,
            reach,
            places,
            moves: Vec::new(),
            of_nodes: Vec::new(),
            completed: Vec::new(),
            arrived: HashMap::new(),
            with: Pairs::new(count, count),
            fresh: Pairs::new(count, count),
            open: VecDeque::new(),
            beside: Pairs::default(),
            made: Pairs::default(),
            work: 0,
        };
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

    pub(super) fn run(&mut self) {
        let start = self.number_moves();
        let moves = self.moves.len();
        self.beside = Pairs::new(moves, self.places.count);
        self.made = Pairs::new(moves, moves);
        self.begin(&start);
        while let Some(place) = self.open.pop_front() {
            if let Some(others) = self.fresh.take(place) {
                self.go_on(place, &others);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn work(&self) -> usize {
        self.work
    }

    pub(super) fn met(self) -> Meetings {
        Meetings { with: self.with, places: self.places }
    }

    /// Numbers what can happen; gives what happens at the start.
    fn number_moves(&mut self) -> Vec<usize> {
        let mut numbers: HashMap<Move, usize> = HashMap::new();
        let mut number = |it: Move| {
            let next = numbers.len();
            *numbers.entry(it).or_insert(next)
        };
        let mut start = self.net.start.clone();
        start.sort_unstable();
        start.dedup();
        let first = |it: &usize| Move { arrow: Arrow::Node(*it), to: self.entered(None, *it) };
        let start = start.iter().map(|it| number(first(it))).collect();
        for (at, node) in self.net.nodes.iter().enumerate() {
            let mut arrows: Vec<Arrow> = node.arrows().collect();
            arrows.sort_unstable();
            arrows.dedup();
            let each = arrows.into_iter().map(|it| (it, number(self.move_by(at, it)))).collect();
            self.of_nodes.push(Moves { each, ..Moves::default() });
        }
        let mut moves: Vec<(Move, usize)> = numbers.into_iter().collect();
        moves.sort_unstable_by_key(|it| it.1);
        self.moves = moves.into_iter().map(|it| it.0).collect();
        for node in &mut self.of_nodes {
            node.numbers = node.each.iter().map(|it| it.1).collect();
            if node.numbers.len() > self.moves.len() / 64 {
                let mut set = Bits::none(self.moves.len());
                set.extend(&node.numbers);
                node.set = Some(set);
            }
        }
        start
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

    /// The pairs that come from the start and from forks.
    fn begin(&mut self, start: &[usize]) {
        let mut all = Bits::none(self.moves.len());
        all.extend(start);
        for one in start {
            self.make_with(*one, all.clone());
        }
        let net = self.net;
        let reached = self.reach.from(net.start.iter().copied().chain(net.after_limit));
        for node in net.forks().into_iter().filter(|it| reached.contains(*it)) {
            for outcome in &net.nodes[node].outcomes {
                // What is decided independently goes on together, whatever it is.
                let mut earlier = Bits::none(self.moves.len());
                for decision in &outcome.decisions {
                    self.fork(node, decision, &mut earlier);
                }
            }
        }
    }

    fn fork(&mut self, node: usize, decision: &Decision, earlier: &mut Bits) {
        let mut all = Bits::none(self.moves.len());
        for alternative in &decision.alternatives {
            let each = &self.of_nodes[node].each;
            let number = |arrow: &Arrow| {
                let at = each.binary_search_by_key(arrow, |it| it.0);
                each[at.expect("the moves of a node are those of its arrows")].1
            };
            let moves: Vec<usize> = alternative.arrows.iter().map(number).collect();
            let mut together = earlier.clone();
            together.extend(&moves);
            for one in &moves {
                self.make_with(*one, together.clone());
            }
            all.extend(&moves);
        }
        earlier.add(&all);
    }

    /// A move is made in the same step as each of these.
    fn make_with(&mut self, one: usize, others: Bits) {
        self.work += 1;
        for other in self.made.insert_all(one, others).iter() {
            self.made.insert(other, one);
            self.make_both(one, other);
        }
    }

    /// Both moves are made in the same step.
    fn make_both(&mut self, one: usize, other: usize) {
        self.work += 1;
        let arrows = [one, other].map(|it| self.moves[it].arrow);
        let tasks = |it: usize| arrows.contains(&Arrow::Tasks(it));
        if arrows[0] == arrows[1] {
            // What is reached twice runs once, and what is used up is so for both.
            if let Arrow::Tasks(node) = arrows[0] {
                self.add(node, node);
            }
            return;
        }
        for first in 0..self.moves[one].to.len() {
            for second in 0..self.moves[other].to.len() {
                let (first, second) = (self.moves[one].to[first], self.moves[other].to[second]);
                if first != second || tasks(first) {
                    self.add(first, second);
                }
            }
        }
    }

    fn add(&mut self, one: usize, other: usize) {
        if !self.with.insert(one, other) {
            return;
        }
        self.with.insert(other, one);
        for (place, beside) in [(one, other), (other, one)] {
            if self.fresh.row(place).is_none() {
                self.open.push_back(place);
            }
            self.fresh.insert(place, beside);
        }
        self.complete(one, other);
        self.complete(other, one);
    }

    /// Goes on from a join if all of its nodes may have arrived beside the same.
    fn complete(&mut self, arrived: usize, beside: usize) {
        let Some(join) = self.places.join_of(arrived) else { return };
        if self.places.join_of(beside) == Some(join) {
            return;
        }
        let count = self.arrived.entry((join, beside)).or_default();
        *count += 1;
        if *count == self.net.joins[join].awaited.len() {
            for at in 0..self.completed[join].len() {
                let node = self.completed[join][at];
                if node != beside {
                    self.add(node, beside);
                }
            }
        }
    }

    /// What follows from a place and others that it meets.
    fn go_on(&mut self, place: usize, others: &Bits) {
        let nodes = self.places.nodes;
        if place >= nodes {
            others.iter().for_each(|it| self.let_go(place, it));
            return;
        }
        for at in 0..self.of_nodes[place].numbers.len() {
            let one = self.of_nodes[place].numbers[at];
            self.make_beside(one, others.clone());
        }
    }

    /// A move is made while something is at each of these places, which moves next or waits.
    fn make_beside(&mut self, one: usize, places: Bits) {
        self.work += 1;
        let places = self.beside.insert_all(one, places);
        let mut moves = Bits::none(self.moves.len());
        for place in places.iter() {
            if let Some(runs) = self.of_nodes.get(place) {
                self.work += 1;
                match &runs.set {
                    Some(set) => _ = moves.add(set),
                    None => moves.extend(&runs.numbers),
                }
                continue;
            }
            for at in 0..self.moves[one].to.len() {
                let to = self.moves[one].to[at];
                if to != place {
                    self.add(to, place);
                }
            }
        }
        self.make_with(one, moves);
    }

    /// What waits goes on, where that need not be for something else to move first.
    fn let_go(&mut self, waits: usize, beside: usize) {
        let nodes = self.places.nodes;
        let runs = |it: usize| it < nodes;
        let is_deferred = |it: usize| (nodes..2 * nodes).contains(&it);
        if runs(beside) {
            let defers = is_deferred(waits).then(|| &self.net.nodes[waits - nodes].defers);
            if defers.and_then(Option::as_ref).is_some_and(|it| !it.first.contains(beside)) {
                // It does not wait for this one, but for others that may have run until now.
                self.add(waits - nodes, beside);
            }
            return;
        }
        // Nothing runs here, so what let others go first may go on, with all that did.
        let first = if is_deferred(waits) { waits - nodes } else { waits };
        let second = if is_deferred(beside) { beside - nodes } else { beside };
        for (one, other) in [(first, second), (first, beside), (waits, second)] {
            if runs(one) || runs(other) {
                self.add(one, other);
            }
        }
    }
}
