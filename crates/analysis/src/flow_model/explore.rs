//! Explores every step that a run can make, one after the other; only the positions of the run
//! count.
//!
//! A situation is what the run is about to do: the nodes of the next step, the deferred nodes, the arrivals at joins, and the
//! tasks that are left of the rounds of joins that did not wait for all. All
//! combinations of the choices of its nodes give the next situations.
//!
//! **Example.** `plan` leads to `write` and `draw`, both lead to the join `merge`, and `draw` can fail to `end`. The situations
//! are {plan}, {write, draw}, {merge} and {write has arrived}. Nothing runs in the last one, and `merge` still waits: `draw` is
//! the missing node, and its failure is the choice that missed the join.
//!
//! **Soundness.** The positions of a run are the only thing that the next step depends on, apart from the choices of routes,
//! failures and bounds, which the exploration takes in every combination. So it visits each situation of each run.
//!
//! **Limits.** Choices are independent here, apart from those that [exclude](Exclusions) each other: a bound that only the state
//! enforces is explored beyond it. Super-steps
//! are synchronous, so ordinary graphs have few more situations than nodes. Above [`SITUATIONS_MAX`] the exploration stops. Then
//! the pairs of nodes decide about conflicts, and a [projection](super::projection) about each join.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use foldhash::fast::RandomState;

use super::{
    Arrow, Bits, Ending, FlowModel, Join,
    choices::{
        COMBINATIONS_MAX, Combination, combinations_of, failing_nodes, hopeful_combinations_of,
        subsets,
    },
    exclusions::{Choice, Exclusions},
    reach::Reach,
};

/// With more situations than this, the analysis gives up.
const SITUATIONS_MAX: usize = 5_000;
/// With more transitions between situations than this, the analysis gives up.
const STEPS_MAX: usize = 20_000;

/// The frontier and the waiting nodes between two steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Situation {
    /// The nodes that run next, and whether each may have several tasks.
    running: BTreeSet<(usize, bool)>,
    /// The nodes that wait until others have run.
    deferred: BTreeSet<usize>,
    /// The arrivals: each join with a node that has arrived there.
    arrived: BTreeSet<(usize, usize)>,
    /// The rounds of joins that ran before all of their nodes had arrived, by join.
    rounds: BTreeMap<usize, Round>,
    /// The choices of routes that exclude later ones.
    decided: BTreeSet<Choice>,
}

/// A round of a join that has run, while tasks of the round are left.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Round {
    /// The awaited nodes that had not arrived. Their arrivals in this round are absorbed.
    missing: BTreeSet<usize>,
    /// The nodes with tasks of the round: those beside the join when it ran, and the nodes that they lead to.
    tasks: BTreeSet<usize>,
}

/// The joins that may wait forever, as far as the exploration went.
#[derive(Debug, Default)]
pub struct StarvingJoins {
    /// Each with the choice that missed it.
    pub starving: Vec<StarvedJoin>,
    /// Whether every situation was explored. If so, no other join waits forever.
    pub is_complete: bool,
}

/// The result of the check of one join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinVerdict {
    /// It never waits forever.
    Completes,
    /// It may wait forever.
    Starves(StarvedJoin),
    /// The situations are too many.
    Unknown,
}

/// A join that waits although no task is left to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StarvedJoin {
    pub(crate) join: usize,
    /// One of the nodes that has not arrived.
    pub(crate) missing: usize,
    /// The last node from which the missing node was reachable, and the targets it chose instead.
    pub(crate) by: Option<WrongChoice>,
}

/// A node that chose targets from which the missing node is unreachable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongChoice {
    pub(crate) from: usize,
    pub(crate) ending: Ending,
    pub(crate) to: Vec<Arrow>,
    /// Whether it chose a right target whose bound was used up.
    pub(crate) is_spent: bool,
}

/// The origin of a situation: the situation before, and the choice of each of its nodes.
type Origin = Option<(usize, Vec<(usize, Combination)>)>;

/// The situations of all runs of a graph.
#[derive(Debug)]
pub struct Situations {
    /// For each node the nodes that may run in the same step, including itself if it may have several tasks.
    pub beside: Vec<Bits>,
    all: Vec<(Situation, Origin)>,
    /// The situations that follow each situation.
    next: Vec<BTreeSet<usize>>,
}

