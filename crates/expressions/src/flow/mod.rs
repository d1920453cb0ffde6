//! The data flow where an expression or a prompt is read: the fields that are assigned there, and the guarantees that guards and
//! routes prove.

pub mod guarantee;
mod paths;
pub mod success;
pub mod written;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

use graphrun_analysis::flow_model::{Bits, FlowModel};
use graphrun_core::{
    graph::TriggerKind,
    id::{ChannelName, NodeName},
};

use self::{
    guarantee::{Guarantee, Guarantees},
    paths::Paths,
    success::SuccessFields,
    written::AssignedFields,
};

/// The assigned fields before and after each node of a workflow.
#[derive(Debug)]
pub struct Flow {
    paths: Arc<Paths>,
}

/// The parts of a workflow that decide about its data flow.
#[derive(Debug)]
pub struct FlowParts {
    /// The nodes with what each writes, and the edges.
    pub model: FlowModel,
    /// The number of each field in the model. The numbers of the guarantees follow.
    pub fields: BTreeMap<ChannelName, usize>,
    /// What routes prove: the guarantees of the model.
    pub proved: Vec<Guarantee>,
    /// The fields that show the success of commands.
    pub success: SuccessFields,
    /// Whether reported mistakes leave it open what some node does; then all guarantees hold.
    pub has_incomplete_nodes: bool,
    /// Whether edges are missing, because of reported mistakes.
    pub lacks_edges: bool,
    /// The name of each node of the model, sorted.
    pub names: Vec<NodeName>,
    /// The place of the name of each node.
    pub spans: Vec<Range<usize>>,
    /// The place where the first nodes are named.
    pub start: Range<usize>,
    /// The place where the node for reached limits is named.
    pub limit: Range<usize>,
}

impl Flow {
    /// Finds the assigned fields of a workflow.
    pub fn of(parts: FlowParts) -> Self {
        Self { paths: Arc::new(Paths::of(parts)) }
    }

    fn node(&self, name: &NodeName) -> Option<usize> {
        self.paths.flow.names.binary_search(name).ok()
    }

    /// Returns the fields that are assigned whenever a run is done.
    pub fn at_end(&self) -> BTreeSet<ChannelName> {
        self.names_of(&self.paths.flow.model.written_at_end())
    }

    /// Returns the fields that are assigned whenever the workflow is done as a part of another run, so that its limits do not hold.
    pub fn at_end_of_part(&self) -> BTreeSet<ChannelName> {
        self.names_of(&self.paths.flow.model.written_within_limits())
    }

    fn names_of(&self, written: &Bits) -> BTreeSet<ChannelName> {
        let fields = self.paths.flow.fields.iter().filter(|(_, at)| written.contains(**at));
        fields.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the first node, by name, that may write a field.
    pub fn first_writer(&self, field: &str) -> Option<&NodeName> {
        let field = self.paths.field(field)?;
        let mut nodes = self.paths.flow.model.nodes.iter();
        Some(&self.paths.flow.names[nodes.position(|it| it.may_assign.contains(field))?])
    }

    /// Returns whether a node may write a field that no other node writes.
    pub fn is_only_writer(&self, node: &NodeName, field: &str) -> bool {
        let Some(field) = self.paths.field(field) else { return false };
        let may_write = |at: usize| self.paths.flow.model.nodes[at].may_assign.contains(field);
        let names = self.paths.flow.names.iter().enumerate();
        names.filter(|it| may_write(it.0)).map(|it| it.1).eq([node])
    }

    /// Returns the fields that are assigned before the first step.
    pub fn at_start(&self) -> AssignedFields {
        AssignedFields::at_start(&self.paths)
    }

    /// Returns the fields that are assigned when a node starts.
    pub fn before(&self, node: &NodeName) -> AssignedFields {
        match self.node(node) {
            Some(node) => AssignedFields::before(&self.paths, node),
            None => AssignedFields::at_start(&self.paths),
        }
    }

    /// Returns the guarantees that hold when a node starts, because routes before it have proved them.
    pub fn proved_before(&self, node: &NodeName) -> Guarantees {
        self.node(node).map(|it| self.paths.proved_before(it)).unwrap_or_default()
    }

    /// Returns those of them that the node itself does not change.
    pub fn proved_after(&self, node: &NodeName) -> Guarantees {
        self.node(node).map(|it| self.paths.proved_after(it)).unwrap_or_default()
    }

    /// Returns the triggers by which a run may reach a node.
    pub fn triggers(&self, node: &NodeName) -> BTreeSet<TriggerKind> {
        match self.node(node) {
            Some(node) => self.paths.triggers(node),
            None => TriggerKind::ALL.into(),
        }
    }

    /// Returns the fields that are assigned when a node has finished.
    pub fn after(&self, node: &NodeName) -> AssignedFields {
        match self.node(node) {
            Some(node) => AssignedFields::after(&self.paths, node),
            None => AssignedFields::at_start(&self.paths),
        }
    }
}
