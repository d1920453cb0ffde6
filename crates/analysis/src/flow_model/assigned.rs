//! Definite assignment: the fields that are written when a node starts, on some way to it
//! (may-assign) and on every way (must-assign).
//!
//! Both come from one data flow analysis that follows every line between two nodes until nothing
//! changes. May-assign is the union over all lines, must-assign the intersection. All branches that
//! arrive at a join have finished, so the join has the writes of each; if it waits for some of them only, those that every
//! choice of them writes. A node that runs
//! concurrently may write a field in time, which makes the field possible; or it may clear the
//! field, which makes it uncertain.

use std::collections::BTreeSet;

use graphrun_core::graph::TriggerKind;

use super::{Arrow, Bits, Concurrency, Ending, FlowModel, reach::Reach};

/// The fields that are written when each node starts, and the reasons for gaps.
#[derive(Debug)]
pub struct Assigned {
    /// The fields that some way to the node has written (may-assign).
    maybe: Vec<Bits>,
    /// The fields that every way to the node has written (must-assign).
    surely: Vec<Bits>,
    lines: Vec<Line>,
    into: Vec<Vec<usize>>,
    /// The fields that are certainly written along each line.
    carried: Vec<Bits>,
}

/// A place where a field stays unwritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The node before it; `None` at the start and after a limit.
    pub from: Option<usize>,
    /// The node after it.
    pub to: usize,
    /// Whether the field can be missing or must be.
    pub kind: GapKind,
}

/// The reason why a field may be unwritten on a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapKind {
    /// No node on the way writes it.
    Unwritten(Ending),
    /// The bound of this node was used up, and no earlier node writes it.
    Spent(usize),
    /// This node clears it.
    Cleared(usize),
    /// A limit may be reached before a node writes it.
    Limit,
}

/// A line from a node to the next.
#[derive(Clone, Debug)]
struct Line {
    /// `None` at the start and after a limit.
    from: Option<usize>,
    to: usize,
    ending: Ending,
    known: Vec<usize>,
    /// The bounds that are used up on this line.
    spent: Vec<usize>,
    /// The join where it arrives, and the position of its node among those that the join waits for.
    join: Option<(usize, usize)>,
    is_limit: bool,
}

impl Line {
    /// The triggers that the node at its end may have.
    fn triggers(&self, model: &FlowModel) -> &'static [TriggerKind] {
        let limits_of = |it: usize| model.nodes[it].bound.is_some_and(|it| it.has_limits);
        match (self.spent.last(), self.from) {
            (Some(spent), _) if limits_of(*spent) => &[TriggerKind::Exhausted, TriggerKind::Limit],
            (Some(_), _) => &[TriggerKind::Exhausted],
            (None, None) if self.is_limit => &[TriggerKind::Limit],
            (None, None) => &[TriggerKind::Start],
            (None, Some(_)) if self.ending == Ending::Caught => &[TriggerKind::Caught],
            (None, Some(_)) => &[TriggerKind::Then],
        }
    }
}

impl Assigned {
    /// Computes the sets for each node of a model.
    pub fn of(model: &FlowModel) -> Self {
        let mut reach = Reach::of(model);
        let concurrency = Concurrency::of(model, &reach);
        reach.refine(|it| concurrency.of_node(it).collect());
        FieldFlow::new(model, &reach, &concurrency).run()
    }

    /// Returns the fields that some way to a node has written.
    pub fn maybe_before(&self, node: usize) -> &Bits {
        &self.maybe[node]
    }

    /// Returns the fields that every way to a node has written; all fields, if no way leads to it.
    pub fn surely_before(&self, node: usize) -> &Bits {
        &self.surely[node]
    }

    /// Returns the fields that are written on every line into a node from another one or from itself; none, if there
    /// is no such line.
    pub(super) fn written_along_lines_into(&self, node: usize, fields: usize) -> Bits {
        let mut lines = self.into[node].iter().filter(|it| self.lines[**it].from.is_some());
        let Some(first) = lines.next() else { return Bits::none(fields) };
        let mut written = self.carried[*first].clone();
        for line in lines {
            written.keep(&self.carried[*line]);
        }
        written
    }

