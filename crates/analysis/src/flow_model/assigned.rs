//! Definite assignment: the fields that are written when a node starts, on some path to it
//! (may-assign) and on every path (must-assign).
//!
//! Both come from one data flow analysis that follows every edge between two nodes until nothing
//! changes. May-assign is the union over all edges, must-assign the intersection. All branches that
//! arrive at a join have finished, so the join has the writes of each; if it waits for some of them only, those that every
//! choice of them writes. A node with `defer: true` starts after all other work ([`Settled`]). A node that runs
//! concurrently may write a field in time, which makes the field may-assigned; or it may clear the
//! field, which is then not must-assigned.
//!
//! [`DefiniteAssignment::since`] is the same analysis of a run in which a node has been visited, which is what a condition on the
//! number of its visits proves. It begins in the step of the visit: at the node, and at every place that may be occupied
//! beside it. Each later task descends from one of these, so no path is missed.
//!
//! **Example.** `draft` leads to `check` and `count`, which join at `merge`, and `merge` leads back to `draft`. Nothing runs
//! beside `draft`, so each later visit of it follows `merge`, and has the writes of all four.

use std::collections::BTreeSet;

use graphrun_core::graph::TriggerKind;

use super::{
    Arrow, Bits, Concurrency, Ending, FlowModel, pairs::Place, reach::Reach, settled::Settled,
};

/// The fields that are written when each node starts, and the reasons for gaps.
#[derive(Debug)]
pub struct DefiniteAssignment {
    /// The fields that some path to the node has written (may-assign).
    may_assign: Vec<Bits>,
    must_assignment: MustAssignment,
    edges: Vec<FlowEdge>,
    /// For each node, the indexes of the edges that lead to it.
    into: Vec<Vec<usize>>,
    /// For each edge, the fields that every path over it has written where it ends.
    must_assign_over: Vec<Bits>,
    reach: Reach,
    concurrency: Concurrency,
    effects: Effects,
}

/// The fields that every path has written (must-assign).
#[derive(Debug)]
struct MustAssignment {
    /// When each node starts; all fields, if no path leads to it.
    must_assign: Vec<Bits>,
    is_reached: Vec<bool>,
    /// For each join, those that each awaited node brings, once it has arrived.
    arrived: Vec<Vec<Option<Bits>>>,
}

/// The fields that are written on every path when nodes start in the step of a visit of a node, or later.
#[derive(Debug)]
pub struct AssignmentAfterVisit {
    /// In the step of the visit, for each other node that may run in it.
    at_once: Vec<Option<Bits>>,
    later: MustAssignment,
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

/// The reason why a field may be unwritten on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapKind {
    /// No node on the path writes it.
    Unwritten(Ending),
    /// The node before may finish without a write.
    Omitted,
    /// The bound of this node was used up, and no earlier node writes it.
    Spent(usize),
    /// This node clears it.
    Cleared(usize),
    /// A limit may be reached before a node writes it.
    Limit,
}

/// An edge of the data flow: from a node to one that may run next.
#[derive(Clone, Debug)]
struct FlowEdge {
    /// `None` at the start and after a limit.
    from: Option<usize>,
    to: usize,
    ending: Ending,
    known: Vec<usize>,
    /// The bounds that are used up on this edge.
    spent: Vec<usize>,
    /// The join where it arrives, and the position of `from` among the nodes that the join awaits.
    join: Option<(usize, usize)>,
    is_limit: bool,
    /// The fields that are written before it where the analysis begins in the middle of a run.
    given: Option<Bits>,
}

impl FlowEdge {
    /// An edge where the analysis begins.
    fn first(to: usize) -> Self {
        Self {
            from: None,
            to,
            ending: Ending::Finished,
            known: Vec::new(),
            spent: Vec::new(),
            join: None,
            is_limit: false,
            given: None,
        }
    }

    /// Returns the triggers that the node at its end may have.
    fn triggers(&self, model: &FlowModel) -> &'static [TriggerKind] {
        let limits_of = |node: usize| model.nodes[node].bound.is_some_and(|it| it.has_limits);
        match (self.spent.last(), self.from) {
            (Some(spent), _) if limits_of(*spent) => &[TriggerKind::Exhausted, TriggerKind::Limit],
            (Some(_), _) => &[TriggerKind::Exhausted],
            (None, None) if self.is_limit => &[TriggerKind::Limit],
            (None, None) => &[TriggerKind::Start],
            (None, Some(_)) if self.ending == Ending::Caught => &[TriggerKind::Caught],
            (None, Some(_)) if self.ending == Ending::Exhausted => &[TriggerKind::Limit],
            (None, Some(_)) => &[TriggerKind::Then],
        }
    }
}