/// Returns the situations of all runs, or `None` if there are too many.
pub fn explore(model: &FlowModel, exclusions: &Exclusions) -> Option<Situations> {
    let reach = Reach::of(model);
    let combinations = |it| combinations_of(model, exclusions, it);
    let mut exploring = Exploration::new(model, exclusions, &reach, combinations)?;
    exploring.run()?;
    let beside = exploring.running_together();
    let Exploration { situations, next, .. } = exploring;
    Some(Situations { beside, all: situations, next })
}

impl Situations {
    /// Returns the nodes of each step of a shortest path to a step in which both nodes run; with one node twice, in which it
    /// has several tasks.
    pub(crate) fn path_to(&self, one: usize, other: usize) -> Option<Vec<Vec<usize>>> {
        let runs = |situation: &Situation, node: usize| {
            situation.running.iter().any(|(it, several)| *it == node && (one != other || *several))
        };
        let meets = |(it, _): &(Situation, Origin)| runs(it, one) && runs(it, other);
        let mut at = self.all.iter().position(meets)?;
        let mut steps = Vec::new();
        loop {
            let (situation, origin) = &self.all[at];
            steps.push(situation.running.iter().map(|(it, _)| *it).collect());
            match origin {
                Some((before, _)) => at = *before,
                None => break,
            }
        }
        steps.reverse();
        Some(steps)
    }

    /// Returns the nodes that may run in a later step again.
    pub(crate) fn run_again(&self, nodes: usize) -> Bits {
        // What runs in the situations that follow each one; the situations of a loop follow each other.
        let mut later = vec![Bits::none(nodes); self.all.len()];
        let runs_in = |at: usize| self.all[at].0.running.iter().map(|(it, _)| *it);
        let mut is_more = true;
        while is_more {
            is_more = false;
            // Most situations follow those that were found before them.
            for at in (0..self.all.len()).rev() {
                let mut all = later[at].clone();
                for &next in &self.next[at] {
                    for node in runs_in(next) {
                        all.insert(node);
                    }
                    all.add(&later[next]);
                }
                if all != later[at] {
                    (later[at], is_more) = (all, true);
                }
            }
        }
        let mut again = Bits::none(nodes);
        for (at, later) in later.iter().enumerate() {
            for node in runs_in(at).filter(|it| later.contains(*it)) {
                again.insert(node);
            }
        }
        again
    }
}

/// Returns the joins that may wait forever.
///
/// A run that must fail starves no join, so the analysis ignores the part after such nodes.
/// It assumes that decisions made in Rust are right.
pub fn find_starving_joins(model: &FlowModel, exclusions: &Exclusions) -> StarvingJoins {
    let reach = Reach::of(model);
    let failing = failing_nodes(model);
    let combinations = |it| hopeful_combinations_of(model, exclusions, &failing, it);
    let Some(mut exploring) = Exploration::new(model, exclusions, &reach, combinations) else {
        return StarvingJoins::default();
    };
    let is_complete = exploring.run().is_some();
    StarvingJoins { starving: exploring.starving_joins(), is_complete }
}

/// Checks one join, which may run some steps after its last arrival.
pub(super) fn check_join(model: &FlowModel, join: usize) -> JoinVerdict {
    let reach = Reach::of(model);
    let exclusions = Exclusions::default();
    let failing = Bits::none(model.nodes.len());
    let combinations = |it| hopeful_combinations_of(model, &exclusions, &failing, it);
    let Some(mut exploring) = Exploration::new(model, &exclusions, &reach, combinations) else {
        return JoinVerdict::Unknown;
    };
    exploring.late = Some(join);
    let is_complete = exploring.run().is_some();
    match exploring.stuck.iter().find_map(|at| exploring.starving_at(*at, join)) {
        Some(starving) => JoinVerdict::Starves(starving),
        None if is_complete => JoinVerdict::Completes,
        None => JoinVerdict::Unknown,
    }
}

impl Situation {
    /// Returns whether an arrival belongs to a round of the join that has run already.
    fn is_late(&self, join: usize, from: usize) -> bool {
        let round = self.rounds.get(&join);
        round.is_some_and(|it| it.missing.contains(&from) && it.tasks.contains(&from))
    }

    /// Returns the nodes that run or wait.
    fn active(&self, model: &FlowModel) -> BTreeSet<usize> {
        let waiting = self.arrived.iter().map(|(join, _)| model.joins[*join].node);
        let running = self.running.iter().map(|(it, _)| *it);
        running.chain(self.deferred.iter().copied()).chain(waiting).collect()
    }
}