    /// Returns how the run may reach a node.
    pub fn triggers(&self, model: &FlowModel, node: usize) -> BTreeSet<TriggerKind> {
        let lines = self.into[node].iter().map(|it| &self.lines[*it]);
        lines.flat_map(|it| it.triggers(model)).copied().collect()
    }

    /// Returns a way on which a field is not written before a node, as near to the node as ways
    /// part.
    pub fn gap(&self, model: &FlowModel, node: usize, field: usize) -> Option<Gap> {
        let mut seen = BTreeSet::from([node]);
        let mut open = std::collections::VecDeque::from([node]);
        let mut last = None;
        while let Some(to) = open.pop_front() {
            let (with, without): (Vec<usize>, Vec<usize>) =
                self.into[to].iter().partition(|it| self.carried[**it].contains(field));
            let of_join = |lines: &[usize], join: usize| -> BTreeSet<usize> {
                let arrived = lines.iter().filter_map(|it| self.lines[*it].join);
                arrived.filter(|(it, _)| *it == join).map(|(_, at)| at).collect()
            };
            // The joins at which every choice of arrivals brings the field.
            let is_brought = |join: &usize| {
                let waits = &model.joins[*join];
                !waits.is_partial() || of_join(&without, *join).len() < waits.count
            };
            let joins = with.iter().filter_map(|it| self.lines[*it].join).map(|(join, _)| join);
            let joins: BTreeSet<usize> = joins.filter(is_brought).collect();
            for line in without.iter().map(|it| &self.lines[*it]) {
                if line.join.is_some_and(|(join, _)| joins.contains(&join)) {
                    // Another branch of the join writes it.
                    continue;
                }
                let gap = |kind| Some(Gap { from: line.from, to, kind });
                let Some(from) = line.from else {
                    let kind = if line.is_limit {
                        GapKind::Limit
                    } else {
                        GapKind::Unwritten(Ending::Finished)
                    };
                    last = last.or(gap(kind));
                    continue;
                };
                let node = &model.nodes[from];
                if line.ending.has_written() && node.clears.contains(field) {
                    return gap(GapKind::Cleared(from));
                }
                if !line.ending.has_written() && node.surely.contains(field) {
                    return gap(GapKind::Unwritten(line.ending));
                }
                let is_last = |(join, _): (usize, usize)| !of_join(&with, join).is_empty();
                if !with.is_empty() && line.join.is_none_or(is_last) {
                    return gap(match line.spent.last() {
                        Some(spent) => GapKind::Spent(*spent),
                        None => GapKind::Unwritten(line.ending),
                    });
                }
                let carries_before = self.surely[from].contains(field);
                if carries_before || node.surely.contains(field) {
                    // A concurrent node clears the field.
                    let clears = |it: &usize| model.nodes[*it].clears.contains(field);
                    let by = (0..model.nodes.len()).find(clears);
                    last = by.and_then(|it| gap(GapKind::Cleared(it))).or(last);
                    continue;
                }
                if seen.insert(from) {
                    open.push_back(from);
                }
            }
        }
        last
    }
}

/// Follows the lines until nothing changes (a fixed point).
struct FieldFlow<'a> {
    model: &'a FlowModel,
    reach: &'a Reach,
    concurrency: &'a Concurrency,
    lines: Vec<Line>,
    into: Vec<Vec<usize>>,
    maybe: Vec<Bits>,
    surely: Vec<Bits>,
    is_reached: Vec<bool>,
    /// For each join, the fields that each awaited node brings, once it has arrived.
    maybe_arrived: Vec<Vec<Option<Bits>>>,
    surely_arrived: Vec<Vec<Option<Bits>>>,
    /// The fields that nodes concurrent with each node may write.
    gains: Vec<Bits>,
    /// The fields that are uncertain after each node because a concurrent node may clear them.
    loses: Vec<Bits>,
    /// For each bounded node, the facts that follow from a visit of it.
    after_visit: Vec<Option<AfterVisit>>,
    /// The number of changes of any set so far.
    changes: u32,
    /// The number of the last change of the sets of each node.
    changed_at: Vec<u32>,
}

