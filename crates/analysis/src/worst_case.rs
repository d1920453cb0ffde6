//! Computes the worst case of a graph: how often each node can run, and which bound limits it.
//!
//! A run is a flow of tokens: one starts at each entry node, a visit passes its token on, and makes a new one for each further
//! target in the same step. A node can run as often as tokens can reach it. These tokens are not the tokens of models; this module
//! computes neither model tokens nor prices.
//!
//! **Example.** `write` (`max_visits: 3`) leads to `check`, whose route leads to `write` or to `end`. One token circulates. `write`
//! passes it at most three times, so `check` runs at most three times, because of `write`: 6 visits in 6 steps.
//! If `write` led to `check` and `log`, each visit would make one more token, and `log` could also run three times.
//!
//! **Rules.** Nodes with `max_visits` are counted by rounds: a count starts anew when a node that `resets` it finishes. Other nodes are
//! counted by the maximum flow of tokens to them ([`flow`]); branches that exclude each other or join again share one
//! token ([`shares`], [`branches`]). A join that does not wait for all of its nodes may run after each arrival, unless all belong to one
//! round. The longest chain of visits gives the steps ([`steps`]). Totals of several nodes are counted in one flow, because no run
//! takes all of several alternatives ([`total`]). The work of nodes whose conditions exclude each other is not added up
//! ([`alternatives`]), and neither are the branches behind routes that do ([`exclusive`]).
//!
//! **Soundness.** Every rule is an upper bound that holds for every run. So the least of them is one, too, and each rule can be applied to
//! the results of the others until no number gets smaller. A node is computed after the nodes it depends on, so most nodes are
//! computed once.
//!
//! **Limits.** Routes may choose any of their targets, so a bound that only the state enforces (`round < 3`) is not seen. A search that
//! exceeds [`WORK_MAX`] stops with the bounds found so far, unless `plan` asked for the whole.

mod again;
mod alternatives;
mod branches;
mod dominators;
mod ending;
mod exclusive;
mod flow;
mod leads;
mod scopes;
mod shares;
mod steps;
mod tokens;
mod total;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use graphrun_core::{
    graph::{Defer, Edge, Graph, NodeSpec, Target},
    id::NodeName,
    words::count,
};
use petgraph::algo::{has_path_connecting, tarjan_scc};

pub(crate) use self::again::{calls_again_max, most_again};
use self::{
    ending::CertainEnds,
    flow::Flows,
    steps::Steps,
    tokens::{Arrival, Tokens},
    total::TotalFlow,
};
use super::CompiledGraph;

/// The work limit for a worst case that was not requested: one or two milliseconds for a typical
/// graph with a thousand nodes.
const WORK_MAX: usize = 2_000_000;

/// The most passes that look for bounds which no run uses up. After that, every bound counts as used up.
const PASSES_MAX: usize = 6;

/// The worst case of a run of a graph, for any behaviour of its nodes.
///
/// It does not include work that is repeated when a run is resumed after a failure or a crash, or
/// the limits of the run, which may stop it earlier. Numbers that are too large are [`u64::MAX`].
///
/// ```
/// use graphrun_analysis::{WorstCase, GraphBuilder};
/// use graphrun_core::{
///     graph::{END, FAIL, NodeError, START},
///     id::NodeName,
///     state::Schema,
/// };
///
/// async fn nothing() -> Result<(), NodeError> {
///     Ok(())
/// }
/// let graph = GraphBuilder::with_schema("loop", Schema::default())
///     .node("write", nothing)
///     .node("check", nothing)
///     .edge(START, "write")
///     .edge("write", "check")
///     .route("check", ["write", END], |_: &serde_json::Value| END)
///     .max_visits("write", 2, FAIL)
///     .compile()
///     .unwrap();
///
/// let worst_case = WorstCase::of(&graph);
/// let check = &worst_case.nodes[&NodeName::parse("check").unwrap()];
/// assert_eq!((check.visits_max, check.why.to_string()), (2, "after `write` (2)".to_owned()));
/// assert_eq!(worst_case.steps_max, 4);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorstCase {
    /// Super-steps.
    pub steps_max: u64,
    /// Elapsed time, counted as for [`Limits::time`](graphrun_core::graph::Limits::time): the longest task
    /// of each step. `None` if a node has no [timeout](graphrun_core::graph::Attempts::timeout).
    pub time_max: Option<Duration>,
    /// The worst case of each node.
    pub nodes: BTreeMap<NodeName, NodeWorstCase>,
    flow: TotalFlow,
}

