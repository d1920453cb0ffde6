//! The worst case of a graph: how often each node can run, and which bound says so.
//!
//! Every rule here holds of every run, so each may be applied to what the others gave until
//! nothing gets smaller. What is bounded by `max_visits` is counted by rounds; how often a node
//! is reached, in `tokens`. Nothing here is known of tokens of models or of prices.

mod tokens;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use self::tokens::Tokens;
use super::CompiledGraph;
use crate::{
    graph::{Edge, Graph, NodeSpec, Target},
    id::NodeName,
};

/// The most that a run of a graph can take, whatever its nodes do.
///
/// What is done again because somebody resumes a run after a failure or a crash is not in it, and
/// neither are the limits of the run, which may cut it. Numbers too large to count are
/// [`u64::MAX`].
///
/// ```
/// use graphrun::{
///     compile::{Envelope, compile},
///     graph::{GraphBuilder, NodeContext, NodeError, Policies, node_fn},
///     id::NodeName,
///     state::Schema,
/// };
///
/// async fn nothing(_: (), _: NodeContext) -> Result<(), NodeError> {
///     Ok(())
/// }
/// let twice = Policies { max_visits: Some(2), ..Policies::default() };
/// let graph = GraphBuilder::with_schema("loop", Ok(Schema::default()))
///     .node_with("write", node_fn(nothing), twice)
///     .node("check", node_fn(nothing))
///     .entry("write")
///     .then("write", "check")
///     .route("check", ["write", "end"], |_: &serde_json::Value| "end");
/// let (graph, _) = compile(graph.build()).unwrap();
///
/// let envelope = Envelope::of(&graph);
/// let check = &envelope.nodes[&NodeName::parse("check").unwrap()];
/// assert_eq!((check.visits_max, check.why.to_string()), (2, "after `write` (2)".to_owned()));
/// assert_eq!(envelope.steps_max, 4);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Super-steps.
    pub steps_max: u64,
    /// What each node can take.
    pub nodes: BTreeMap<NodeName, NodeEnvelope>,
}

/// The most that one node can take in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEnvelope {
    /// Super-steps in which it runs.
    pub visits_max: u64,
    /// Whether several items may be dispatched to it in one step. It runs once for each, and how
    /// many there are is known only in a run: what follows is for each item.
    pub is_dispatched: bool,
    /// Attempts, all visits together.
    pub attempts_max: u64,
    /// Calls of models, all attempts together; `None` if the node does not say.
    pub calls_max: Option<u64>,
    /// The bound that gives the visits.
    pub why: Why,
}

/// What bounds the visits of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// A run that came to it ends with it.
    Last,
    /// Its `max_visits`, which hold for a round: the first begins with the run.
    Rounds {
        /// Visits in a round.
        max_visits: u32,
        /// The nodes that begin a round by resetting the count, and how often they can.
        bought: Vec<(NodeName, u64)>,
        /// Whether a limit of the run leads to it, once, and used up or not.
        after_limit: bool,
    },
    /// Each of its visits has one of these before it, and none of these has two.
    After(Vec<(Cause, u64)>),
}

/// What can bring about a visit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The run starts.
    Start,
    /// A node was visited, not always as the last before.
    Visit(NodeName),
    /// A limit of the run is reached.
    Limit,
}

/// What is known of the visits of each node so far; nothing is [`u64::MAX`].
type Visits<'a> = BTreeMap<&'a NodeName, u64>;

impl Envelope {
    /// Finds the worst case of a graph.
    pub fn of(graph: &CompiledGraph) -> Self {
        let graph = graph.graph();
        let tokens = Tokens::of(graph);
        let visits = visits(graph, &tokens);
        let node = |(name, spec): (&NodeName, &NodeSpec)| {
            let (visits_max, why) = tightest(graph, &tokens, name, &visits);
            let attempts = u64::from(spec.policies.retry.attempts_max.max(1));
            let attempts_max = visits_max.saturating_mul(attempts);
            let calls_max = spec.node.calls_max().map(|it| it.saturating_mul(attempts_max));
            let is_dispatched = tokens.is_dispatched(name);
            (name.clone(), NodeEnvelope { visits_max, is_dispatched, attempts_max, calls_max, why })
        };
        let nodes = graph.nodes.iter().map(node).collect();
        Self { steps_max: steps(graph, &nodes), nodes }
    }
}

/// Lowers what is known of the visits until no rule says less.
fn visits<'a>(graph: &'a Graph, tokens: &Tokens<'_>) -> Visits<'a> {
    let mut visits: Visits<'_> = graph.nodes.keys().map(|it| (it, u64::MAX)).collect();
    // Bounded nodes are known once those that reset them are, and the others once those before
    // them are; neither goes in circles, as `compile` has checked. Stopping sooner would only be
    // less tight, so the number of passes has a limit.
    for _ in 0..=2 * graph.nodes.len() {
        let before = visits.clone();
        for name in graph.nodes.keys() {
            let (least, _) = tightest(graph, tokens, name, &visits);
            visits.insert(name, least);
        }
        if visits == before {
            break;
        }
    }
    visits
}

