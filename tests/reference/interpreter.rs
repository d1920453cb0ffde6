//! The reference: what a graph of a [`Plan`] does, written down as plainly as possible.
//!
//! It shares no code with the engine: names are texts, a state is a log and a sum, and each rule of the documentation
//! is a few lines here. It has no journal, no crash, no limits and no clock.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{Fails, NodePlan, Plan, Way};

/// The state of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct State {
    /// A line for each finished task.
    pub(super) log: Vec<String>,
    /// The number of finished tasks since the sum was cleared.
    pub(super) sum: u64,
    /// The failed items of maps.
    pub(super) lost: Vec<u64>,
}

/// How a turn ends.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ended {
    pub(super) is_done: bool,
    /// How often the run stopped because a route failed.
    pub(super) stops: usize,
}

/// A task of the next step.
#[derive(Clone, Debug)]
struct Task {
    node: usize,
    item: Option<u64>,
}

/// A round of a join that has run before all of its nodes arrived.
#[derive(Clone, Debug)]
struct Round {
    missing: BTreeSet<usize>,
    tasks: BTreeSet<usize>,
}

/// What a task does.
#[derive(Debug, Default)]
struct Effect {
    is_clearing: bool,
    lines: Vec<String>,
    adds: u64,
    lost: Option<u64>,
}

/// Where a finished task leads.
#[derive(Clone, Debug, PartialEq)]
enum Lead {
    To(Way),
    Item(usize, u64),
    Arrive(usize),
}

/// Interprets a plan.
pub(super) struct Interpreter<'a> {
    plan: &'a Plan,
    visits: BTreeMap<usize, u32>,
    arrived: BTreeMap<usize, BTreeSet<usize>>,
    rounds: BTreeMap<usize, Round>,
    /// The steps of the run, with the ones that take in the input of later turns.
    step: u64,
    is_failed: bool,
    /// Whether a nested run failed, which plans do not expect.
    pub(super) is_out_of_scope: bool,
}