impl DefiniteAssignment {
    /// Computes the sets for each node of a model.
    pub fn of(model: &FlowModel) -> Self {
        let mut reach = Reach::of(model);
        let concurrency = Concurrency::of(model, &reach);
        reach.refine(|it| concurrency.of_node(it).collect());
        let effects = Effects::of(model, &reach, &concurrency);
        let mut flow = FieldFlow::new(model, &reach, &concurrency, &effects);
        flow.begin_at_start();
        let (edges, into, must_assign_over) = flow.run();
        let (may_assign, must_assignment) = flow.into_assignments();
        Self {
            may_assign,
            must_assignment,
            edges,
            into,
            must_assign_over,
            reach,
            concurrency,
            effects,
        }
    }

    /// Computes the fields that are written when a node starts again; `None` if it never does. It follows the nodes on the
    /// paths from the node back to it, and no others.
    pub fn since_itself(&self, model: &FlowModel, node: usize) -> Option<Bits> {
        let before = self.nodes_before(model, node);
        self.since_visit(model, node, &self.must_assignment, Some(before))
            .must_be_assigned_before(node)
    }

    /// Returns the nodes with a path to a node, and the node itself.
    fn nodes_before(&self, model: &FlowModel, node: usize) -> Bits {
        let mut found = Bits::none(model.nodes.len());
        let mut open = vec![node];
        while let Some(to) = open.pop() {
            if found.contains(to) {
                continue;
            }
            found.insert(to);
            for edge in self.into[to].iter().map(|it| &self.edges[*it]) {
                open.extend(edge.from.iter().chain(&edge.spent));
            }
        }
        found
    }

    /// Computes the fields that are written when nodes start in the step of a visit of `visited`, or later.
    pub fn since(&self, model: &FlowModel, visited: usize) -> AssignmentAfterVisit {
        self.since_visit(model, visited, &self.must_assignment, None)
    }

    /// Computes the fields that are written when nodes start in the step of the visit after the one of `since`, or later.
    pub fn since_next(
        &self,
        model: &FlowModel,
        visited: usize,
        since: &AssignmentAfterVisit,
    ) -> AssignmentAfterVisit {
        self.since_visit(model, visited, &since.later, None)
    }

    fn since_visit(
        &self,
        model: &FlowModel,
        visited: usize,
        before: &MustAssignment,
        within: Option<Bits>,
    ) -> AssignmentAfterVisit {
        let mut flow = FieldFlow::new(model, &self.reach, &self.concurrency, &self.effects);
        flow.within = within;
        let mut at_once = vec![None; model.nodes.len()];
        if before.is_reached[visited] {
            for node in self.concurrency.of_node(visited).filter(|it| *it != visited) {
                at_once[node] = before.at(node);
            }
            flow.begin_at_visit(visited, before);
            flow.run();
        }
        AssignmentAfterVisit { at_once, later: flow.into_assignments().1 }
    }

    /// Returns the fields that some path to a node has written.
    pub fn may_be_assigned_before(&self, node: usize) -> &Bits {
        &self.may_assign[node]
    }

    /// Returns the fields that every path to a node has written; all fields, if no path leads to it.
    pub fn must_be_assigned_before(&self, node: usize) -> &Bits {
        &self.must_assignment.must_assign[node]
    }

    /// Returns how the run may reach a node.
    pub fn triggers(&self, model: &FlowModel, node: usize) -> BTreeSet<TriggerKind> {
        let edges = self.into[node].iter().map(|it| &self.edges[*it]);
        edges.flat_map(|it| it.triggers(model)).copied().collect()
    }

