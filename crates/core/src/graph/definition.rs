//! The definition of a graph, as data.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, OnceLock},
};

use super::{Condition, FactNeeds, Limits, Node, NodeDescription, Policies, Route, Target};
use crate::{
    diagnostic::{Diagnostics, SourceSpan},
    id::{ChannelName, NodeName},
    state::Schema,
};

/// A graph as its author defined it. `compile` checks it and makes it executable.
#[derive(Debug, Default)]
pub struct Graph {
    /// The name of the workflow.
    pub name: String,
    /// The channels that the nodes read and write.
    pub schema: Schema,
    /// The channels that a run receives as input.
    pub input: Vec<ChannelName>,
    /// The channels that are the result of a run, if the workflow names them.
    pub output: Vec<ChannelName>,
    /// The channels that take messages from people while a run is active; the default one first.
    pub inbox: Vec<ChannelName>,
    /// The nodes by name.
    pub nodes: BTreeMap<NodeName, NodeSpec>,
    /// The edges, in the order of their declaration.
    pub edges: Vec<Edge>,
    /// The nodes of the first step.
    pub entry: Vec<NodeName>,
    /// The limits of a run.
    pub limits: Limits,
    /// The limits that the workflow declares, if the operator of a run replaced them. They are part of the workflow; those
    /// of the operator are not.
    pub declared_limits: Option<Limits>,
    /// The targets of the limits of used workflows. These limits apply only where such a workflow runs by itself, so a
    /// run may reach none of these nodes.
    pub inner_limit_targets: Vec<NodeName>,
    /// The facts that a run must save.
    pub facts: FactNeeds,
}

/// A graph that is not checked yet, with the diagnostics of the code that made it.
#[derive(Debug, Default)]
pub struct UncheckedGraph {
    /// The graph, without the nodes that could not be made.
    pub graph: Graph,
    /// The nodes that could not be made; the diagnostics have the reasons.
    pub unmade: BTreeSet<NodeName>,
    /// The diagnostics so far.
    pub diagnostics: Diagnostics,
}

impl From<Graph> for UncheckedGraph {
    fn from(graph: Graph) -> Self {
        Self { graph, ..Self::default() }
    }
}

/// A node and the policies under which it runs.
#[derive(Clone)]
pub struct NodeSpec {
    node: Arc<dyn Node>,
    description: OnceLock<Arc<NodeDescription>>,
    /// The policies.
    pub policies: Policies,
    /// The condition under which it runs. If the condition is false, the node is skipped and the
    /// run continues along its edges.
    pub when: Option<Arc<dyn Condition>>,
    /// The place of the definition in the file.
    pub span: Option<SourceSpan>,
    /// The channels that a checked file says it reads where every path to it has written them. Those that its contract,
    /// its condition and its route require need not be named again.
    pub relies_on: BTreeSet<ChannelName>,
}

/// An edge from one node or from several.
#[derive(Clone, Debug)]
pub enum Edge {
    /// `to` runs in the step after `from`.
    Then {
        /// The earlier node.
        from: NodeName,
        /// Its target.
        to: Target,
        /// The place of the edge in the file.
        span: Option<SourceSpan>,
    },
    /// `to` runs once `count` nodes of `from` have finished since it last ran.
    ///
    /// With a smaller `count` than there are nodes, the others continue beside `to`. Tasks that ran beside the join
    /// when it fired, and the tasks that they lead to, belong to the same round. An arrival of
    /// such a task from a node that had not arrived is late: it neither fires the join again nor counts for the next round. The
    /// round ends with the last of these tasks.
    Join {
        /// The nodes waited for.
        from: Vec<NodeName>,
        /// The node that waits.
        to: NodeName,
        /// How many of the nodes it waits for, from one to all of them.
        count: usize,
        /// The place of the edge in the file.
        span: Option<SourceSpan>,
    },
    /// The state decides what runs after `from`.
    Route {
        /// The node whose successors are decided.
        from: NodeName,
        /// The decision.
        route: Arc<dyn Route>,
        /// The place of the edge in the file.
        span: Option<SourceSpan>,
    },
    /// `from` itself may choose these targets with the `goto` of its command.
    May {
        /// The node that chooses.
        from: NodeName,
        /// The targets it may choose.
        to: Vec<Target>,
        /// Whether it dispatches items to them. Otherwise it chooses them by their names, and they run on the state.
        is_dispatched: bool,
    },
}

impl Edge {
    /// Returns the nodes that the edge leaves.
    pub fn sources(&self) -> &[NodeName] {
        match self {
            Self::Then { from, .. } | Self::Route { from, .. } | Self::May { from, .. } => {
                std::slice::from_ref(from)
            }
            Self::Join { from, .. } => from,
        }
    }

    /// Returns all targets to which the edge may lead.
    pub fn targets(&self) -> Vec<Target> {
        match self {
            Self::Then { to, .. } => vec![to.clone()],
            Self::Join { to, .. } => vec![Target::Node(to.clone())],
            Self::Route { route, .. } => route.targets().iter().map(|it| it.to.clone()).collect(),
            Self::May { to, .. } => to.clone(),
        }
    }

    /// Returns the place of the edge in the file.
    pub fn span(&self) -> Option<&SourceSpan> {
        match self {
            Self::Then { span, .. } | Self::Join { span, .. } | Self::Route { span, .. } => {
                span.as_ref()
            }
            Self::May { .. } => None,
        }
    }
}

impl NodeSpec {
    /// Makes the specification of a node without policies.
    pub fn of(node: Arc<dyn Node>) -> Self {
        Self {
            node,
            description: OnceLock::new(),
            policies: Policies::default(),
            when: None,
            span: None,
            relies_on: BTreeSet::new(),
        }
    }

    /// Returns its behaviour.
    pub fn node(&self) -> &Arc<dyn Node> {
        &self.node
    }

    /// Describes its node. The description is made once.
    pub fn describe(&self) -> &NodeDescription {
        self.description.get_or_init(|| Arc::new(self.node.describe()))
    }

    /// Replaces its behaviour.
    pub fn set_node(&mut self, node: Arc<dyn Node>) {
        self.node = node;
        self.description = OnceLock::new();
    }
}

impl fmt::Debug for NodeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeSpec")
            .field("node", &self.node)
            .field("policies", &self.policies)
            .finish_non_exhaustive()
    }
}
