//! What a flow model is made of: the nodes and edges of a graph, without the code that runs.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use graphrun_core::{
    graph::{
        Contract, Edge, Graph, NodeDescription, Policies, RouteChoice, RouteTarget, Spread, Target,
    },
    id::{ChannelName, NodeName},
    state::Schema,
};

/// The nodes and edges of a graph whose conditions, prompts and code need not exist yet.
///
/// A graph built in Rust and a workflow file both become a draft, and every rule about what an edge
/// means for the analyses applies to the draft. A workflow file needs it early: its expressions are
/// checked with the fields that are written before them.
#[derive(Clone, Debug)]
pub struct Draft<'a> {
    /// The fields.
    pub schema: &'a Schema,
    /// The fields that a run receives.
    pub input: &'a [ChannelName],
    /// More fields that count as written before the first step.
    pub given: Vec<ChannelName>,
    /// Facts about the values of fields, which conditions prove: each with its fields, the next change of which ends it. They
    /// are numbered from the number of fields on.
    pub facts: Vec<Vec<ChannelName>>,
    /// The nodes of the first step.
    pub start: &'a [NodeName],
    /// Where a run goes that has reached a limit.
    pub after_limit: Option<&'a Target>,
    /// The nodes.
    pub nodes: BTreeMap<&'a NodeName, DraftNode<'a>>,
    /// The edges.
    pub edges: Vec<DraftEdge<'a>>,
}

/// A node of a [`Draft`].
#[derive(Clone, Debug)]
pub struct DraftNode<'a> {
    /// Its policies.
    pub policies: Cow<'a, Policies>,
    /// Whether it has a condition under which it runs.
    pub has_condition: bool,
    /// The fields that it may write; `None` stands for every field.
    pub may_assign: Option<Vec<ChannelName>>,
    /// The fields that it writes whenever it finishes; `None` stands for every field.
    pub must_assign: Option<Vec<ChannelName>>,
}

/// An edge of a [`Draft`].
#[derive(Clone, Debug)]
pub enum DraftEdge<'a> {
    /// One node leads to one target.
    Then {
        /// The earlier node.
        from: &'a NodeName,
        /// Its target.
        to: &'a Target,
    },
    /// A node waits for several others.
    Join {
        /// The nodes it waits for.
        from: &'a [NodeName],
        /// The node that waits.
        to: &'a NodeName,
        /// How many of them it waits for.
        count: usize,
    },
    /// Exactly one of several choices is made.
    Choice {
        /// The node behind which it is made.
        from: &'a NodeName,
        /// The choices.
        choices: Vec<RouteChoice>,
        /// The numbers of the facts that each choice proves; nothing, if none does.
        proved: Vec<Vec<usize>>,
    },
    /// Rust code chooses among targets.
    Guess {
        /// The node behind which it chooses.
        from: &'a NodeName,
        /// The targets.
        targets: &'a [RouteTarget],
        /// How many of them it may choose at once.
        spread: Spread,
    },
    /// The code of a node may choose these targets instead of its edges.
    May {
        /// The node.
        from: &'a NodeName,
        /// The targets.
        to: &'a [Target],
        /// Whether it dispatches items to them.
        is_dispatched: bool,
    },
}

impl<'a> Draft<'a> {
    /// Returns the draft of a graph.
    pub fn of(graph: &'a Graph) -> Self {
        let nodes = graph.nodes.iter().map(|(name, spec)| {
            let NodeDescription { contract: Contract { writes, .. }, writes_always, .. } =
                spec.describe();
            let node = DraftNode {
                policies: Cow::Borrowed(&spec.policies),
                has_condition: spec.when.is_some(),
                must_assign: writes_always.as_ref().or(writes.as_ref()).cloned(),
                may_assign: writes.clone(),
            };
            (name, node)
        });
        Self {
            schema: &graph.schema,
            input: &graph.input,
            given: Vec::new(),
            facts: Vec::new(),
            start: &graph.entry,
            after_limit: graph.limits.exhausted.as_ref(),
            nodes: nodes.collect(),
            edges: graph.edges.iter().map(DraftEdge::of).collect(),
        }
    }

    /// Returns the nodes that arrive at a join only when one of their routes decides so, each with the join.
    ///
    /// Each route counts that has the join among its targets, even if it only dispatches items to it. Without such a route a
    /// node arrives whenever it has finished.
    pub(crate) fn routed_arrivals(&self) -> BTreeSet<(&'a NodeName, &'a NodeName)> {
        let mut joins: BTreeMap<&NodeName, Vec<(&'a NodeName, &'a NodeName)>> = BTreeMap::new();
        for edge in &self.edges {
            if let DraftEdge::Join { from, to, .. } = *edge {
                for from in from {
                    joins.entry(from).or_default().push((from, to));
                }
            }
        }
        let mut routed = BTreeSet::new();
        for edge in &self.edges {
            for arrival in edge.source().and_then(|it| joins.get(it)).into_iter().flatten() {
                if edge.may_route_to(arrival.1) {
                    routed.insert(*arrival);
                }
            }
        }
        routed
    }
}

impl<'a> DraftEdge<'a> {
    /// Returns the draft of an edge.
    pub fn of(edge: &'a Edge) -> Self {
        match edge {
            Edge::Then { from, to, .. } => Self::Then { from, to },
            Edge::Join { from, to, count, .. } => Self::Join { from, to, count: *count },
            Edge::Route { from, route, .. } => match route.choices() {
                Some(choices) => Self::Choice { from, choices, proved: Vec::new() },
                None => Self::Guess { from, targets: route.targets(), spread: route.spread() },
            },
            Edge::May { from, to, is_dispatched } => {
                Self::May { from, to, is_dispatched: *is_dispatched }
            }
        }
    }

    /// Returns the node that the edge leaves, unless it is a join.
    pub(super) fn source(&self) -> Option<&'a NodeName> {
        match self {
            Self::Then { from, .. }
            | Self::Choice { from, .. }
            | Self::Guess { from, .. }
            | Self::May { from, .. } => Some(from),
            Self::Join { .. } => None,
        }
    }

    /// Returns whether it is a route with this node among its targets.
    fn may_route_to(&self, node: &NodeName) -> bool {
        let is_node = |to: &Target| to.node() == Some(node);
        match self {
            Self::Choice { choices, .. } => choices.iter().flat_map(|it| &it.to).any(is_node),
            Self::Guess { targets, .. } => targets.iter().any(|it| is_node(&it.to)),
            Self::Then { .. } | Self::Join { .. } | Self::May { .. } => false,
        }
    }
}