    /// Returns where a path to a node that does not write a field parts from the others, as near to the node as possible.
    pub fn gap(&self, model: &FlowModel, node: usize, field: usize) -> Option<Gap> {
        let mut seen = BTreeSet::from([node]);
        let mut open = std::collections::VecDeque::from([node]);
        let mut last = None;
        while let Some(to) = open.pop_front() {
            let (with, without): (Vec<usize>, Vec<usize>) =
                self.into[to].iter().partition(|it| self.must_assign_over[**it].contains(field));
            let of_join = |edges: &[usize], join: usize| -> BTreeSet<usize> {
                let arrived = edges.iter().filter_map(|it| self.edges[*it].join);
                arrived.filter(|(it, _)| *it == join).map(|(_, at)| at).collect()
            };
            // The joins at which every choice of arrivals brings the field.
            let is_brought = |join: &usize| {
                let waits = &model.joins[*join];
                !waits.is_partial() || of_join(&without, *join).len() < waits.count
            };
            let joins = with.iter().filter_map(|it| self.edges[*it].join).map(|(join, _)| join);
            let joins: BTreeSet<usize> = joins.filter(is_brought).collect();
            for edge in without.iter().map(|it| &self.edges[*it]) {
                if edge.join.is_some_and(|(join, _)| joins.contains(&join)) {
                    // Another branch of the join writes it.
                    continue;
                }
                let gap = |kind| Some(Gap { from: edge.from, to, kind });
                let Some(from) = edge.from else {
                    let is_first = model.must_assign_at_start.contains(field);
                    let cleared = is_first.then(|| self.cleared_by(model, edge, field)).flatten();
                    let kind = match cleared {
                        Some(by) => GapKind::Cleared(by),
                        None if edge.is_limit => GapKind::Limit,
                        None => GapKind::Unwritten(Ending::Finished),
                    };
                    last = last.or(gap(kind));
                    continue;
                };
                let node = &model.nodes[from];
                if edge.ending.has_written() && node.clears.contains(field) {
                    return gap(GapKind::Cleared(from));
                }
                if !edge.ending.has_written() && node.must_assign.contains(field) {
                    return gap(GapKind::Unwritten(edge.ending));
                }
                let is_last = |(join, _): (usize, usize)| !of_join(&with, join).is_empty();
                if !with.is_empty() && edge.join.is_none_or(is_last) {
                    return gap(match edge.spent.last() {
                        Some(spent) => GapKind::Spent(*spent),
                        None => GapKind::Unwritten(edge.ending),
                    });
                }
                let is_written_before = self.must_assignment.must_assign[from].contains(field);
                if is_written_before || node.must_assign.contains(field) {
                    let by = self.cleared_by(model, edge, field);
                    last = by.and_then(|it| gap(GapKind::Cleared(it))).or(last);
                    continue;
                }
                if edge.ending.has_written() && node.may_assign.contains(field) {
                    return gap(GapKind::Omitted);
                }
                if seen.insert(from) {
                    open.push_back(from);
                }
            }
        }
        last
    }

    /// Returns whether a field may be written in a branch that runs beside a node, or has run beside the nodes before it.
    pub fn is_written_beside(&self, model: &FlowModel, node: usize, field: usize) -> bool {
        let reach = |from: usize| self.reach.from([from]);
        let after = reach(node);
        let writers =
            (0..model.nodes.len()).filter(|it| model.nodes[*it].may_assign.contains(field));
        let beside = writers.filter(|it| !after.contains(*it) && !reach(*it).contains(node));
        let beside: Vec<usize> = beside.collect();
        let of_start =
            model.start.iter().any(|it| reach(*it).contains(node)) && model.start.len() > 1;
        let has_both =
            |from: &Bits| from.contains(node) && beside.iter().any(|it| from.contains(*it));
        let mut forks = model.forks().into_iter().map(reach);
        of_start && !beside.is_empty() || forks.any(|it| has_both(&it))
    }

    /// Returns the node that clears a field on an edge: the one that the edge leaves, or one that may run concurrently.
    fn cleared_by(&self, model: &FlowModel, edge: &FlowEdge, field: usize) -> Option<usize> {
        let concurrent = edge.from.into_iter().flat_map(|it| self.concurrency.of_node(it));
        let arrived = edge.join.into_iter();
        let arrived = arrived.flat_map(|(join, at)| self.concurrency.of_arrived(join, at));
        let deferred = model.nodes[edge.to].defers.is_some().then_some(edge.to).into_iter();
        let deferred = deferred.flat_map(|it| self.concurrency.of_deferred(it));
        let mut nodes = edge.from.into_iter().chain(concurrent).chain(arrived).chain(deferred);
        nodes.find(|number| {
            let node = &model.nodes[*number];
            node.clears.contains(field) && !node.must_assign.contains(field)
        })
    }
}