/// The nodes whose tasks led to each node in a step. A node that waited before the step, led to itself.
struct Sources(Vec<(usize, usize)>);

impl Sources {
    fn before(model: &FlowModel, situation: &Situation) -> Self {
        let joins = situation.arrived.iter().map(|(join, _)| model.joins[*join].node);
        let waiting = joins.chain(situation.deferred.iter().copied());
        Self(waiting.map(|it| (it, it)).collect())
    }

    fn add(&mut self, to: usize, from: usize) {
        self.0.push((to, from));
    }

    /// Returns whether a node was led to, and by these nodes only. `entered` has the nodes that a step entered, each
    /// with the node that was meant: another one, if that one's bound was used up.
    fn are_within(&self, node: usize, entered: &[(usize, usize)], nodes: &BTreeSet<usize>) -> bool {
        let is_meant = |meant: usize| meant == node || entered.contains(&(node, meant));
        let mut sources = self.0.iter().filter(|(to, _)| is_meant(*to)).peekable();
        sources.peek().is_some() && sources.all(|(_, from)| nodes.contains(from))
    }
}

/// Where the choices of all tasks of a step lead, apart from bounds that may be used up.
struct StepEffect {
    /// The part of the situation that waits: the deferred nodes, and the arrivals.
    waiting: Situation,
    reached: Vec<ReachedNode>,
    sources: Sources,
    /// The joins that run next, each with the awaited nodes that have not arrived.
    fired: BTreeMap<usize, BTreeSet<usize>>,
}

/// A node that a step leads to.
struct ReachedNode {
    node: usize,
    /// Whether it may have several tasks.
    several: bool,
    /// The nodes that lead to it.
    by: Vec<usize>,
}

/// One of the situations after a step.
#[derive(Clone)]
struct Branch {
    situation: Situation,
    /// The nodes that the step entered, each with the reached node that led there.
    entered: Vec<(usize, usize)>,
}

impl StepEffect {
    /// Adds a node. Of a deferred node, the items do not wait, so they are apart from its other task.
    fn reach(&mut self, model: &FlowModel, reached: ReachedNode) {
        let is_deferred = model.nodes[reached.node].defers.is_some();
        let is_same = |known: &&mut ReachedNode| {
            known.node == reached.node && (known.several == reached.several || !is_deferred)
        };
        match self.reached.iter_mut().find(is_same) {
            Some(known) => {
                known.several |= reached.several;
                known.by.extend(reached.by);
            }
            None => self.reached.push(reached),
        }
    }
}

struct Exploration<'a> {
    model: &'a FlowModel,
    exclusions: &'a Exclusions,
    reach: &'a Reach,
    /// The combined choices of each node.
    combinations: Vec<Vec<Combination>>,
    known: HashMap<Situation, usize, RandomState>,
    situations: Vec<(Situation, Origin)>,
    next: Vec<BTreeSet<usize>>,
    open: VecDeque<usize>,
    steps: usize,
    stuck: Vec<usize>,
    /// A join that may run in any step after its last arrival.
    late: Option<usize>,
}

impl<'a> Exploration<'a> {
    fn new(
        model: &'a FlowModel,
        exclusions: &'a Exclusions,
        reach: &'a Reach,
        combinations_of: impl Fn(usize) -> Option<Vec<Combination>>,
    ) -> Option<Self> {
        let combinations: Option<Vec<Vec<Combination>>> =
            (0..model.nodes.len()).map(combinations_of).collect();
        Some(Self {
            model,
            exclusions,
            reach,
            combinations: combinations?,
            known: HashMap::default(),
            situations: Vec::new(),
            next: Vec::new(),
            open: VecDeque::new(),
            steps: 0,
            stuck: Vec::new(),
            late: None,
        })
    }

    fn run(&mut self) -> Option<()> {
        let mut start = Situation::default();
        for &node in &self.model.start {
            self.enter(&mut start, node, false);
        }
        self.note(start, None)?;
        if let Some(node) = self.model.node_after_limit() {
            let mut limit = Situation::default();
            self.enter(&mut limit, node, false);
            self.note(limit, None)?;
        }
        while let Some(at) = self.open.pop_front() {
            self.step(at)?;
        }
        Some(())
    }

    fn enter(&self, situation: &mut Situation, node: usize, several: bool) {
        if self.model.nodes[node].defers.is_some() && !several {
            situation.deferred.insert(node);
        } else {
            situation.running.insert((node, several));
        }
    }