/// The facts that follow from a visit of a bounded node. A used-up bound implies such a visit.
struct AfterVisit {
    /// The nodes that are reachable when the visit did not finish.
    unfinished: Bits,
    /// The fields that a later node may clear.
    lost: Bits,
}

impl<'a> FieldFlow<'a> {
    fn new(model: &'a FlowModel, reach: &'a Reach, concurrency: &'a Concurrency) -> Self {
        let (nodes, fields) = (model.nodes.len(), model.fields);
        let arrived = |_: &super::Join| Vec::new();
        let mut following = Self {
            model,
            reach,
            concurrency,
            lines: Vec::new(),
            into: vec![Vec::new(); nodes],
            maybe: vec![Bits::none(fields); nodes],
            surely: vec![Bits::all(fields); nodes],
            is_reached: vec![false; nodes],
            maybe_arrived: model.joins.iter().map(arrived).collect(),
            surely_arrived: model.joins.iter().map(arrived).collect(),
            gains: (0..nodes).map(|it| written_by(model, concurrency.of_node(it))).collect(),
            loses: (0..nodes).map(|it| cleared_by(model, concurrency.of_node(it))).collect(),
            after_visit: Vec::new(),
            changes: 0,
            changed_at: vec![0; nodes],
        };
        for (at, join) in model.joins.iter().enumerate() {
            following.maybe_arrived[at] = vec![None; join.awaited.len()];
            following.surely_arrived[at] = vec![None; join.awaited.len()];
        }
        following.after_visit = (0..nodes).map(|it| following.after_visit_of(it)).collect();
        following.draw_lines();
        following
    }

    fn after_visit_of(&self, node: usize) -> Option<AfterVisit> {
        self.model.nodes[node].bound?;
        let outcomes = self.model.nodes[node].outcomes.iter();
        let mut unfinished = outcomes.filter(|it| !it.ending.has_written()).peekable();
        let mut after = Vec::new();
        if unfinished.peek().is_some() {
            // The branch of the visit may end, and a concurrent branch may use up the bound.
            after.extend(self.concurrency.of_node(node));
        }
        let to = unfinished.flat_map(super::Outcome::alternatives).flat_map(|it| &it.arrows);
        after.extend(to.filter_map(|it| match it {
            Arrow::Node(to) | Arrow::Tasks(to) => Some(*to),
            Arrow::Join(join) => Some(self.model.joins[*join].node),
            Arrow::End | Arrow::Fail => None,
        }));
        let unfinished = self.reach.from(after);
        let lost = if self.concurrency.is_empty() {
            cleared_by(self.model, self.reach.from([node]).iter())
        } else {
            cleared_by(self.model, 0..self.model.nodes.len())
        };
        Some(AfterVisit { unfinished, lost })
    }

    fn draw_lines(&mut self) {
        let limit = self.model.after_limit;
        for from in
            self.reach.order(&self.model.start.iter().copied().chain(limit).collect::<Vec<_>>())
        {
            for outcome in &self.model.nodes[from].outcomes {
                for alternative in outcome.alternatives() {
                    for arrow in &alternative.arrows {
                        let line = Line {
                            from: Some(from),
                            to: from,
                            ending: outcome.ending,
                            known: alternative.known.clone(),
                            spent: Vec::new(),
                            join: None,
                            is_limit: false,
                        };
                        self.draw(&line, *arrow);
                    }
                }
            }
        }
        let first = Line {
            from: None,
            to: 0,
            ending: Ending::Finished,
            known: Vec::new(),
            spent: Vec::new(),
            join: None,
            is_limit: false,
        };
        for &to in &self.model.start {
            self.push(Line { to, ..first.clone() });
        }
        if let Some(to) = limit {
            self.push(Line { to, is_limit: true, ..first });
        }
    }