impl MustAssignment {
    /// Returns the fields at a node, if some path leads to it.
    fn at(&self, node: usize) -> Option<Bits> {
        self.is_reached[node].then(|| self.must_assign[node].clone())
    }
}

impl AssignmentAfterVisit {
    /// Returns the fields that every path has written when a node starts; `None` if it does not start. For the visited node,
    /// these are the fields at its later visits.
    pub fn must_be_assigned_before(&self, node: usize) -> Option<Bits> {
        match (self.at_once[node].clone(), self.later.at(node)) {
            (Some(mut both), Some(later)) => {
                both.keep(&later);
                Some(both)
            }
            (one, other) => one.or(other),
        }
    }
}

/// Follows the edges until nothing changes (a fixed point).
struct FieldFlow<'a> {
    model: &'a FlowModel,
    reach: &'a Reach,
    concurrency: &'a Concurrency,
    edges: Vec<FlowEdge>,
    /// For each node, the indexes of the edges that lead to it.
    into: Vec<Vec<usize>>,
    /// For each node.
    may_assign: Vec<Bits>,
    must_assign: Vec<Bits>,
    is_reached: Vec<bool>,
    /// For each join, the fields that each awaited node brings, once it has arrived.
    may_assign_arrived: Vec<Vec<Option<Bits>>>,
    must_assign_arrived: Vec<Vec<Option<Bits>>>,
    effects: &'a Effects,
    /// The nodes to which edges are followed; `None` for all.
    within: Option<Bits>,
    /// The number of changes of any set so far.
    changes: u32,
    /// The number of the last change of the sets of each node.
    changed_at: Vec<u32>,
}

/// What nodes do to the fields wherever the analysis begins.
#[derive(Debug)]
struct Effects {
    /// The fields that nodes concurrent with each node may write.
    gains: Vec<Bits>,
    /// The fields that nodes concurrent with each node may clear.
    loses: Vec<Bits>,
    /// For each bounded node, the facts that follow from a visit of it.
    after_visit: Vec<Option<AfterVisit>>,
    /// The fields that are written when a node starts that waits for all other work.
    settled: Settled,
}

/// The facts that follow from a visit of a bounded node. A used-up bound implies such a visit.
#[derive(Debug)]
struct AfterVisit {
    /// The nodes that are reachable when the visit did not finish.
    unfinished: Bits,
    /// The fields that a later node may clear.
    lost: Bits,
}

impl Effects {
    fn of(model: &FlowModel, reach: &Reach, concurrency: &Concurrency) -> Self {
        let nodes = 0..model.nodes.len();
        let clearing: Vec<usize> =
            nodes.clone().filter(|it| !model.nodes[*it].clears.is_empty()).collect();
        let after_visit = |it: usize| AfterVisit::of(model, reach, concurrency, &clearing, it);
        Self {
            gains: nodes.clone().map(|it| written_by(model, concurrency.of_node(it))).collect(),
            loses: nodes.clone().map(|it| model.cleared_by(concurrency.of_node(it))).collect(),
            after_visit: nodes.map(after_visit).collect(),
            settled: Settled::of(model, reach),
        }
    }
}

impl AfterVisit {
    fn of(
        model: &FlowModel,
        reach: &Reach,
        concurrency: &Concurrency,
        clearing: &[usize],
        node: usize,
    ) -> Option<Self> {
        model.nodes[node].bound?;
        let outcomes = model.nodes[node].outcomes.iter();
        let mut unfinished = outcomes.filter(|it| !it.ending.has_written()).peekable();
        let mut after = Vec::new();
        if unfinished.peek().is_some() {
            // The branch of the visit may end, and a concurrent branch may use up the bound.
            after.extend(concurrency.of_node(node));
        }
        let to = unfinished.flat_map(super::Outcome::alternatives).flat_map(|it| &it.arrows);
        after.extend(to.filter_map(|arrow| match arrow {
            Arrow::Node(to) | Arrow::Tasks(to) => Some(*to),
            Arrow::Join(join) => Some(model.joins[*join].node),
            Arrow::End | Arrow::Fail => None,
        }));
        let unfinished = reach.from(after);
        let mut clearing = clearing.to_vec();
        if concurrency.is_empty() && !clearing.is_empty() {
            let later = reach.from([node]);
            clearing.retain(|it| later.contains(*it));
        }
        let lost = model.cleared_by(clearing.into_iter());
        Some(Self { unfinished, lost })
    }
}

