//! The most of all visits together: alternatives that exclude each other are not added up.
//!
//! The bound of each single node counts the run in which that node is visited most often. No run visits all nodes that
//! often: a router takes one of its targets. So a total is the maximum of a sum over *one* flow of tokens, which is a
//! linear program. Its variables are the visits of each node and the tokens on each edge.
//!
//! **Example.** `sort` leads to `bug`, `idea` or `other`, and each of them to `answer`. Every node is visited at most once, and
//! the sum of these bounds is 5. The token that `sort` passes on takes one edge, so `bug + idea + other` is at most 1, and
//! the total is 3.
//!
//! A loop could hold tokens that never entered it, and fulfil the rules of each node. So its visits are also limited by the
//! tokens that enter it: of two loops behind a router, one is passed.
//!
//! **Soundness.** The visits and tokens of each run fulfil every rule of the program, so its maximum is an upper bound. The
//! maximum may be reached by fractions of a token only; the total is then larger than that of any run.

use std::collections::{BTreeMap, BTreeSet};

use graphrun_core::graph::Graph;
use microlp::{ComparisonOp, OptimizationDirection, Problem};
use petgraph::algo::tarjan_scc;

use super::{
    alternatives::{self, Alternatives},
    exclusive::{self, ExclusiveEdges},
    partial_joins,
    tokens::{Passage, Port, Tokens},
};
use crate::network::Digraph;

/// Larger numbers are not exact enough to be computed with.
const NUMBER_MAX: f64 = 1e12;
/// Larger factors in a rule make the solver inexact.
const FACTOR_MAX: u64 = 1_000_000;
/// The programs of larger graphs take seconds. Their totals add up alternatives.
pub(super) const NODES_MAX: usize = 200;

/// The rules that the visits and the tokens of each run fulfil.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TotalFlow {
    /// The most visits of each node.
    pub(super) visits_max: Vec<u64>,
    /// The number of edges between nodes.
    edges: usize,
    rules: Vec<Rule>,
    /// The nodes of which one runs, and the others are skipped.
    alternatives: Vec<Alternatives>,
    /// The edges of which tokens take only some.
    exclusive: Vec<ExclusiveTokens>,
}

/// Tokens on edges that exclude each other.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ExclusiveTokens {
    /// The variable of each edge, and the node that it leaves.
    edges: Vec<(usize, usize)>,
    in_each_step: bool,
}

/// The sum of some variables, each with its factor, is at most a number. The variables are the visits of the nodes, then the
/// tokens on the edges.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    sum: Vec<(usize, i64)>,
    most: u64,
}

/// An edge by which tokens reach a node.
#[derive(Clone, Copy, Debug)]
struct TokenEdge {
    /// Its variable.
    variable: usize,
    /// The node that it leaves.
    from: Option<usize>,
    to: usize,
}

/// A linear program: the variables from zero on, and the rules for them.
#[derive(Clone, Debug)]
pub(super) struct Program {
    variables: Vec<Variable>,
    rules: Vec<(Vec<(usize, f64)>, f64)>,
}

#[derive(Clone, Copy, Debug)]
struct Variable {
    weight: f64,
    most: f64,
}