/// The worst case of one node in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeWorstCase {
    /// Super-steps in which it runs.
    pub visits_max: u64,
    /// Whether several items may be dispatched to it in one step. It runs once for each item, and
    /// their number is only known in a run; the numbers below are per item.
    pub is_dispatched: bool,
    /// Attempts in all visits together.
    pub attempts_max: u64,
    /// Model calls in all attempts together; `None` if the node does not declare them.
    pub calls_max: Option<u64>,
    /// Elapsed time of all attempts together; `None` if nothing bounds an attempt. Pure computation
    /// and waiting for a person count as zero.
    pub time_max: Option<Duration>,
    /// The bound that limits the visits.
    pub why: VisitBound,
}

/// The bound that limits the visits of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VisitBound {
    /// The run ends after a visit of it.
    Last,
    /// Its `max_visits`, which apply to each round.
    Rounds {
        /// The visits in a round.
        max_visits: u32,
        /// Whether the first round starts with the run, and not with a visit of a resetting node.
        is_first_free: bool,
        /// The nodes that start a round by resetting the count, and how often they can.
        resets: Vec<(NodeName, u64)>,
        /// Whether a limit of the run leads to it; this happens once, even if its bound is used up.
        after_limit: bool,
    },
    /// Each of its visits follows one of these causes, and each cause leads to at most one visit.
    After(Vec<(Cause, u64)>),
    /// It waits for all other nodes, and runs once after the first time and after each visit of these.
    Deferred(Vec<(NodeName, u64)>),
    /// The run fails for certain within so many steps after this cause.
    Fails {
        /// The cause.
        after: Cause,
        /// The steps after its own.
        steps: u64,
    },
}

/// A cause of a visit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The run starts.
    Start,
    /// A node was visited; it need not be the direct predecessor.
    Visit(NodeName),
    /// A limit of the run was reached.
    Limit,
}

impl WorstCase {
    /// Computes the worst case of a graph.
    pub fn of(graph: &CompiledGraph) -> Self {
        let found = Self::find(graph.definition(), usize::MAX, |_| true);
        found.expect("the search is not given up as long as work is left")
    }

    /// Computes the worst case of a graph that has passed its checks; returns `None` if that takes
    /// too long. Alternatives are added up unless the result is `needed` to be exact.
    pub(super) fn if_quick(graph: &Graph, needed: impl Fn(&Self) -> bool) -> Option<Self> {
        let is_small = graph.nodes.len() <= total::NODES_MAX;
        Self::find(graph, WORK_MAX, &needed).filter(|it| is_small || !needed(it))
    }

    /// Returns the model calls of all nodes together; `None` if some node does not declare them, or calls models once for
    /// each item.
    pub fn calls_max(&self) -> Option<u64> {
        let is_known =
            |it: &NodeWorstCase| it.calls_max.is_some_and(|calls| calls == 0 || !it.is_dispatched);
        let are_known = self.nodes.values().all(is_known);
        are_known.then(|| self.most(|_, it| it.calls_max))
    }

    /// Returns the most that all visits of a run take together of something, such as calls or milliseconds, if these
    /// numbers are the most that all visits of each node take.
    ///
    /// A run takes one of several alternatives, so the result may be less than the sum. A visit in which the node is skipped
    /// takes nothing. Nodes without a number count as zero.
    pub fn most(&self, of: impl Fn(&NodeName, &NodeWorstCase) -> Option<u64>) -> u64 {
        let numbers = self.nodes.iter().map(|(name, it)| of(name, it).unwrap_or(0));
        let sum = numbers.clone().fold(0, u64::saturating_add);
        let Some((mut program, work)) = self.flow.program_of_work() else { return sum };
        for (work, (number, visits)) in work.into_iter().zip(numbers.zip(&self.flow.visits_max)) {
            // Each visit takes the same.
            program.weigh(work, total::divided(number, *visits));
        }
        sum.min(total::rounded(program.most()))
    }