    fn draw(&mut self, line: &Line, arrow: Arrow) {
        let (from, to, join) = match arrow {
            Arrow::Node(to) | Arrow::Tasks(to) => (line.from, to, None),
            Arrow::Join(at) => {
                let join = &self.model.joins[at];
                let position = line.from.and_then(|it| join.position(it));
                (line.from, join.node, position.map(|it| (at, it)))
            }
            Arrow::End | Arrow::Fail => return,
        };
        for reached in self.reach.reached(self.model, from, to) {
            let (to, spent) = (reached.node, reached.spent);
            self.push(Line { to, spent, join, ..line.clone() });
        }
    }

    fn push(&mut self, line: Line) {
        self.into[line.to].push(self.lines.len());
        self.lines.push(line);
    }

    fn run(mut self) -> Assigned {
        let lines = std::mem::take(&mut self.lines);
        // The lines that continue from each join, each to another node.
        let mut onward: Vec<Vec<&Line>> = vec![Vec::new(); self.model.joins.len()];
        for line in &lines {
            if let Some((join, _)) = line.join
                && onward[join].iter().all(|it| (it.to, &it.spent) != (line.to, &line.spent))
            {
                onward[join].push(line);
            }
        }
        // This terminates: may-assign sets only grow, and must-assign sets only shrink.
        let mut followed: Vec<Option<u32>> = vec![None; lines.len()];
        loop {
            let before = self.changes;
            for (line, followed) in lines.iter().zip(&mut followed) {
                if followed.is_none_or(|it| self.last_change(line) > it) {
                    *followed = Some(self.changes);
                    self.follow(line);
                }
            }
            for (join, onward) in onward.iter().enumerate() {
                self.continue_from(join, onward);
            }
            if self.changes == before {
                break;
            }
        }
        let carried = lines.iter().map(|it| self.surely_carried(it)).collect();
        let Self { maybe, surely, into, .. } = self;
        Assigned { maybe, surely, lines, into, carried }
    }

    /// Returns when the sets that a line carries on changed last.
    fn last_change(&self, line: &Line) -> u32 {
        let sources = line.from.iter().chain(&line.spent);
        sources.map(|it| self.changed_at[*it]).max().unwrap_or(0)
    }

    fn follow(&mut self, line: &Line) {
        if line.from.is_some_and(|it| !self.is_reached[it]) {
            return;
        }
        let (maybe, surely) = (self.maybe_carried(line), self.surely_carried(line));
        match line.join {
            Some((join, at)) => self.arrive(join, at, maybe, surely),
            None => self.reach(line.to, &maybe, &surely),
        }
    }

    fn reach(&mut self, node: usize, maybe: &Bits, surely: &Bits) {
        let is_new = !std::mem::replace(&mut self.is_reached[node], true);
        let more = self.maybe[node].add(maybe);
        if self.surely[node].keep(surely) | more | is_new {
            self.changes += 1;
            self.changed_at[node] = self.changes;
        }
    }

    /// Records the fields that a node brings to a join.
    fn arrive(&mut self, join: usize, at: usize, maybe: Bits, surely: Bits) {
        let (before, now) = (&mut self.maybe_arrived[join][at], &mut self.surely_arrived[join][at]);
        let is_changed = match (before, now) {
            (Some(before), Some(now)) => before.add(&maybe) | now.keep(&surely),
            (before, now) => {
                (*before, *now) = (Some(maybe), Some(surely));
                true
            }
        };
        self.changes += u32::from(is_changed);
    }

