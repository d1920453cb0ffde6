//! Details of a drawing that the workflow has and the graph lacks: agents, purposes, `parallel`s.

use std::collections::BTreeMap;

use super::{Drawing, groups};
use crate::{
    id::NodeName,
    workflow::{NodeDefinition, Workflow},
};

/// The details of a workflow beyond its graph. Collected before the workflow becomes a graph.
#[derive(Clone, Debug, Default)]
pub struct Details {
    about: Option<String>,
    nodes: BTreeMap<NodeName, NodeDetails>,
    groups: BTreeMap<NodeName, Vec<NodeName>>,
}

#[derive(Clone, Debug)]
struct NodeDetails {
    detail: Option<String>,
    about: Option<String>,
}

impl Details {
    /// Collects the details.
    pub fn of(workflow: &Workflow) -> Self {
        let nodes = workflow.nodes.iter().map(|(name, it)| (name.clone(), NodeDetails::of(it)));
        Self {
            about: workflow.about.clone(),
            nodes: nodes.collect(),
            groups: workflow.groups.clone(),
        }
    }
}

impl NodeDetails {
    fn of(definition: &NodeDefinition) -> Self {
        Self { detail: definition.settings.detail(), about: definition.about.clone() }
    }
}

impl Drawing {
    /// Adds the details of the workflow.
    #[must_use]
    pub fn with_details(mut self, details: &Details) -> Self {
        self.about.clone_from(&details.about);
        for node in &mut self.nodes {
            if let Some(NodeDetails { detail, about }) = details.nodes.get(&node.name) {
                node.detail.clone_from(detail);
                node.about.clone_from(about);
            }
        }
        self.groups = groups::groups(&self.nodes, &details.groups);
        self
    }
}