    fn find(graph: &Graph, work_max: usize, is_exact: impl Fn(&Self) -> bool) -> Option<Self> {
        let mut overflows = overflows_at_first(graph);
        let mut passes = 0;
        let (tokens, visits) = loop {
            let tokens = Tokens::of(graph, &overflows);
            let visits = VisitSearch::of(graph, &tokens, work_max).run()?;
            if !add_overflows(graph, &visits, &mut overflows) {
                break (tokens, visits);
            }
            passes += 1;
            if passes == PASSES_MAX {
                overflows.fill(true);
            }
        };
        let node = |(number, (name, spec)): (usize, (&NodeName, &NodeSpec))| {
            let visits_max = visits[number].most;
            let why = visits[number].why.clone();
            let attempts = u64::from(steps::attempts_max(spec));
            let attempts_max = visits_max.saturating_mul(attempts);
            let calls_max = steps::calls_of_task(spec).map(|it| it.saturating_mul(visits_max));
            let is_dispatched = tokens.is_dispatched(number);
            let time_max = steps::task_time(spec).map(|it| steps::times(it, visits_max));
            let worst_case =
                NodeWorstCase { visits_max, is_dispatched, attempts_max, calls_max, time_max, why };
            (name.clone(), worst_case)
        };
        let nodes: BTreeMap<NodeName, NodeWorstCase> =
            graph.nodes.iter().enumerate().map(node).collect();
        let visits_max = visits.iter().map(|it| it.most).collect();
        let flow = TotalFlow::of(graph, &tokens, visits_max);
        let mut steps = Steps::of(graph, &tokens, &nodes);
        let certain_ends = CertainEnds::of(graph, &tokens);
        steps.most = steps.most.min(certain_ends.of_runs.unwrap_or(u64::MAX));
        let steps_max = steps.most;
        let time_max = steps.time_max;
        let mut worst_case = Self { steps_max, time_max, nodes, flow };
        if is_exact(&worst_case) {
            let (steps_max, time_max) = steps.in_one_flow(&worst_case.flow);
            (worst_case.steps_max, worst_case.time_max) = (steps_max, time_max);
        }
        Some(worst_case)
    }
}

/// The search for the visits of each node.
struct VisitSearch<'a> {
    graph: &'a Graph,
    tokens: &'a Tokens<'a>,
    flows: Flows<'a>,
    /// The current upper bound of the visits of each node; [`u64::MAX`] if unknown.
    visits: Vec<u64>,
    why: Vec<VisitBound>,
    /// The nodes whose visits all lead to the end of the run.
    ends_the_run: Vec<bool>,
    /// For each join of some of several nodes that never begins a new round, the nodes and their number.
    one_round: Vec<Option<(Vec<usize>, usize)>>,
    /// For each join of some of several nodes that nothing else leads to, the nodes and their number.
    partial: Vec<Option<(Vec<usize>, usize)>>,
    /// For each deferred node, the other deferred nodes that lead to it, and the visits without waiting.
    deferred: Vec<Option<(Vec<usize>, u64)>>,
    certain_ends: CertainEnds,
    /// The nodes to which some path leads.
    is_reached: Vec<bool>,
    /// The most tokens that can reach each node, also beyond its bound.
    arrivals: Vec<u64>,
}

/// The visits of a node in the worst case.
#[derive(Debug)]
struct FoundVisits {
    most: u64,
    why: VisitBound,
    /// The most tokens that can reach it.
    arrivals: u64,
}

impl<'a> VisitSearch<'a> {
    fn of(graph: &'a Graph, tokens: &'a Tokens<'a>, work_max: usize) -> Self {
        let nodes = tokens.names.len();
        Self {
            graph,
            tokens,
            flows: Flows::of(tokens, work_max),
            visits: vec![u64::MAX; nodes],
            why: vec![VisitBound::Last; nodes],
            ends_the_run: ends_the_run(graph),
            one_round: one_round(graph, tokens),
            partial: partial_joins(graph, tokens),
            deferred: deferred(graph, tokens),
            certain_ends: CertainEnds::of(graph, tokens),
            is_reached: (0..nodes).map(|it| tokens.before.is_reached(it)).collect(),
            arrivals: vec![u64::MAX; nodes],
        }
    }