    /// Continues from a join, if enough awaited nodes have arrived.
    ///
    /// A field is certain if each choice of nodes that lets the join run has a node that brings it: fewer nodes lack
    /// it than the join waits for. Of all nodes together, one that brings it is enough.
    fn continue_from(&mut self, join: usize, onward: &[&Line]) {
        let count = self.model.joins[join].count;
        let arrived: Vec<&Bits> = self.surely_arrived[join].iter().flatten().collect();
        if arrived.len() < count {
            return;
        }
        let mut all = (Bits::none(self.model.fields), Bits::none(self.model.fields));
        for maybe in self.maybe_arrived[join].iter().flatten() {
            all.0.add(maybe);
        }
        if self.model.joins[join].is_partial() {
            for field in 0..self.model.fields {
                let lacking = arrived.iter().filter(|it| !it.contains(field)).count();
                if lacking < count {
                    all.1.insert(field);
                }
            }
        } else {
            for surely in arrived {
                all.1.add(surely);
            }
        }
        for line in onward {
            let mut surely = all.1.clone();
            self.add_visited(line, &mut surely);
            self.reach(line.to, &all.0, &surely);
        }
    }

    fn maybe_carried(&self, line: &Line) -> Bits {
        let Some(from) = line.from else {
            let start = self.model.maybe_at_start.clone();
            return if line.is_limit {
                start.with(&written_by(self.model, 0..self.model.nodes.len()))
            } else {
                start
            };
        };
        let node = &self.model.nodes[from];
        let mut carried = self.maybe[from].clone();
        if line.ending.has_written() {
            carried.remove(&node.clears);
            carried.add(&node.maybe);
        }
        carried.extend(&line.known);
        carried.add(&self.gains[from]);
        if let Some((join, at)) = line.join {
            carried.add(&written_by(self.model, self.concurrency.of_arrived(join, at)));
        }
        if self.model.nodes[line.to].defers.is_some() {
            carried.add(&written_by(self.model, self.concurrency.of_deferred(line.to)));
        }
        carried
    }

    fn surely_carried(&self, line: &Line) -> Bits {
        let Some(from) = line.from else {
            let mut carried = self.model.surely_at_start.clone();
            if line.is_limit {
                carried.remove(&cleared_by(self.model, 0..self.model.nodes.len()));
            }
            return carried;
        };
        let node = &self.model.nodes[from];
        let mut carried = self.surely[from].clone();
        if line.ending.has_written() {
            carried.remove(&node.clears);
            carried.add(&node.surely);
        }
        carried.extend(&line.known);
        carried.remove(&self.loses[from]);
        if let Some((join, at)) = line.join {
            carried.remove(&cleared_by(self.model, self.concurrency.of_arrived(join, at)));
        } else {
            self.add_visited(line, &mut carried);
        }
        if self.model.nodes[line.to].defers.is_some() {
            carried.remove(&cleared_by(self.model, self.concurrency.of_deferred(line.to)));
        }
        carried
    }

    /// Adds the fields that are written because nodes with used-up bounds were visited.
    fn add_visited(&self, line: &Line, carried: &mut Bits) {
        let Some(from) = line.from else { return };
        for &spent in &line.spent {
            let Some(after) = &self.after_visit[spent] else { continue };
            let node = &self.model.nodes[spent];
            let mut known = self.surely[spent].clone();
            if !after.unfinished.contains(from) {
                known.remove(&node.clears);
                known.add(&node.surely);
            }
            known.remove(&after.lost);
            carried.add(&known);
        }
    }
}

/// Returns the fields that some of the nodes may write.
fn written_by(model: &FlowModel, nodes: impl Iterator<Item = usize>) -> Bits {
    nodes.fold(Bits::none(model.fields), |all, it| all.with(&model.nodes[it].maybe))
}

/// Returns the fields that some of the nodes clear and may leave unwritten.
fn cleared_by(model: &FlowModel, nodes: impl Iterator<Item = usize>) -> Bits {
    let mut all = Bits::none(model.fields);
    for node in nodes.map(|it| &model.nodes[it]).filter(|it| !it.clears.is_empty()) {
        let mut cleared = node.clears.clone();
        cleared.remove(&node.surely);
        all.add(&cleared);
    }
    all
}