impl TotalFlow {
    pub(super) fn of(graph: &Graph, tokens: &Tokens<'_>, visits_max: Vec<u64>) -> Self {
        let mut flow = Self { visits_max, ..Self::default() };
        let nodes = tokens.names.len();
        // The tokens that leave each port, and the used-up ones that are led elsewhere from the entry of a node.
        let mut leaving: BTreeMap<Port, Vec<usize>> = BTreeMap::new();
        let mut arriving: Vec<Vec<usize>> = vec![Vec::new(); nodes];
        let mut edges: Vec<TokenEdge> = Vec::new();
        for (node, passage) in tokens.passages.iter().enumerate() {
            for feed in &passage.feeds {
                let variable = nodes + flow.edges;
                flow.edges += 1;
                leaving.entry(feed.from).or_default().push(variable);
                arriving[node].push(variable);
                edges.push(TokenEdge { variable, from: feed.from.node(), to: node });
                for awaited in &feed.joined {
                    flow.rule(vec![(variable, 1), (*awaited, -1)], 0);
                }
            }
        }
        for (node, passage) in tokens.passages.iter().enumerate() {
            let elsewhere = leaving.remove(&Port::Reached(node)).unwrap_or_default();
            let used = elsewhere.into_iter().chain([node]).map(|it| (it, 1));
            let given = arriving[node].iter().map(|it| (*it, -1));
            flow.rule(used.chain(given).collect(), made(passage));
        }
        for (port, variables) in leaving {
            if let Port::Left(node, _) = port {
                let sum = variables.into_iter().map(|it| (it, 1)).chain([(node, -1)]);
                flow.rule(sum.collect(), 0);
            }
        }
        flow.limit_rounds(graph, tokens);
        flow.limit_joins(graph, tokens);
        flow.limit_loops(graph, tokens, &edges);
        if nodes <= NODES_MAX {
            flow.alternatives = alternatives::find(graph, tokens, &flow.visits_max);
            let exclusive = exclusive::find(graph, tokens, &flow.visits_max);
            flow.exclusive =
                exclusive.iter().filter_map(|it| exclusive_tokens(it, &edges)).collect();
        }
        flow
    }

    fn rule(&mut self, sum: Vec<(usize, i64)>, most: u64) {
        self.rules.push(Rule { sum, most });
    }

    /// A node with a bound is visited so often in each round, and each visit of some nodes begins a round.
    fn limit_rounds(&mut self, graph: &Graph, tokens: &Tokens<'_>) {
        for (node, name) in tokens.names.iter().enumerate() {
            let Some(max_visits) = graph.nodes[*name].policies.bounds.max_visits else { continue };
            let passage = &tokens.passages[node];
            let a_round = max_visits.max(u32::from(passage.is_first));
            let resets = tokens.resetters[node].iter().map(|it| (*it, -i64::from(a_round)));
            let free = if passage.is_first_free() { u64::from(a_round) } else { 0 };
            let most = free + u64::from(passage.is_after_limit);
            self.rule([(node, 1)].into_iter().chain(resets).collect(), most);
        }
    }

    /// Each visit of a join of some of several nodes uses up as many arrivals, each of another visit.
    fn limit_joins(&mut self, graph: &Graph, tokens: &Tokens<'_>) {
        for (node, join) in partial_joins(graph, tokens).into_iter().enumerate() {
            let Some((awaited, count)) = join else { continue };
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            let arrivals = awaited.into_iter().map(|it| (it, -1));
            self.rule([(node, count)].into_iter().chain(arrivals).collect(), 0);
        }
    }

    /// A loop is passed only by tokens that enter it, and so are the loops in it that do not contain its entries.
    fn limit_loops(&mut self, graph: &Graph, tokens: &Tokens<'_>, edges: &[TokenEdge]) {
        let mut open = vec![(0..tokens.names.len()).collect::<BTreeSet<usize>>()];
        while let Some(region) = open.pop() {
            let mut inner: Digraph = Digraph::new();
            for edge in edges {
                if let Some(from) = edge.from.filter(|it| region.contains(it))
                    && region.contains(&edge.to)
                {
                    inner.add_edge(from, edge.to, ());
                }
            }
            for nodes in tarjan_scc(&inner) {
                if nodes.len() == 1 && !inner.contains_edge(nodes[0], nodes[0]) {
                    continue;
                }
                let mut nodes: BTreeSet<usize> = nodes.into_iter().collect();
                let entries = self.limit_loop(graph, tokens, edges, &nodes);
                nodes.retain(|it| !entries.contains(it));
                if !entries.is_empty() {
                    open.push(nodes);
                }
            }
        }
    }