    fn note(&mut self, mut situation: Situation, origin: Origin) -> Option<()> {
        self.release(&mut situation);
        let before = origin.as_ref().map(|(before, _)| *before);
        if let Some(&known) = self.known.get(&situation) {
            if let Some(before) = before {
                self.next[before].insert(known);
            }
            return Some(());
        }
        let at = self.situations.len();
        if at >= SITUATIONS_MAX {
            return None;
        }
        let is_late = self.late.is_some_and(|it| self.is_reached(&situation, it));
        if !situation.running.is_empty() || is_late {
            self.open.push_back(at);
        } else if !situation.arrived.is_empty() {
            self.stuck.push(at);
        }
        self.known.insert(situation.clone(), at);
        self.situations.push((situation, origin));
        self.next.push(BTreeSet::new());
        if let Some(before) = before {
            self.next[before].insert(at);
        }
        Some(())
    }

    /// Returns whether enough nodes have arrived at a join.
    fn is_reached(&self, situation: &Situation, join: usize) -> bool {
        let Join { awaited, count, .. } = &self.model.joins[join];
        awaited.iter().filter(|it| situation.arrived.contains(&(join, **it))).count() >= *count
    }

    /// Releases the deferred nodes that need not wait for others any longer.
    fn release(&self, situation: &mut Situation) {
        let defers = |it: usize| self.model.nodes[it].defers.as_ref();
        let is_free = |node: &usize| {
            let Some(own) = defers(*node) else { return true };
            let goes_first = |it: usize| it != *node && own.first.contains(it);
            let outranks = |other: usize| defers(other).is_some_and(|it| it.rank > own.rank);
            !situation.running.iter().any(|(it, _)| goes_first(*it))
                && !situation.deferred.iter().any(|it| goes_first(*it) && outranks(*it))
        };
        let free: Vec<usize> = situation.deferred.iter().copied().filter(is_free).collect();
        for node in free {
            situation.deferred.remove(&node);
            situation.running.insert((node, false));
        }
    }

    /// Drops the remaining tasks of the used workflows that a transition leaves.
    fn leave(&self, situation: &mut Situation, from: usize, to: usize) {
        for scope in &self.model.scopes {
            let nodes = &scope.nodes;
            let is_left =
                nodes.contains(from) && !nodes.contains(to) && !scope.last.contains(&from);
            if is_left {
                situation.running.retain(|(it, _)| !nodes.contains(*it));
                situation.deferred.retain(|it| !nodes.contains(*it));
                let stays = |join: usize| !nodes.contains(self.model.joins[join].node);
                situation.arrived.retain(|(it, _)| stays(*it));
                situation.rounds.retain(|it, _| stays(*it));
            }
        }
    }

    /// Records every situation that may follow.
    fn step(&mut self, at: usize) -> Option<()> {
        let situation = self.situations[at].0.clone();
        let mut taken: Vec<Vec<(usize, Combination)>> = vec![Vec::new()];
        for &(node, several) in &situation.running {
            let is_split = several && !self.model.nodes[node].ends_once;
            let of_one = &self.combinations[node];
            let combinations = if is_split { subsets(of_one) } else { of_one.clone() };
            if combinations.len().saturating_mul(taken.len()) > COMBINATIONS_MAX {
                return None;
            }
            let mut more = Vec::with_capacity(combinations.len() * taken.len());
            for before in &taken {
                let is_possible = |it: &&Combination| self.is_possible(&situation, before, it);
                for combination in combinations.iter().filter(is_possible) {
                    let mut all = before.clone();
                    all.push((node, combination.clone()));
                    more.push(all);
                }
            }
            taken = more;
        }
        let waits: &[bool] = if self.late.is_some() { &[false, true] } else { &[false] };
        for taken in taken {
            for waits in waits {
                for next in self.after(&situation, &taken, *waits)? {
                    self.steps += 1;
                    if self.steps > STEPS_MAX {
                        return None;
                    }
                    self.note(next, Some((at, taken.clone())))?;
                }
            }
        }
        Some(())
    }