impl<'a> FieldFlow<'a> {
    fn new(
        model: &'a FlowModel,
        reach: &'a Reach,
        concurrency: &'a Concurrency,
        effects: &'a Effects,
    ) -> Self {
        let nodes = model.nodes.len();
        let fields = model.fields;
        let arrived = |_: &super::Join| Vec::new();
        let mut flow = Self {
            model,
            reach,
            concurrency,
            edges: Vec::new(),
            into: vec![Vec::new(); nodes],
            may_assign: vec![Bits::none(fields); nodes],
            must_assign: vec![Bits::all(fields); nodes],
            is_reached: vec![false; nodes],
            may_assign_arrived: model.joins.iter().map(arrived).collect(),
            must_assign_arrived: model.joins.iter().map(arrived).collect(),
            effects,
            within: None,
            changes: 0,
            changed_at: vec![0; nodes],
        };
        for (at, join) in model.joins.iter().enumerate() {
            flow.may_assign_arrived[at] = vec![None; join.awaited.len()];
            flow.must_assign_arrived[at] = vec![None; join.awaited.len()];
        }
        flow
    }

    /// Adds all edges of a run from its start.
    fn begin_at_start(&mut self) {
        self.add_edges_from(&self.model.start);
        for &to in &self.model.start {
            self.push(FlowEdge::first(to));
        }
    }

    /// Adds all edges of a run from the step of a visit. The edges that leave the nodes of this step stand apart from those
    /// that leave later visits of them, so that the fields before a node are those in later steps.
    fn begin_at_visit(&mut self, visited: usize, before: &MustAssignment) {
        let beside: Vec<Place> = self.concurrency.beside_node(visited).collect();
        let mut first = vec![visited];
        first.extend(beside.iter().map(|it| it.node(self.model)));
        self.add_edges_from(&first);
        let runs = |node: usize| node == visited || beside.contains(&Place::Running(node));
        for at in 0..self.edges.len() {
            let from = self.edges[at].from.filter(|it| runs(*it) && before.is_reached[*it]);
            if let Some(from) = from {
                let given = Some(before.must_assign[from].clone());
                self.push(FlowEdge { given, ..self.edges[at].clone() });
            }
        }
        for place in &beside {
            let to = place.node(self.model);
            let (join, given) = match *place {
                Place::Running(_) => continue,
                Place::Deferred(node) => (None, before.at(node)),
                Place::Arrived(join, at) => (Some((join, at)), before.arrived[join][at].clone()),
            };
            // A place that nothing reaches is not occupied.
            if given.is_some() {
                self.push(FlowEdge { join, given, ..FlowEdge::first(to) });
            }
        }
    }

    /// Adds the edges that leave these nodes and the nodes after them, and the edge of a limit.
    fn add_edges_from(&mut self, first: &[usize]) {
        let limit = self.model.node_after_limit();
        let order = self.reach.order(&first.iter().copied().chain(limit).collect::<Vec<_>>());
        for from in order {
            if self.within.as_ref().is_some_and(|it| !it.contains(from)) {
                continue;
            }
            for outcome in &self.model.nodes[from].outcomes {
                for alternative in outcome.alternatives() {
                    for arrow in &alternative.arrows {
                        let edge = FlowEdge {
                            from: Some(from),
                            ending: outcome.ending,
                            known: alternative.known.clone(),
                            ..FlowEdge::first(from)
                        };
                        self.add_edges(&edge, *arrow);
                    }
                }
            }
        }
        if let Some(to) = limit {
            self.push(FlowEdge { is_limit: true, ..FlowEdge::first(to) });
        }
    }

    /// Adds the edges of an arrow: to its target, and to the nodes behind used-up bounds.
    fn add_edges(&mut self, edge: &FlowEdge, arrow: Arrow) {
        let (from, to, join) = match arrow {
            Arrow::Node(to) | Arrow::Tasks(to) => (edge.from, to, None),
            Arrow::Join(at) => {
                let join = &self.model.joins[at];
                let position = edge.from.and_then(|it| join.position(it));
                (edge.from, join.node, position.map(|it| (at, it)))
            }
            Arrow::End | Arrow::Fail => return,
        };
        for reached in self.reach.reached(self.model, from, to) {
            let to = reached.node;
            let spent = reached.spent;
            self.push(FlowEdge { to, spent, join, ..edge.clone() });
        }
    }