    /// Computes the visits of each node after those of the nodes it depends on. For nodes that
    /// depend on each other, it lowers the numbers until no rule gives a lower one.
    fn run(mut self) -> Option<Vec<FoundVisits>> {
        let mut groups = tarjan_scc(&self.tokens.dependencies());
        groups.reverse();
        let ranks = self.tokens.ranks();
        for mut group in groups {
            group.sort_unstable_by_key(|it| ranks[*it]);
            // Bounded nodes are known once the nodes that reset them are known; other nodes once
            // the nodes before them are known. Neither is circular, as `compile` has checked. An
            // earlier stop would only give a less tight bound, so the number of passes can be
            // limited.
            for _ in 0..=2 * group.len() {
                self.flows.forget(&group);
                let mut is_less = false;
                for &node in &group {
                    let (least, why) = self.tightest(node);
                    is_less |= least < self.visits[node];
                    (self.visits[node], self.why[node]) = (least, why);
                }
                if self.flows.gave_up {
                    return None;
                }
                if !is_less {
                    break;
                }
            }
        }
        let found = self.visits.into_iter().zip(self.why).zip(self.arrivals);
        Some(found.map(|((most, why), arrivals)| FoundVisits { most, why, arrivals }).collect())
    }

    /// Returns the rule with the lowest number for a node; of equal ones, the first.
    fn tightest(&mut self, node: usize) -> (u64, VisitBound) {
        if !self.is_reached[node] {
            self.arrivals[node] = 0;
            return (0, VisitBound::After(Vec::new()));
        }
        let last = self.ends_the_run[node].then_some((1, VisitBound::Last));
        let rounds = self.rounds(node);
        let (arrivals, causes) = self.flows.arrivals(node, &self.visits);
        self.arrivals[node] = arrivals;
        let arrivals = [(arrivals, VisitBound::After(causes))];
        let rules = last.into_iter().chain(rounds).chain(self.joined(node)).chain(arrivals);
        let rules = rules.chain(self.shared_arrivals(node)).chain(self.waiting(node));
        let fails = |(visits, after, steps): &(u64, Cause, u64)| {
            (*visits, VisitBound::Fails { after: after.clone(), steps: *steps })
        };
        let rules = rules.chain(self.certain_ends.of_nodes[node].as_ref().map(fails));
        rules.min_by_key(|(least, _)| *least).expect("there are always arrivals")
    }

    /// Returns the visits of a join of some of several nodes whose arrivals belong to one round: as many as the fewest
    /// that the needed number of its nodes can have.
    fn joined(&self, node: usize) -> Option<(u64, VisitBound)> {
        let (awaited, count) = self.one_round[node].as_ref()?;
        let mut awaited: Vec<usize> = awaited.clone();
        awaited.sort_by_key(|it| std::cmp::Reverse(self.visits[*it]));
        let last = *awaited.get(count.checked_sub(1)?)?;
        let visits = self.visits[last];
        Some((
            visits,
            VisitBound::After(vec![(Cause::Visit(self.tokens.names[last].clone()), visits)]),
        ))
    }

    /// Returns the visits of a join of some of several nodes: each uses up so many arrivals, each of another visit.
    fn shared_arrivals(&self, node: usize) -> Option<(u64, VisitBound)> {
        let (awaited, count) = self.partial[node].as_ref()?;
        let arrivals = awaited.iter().fold(0_u64, |sum, it| sum.saturating_add(self.visits[*it]));
        let count = u64::try_from(*count).ok().filter(|it| *it > 1 && arrivals < u64::MAX)?;
        let cause = |it: &usize| (Cause::Visit(self.tokens.names[*it].clone()), self.visits[*it]);
        Some((arrivals / count, VisitBound::After(awaited.iter().map(cause).collect())))
    }

    /// Returns the visits of a node that waits for all others. After one of them, only the deferred nodes that ran with it
    /// can lead to the next one.
    fn waiting(&self, node: usize) -> Option<(u64, VisitBound)> {
        let (others, at_once) = self.deferred[node].as_ref()?;
        let named = |it: &usize| (self.tokens.names[*it].clone(), self.visits[*it]);
        let others: Vec<(NodeName, u64)> = others.iter().map(named).collect();
        let most = others.iter().fold(at_once + 1, |sum, (_, it)| sum.saturating_add(*it));
        Some((most, VisitBound::Deferred(others)))
    }