    /// Limits the visits of a loop by the tokens that enter it; returns the nodes where they do.
    fn limit_loop(
        &mut self,
        graph: &Graph,
        tokens: &Tokens<'_>,
        edges: &[TokenEdge],
        nodes: &BTreeSet<usize>,
    ) -> BTreeSet<usize> {
        let enters = |edge: &&TokenEdge| {
            nodes.contains(&edge.to) && edge.from.is_none_or(|from| !nodes.contains(&from))
        };
        let entering: Vec<&TokenEdge> = edges.iter().filter(enters).collect();
        let begun: u64 = nodes.iter().map(|it| made(&tokens.passages[*it])).sum();
        for &node in nodes {
            let policies = &graph.nodes[tokens.names[node]].policies;
            let Some(max_visits) = policies.bounds.max_visits else { continue };
            // With one token, no node outside of the loop resets a count while the token is in the loop.
            let is_reset = tokens.resetters[node].iter().any(|it| nodes.contains(it));
            let stays = tokens.is_single() && !is_reset;
            let each = if stays { u64::from(max_visits.max(1)) } else { u64::MAX };
            let each = each.min(self.visits_max[node]);
            let Some(by) = i64::try_from(each).ok().filter(|_| each <= FACTOR_MAX) else {
                continue;
            };
            let sum = entering.iter().map(|it| (it.variable, -by)).chain([(node, 1)]);
            self.rule(sum.collect(), each.saturating_mul(begun));
        }
        let begins = nodes.iter().copied().filter(|it| made(&tokens.passages[*it]) > 0);
        entering.iter().map(|it| it.to).chain(begins).collect()
    }

    /// Returns the program with these rules and nothing to sum up, unless a number is too large.
    #[expect(clippy::cast_precision_loss, reason = "larger numbers are refused")]
    pub(super) fn program(&self) -> Option<Program> {
        let visits = self.visits_max.iter().map(|it| *it as f64);
        let on_edges = std::iter::repeat_n(f64::INFINITY, self.edges);
        if self.visits_max.len() > NODES_MAX || visits.clone().any(|it| it > NUMBER_MAX) {
            return None;
        }
        let variables = visits.chain(on_edges).map(|most| Variable { weight: 0.0, most }).collect();
        let factors = |it: &Rule| it.sum.iter().map(|(it, by)| (*it, *by as f64)).collect();
        let rules = self.rules.iter().map(|it| (factors(it), it.most as f64)).collect();
        let mut program = Program { variables, rules };
        for ExclusiveTokens { edges, in_each_step } in &self.exclusive {
            if *in_each_step {
                for (_, node) in edges {
                    let sum = edges.iter().map(|it| (it.0, 1.0)).chain([(*node, -1.0)]);
                    program.rules.push((sum.collect(), 0.0));
                }
            } else {
                let share = |it: &(usize, usize)| (it.0, 1.0 / self.visits_max[it.1] as f64);
                program.rules.push((edges.iter().map(share).collect(), 1.0));
            }
        }
        Some(program)
    }
}

impl TotalFlow {
    /// Returns the program with a variable for each node: the visits in which it is not skipped.
    #[expect(clippy::cast_precision_loss, reason = "larger numbers are refused")]
    pub(super) fn program_of_work(&self) -> Option<(Program, Vec<usize>)> {
        let mut program = self.program()?;
        let mut work: Vec<usize> = (0..self.visits_max.len()).collect();
        for Alternatives { nodes, in_each_step } in &self.alternatives {
            for &node in nodes {
                if work[node] == node {
                    work[node] = program.add(0.0);
                    program.limit(work[node], [(node, 1.0)]);
                }
            }
            if *in_each_step {
                // All of them are visited in the same steps.
                for &node in nodes {
                    let sum = nodes.iter().map(|it| (work[*it], 1.0)).chain([(node, -1.0)]);
                    program.rules.push((sum.collect(), 0.0));
                }
            } else {
                let share = |node: &usize| (work[*node], 1.0 / self.visits_max[*node] as f64);
                program.rules.push((nodes.iter().map(share).collect(), 1.0));
            }
        }
        Some((program, work))
    }
}

