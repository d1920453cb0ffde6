//! How pairs of places follow from each other.
//!
//! If both nodes of a pair moved at once, the analysis would combine all moves of both. Instead one
//! node moves at a time. Of the first node only its move matters. Each move is combined with each
//! place once, independently of its node, and with each other move once.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;

use super::{Concurrency, Pairs, Places};
use crate::flow_model::{Arrow, Bits, Decision, FlowModel, Join, reach::Reach};

/// The effect of one arrow of a node: the places where it leads. Nodes with equal moves share them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Move {
    arrow: Arrow,
    to: Vec<usize>,
}

/// The moves that a node may make.
#[derive(Debug, Default)]
struct Moves {
    /// Each move with its arrow, in the order of the arrows.
    each: Vec<(Arrow, usize)>,
    numbers: Vec<usize>,
    /// The same numbers as a set, if that is cheaper.
    set: Option<Bits>,
}

pub(super) struct Walk<'a> {
    model: &'a FlowModel,
    reach: &'a Reach,
    places: Places,
    moves: Vec<Move>,
    of_nodes: Vec<Moves>,
    /// For each join, the places that are entered when it is complete.
    completed: Vec<Vec<usize>>,
    /// For each join and a place beside it, the number of nodes that have arrived there.
    arrived: HashMap<(usize, usize), usize, RandomState>,
    with: Pairs,
    /// The pairs from which the walk has not continued yet, by their first place.
    fresh: Pairs,
    /// The places with such pairs.
    open: VecDeque<usize>,
    /// The places beside which a move was made, before they moved themselves.
    beside: Pairs,
    /// The moves that were made in the same step.
    made: Pairs,
    /// The number of combinations of two moves, or of a move and a set of places.
    work: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(model: &'a FlowModel, reach: &'a Reach, places: Places) -> Self {
        let count = places.count;
        let mut walk = Self {
            model,
            reach,
            places,
            moves: Vec::new(),
            of_nodes: Vec::new(),
            completed: Vec::new(),
            arrived: HashMap::default(),
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
        walk.completed = model.joins.iter().map(completed).collect();
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
                self.continue_from(place, &others);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn work(&self) -> usize {
        self.work
    }

    pub(super) fn met(self) -> Concurrency {
        Concurrency { with: self.with, places: self.places }
    }

    /// Numbers all moves; returns those at the start.
    fn number_moves(&mut self) -> Vec<usize> {
        let mut numbers: HashMap<Move, usize, RandomState> = HashMap::default();
        let mut number = |it: Move| {
            let next = numbers.len();
            *numbers.entry(it).or_insert(next)
        };
        let mut start = self.model.start.clone();
        start.sort_unstable();
        start.dedup();
        let first = |it: &usize| Move { arrow: Arrow::Node(*it), to: self.entered(None, *it) };
        let start = start.iter().map(|it| number(first(it))).collect();
        for (at, node) in self.model.nodes.iter().enumerate() {
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

    /// Returns the places that are occupied after an arrow led to a node: first that of the node itself, then those behind
    /// bounds that are used up.
    fn entered(&self, from: Option<usize>, to: usize) -> Vec<usize> {
        let place = |node: usize| {
            if self.model.nodes[node].defers.is_some() { self.places.deferred(node) } else { node }
        };
        self.reach.reached(self.model, from, to).into_iter().map(|it| place(it.node)).collect()
    }

    fn move_by(&self, from: usize, arrow: Arrow) -> Move {
        let to = match arrow {
            Arrow::Node(to) => self.entered(Some(from), to),
            Arrow::Tasks(to) => {
                let mut places = self.entered(Some(from), to);
                // The items of a deferred node do not wait. The node itself may be entered again behind its bound, and waits.
                places[0] = to;
                places
            }
            Arrow::Join(join) => {
                let at = self.model.joins[join].position(from);
                at.map(|it| self.places.arrived(join, it)).into_iter().collect()
            }
            Arrow::End | Arrow::Fail => Vec::new(),
        };
        Move { arrow, to }
    }

    /// Adds the pairs that originate at the start and at forks.
    fn begin(&mut self, start: &[usize]) {
        let mut all = Bits::none(self.moves.len());
        all.extend(start);
        for one in start {
            self.make_with(*one, all.clone());
        }
        let model = self.model;
        let reached = self.reach.from(model.start.iter().copied().chain(model.node_after_limit()));
        for node in model.forks().into_iter().filter(|it| reached.contains(*it)) {
            for outcome in &model.nodes[node].outcomes {
                // Independent decisions are taken together in any combination.
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

    /// Records that a move is made in the same step as each of these moves.
    fn make_with(&mut self, one: usize, others: Bits) {
        self.work += 1;
        for other in self.made.insert_all(one, others).iter() {
            self.made.insert(other, one);
            self.make_both(one, other);
        }
    }

    /// Adds the pairs of two moves in the same step.
    fn make_both(&mut self, one: usize, other: usize) {
        self.work += 1;
        let arrows = [one, other].map(|it| self.moves[it].arrow);
        let tasks = |it: usize| arrows.contains(&Arrow::Tasks(it));
        if arrows[0] == arrows[1] {
            // A node that is reached twice runs once, and a used-up bound is used up for both.
            if let Arrow::Tasks(node) = arrows[0] {
                self.add(node, node);
            }
            return;
        }
        for first in 0..self.moves[one].to.len() {
            for second in 0..self.moves[other].to.len() {
                let first = self.moves[one].to[first];
                let second = self.moves[other].to[second];
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

    /// Continues from a join if enough of its nodes may have arrived beside the same place.
    ///
    /// A join that is complete takes all of its arrivals with it. The walk ignores that later ones are absorbed, which
    /// only makes more pairs.
    fn complete(&mut self, arrived: usize, beside: usize) {
        let Some(join) = self.places.join_of(arrived) else { return };
        if self.places.join_of(beside) == Some(join) {
            return;
        }
        let count = self.arrived.entry((join, beside)).or_default();
        *count += 1;
        if *count == self.model.joins[join].count {
            for at in 0..self.completed[join].len() {
                let node = self.completed[join][at];
                if node != beside {
                    self.add(node, beside);
                }
            }
        }
    }

    /// Adds the pairs that follow from a place and the places beside it.
    fn continue_from(&mut self, place: usize, others: &Bits) {
        let nodes = self.places.nodes;
        if place >= nodes {
            others.iter().for_each(|it| self.release(place, it));
            return;
        }
        let mut others = others.clone();
        if self.model.nodes[place].ends_once {
            // All of its tasks make the same move.
            let mut itself = Bits::none(self.places.count);
            itself.insert(place);
            others.remove(&itself);
        }
        for at in 0..self.of_nodes[place].numbers.len() {
            let one = self.of_nodes[place].numbers[at];
            self.make_beside(one, others.clone());
        }
    }

    /// Makes a move while each of these places is occupied; each of them moves next or waits.
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

    /// Lets a waiting node continue, unless another node must move first.
    fn release(&mut self, waits: usize, beside: usize) {
        let nodes = self.places.nodes;
        let runs = |it: usize| it < nodes;
        let is_deferred = |it: usize| (nodes..2 * nodes).contains(&it);
        if runs(beside) {
            let defers = is_deferred(waits).then(|| &self.model.nodes[waits - nodes].defers);
            if defers.and_then(Option::as_ref).is_some_and(|it| !it.first.contains(beside)) {
                // The node waits for other nodes, which may have run until now, and not for this
                // one.
                self.add(waits - nodes, beside);
            }
            return;
        }
        // No node runs here, so each deferred node may continue, alone or together.
        let first = if is_deferred(waits) { waits - nodes } else { waits };
        let second = if is_deferred(beside) { beside - nodes } else { beside };
        for (one, other) in [(first, second), (first, beside), (waits, second)] {
            if runs(one) || runs(other) {
                self.add(one, other);
            }
        }
    }
}