/// The rule that says least of a node; the first of those that say the same.
fn tightest(
    graph: &Graph,
    tokens: &Tokens<'_>,
    name: &NodeName,
    visits: &Visits<'_>,
) -> (u64, Why) {
    let rounds = rounds(graph, name, visits);
    let last = ends_the_run(graph, name).then_some((1, Why::Last));
    let (arrivals, causes) = tokens.arrivals(name, visits);
    let rules = last.into_iter().chain(rounds).chain([(arrivals, Why::After(causes))]);
    rules.min_by_key(|(least, _)| *least).expect("there are always arrivals")
}

/// Whether every visit of a node is followed by the end of the run.
fn ends_the_run(graph: &Graph, name: &NodeName) -> bool {
    let fails =
        |edge: &Edge| matches!(edge, Edge::Then { from, to: Target::Fail, .. } if from == name);
    // What declares `may_go` may leave its edges out.
    let may_choose = |edge: &Edge| matches!(edge, Edge::May { from, .. } if from == name);
    graph.edges.iter().any(fails)
        && !graph.edges.iter().any(may_choose)
        && graph.nodes[name].policies.catch.iter().all(|it| it.to == Target::Fail)
}

/// The visits that the bound of a node allows, if it has one.
fn rounds(graph: &Graph, name: &NodeName, visits: &Visits<'_>) -> Option<(u64, Why)> {
    let max_visits = graph.nodes[name].policies.max_visits?;
    let resets = |spec: &NodeSpec| spec.policies.resets.contains(name);
    let bought: Vec<(NodeName, u64)> = graph
        .nodes
        .iter()
        .filter(|(_, spec)| resets(spec))
        .map(|(other, _)| (other.clone(), visits[other]))
        .collect();
    let after_limit = graph.limits.exhausted.as_ref().and_then(Target::node) == Some(name);
    // A run starts with its first nodes even if they may never be visited.
    let a_round = u64::from(max_visits).max(u64::from(graph.entry.contains(name)));
    let rounds = bought.iter().fold(1, |sum: u64, (_, it)| sum.saturating_add(*it));
    let most = rounds.saturating_mul(a_round).saturating_add(after_limit.into());
    Some((most, Why::Rounds { max_visits, bought, after_limit }))
}

/// The super-steps: one for each visit, or for all the visits that nodes can only have together.
fn steps(graph: &Graph, nodes: &BTreeMap<NodeName, NodeEnvelope>) -> u64 {
    let mut alone = 0u64;
    let mut together: BTreeMap<Ways<'_>, u64> = BTreeMap::new();
    for (name, NodeEnvelope { visits_max, .. }) in nodes {
        match plain_ways(graph, name) {
            Some(ways) => {
                let most = together.entry(ways).or_insert(*visits_max);
                *most = (*most).min(*visits_max);
            }
            None => alone = alone.saturating_add(*visits_max),
        }
    }
    together.values().fold(alone, |sum, it| sum.saturating_add(*it))
}

/// The ways to a node to which only plain edges lead: whether the run starts with it, and the
/// nodes before it.
type Ways<'a> = (bool, BTreeSet<&'a NodeName>);

/// The ways to a node, if whoever takes one of them must take it: nodes with the same ways are
/// visited in the same steps.
fn plain_ways<'a>(graph: &'a Graph, name: &NodeName) -> Option<Ways<'a>> {
    let policies = graph.nodes.values().map(|it| &it.policies);
    let caught = policies.clone().flat_map(|it| it.catch.iter().map(|it| &it.to));
    let exhausted = policies.filter_map(|it| it.exhausted.as_ref());
    let mut other_ways = caught.chain(exhausted).chain(&graph.limits.exhausted);
    if graph.nodes[name].policies.max_visits.is_some()
        || graph.nodes[name].policies.defer.is_some()
        || other_ways.any(|it| it.node() == Some(name))
    {
        return None;
    }
    let mut before = BTreeSet::new();
    for edge in &graph.edges {
        if edge.targets().iter().any(|it| it.node() == Some(name)) {
            let Edge::Then { from, .. } = edge else { return None };
            before.insert(from);
        }
    }
    Some((graph.entry.contains(name), before))
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Last => f.write_str("the run ends with it"),
            Self::Rounds { max_visits, bought, after_limit } => {
                write!(f, "{max_visits} visit{}", if *max_visits == 1 { "" } else { "s" })?;
                if !bought.is_empty() {
                    let rounds = bought.iter().fold(1u64, |sum, (_, it)| sum.saturating_add(*it));
                    let bought = listed(bought.iter().map(|(it, many)| (format!("`{it}`"), *many)));
                    write!(f, " × {rounds} rounds: the first, and bought by {bought}")?;
                }
                if *after_limit { f.write_str(", and 1 after a limit") } else { Ok(()) }
            }
            Self::After(causes) => match causes.as_slice() {
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
