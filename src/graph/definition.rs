//! The definition of a graph, as data.

use std::{collections::BTreeMap, fmt, sync::Arc};

use super::{Condition, Limits, Node, Policies, Route, Target};
use crate::{diagnostic::Place, id::NodeName, state::Schema};

/// A graph as its author made it. `compile` turns it into something runnable.
#[derive(Debug, Default)]
pub struct Graph {
    /// The name of the workflow.
    pub name: String,
    /// The channels the nodes read and write.
    pub schema: Schema,
    /// The channels that are given when a run starts.
    pub input: Vec<crate::id::ChannelName>,
    /// The channels to which people may say something while it runs, the usual one first.
    pub inbox: Vec<crate::id::ChannelName>,
    /// The nodes by name.
    pub nodes: BTreeMap<NodeName, NodeSpec>,
    /// What follows what, in the order it was declared.
    pub edges: Vec<Edge>,
    /// The nodes of the first step.
    pub entry: Vec<NodeName>,
    /// The limits of a run.
    pub limits: Limits,
}

/// A node and the policies under which it runs.
#[derive(Clone)]
pub struct NodeSpec {
    /// The behaviour.
    pub node: Arc<dyn Node>,
    /// The conditions.
    pub policies: Policies,
    /// Whether it runs when the run comes to it; if not, it is skipped and the run goes on as its
    /// edges say.
    pub when: Option<Arc<dyn Condition>>,
    /// Where it is defined.
    pub place: Option<Place>,
}

/// What follows a node, or a set of nodes.
#[derive(Clone, Debug)]
pub enum Edge {
    /// `to` runs in the step after `from`.
    Then {
        /// The earlier node.
        from: NodeName,
        /// Where it leads.
        to: Target,
        /// Where the edge is written.
        place: Option<Place>,
    },
    /// `to` runs once every node of `from` has finished since its last run.
    Join {
        /// The nodes waited for.
        from: Vec<NodeName>,
        /// The node that waits.
        to: NodeName,
        /// Where the edge is written.
        place: Option<Place>,
    },
    /// The state decides what runs after `from`.
    Route {
        /// The node whose successors are decided.
        from: NodeName,
        /// The decision.
        route: Arc<dyn Route>,
        /// Where the edge is written.
        place: Option<Place>,
    },
    /// `from` itself may choose these, by the `goto` of its command.
    May {
        /// The node that chooses.
        from: NodeName,
        /// What it may choose.
        to: Vec<Target>,
    },
}

impl Edge {
    /// The nodes the edge leaves.
    pub fn sources(&self) -> &[NodeName] {
        match self {
            Self::Then { from, .. } | Self::Route { from, .. } | Self::May { from, .. } => {
                std::slice::from_ref(from)
            }
            Self::Join { from, .. } => from,
        }
    }

    /// Everything the edge may lead to.
    pub fn targets(&self) -> Vec<Target> {
        match self {
            Self::Then { to, .. } => vec![to.clone()],
            Self::Join { to, .. } => vec![Target::Node(to.clone())],
            Self::Route { route, .. } => route.ways().iter().map(|it| it.to.clone()).collect(),
            Self::May { to, .. } => to.clone(),
        }
    }

    /// Where the edge is written.
    pub fn place(&self) -> Option<&Place> {
        match self {
            Self::Then { place, .. } | Self::Join { place, .. } | Self::Route { place, .. } => {
                place.as_ref()
            }
            Self::May { .. } => None,
        }
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