    /// Returns whether the choices of a node are excluded neither by those of the nodes before it in the step nor by earlier
    /// ones.
    fn is_possible(
        &self,
        situation: &Situation,
        taken: &[(usize, Combination)],
        next: &Combination,
    ) -> bool {
        let is_excluded = |choice: &Choice| {
            let beside = taken.iter().flat_map(|(_, it)| &it.chosen);
            beside.into_iter().any(|it| self.exclusions.exclude(*it, *choice))
                || situation.decided.iter().any(|it| self.exclusions.excludes_later(*it, *choice))
        };
        !next.chosen.iter().any(is_excluded)
    }

    /// Returns the choices that still exclude others after a step with these.
    fn decided(
        &self,
        before: &Situation,
        taken: &[(usize, Combination)],
        after: &Situation,
    ) -> BTreeSet<Choice> {
        let new: BTreeSet<Choice> = taken.iter().flat_map(|(_, it)| &it.chosen).copied().collect();
        let ran = || before.running.iter().map(|(it, _)| *it);
        let all = before.decided.difference(&new).map(|it| (*it, false));
        let all = all.chain(new.iter().map(|it| (*it, true)));
        let mut left: BTreeSet<Choice> = all
            .filter(|(it, is_new)| self.exclusions.stays(*it, *is_new, ran()))
            .map(|it| it.0)
            .collect();
        if !left.is_empty() {
            // Choices that exclude nothing any more would only distinguish equal situations.
            let later = self.reach.from(after.active(self.model));
            left.retain(|choice| self.exclusions.partners(*choice).any(|it| later.contains(it)));
        }
        left
    }

    /// Returns the situations after every task made its choice; several, if a bound may be used up.
    /// Returns `None` if there are too many. `waits` says whether the late join still waits.
    fn after(
        &self,
        before: &Situation,
        taken: &[(usize, Combination)],
        waits: bool,
    ) -> Option<Vec<Situation>> {
        let StepEffect { waiting, reached, sources, fired } = self.effect(before, taken, waits);
        let mut all = vec![Branch { situation: waiting, entered: Vec::new() }];
        for reached in &reached {
            all = all.into_iter().flat_map(|it| self.branches(it, reached)).collect();
            if all.len() > COMBINATIONS_MAX {
                return None;
            }
        }
        for (from, combination) in taken {
            for arrow in &combination.arrows {
                if let Arrow::Node(to) = *arrow {
                    for branch in &mut all {
                        self.leave(&mut branch.situation, *from, to);
                    }
                }
            }
        }
        if !fired.is_empty() || !before.rounds.is_empty() {
            for branch in &mut all {
                branch.situation.rounds = self.rounds(before, branch, &sources, &fired);
            }
        }
        if !self.exclusions.is_empty() {
            for branch in &mut all {
                branch.situation.decided = self.decided(before, taken, &branch.situation);
            }
        }
        Some(all.into_iter().map(|it| it.situation).collect())
    }

    /// Returns where these choices lead.
    fn effect(
        &self,
        before: &Situation,
        taken: &[(usize, Combination)],
        waits: bool,
    ) -> StepEffect {
        let deferred = before.deferred.clone();
        let arrived = before.arrived.clone();
        let mut effect = StepEffect {
            waiting: Situation { deferred, arrived, ..Situation::default() },
            reached: Vec::new(),
            sources: Sources::before(self.model, before),
            fired: BTreeMap::new(),
        };
        let mut arrivals: BTreeSet<usize> = self.late.into_iter().collect();
        for (from, combination) in taken {
            for arrow in &combination.arrows {
                match *arrow {
                    Arrow::Node(node) => {
                        effect.sources.add(node, *from);
                        effect.reach(
                            self.model,
                            ReachedNode { node, several: false, by: vec![*from] },
                        );
                    }
                    Arrow::Tasks(node) => {
                        effect.sources.add(node, *from);
                        effect.reach(
                            self.model,
                            ReachedNode { node, several: true, by: vec![*from] },
                        );
                    }
                    Arrow::Join(join) if before.is_late(join, *from) => (),
                    Arrow::Join(join) => {
                        effect.sources.add(self.model.joins[join].node, *from);
                        effect.waiting.arrived.insert((join, *from));
                        arrivals.insert(join);
                    }
                    Arrow::End | Arrow::Fail => (),
                }
            }
        }
        for join in arrivals {
            if self.is_reached(&effect.waiting, join) && !(waits && self.late == Some(join)) {
                let Join { node, awaited, .. } = &self.model.joins[join];
                let is_missing = |it: &usize| !effect.waiting.arrived.contains(&(join, *it));
                let missing = awaited.iter().copied().filter(is_missing).collect();
                effect.waiting.arrived.retain(|(it, _)| *it != join);
                effect.reach(
                    self.model,
                    ReachedNode { node: *node, several: false, by: awaited.clone() },
                );
                effect.fired.insert(join, missing);
            }
        }
        effect
    }

