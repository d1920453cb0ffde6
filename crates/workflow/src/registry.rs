//! The Rust parts that a workflow may use: kinds of nodes, the parts that it names, and the providers of models.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, LazyLock},
};

use graphrun_core::{
    graph::Node,
    state::{Fold, Schema},
};
use graphrun_models::Providers;

use crate::{
    kind::{Kind, RegisteredKind},
    node::structure,
    source::reader::Yaml,
    tool::{BuiltIn, Tool},
};

/// The kinds of nodes, and the states, nodes, reducers and tools that workflows may name. Cheap to
/// clone.
#[derive(Clone)]
pub struct Registry(Arc<Parts>);

/// The schema of a state, made when a workflow first names it: a program that needs none starts faster.
type State = Arc<LazyLock<Schema, Box<dyn FnOnce() -> Schema + Send>>>;

#[derive(Clone)]
struct Parts {
    kinds: Vec<RegisteredKind>,
    states: BTreeMap<String, State>,
    nodes: BTreeMap<String, Arc<dyn Node>>,
    reducers: Vec<Arc<dyn Fold>>,
    tools: BTreeMap<String, Arc<dyn Tool>>,
    providers: Arc<Providers>,
}

impl Default for Registry {
    fn default() -> Self {
        let kinds = structure::kinds().into_iter().map(RegisteredKind::new).collect();
        Self(Arc::new(Parts {
            kinds,
            states: BTreeMap::new(),
            nodes: BTreeMap::new(),
            reducers: Vec::new(),
            tools: BTreeMap::new(),
            providers: Arc::default(),
        }))
    }
}

impl Registry {
    /// A registry with the kinds that run other nodes: `map`, `use`, `parallel` and `node`.
    ///
    /// `graphrun::nodes::registry` also has all other built-in kinds, such as `agent`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a kind of nodes behind the others. A kind with the same key is replaced.
    ///
    /// # Panics
    ///
    /// Panics if the keys of the kind do not contain its own one, or contain one that all nodes have: in a debug build
    /// here, else where the keys are first needed.
    #[must_use]
    pub fn kind(mut self, kind: Arc<dyn Kind>) -> Self {
        let kinds = &mut self.parts().kinds;
        kinds.retain(|it| it.key() != kind.key());
        kinds.push(RegisteredKind::new(kind));
        self
    }

    /// Adds a state, for `state: NAME`. Its schema is made when it is first needed.
    #[must_use]
    pub fn state(mut self, name: &str, schema: impl FnOnce() -> Schema + Send + 'static) -> Self {
        let state: State = Arc::new(LazyLock::new(Box::new(schema)));
        self.parts().states.insert(name.to_owned(), state);
        self
    }

    /// Adds a node, for `node: NAME`.
    #[must_use]
    pub fn node(mut self, name: &str, node: Arc<dyn Node>) -> Self {
        self.parts().nodes.insert(name.to_owned(), node);
        self
    }

    /// Adds a reducer, for `merge: NAME` with the reducer's own name.
    ///
    /// A built-in name keeps its meaning.
    #[must_use]
    pub fn reducer(mut self, reducer: Arc<dyn Fold>) -> Self {
        let reducers = &mut self.parts().reducers;
        reducers.retain(|it| it.name() != reducer.name());
        reducers.push(reducer);
        self
    }

    /// Adds a tool, for `tool: NAME` with the tool's own name. It takes the place of a built-in tool of this name.
    #[must_use]
    pub fn tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.parts().tools.insert(tool.name().to_owned(), tool);
        self
    }

    /// Replaces the providers of models, which are the built-in ones otherwise.
    #[must_use]
    pub fn providers(mut self, providers: Arc<Providers>) -> Self {
        self.parts().providers = providers;
        self
    }

    fn parts(&mut self) -> &mut Parts {
        Arc::make_mut(&mut self.0)
    }

    /// Returns the providers of models.
    pub fn known_providers(&self) -> &Providers {
        &self.0.providers
    }

    /// Returns the kinds of nodes, in the order in which they were added.
    pub fn kinds(&self) -> &[RegisteredKind] {
        &self.0.kinds
    }

    /// Returns the kinds whose keys a node has. A valid node has one.
    pub(super) fn kinds_of(&self, node: &Yaml) -> impl Iterator<Item = &RegisteredKind> {
        self.kinds().iter().filter(|it| node.get(it.key()).is_some())
    }

    /// Returns the kind with a key.
    pub fn kind_of(&self, key: &str) -> Option<&RegisteredKind> {
        self.kinds().iter().find(|it| it.key() == key)
    }

    /// Returns the tool of a name, unless it is a built-in one.
    pub fn find_tool(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.0.tools.get(name).map(Arc::clone)
    }

    /// Returns the built-in tool of a name, unless the program registered a tool with this name, which takes its place.
    pub fn find_built_in_tool(&self, name: &str) -> Option<BuiltIn> {
        BuiltIn::named(name).filter(|_| !self.0.tools.contains_key(name))
    }

    /// Returns the node registered under a name.
    pub fn custom(&self, name: &str) -> Option<Arc<dyn Node>> {
        self.0.nodes.get(name).map(Arc::clone)
    }

    /// Returns the state registered under a name.
    pub fn schema(&self, name: &str) -> Option<&Schema> {
        self.0.states.get(name).map(|it| &***it)
    }

    /// Returns the names of the registered states.
    pub fn states(&self) -> impl Iterator<Item = &str> {
        self.0.states.keys().map(String::as_str)
    }

    pub(super) fn tools(&self) -> impl Iterator<Item = &str> {
        self.0.tools.keys().map(String::as_str)
    }

    pub(super) fn reducers(&self) -> &[Arc<dyn Fold>] {
        &self.0.reducers
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &str> {
        self.0.nodes.keys().map(String::as_str)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("kinds", &self.0.kinds)
            .field("states", &self.0.states.keys())
            .field("nodes", &self.0.nodes.keys())
            .field("reducers", &self.0.reducers)
            .field("tools", &self.0.tools.keys())
            .finish()
    }
}