    fn push(&mut self, edge: FlowEdge) {
        if self.within.as_ref().is_some_and(|it| !it.contains(edge.to)) {
            return;
        }
        self.into[edge.to].push(self.edges.len());
        self.edges.push(edge);
    }

    /// Returns the fields that some path has written, and those that every path has written.
    fn into_assignments(self) -> (Vec<Bits>, MustAssignment) {
        let Self { may_assign, must_assign, is_reached, must_assign_arrived: arrived, .. } = self;
        (may_assign, MustAssignment { must_assign, is_reached, arrived })
    }

    /// Follows the edges. Returns them, those into each node, and the fields that every path over each has written.
    fn run(&mut self) -> (Vec<FlowEdge>, Vec<Vec<usize>>, Vec<Bits>) {
        let edges = std::mem::take(&mut self.edges);
        // The edges that continue from each join, each to another node.
        let mut onward: Vec<Vec<&FlowEdge>> = vec![Vec::new(); self.model.joins.len()];
        for edge in &edges {
            if let Some((join, _)) = edge.join
                && onward[join].iter().all(|it| (it.to, &it.spent) != (edge.to, &edge.spent))
            {
                onward[join].push(edge);
            }
        }
        // This terminates: may-assign sets only grow, and must-assign sets only shrink.
        let mut followed: Vec<Option<u32>> = vec![None; edges.len()];
        loop {
            let before = self.changes;
            for (edge, followed) in edges.iter().zip(&mut followed) {
                if followed.is_none_or(|it| self.last_change(edge) > it) {
                    *followed = Some(self.changes);
                    self.follow(edge);
                }
            }
            for (join, onward) in onward.iter().enumerate() {
                self.continue_from(join, onward);
            }
            if self.changes == before {
                break;
            }
        }
        let must_assign_over = edges.iter().map(|it| self.must_assign_over(it)).collect();
        (edges, std::mem::take(&mut self.into), must_assign_over)
    }

    /// Returns when the sets at the sources of an edge changed last.
    fn last_change(&self, edge: &FlowEdge) -> u32 {
        let sources = edge.from.iter().chain(&edge.spent);
        sources.map(|it| self.changed_at[*it]).max().unwrap_or(0)
    }

    fn follow(&mut self, edge: &FlowEdge) {
        if edge.given.is_none() && edge.from.is_some_and(|it| !self.is_reached[it]) {
            return;
        }
        let may_assign = self.may_assign_over(edge);
        let must_assign = self.must_assign_over(edge);
        match edge.join {
            Some((join, at)) => self.arrive(join, at, may_assign, must_assign),
            None => self.reach(edge.to, &may_assign, &must_assign),
        }
    }

    fn reach(&mut self, node: usize, may_assign: &Bits, must_assign: &Bits) {
        let is_new = !std::mem::replace(&mut self.is_reached[node], true);
        let more = self.may_assign[node].add(may_assign);
        if self.must_assign[node].keep(must_assign) | more | is_new {
            self.changes += 1;
            self.changed_at[node] = self.changes;
        }
    }

    /// Records the fields that a node brings to a join.
    fn arrive(&mut self, join: usize, at: usize, may_assign: Bits, must_assign: Bits) {
        let may_assign_before = &mut self.may_assign_arrived[join][at];
        let must_assign_before = &mut self.must_assign_arrived[join][at];
        let is_changed = match (may_assign_before, must_assign_before) {
            (Some(may), Some(must)) => may.add(&may_assign) | must.keep(&must_assign),
            (may, must) => {
                (*may, *must) = (Some(may_assign), Some(must_assign));
                true
            }
        };
        self.changes += u32::from(is_changed);
    }

    /// Continues from a join, if enough awaited nodes have arrived.
    ///
    /// A field is must-assigned if each choice of nodes that lets the join run has a node that brings it: fewer nodes lack
    /// it than the join waits for. Of all nodes together, one that brings it is enough.
    fn continue_from(&mut self, join: usize, onward: &[&FlowEdge]) {
        let count = self.model.joins[join].count;
        let arrived: Vec<&Bits> = self.must_assign_arrived[join].iter().flatten().collect();
        if arrived.len() < count {
            return;
        }
        let (mut may_assign, mut must_assign) =
            (Bits::none(self.model.fields), Bits::none(self.model.fields));
        for brought in self.may_assign_arrived[join].iter().flatten() {
            may_assign.add(brought);
        }
        if self.model.joins[join].is_partial() {
            for field in 0..self.model.fields {
                let lacking = arrived.iter().filter(|it| !it.contains(field)).count();
                if lacking < count {
                    must_assign.insert(field);
                }
            }
        } else {
            for brought in arrived {
                must_assign.add(brought);
            }
        }
        for edge in onward {
            let mut must_assign = must_assign.clone();
            self.add_visited(edge, &mut must_assign);
            self.reach(edge.to, &may_assign, &must_assign);
        }
    }