    /// Returns the branches in which a node is entered after these: at itself, and wherever its bound may lead instead.
    fn branches(&self, branch: Branch, reached: &ReachedNode) -> Vec<Branch> {
        let ReachedNode { node, several, by } = reached;
        let mut spent = Vec::new();
        for from in by {
            self.reach.behind_bounds(self.model, Some(*from), *node, |_, arrow| spent.push(arrow));
        }
        spent.sort_unstable();
        spent.dedup();
        let mut branches = Vec::with_capacity(spent.len() + 1);
        for arrow in spent {
            let mut other = branch.clone();
            match arrow {
                Arrow::Node(instead) | Arrow::Tasks(instead) => {
                    self.enter(&mut other.situation, instead, false);
                    other.entered.push((instead, *node));
                }
                Arrow::Fail => continue,
                Arrow::End | Arrow::Join(_) => (),
            }
            branches.push(other);
        }
        let mut first = branch;
        self.enter(&mut first.situation, *node, *several);
        first.entered.push((*node, *node));
        branches.push(first);
        branches
    }

    /// Returns the rounds after a step in which these joins ran without the given nodes.
    fn rounds(
        &self,
        before: &Situation,
        Branch { situation, entered }: &Branch,
        sources: &Sources,
        fired: &BTreeMap<usize, BTreeSet<usize>>,
    ) -> BTreeMap<usize, Round> {
        let active = situation.active(self.model);
        let round = |join: usize| {
            let belongs = |it: &usize| self.belongs(join, *it);
            let old = before.rounds.get(&join).cloned().unwrap_or_default();
            let Some(missing) = fired.get(&join) else {
                let is_left = |it: &usize| sources.are_within(*it, entered, &old.tasks);
                let tasks = active.iter().copied().filter(|it| belongs(it) && is_left(it));
                return Round { tasks: tasks.collect(), missing: old.missing };
            };
            let node = self.model.joins[join].node;
            let is_next = |it: &usize| entered.contains(&(*it, node));
            let tasks = active.iter().copied().filter(|it| belongs(it) && !is_next(it));
            Round { tasks: tasks.collect(), missing: &old.missing | missing }
        };
        let joins: BTreeSet<usize> = before.rounds.keys().chain(fired.keys()).copied().collect();
        let rounds = joins.into_iter().map(|it| (it, round(it)));
        rounds.filter(|(_, it)| !it.tasks.is_empty() && !it.missing.is_empty()).collect()
    }

    /// Returns whether a task of a node that is active beside a join belongs to the round of the join.
    ///
    /// The nodes outside its used workflow do not: a later task of theirs may begin another call of it. Nor does a
    /// deferred node that waits for the join, because it runs after everything that follows the join.
    fn belongs(&self, join: usize, node: usize) -> bool {
        let join = self.model.joins[join].node;
        let mut scopes = self.model.scopes.iter().filter(|it| it.nodes.contains(join));
        let waits =
            self.model.nodes[node].defers.as_ref().is_some_and(|it| it.first.contains(join));
        !waits && scopes.all(|it| it.nodes.contains(node))
    }

    fn running_together(&self) -> Vec<Bits> {
        let count = self.model.nodes.len();
        let mut beside = vec![Bits::none(count); count];
        for (situation, _) in &self.situations {
            for &(one, several) in &situation.running {
                for &(other, _) in &situation.running {
                    if one != other || several {
                        beside[one].insert(other);
                    }
                }
            }
        }
        beside
    }

    fn starving_joins(&self) -> Vec<StarvedJoin> {
        let mut starving: Vec<StarvedJoin> = Vec::new();
        for &at in &self.stuck {
            let join = self.situations[at].0.arrived.iter().map(|(join, _)| *join).next();
            let new = join.filter(|it| starving.iter().all(|known| known.join != *it));
            starving.extend(new.and_then(|it| self.starving_at(at, it)));
        }
        starving
    }

