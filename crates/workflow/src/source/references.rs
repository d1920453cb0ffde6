//! What the nodes, expressions and prompts of a file refer to, for the checks and facts that need it after all are read.

use std::collections::{BTreeMap, BTreeSet};

use graphrun_core::{graph::FactNeeds, id::NodeName};

/// The declarations, facts and fields to which a workflow file refers.
#[derive(Debug, Default)]
pub(crate) struct References {
    /// The declarations, each with its section.
    declarations: BTreeSet<(&'static str, String)>,
    /// The facts that expressions and prompts read.
    pub(crate) facts: FactNeeds,
    /// The fields that each node reads where every path to it has assigned them.
    assigned_fields: BTreeMap<NodeName, BTreeSet<String>>,
}

impl References {
    /// Records that something refers to a declaration.
    pub(crate) fn add(&mut self, section: &'static str, name: &str) {
        self.declarations.insert((section, name.to_owned()));
    }

    /// Returns whether something refers to a declaration.
    pub(crate) fn contains(&self, section: &'static str, name: &str) -> bool {
        self.declarations.contains(&(section, name.to_owned()))
    }

    /// Records the facts that an expression or a prompt reads.
    pub(crate) fn add_facts(&mut self, facts: &FactNeeds) {
        self.facts.add(facts, NodeName::clone);
    }

    /// Records that a node reads a field that every path to it has assigned.
    pub(crate) fn add_assigned_field(&mut self, node: &NodeName, field: &str) {
        self.assigned_fields.entry(node.clone()).or_default().insert(field.to_owned());
    }

    /// Returns the fields that a node reads where every path to it has assigned them.
    pub(crate) fn assigned_fields(&self, node: &NodeName) -> impl Iterator<Item = &str> {
        self.assigned_fields.get(node).into_iter().flatten().map(String::as_str)
    }
}