    /// Returns the fields that some path over an edge has written where it ends.
    fn may_assign_over(&self, edge: &FlowEdge) -> Bits {
        let mut fields = self.may_assign_onto(edge);
        if self.model.nodes[edge.to].defers.is_some() {
            fields.add(&written_by(self.model, self.concurrency.of_deferred(edge.to)));
        }
        fields
    }

    /// Returns the fields that some path has written where an edge begins. At its end, a deferred node waits for others.
    fn may_assign_onto(&self, edge: &FlowEdge) -> Bits {
        let Some(from) = edge.from else {
            let start = self.model.may_assign_at_start.clone();
            return if edge.is_limit {
                start.with(&written_by(self.model, 0..self.model.nodes.len()))
            } else {
                start
            };
        };
        let node = &self.model.nodes[from];
        let mut fields = self.may_assign[from].clone();
        if edge.ending.has_written() {
            fields.remove(&node.clears);
        }
        if edge.ending.has_written() || node.ends_once {
            // The updates of finished items are kept if another item has failed.
            fields.add(&node.may_assign);
        }
        fields.extend(&edge.known);
        fields.add(&self.effects.gains[from]);
        if let Some((join, at)) = edge.join {
            fields.add(&written_by(self.model, self.concurrency.of_arrived(join, at)));
        }
        fields
    }

    /// Returns the fields that every path over an edge has written where it ends.
    fn must_assign_over(&self, edge: &FlowEdge) -> Bits {
        let mut fields = self.must_assign_onto(edge);
        if self.model.nodes[edge.to].defers.is_some() {
            fields.remove(&self.model.cleared_by(self.concurrency.of_deferred(edge.to)));
        }
        if let Some(settled) = self.effects.settled.at(edge.to) {
            fields.add(settled);
        }
        fields
    }

    /// Returns the fields that every path has written where an edge begins. At its end, a deferred node waits for others.
    fn must_assign_onto(&self, edge: &FlowEdge) -> Bits {
        let Some(from) = edge.from else {
            if let Some(given) = &edge.given {
                return given.clone();
            }
            let mut fields = self.model.must_assign_at_start.clone();
            if edge.is_limit {
                fields.remove(&self.model.cleared_by(0..self.model.nodes.len()));
            }
            return fields;
        };
        let node = &self.model.nodes[from];
        let mut fields = edge.given.as_ref().unwrap_or(&self.must_assign[from]).clone();
        if edge.ending.has_written() || node.ends_once {
            fields.remove(&node.clears);
        }
        if edge.ending.has_written() {
            fields.add(&node.must_assign);
        }
        fields.extend(&edge.known);
        fields.remove(&self.effects.loses[from]);
        if let Some((join, at)) = edge.join {
            fields.remove(&self.model.cleared_by(self.concurrency.of_arrived(join, at)));
        } else {
            self.add_visited(edge, &mut fields);
        }
        fields
    }

    /// Adds the fields that are written because nodes with used-up bounds were visited.
    fn add_visited(&self, edge: &FlowEdge, fields: &mut Bits) {
        let Some(from) = edge.from else { return };
        for &spent in &edge.spent {
            let Some(after) = &self.effects.after_visit[spent] else { continue };
            let node = &self.model.nodes[spent];
            let mut known = self.must_assign[spent].clone();
            if !after.unfinished.contains(from) {
                known.remove(&node.clears);
                known.add(&node.must_assign);
            }
            known.remove(&after.lost);
            fields.add(&known);
        }
    }
}

/// Returns the fields that some of the nodes may write.
fn written_by(model: &FlowModel, nodes: impl Iterator<Item = usize>) -> Bits {
    nodes.fold(Bits::none(model.fields), |all, it| all.with(&model.nodes[it].may_assign))
}

#[cfg(test)]
mod tests;