    /// Returns how a join waits in a situation, if it does.
    fn starving_at(&self, at: usize, join: usize) -> Option<StarvedJoin> {
        let arrived = &self.situations[at].0.arrived;
        let awaited = &self.model.joins[join].awaited;
        let (here, missing): (Vec<usize>, Vec<usize>) =
            awaited.iter().partition(|it| arrived.contains(&(join, **it)));
        let missing = *missing.first().filter(|_| !here.is_empty())?;
        Some(StarvedJoin { join, missing, by: self.astray(at, join, missing) })
    }

    /// Returns the last node before a situation that could have led to the missing node, and did
    /// not.
    fn astray(&self, at: usize, join: usize, missing: usize) -> Option<WrongChoice> {
        let mut at = at;
        // Nodes that are reachable only through the join itself do not count.
        let waits = self.model.joins[join].node;
        let reaches = |from: usize| self.reach.around(from, waits).contains(missing);
        loop {
            let (before, taken) = self.situations[at].1.as_ref()?;
            let mut spent = None;
            for (from, combination) in taken {
                if !reaches(*from) {
                    continue;
                }
                let leads = |arrow: &Arrow| match *arrow {
                    Arrow::Node(to) | Arrow::Tasks(to) => to != waits && reaches(to),
                    Arrow::Join(to) => {
                        let to = self.model.joins[to].node;
                        to != waits && reaches(to)
                    }
                    Arrow::End | Arrow::Fail => false,
                };
                let is_spent = combination.arrows.iter().any(leads);
                let astray = WrongChoice {
                    from: *from,
                    ending: combination.ending,
                    to: combination.arrows.iter().copied().collect(),
                    is_spent,
                };
                if !is_spent {
                    return Some(astray);
                }
                spent = spent.or(Some(astray));
            }
            if spent.is_some() {
                return spent;
            }
            at = *before;
        }
    }
}

/// One step of a walk: the nodes that run, each with the ends of its tasks.
#[cfg(test)]
pub(super) type WalkStep = Vec<(usize, Vec<Ending>)>;

/// One path of a run.
#[cfg(test)]
#[derive(Default)]
pub(super) struct Walk {
    pub(super) steps: Vec<WalkStep>,
    /// Whether nothing is left to run, and no join waits.
    pub(super) is_done: bool,
}

/// Takes one path through the situations of a model without bounds; `choose` returns a number below the given one. The target
/// of a limit may be reached at any time.
#[cfg(test)]
pub(super) fn walk(model: &FlowModel, mut choose: impl FnMut(usize) -> usize) -> Walk {
    const STEPS: usize = 30;
    let reach = Reach::of(model);
    let exclusions = Exclusions::default();
    let combinations = |it| combinations_of(model, &exclusions, it);
    let Some(exploring) = Exploration::new(model, &exclusions, &reach, combinations) else {
        return Walk::default();
    };
    let mut situation = Situation::default();
    model.start.iter().for_each(|it| exploring.enter(&mut situation, *it, false));
    let mut walk = Walk::default();
    let mut is_limited = false;
    while walk.steps.len() < STEPS {
        exploring.release(&mut situation);
        let mut step: WalkStep = Vec::new();
        let mut taken = Vec::new();
        for &(node, several) in &situation.running {
            let combinations = &exploring.combinations[node];
            if combinations.is_empty() {
                // Every choice of the node fails.
                return walk;
            }
            let tasks = if several { 1 + choose(2) } else { 1 };
            let mut choose_one = |_| &combinations[choose(combinations.len())];
            let chosen: Vec<&Combination> = (0..tasks).map(&mut choose_one).collect();
            let arrows = chosen.iter().flat_map(|it| &it.arrows).copied().collect();
            let ending = chosen[0].ending;
            let no_choice = BTreeSet::new();
            taken.push((node, Combination { ending, arrows, chosen: no_choice }));
            // A node by an edge and the same node by a dispatch are neighbors here.
            let endings = chosen.iter().map(|it| it.ending);
            match step.last_mut().filter(|it| it.0 == node) {
                Some((_, of_node)) => of_node.extend(endings),
                None => step.push((node, endings.collect())),
            }
        }
        if step.is_empty() {
            walk.is_done = situation.arrived.is_empty();
            break;
        }
        walk.steps.push(step);
        let Some(after) = exploring.after(&situation, &taken, false) else { break };
        situation = after[choose(after.len())].clone();
        if let Some(limit) = model.node_after_limit().filter(|_| !is_limited && choose(8) == 0) {
            situation = Situation::default();
            exploring.enter(&mut situation, limit, false);
            is_limited = true;
        }
    }
    walk
}
