//! The Rust parts that a workflow may name.

use std::{collections::BTreeMap, fmt, sync::Arc};

use graphrun_core::{
    graph::Node,
    state::{Fold, Schema},
};

use crate::tool::Tool;

/// The states, nodes, reducers and tools that workflows may name.
#[derive(Clone, Default)]
pub struct Registry {
    states: BTreeMap<String, Schema>,
    nodes: BTreeMap<String, Arc<dyn Node>>,
    reducers: Vec<Arc<dyn Fold>>,
    tools: BTreeMap<String, Arc<dyn Tool>>,
}

impl Registry {
    /// A registry with the states and nodes of this library.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a state, for `state: NAME`.
    #[must_use]
    pub fn state(mut self, name: &str, schema: Schema) -> Self {
        self.states.insert(name.to_owned(), schema);
        self
    }

    /// Adds a node, for `node: NAME`.
    #[must_use]
    pub fn node(mut self, name: &str, node: Arc<dyn Node>) -> Self {
        self.nodes.insert(name.to_owned(), node);
        self
    }

    /// Adds a reducer, for `merge: NAME` with the reducer's own name.
    ///
    /// A built-in name keeps its meaning.
    #[must_use]
    pub fn reducer(mut self, reducer: Arc<dyn Fold>) -> Self {
        self.reducers.retain(|it| it.name() != reducer.name());
        self.reducers.push(reducer);
        self
    }

    /// Adds a tool, for `tool: NAME` with the tool's own name.
    #[must_use]
    pub fn tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.insert(tool.name().to_owned(), tool);
        self
    }

    /// The tool of a name, unless it is a built-in one.
    pub fn find_tool(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.tools.get(name).map(Arc::clone)
    }

    /// The node registered under a name.
    pub fn custom(&self, name: &str) -> Option<Arc<dyn Node>> {
        self.nodes.get(name).map(Arc::clone)
    }

    /// The state registered under a name.
    pub fn schema(&self, name: &str) -> Option<&Schema> {
        self.states.get(name)
    }

    /// The names of the registered states.
    pub fn states(&self) -> impl Iterator<Item = &str> {
        self.states.keys().map(String::as_str)
    }

    pub(super) fn tools(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    pub(super) fn reducers(&self) -> &[Arc<dyn Fold>] {
        &self.reducers
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("states", &self.states.keys())
            .field("nodes", &self.nodes.keys())
            .field("reducers", &self.reducers)
            .field("tools", &self.tools.keys())
            .finish()
    }
}