    /// Returns the visits that the bound of a node allows, if it has one.
    fn rounds(&self, node: usize) -> Option<(u64, VisitBound)> {
        let policies = &self.graph.nodes[self.tokens.names[node]].policies;
        let max_visits = policies.bounds.max_visits?;
        let resetters = self.tokens.resetters[node].iter();
        let resets: Vec<(NodeName, u64)> =
            resetters.map(|it| (self.tokens.names[*it].clone(), self.visits[*it])).collect();
        let passage = &self.tokens.passages[node];
        // The first nodes of a run count as started even if their bound allows no visit.
        let a_round = u64::from(max_visits).max(u64::from(passage.is_first));
        let is_first_free = passage.is_first_free();
        let rounds = rounds(is_first_free, &resets);
        let after_limit = passage.is_after_limit;
        let most = rounds.saturating_mul(a_round).saturating_add(after_limit.into());
        Some((most, VisitBound::Rounds { max_visits, is_first_free, resets, after_limit }))
    }
}

/// Returns for each join of some of several nodes these nodes and their number, if all of its arrivals after its first
/// visit belong to one round.
///
/// An arrival of a node that had not arrived is then absorbed, so each visit takes an arrival of each of the same nodes.
/// Tasks that follow the join, that wait for it, or that a limit begins would start another round.
fn one_round(graph: &Graph, tokens: &Tokens<'_>) -> Vec<Option<(Vec<usize>, usize)>> {
    let mut joins = partial_joins(graph, tokens);
    for (join, name) in joins.iter_mut().zip(&tokens.names) {
        join.take_if(|_| name.scope().is_some());
    }
    if joins.iter().all(Option::is_none) {
        return joins;
    }
    let digraph = &tokens.digraph;
    let begins_another = |(node, spec): (usize, &NodeSpec)| {
        let waits = matches!(spec.policies.schedule.defer, Some(Defer::Siblings));
        let is_outermost = tokens.names[node].scope().is_none();
        (waits && is_outermost || tokens.passages[node].is_after_limit).then_some(node)
    };
    let others: Vec<usize> = graph.nodes.values().enumerate().filter_map(begins_another).collect();
    for (node, join) in joins.iter_mut().enumerate() {
        let leads_back = |from: usize| {
            digraph.neighbors(from).any(|it| has_path_connecting(digraph, it, node, None))
        };
        if join.is_some() && others.iter().copied().chain([node]).any(leads_back) {
            *join = None;
        }
    }
    joins
}

/// Returns for each join of some of several nodes these nodes and their number, if nothing else leads to it.
fn partial_joins(graph: &Graph, tokens: &Tokens<'_>) -> Vec<Option<(Vec<usize>, usize)>> {
    let mut joins = vec![None; tokens.names.len()];
    for edge in &graph.edges {
        let Edge::Join { from, to, count, .. } = edge else { continue };
        let number = |it: &NodeName| tokens.names.binary_search(&it).ok();
        let (Some(to), awaited) = (number(to), from.iter().filter_map(number).collect()) else {
            continue;
        };
        let passage = &tokens.passages[to];
        let is_join = |it: &Arrival| matches!(it, Arrival::PartialJoin(_));
        let is_alone = !passage.is_first && !passage.is_after_limit;
        if *count < from.len() && is_alone && passage.from.iter().all(is_join) {
            joins[to] = Some((awaited, *count));
        }
    }
    joins
}

/// Returns the nodes that may lead to `exhausted` without many visits: those with limits.
fn overflows_at_first(graph: &Graph) -> Vec<bool> {
    graph.nodes.values().map(|it| it.policies.bounds.limits.is_some()).collect()
}

/// Adds the nodes that more tokens can reach than their bounds allow visits; returns whether there are any.
///
/// Until a run uses up the bound of another node for the first time, it takes only edges that the numbers of arrivals
/// include. So no such node is missed.
fn add_overflows(graph: &Graph, visits: &[FoundVisits], overflows: &mut [bool]) -> bool {
    let mut is_more = false;
    for ((spec, found), may_overflow) in graph.nodes.values().zip(visits).zip(overflows) {
        let policies = &spec.policies;
        let Some(max_visits) = policies.bounds.max_visits.filter(|_| !*may_overflow) else {
            continue;
        };
        // An input may make the bound lower.
        let least = if policies.bounds.visits_field.is_some() { 1 } else { max_visits };
        if found.arrivals > u64::from(least) {
            *may_overflow = true;
            is_more = true;
        }
    }
    is_more
}