impl Program {
    /// Adds a variable that counts with this weight.
    pub(super) fn add(&mut self, weight: f64) -> usize {
        self.variables.push(Variable { weight, most: f64::INFINITY });
        self.variables.len() - 1
    }

    /// Counts a variable with this weight.
    pub(super) fn weigh(&mut self, variable: usize, weight: f64) {
        self.variables[variable].weight = weight;
    }

    /// Adds the rule that a variable is at most this number.
    pub(super) fn bound(&mut self, variable: usize, most: f64) {
        self.variables[variable].most = most;
    }

    /// Adds the rule that a variable is at most this sum.
    pub(super) fn limit(&mut self, variable: usize, sum: impl IntoIterator<Item = (usize, f64)>) {
        let sum = sum.into_iter().map(|(it, by)| (it, -by));
        self.rules.push((std::iter::once((variable, 1.0)).chain(sum).collect(), 0.0));
    }

    /// Returns the largest sum of the weighted variables, rounded up by more than the solver may be wrong; `None` if it is not
    /// found.
    pub(super) fn most(&self) -> Option<f64> {
        let largest = self.variables.iter().map(|it| it.weight).fold(0.0, f64::max);
        if largest <= 0.0 {
            return Some(0.0);
        }
        if largest > NUMBER_MAX {
            return None;
        }
        let mut problem = Problem::new(OptimizationDirection::Maximize);
        let add = |it: &Variable| problem.add_var(it.weight / largest, (0.0, it.most));
        let variables: Vec<microlp::Variable> = self.variables.iter().map(add).collect();
        for (sum, most) in &self.rules {
            // A variable may stand on both sides.
            let mut factors: BTreeMap<usize, f64> = BTreeMap::new();
            for (variable, by) in sum {
                *factors.entry(*variable).or_default() += by;
            }
            let sum: Vec<(microlp::Variable, f64)> =
                factors.into_iter().map(|(it, by)| (variables[it], by)).collect();
            problem.add_constraint(sum.as_slice(), ComparisonOp::Le, *most);
        }
        let found = problem.solve().ok().filter(microlp::SolveOutcome::is_optimal)?;
        let most = found.into_solution().ok()?.objective();
        (most <= NUMBER_MAX).then_some((most + (most * 1e-9).max(1e-6)) * largest)
    }
}

/// Returns the variables of edges that exclude each other, apart from those of two nodes that several edges connect.
fn exclusive_tokens(of: &ExclusiveEdges, edges: &[TokenEdge]) -> Option<ExclusiveTokens> {
    let variable = |(from, to): &(usize, usize)| {
        let mut found = edges.iter().filter(|it| it.from == Some(*from) && it.to == *to);
        let edge = found.next().filter(|_| found.next().is_none())?;
        Some((edge.variable, *from))
    };
    let edges: Vec<(usize, usize)> = of.edges.iter().filter_map(variable).collect();
    let in_each_step = of.in_each_step;
    (edges.len() > 1).then_some(ExclusiveTokens { edges, in_each_step })
}

/// Returns the tokens that begin at a node.
fn made(passage: &Passage) -> u64 {
    u64::from(passage.is_first) + u64::from(passage.is_after_limit)
}

/// Returns the share of each of several visits.
#[expect(clippy::cast_precision_loss, reason = "larger numbers are refused")]
pub(super) fn divided(number: u64, visits: u64) -> f64 {
    if visits == 0 { 0.0 } else { number as f64 / visits as f64 }
}

/// Returns the whole part of a total; an unknown one is beyond counting.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "totals are not negative, and larger ones are the largest number"
)]
pub(super) fn rounded(total: Option<f64>) -> u64 {
    total.map_or(u64::MAX, |it| (it + 1e-3).floor() as u64)
}