impl<'a> Interpreter<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            visits: BTreeMap::new(),
            arrived: BTreeMap::new(),
            rounds: BTreeMap::new(),
            step: 0,
            is_failed: false,
            is_out_of_scope: false,
        }
    }

    /// Runs one turn on a state that has its input.
    pub(super) fn turn(&mut self, state: &mut State) -> Ended {
        if self.step > 0 {
            self.step += 1;
        }
        (self.visits, self.arrived, self.rounds) = Default::default();
        self.is_failed = false;
        let mut tasks = vec![Task { node: 0, item: None }];
        self.visits.insert(0, 1);
        let mut stops = 0;
        while !tasks.is_empty() {
            self.step += 1;
            stops += usize::from(tasks.iter().any(|it| self.route_breaks(it)));
            tasks = self.step(&tasks, state);
            if self.is_failed {
                return Ended { is_done: false, stops };
            }
        }
        Ended { is_done: self.arrived.is_empty(), stops }
    }

    fn node(&self, at: usize) -> &'a NodePlan {
        &self.plan.nodes[at]
    }

    fn visit(&self, at: usize) -> u32 {
        self.visits.get(&at).copied().unwrap_or(0)
    }

    /// A route breaks once for each task whose node it follows.
    fn route_breaks(&self, task: &Task) -> bool {
        let node = self.node(task.node);
        node.has_broken_route && !self.fails(task)
    }

    fn fails(&self, task: &Task) -> bool {
        match self.node(task.node).fails {
            Fails::Never => false,
            Fails::FirstVisit => self.visit(task.node) == 1,
            Fails::OddItems => task.item.is_some_and(|it| it % 2 == 1),
        }
    }

    fn step(&mut self, tasks: &[Task], state: &mut State) -> Vec<Task> {
        let before = state.clone();
        let mut effects = Vec::new();
        let mut leads: Vec<(usize, Vec<Lead>)> = Vec::new();
        // The maps of which an item was caught, with the task that decides for all items.
        let mut diverted: BTreeMap<usize, usize> = BTreeMap::new();
        for (index, task) in tasks.iter().enumerate() {
            let node = self.node(task.node);
            if !self.fails(task) {
                let effect = self.effect(task, index, &before);
                let mut own = before.clone();
                apply(&mut own, &effect);
                leads.push((task.node, self.leads(task.node, own.sum)));
                effects.push(effect);
            } else if node.is_collecting && task.item.is_some() {
                let effect = Effect { lost: task.item, ..Effect::default() };
                leads.push((task.node, self.leads(task.node, before.sum)));
                effects.push(effect);
            } else {
                let catch = node.catch.expect("a node that fails has a target for it");
                // The first failed item of a map decides for all of its items.
                if node.is_map && task.item.is_some() {
                    diverted.entry(task.node).or_insert(index);
                }
                leads.push((task.node, vec![Lead::To(catch)]));
                effects.push(Effect::default());
            }
        }
        for (index, (node, lead)) in leads.iter_mut().enumerate() {
            let decides = diverted.get(node).is_none_or(|it| *it == index);
            if tasks[index].item.is_some() && !decides {
                lead.clear();
            }
        }
        // Clears come first, then the writes in the order of the tasks.
        if effects.iter().any(|it| it.is_clearing) {
            state.sum = 0;
        }
        for effect in &effects {
            apply_writes(state, effect);
        }
        for (task, effect) in tasks.iter().zip(&effects) {
            if !effect.lines.is_empty() {
                for reset in &self.node(task.node).resets {
                    self.visits.remove(reset);
                }
            }
        }
        self.follow(&leads)
    }

    fn effect(&mut self, task: &Task, index: usize, before: &State) -> Effect {
        let node = self.node(task.node);
        let step = self.step;
        let visit = self.visit(task.node);
        let sum = before.sum;
        let item = task.item.map(|it| format!(" item {it}")).unwrap_or_default();
        let mut lines =
            vec![format!("{step}.{index} n{} visit {visit} sum {sum}{item}", task.node)];
        if let Some(inner) = &node.inner {
            let mut state = State { sum: task.item.unwrap_or(sum), ..State::default() };
            self.is_out_of_scope |= !Interpreter::new(inner).turn(&mut state).is_done;
            lines.extend(state.log.iter().map(|it| format!("> {it}")));
        }
        Effect { is_clearing: node.clears, lines, adds: 1, lost: None }
    }

    /// Returns where the edges of a node lead, and its route on a state with this sum.
    fn leads(&self, at: usize, sum: u64) -> Vec<Lead> {
        let node = self.node(at);
        let mut leads = Vec::new();
        for (join, waiting) in self.plan.nodes.iter().enumerate() {
            if waiting.join.contains(&at) {
                leads.push(Lead::Arrive(join));
            }
        }
        if let Some((to, items)) = node.dispatches {
            leads.extend((0..items).map(|it| Lead::Item(to, it)));
        }
        let choice = usize::try_from(sum).unwrap() % node.ways.len().max(1);
        leads.extend(node.ways.get(choice).into_iter().flatten().map(|it| Lead::To(*it)));
        leads
    }

    /// Returns the tasks of the next step.
    fn follow(&mut self, leads: &[(usize, Vec<Lead>)]) -> Vec<Task> {
        let mut reached: BTreeSet<usize> = BTreeSet::new();
        let mut items: Vec<Task> = Vec::new();
        let mut touched: BTreeSet<usize> = BTreeSet::new();
        // Which node led to which one, for the rounds; a join that waits keeps its place.
        let mut sources: Vec<(usize, usize)> = self.arrived.keys().map(|it| (*it, *it)).collect();
        // Which node is active, and which one was meant.
        let mut entered: Vec<(usize, usize)> = Vec::new();
        for (from, leads) in leads {
            for lead in leads {
                match lead {
                    Lead::To(Way::End) => (),
                    Lead::To(Way::Fail) => self.is_failed = true,
                    Lead::To(Way::Node(to)) => {
                        sources.push((*to, *from));
                        self.reach(*to, &mut reached, &mut entered);
                    }
                    Lead::Item(to, item) => {
                        sources.push((*to, *from));
                        match self.within_bound(*to) {
                            Some(within) if within == *to => {
                                items.push(Task { node: *to, item: Some(*item) });
                            }
                            Some(within) => {
                                entered.push((within, *to));
                                reached.insert(within);
                            }
                            None => (),
                        }
                    }
                    Lead::Arrive(join) => {
                        let round = self.rounds.get(join);
                        if round
                            .is_some_and(|it| it.missing.contains(from) && it.tasks.contains(from))
                        {
                            continue;
                        }
                        sources.push((*join, *from));
                        self.arrived.entry(*join).or_default().insert(*from);
                        touched.insert(*join);
                    }
                }
            }
        }
        let mut fired: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for join in touched {
            if self.arrived[&join].len() >= self.node(join).join_count {
                let arrived = self.arrived.remove(&join).unwrap();
                let all = self.node(join).join.iter().copied();
                fired.insert(join, all.filter(|it| !arrived.contains(it)).collect());
                self.reach(join, &mut reached, &mut entered);
            }
        }
        let active = reached.iter().copied().chain(items.iter().map(|it| it.node));
        let active = active.chain(self.arrived.keys().copied()).collect();
        self.renew_rounds(&fired, &sources, &entered, &active);
        if self.is_failed {
            return Vec::new();
        }
        let counted: BTreeSet<usize> =
            reached.iter().copied().chain(items.iter().map(|it| it.node)).collect();
        for node in counted {
            *self.visits.entry(node).or_default() += 1;
        }
        let by_edges = reached.into_iter().map(|node| Task { node, item: None });
        by_edges.chain(items).collect()
    }

    fn reach(
        &mut self,
        to: usize,
        reached: &mut BTreeSet<usize>,
        entered: &mut Vec<(usize, usize)>,
    ) {
        if let Some(within) = self.within_bound(to) {
            entered.push((within, to));
            reached.insert(within);
        }
    }

    /// Returns the node that runs in place of one whose bound may be used up.
    fn within_bound(&mut self, mut node: usize) -> Option<usize> {
        loop {
            let Some((bound, exhausted)) = self.node(node).bound else { return Some(node) };
            if self.visit(node) < bound {
                return Some(node);
            }
            match exhausted {
                Way::Node(next) => node = next,
                Way::End => return None,
                Way::Fail => {
                    self.is_failed = true;
                    return None;
                }
            }
        }
    }

    /// When a join runs early, the tasks beside it are its round; then those that only tasks of the round lead to.
    fn renew_rounds(
        &mut self,
        fired: &BTreeMap<usize, BTreeSet<usize>>,
        sources: &[(usize, usize)],
        entered: &[(usize, usize)],
        active: &BTreeSet<usize>,
    ) {
        let only_from = |node: usize, round: &BTreeSet<usize>| {
            let stands_for = |meant: usize| meant == node || entered.contains(&(node, meant));
            let from: Vec<usize> =
                sources.iter().filter(|it| stands_for(it.0)).map(|it| it.1).collect();
            !from.is_empty() && from.iter().all(|it| round.contains(it))
        };
        for (join, missing) in fired {
            let none = Round { missing: BTreeSet::new(), tasks: BTreeSet::new() };
            self.rounds.entry(*join).or_insert(none).missing.extend(missing);
        }
        for (join, round) in &mut self.rounds {
            round.tasks = if fired.contains_key(join) {
                active.iter().copied().filter(|it| !entered.contains(&(*it, *join))).collect()
            } else {
                active.iter().copied().filter(|it| only_from(*it, &round.tasks)).collect()
            };
        }
        self.rounds.retain(|_, it| !it.tasks.is_empty() && !it.missing.is_empty());
    }
}

fn apply(state: &mut State, effect: &Effect) {
    if effect.is_clearing {
        state.sum = 0;
    }
    apply_writes(state, effect);
}

fn apply_writes(state: &mut State, effect: &Effect) {
    state.log.extend(effect.lines.iter().cloned());
    state.sum += effect.adds;
    state.lost.extend(effect.lost);
}