/// Returns for each node that waits for all others the other deferred nodes that lead to it, and how often it may run without
/// waiting; nothing for a node that leads back to itself.
fn deferred(graph: &Graph, tokens: &Tokens<'_>) -> Vec<Option<(Vec<usize>, u64)>> {
    let waits = |node: usize| {
        let name = tokens.names[node];
        let is_outermost = name.scope().is_none();
        is_outermost && graph.nodes[name].policies.schedule.defer == Some(Defer::Siblings)
    };
    let all: Vec<usize> = (0..tokens.names.len()).filter(|it| waits(*it)).collect();
    let mut found = vec![None; tokens.names.len()];
    if all.is_empty() {
        return found;
    }
    let digraph = &tokens.digraph;
    let leads = |from: usize, to: usize| {
        digraph.neighbors(from).any(|it| has_path_connecting(digraph, it, to, None))
    };
    let after_limit = tokens.passages.iter().any(|it| it.is_after_limit);
    for &node in &all {
        let passage = &tokens.passages[node];
        let is_sent = passage.from.iter().any(|it| matches!(it, Arrival::Sent(_)));
        if !is_sent && !passage.is_wide && !leads(node, node) {
            let others = all.iter().copied().filter(|it| *it != node && leads(*it, node));
            let at_once = u64::from(after_limit);
            found[node] = Some((others.collect(), at_once));
        }
    }
    found
}

/// Returns the number of rounds: those started by resets, and the first one if it is free.
fn rounds(is_first_free: bool, resets: &[(NodeName, u64)]) -> u64 {
    resets.iter().fold(is_first_free.into(), |sum, (_, it)| sum.saturating_add(*it))
}

/// Returns the nodes whose visits all lead to the end of the run.
fn ends_the_run(graph: &Graph) -> Vec<bool> {
    let failing = failing(graph);
    let ends = |(name, spec): (&NodeName, &NodeSpec)| {
        failing.contains(name) && spec.policies.catch.iter().all(|it| it.to == Target::Fail)
    };
    graph.nodes.iter().map(ends).collect()
}

/// Returns the nodes after which a run fails, unless their failure is caught: an edge leads each of them to failure.
fn failing(graph: &Graph) -> BTreeSet<&NodeName> {
    let choosing = choosing(graph);
    let failing = graph.edges.iter().filter_map(|it| match it {
        Edge::Then { from, to: Target::Fail, .. } => Some(from),
        _ => None,
    });
    failing.filter(|it| !choosing.contains(it)).collect()
}

/// Returns the nodes that declare `goto`. They may ignore their edges.
fn choosing(graph: &Graph) -> BTreeSet<&NodeName> {
    let from = graph.edges.iter().filter_map(|it| match it {
        Edge::May { from, .. } => Some(from),
        _ => None,
    });
    from.collect()
}

impl fmt::Display for VisitBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Last => f.write_str("the run ends with it"),
            Self::Rounds { max_visits, is_first_free, resets, after_limit } => {
                f.write_str(&count(u64::from(*max_visits), "visit"))?;
                if !resets.is_empty() {
                    let rounds = count(rounds(*is_first_free, resets), "round");
                    let first = if *is_first_free { "the first, and " } else { "" };
                    let resets = listed(resets.iter().map(|(it, many)| (format!("`{it}`"), *many)));
                    write!(f, " × {rounds}: {first}reset by {resets}")?;
                }
                if *after_limit { f.write_str(", and 1 after a limit") } else { Ok(()) }
            }
            Self::Deferred(others) if others.is_empty() => f.write_str("after all others"),
            Self::Deferred(others) => {
                let others = listed(others.iter().map(|(it, many)| (format!("`{it}`"), *many)));
                write!(f, "after all others, and after {others}")
            }
            Self::Fails { after, steps } => {
                let steps = count(*steps, "step");
                write!(f, "the run fails within {steps} after {after}")
            }
            Self::After(causes) => match causes.as_slice() {
                [] => f.write_str("no run reaches it"),
                [(Cause::Start, 1)] => f.write_str("the start leads to it once"),
                causes => {
                    let causes = causes.iter().map(|(cause, many)| (cause.to_string(), *many));
                    write!(f, "after {}", listed(causes))
                }
            },
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("the start"),
            Self::Visit(node) => write!(f, "`{node}`"),
            Self::Limit => f.write_str("a limit"),
        }
    }
}

/// `qa` (4), `tl` (10)
fn listed(all: impl Iterator<Item = (String, u64)>) -> String {
    let each: Vec<String> = all.map(|(name, many)| format!("{name} ({many})")).collect();
    each.join(", ")
}
