//! Builds a [`Graph`] in Rust.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::{
    Edge, Graph, Limits, Node, NodeSpec, Policies, Target, condition_fn, route::IntoChoice,
    route_fn,
};
use crate::{
    diagnostic::{Diagnostic, Diagnostics},
    id::{ChannelName, NameError, NodeName},
    state::{Schema, SchemaError},
};

/// Collects nodes and edges. Its methods never fail: `compile` reports all errors together.
#[derive(Debug)]
pub struct GraphBuilder {
    graph: Graph,
    findings: Diagnostics,
}

impl GraphBuilder {
    /// Starts a graph whose channels are the fields of a struct.
    pub fn new<S: JsonSchema>(name: &str) -> Self {
        Self::with_schema(name, Schema::of::<S>())
    }

    /// Starts a graph with the channels of a schema.
    pub fn with_schema(name: &str, schema: Result<Schema, SchemaError>) -> Self {
        let mut findings = Diagnostics::default();
        let schema = schema.unwrap_or_else(|error| {
            findings.push(Diagnostic::error("GR014", error.to_string()));
            Schema::default()
        });
        let graph = Graph { name: name.to_owned(), schema, ..Graph::default() };
        Self { graph, findings }
    }

    /// Adds a node.
    #[must_use]
    pub fn node(self, name: &str, node: impl Node + 'static) -> Self {
        self.node_with(name, node, Policies::default())
    }

    /// Adds a node with its own policies.
    #[must_use]
    pub fn node_with(mut self, name: &str, node: impl Node + 'static, policies: Policies) -> Self {
        if let Some(name) = self.name(name) {
            let spec = NodeSpec { node: Arc::new(node), policies, when: None, place: None };
            if self.graph.nodes.insert(name.clone(), spec).is_some() {
                self.findings
                    .push(Diagnostic::error("GR002", format!("two nodes are called `{name}`")));
            }
        }
        self
    }

    /// Lets a function over the state decide whether a node runs or is skipped.
    ///
    /// `condition` is the condition in words; events show it to watchers.
    #[must_use]
    pub fn when<S, F>(mut self, name: &str, condition: &str, holds: F) -> Self
    where
        F: Fn(&S) -> bool + Send + Sync + 'static,
        S: DeserializeOwned + JsonSchema + 'static,
    {
        let name = self.name(name);
        if let Some(spec) = name.and_then(|it| self.graph.nodes.get_mut(&it)) {
            spec.when = Some(Arc::new(condition_fn(condition, holds)));
        } else {
            let message = format!("the condition `{condition}` belongs to no node");
            self.findings.push(Diagnostic::error("GR010", message));
        }
        self
    }

    /// Marks a node as part of the first step.
    #[must_use]
    pub fn entry(mut self, name: &str) -> Self {
        let name = self.name(name);
        self.graph.entry.extend(name);
        self
    }

    /// Declares a channel whose value each run receives as input.
    #[must_use]
    pub fn input(mut self, channel: &str) -> Self {
        let name = self.noted(ChannelName::parse(channel));
        self.graph.input.extend(name);
        self
    }

    /// Declares a channel to which the messages of people to a running workflow are appended.
    #[must_use]
    pub fn inbox(mut self, channel: &str) -> Self {
        let name = self.noted(ChannelName::parse(channel));
        self.graph.inbox.extend(name);
        self
    }

    /// Runs `to` in the step after `from`; `to` may be `end` or `fail`.
    #[must_use]
    pub fn then(mut self, from: &str, to: &str) -> Self {
        if let (Some(from), Some(to)) = (self.name(from), self.target(to)) {
            self.graph.edges.push(Edge::Then { from, to, place: None });
        }
        self
    }

    /// Runs `to` once every node of `from` has finished.
    #[must_use]
    pub fn join<const N: usize>(mut self, from: [&str; N], to: &str) -> Self {
        let from: Vec<NodeName> = from.iter().filter_map(|it| self.name(it)).collect();
        if let Some(to) = self.name(to) {
            self.graph.edges.push(Edge::Join { from, to, place: None });
        }
        self
    }

    /// Lets a function over the state decide what runs after `from`.
    ///
    /// It returns the name of one of the targets, several of them, or
    /// [`Dispatch`](super::Dispatch)es to them.
    #[must_use]
    pub fn route<S, C, F, const N: usize>(
        mut self,
        from: &str,
        targets: [&str; N],
        choose: F,
    ) -> Self
    where
        F: Fn(&S) -> C + Send + Sync + 'static,
        S: DeserializeOwned + JsonSchema + 'static,
        C: IntoChoice + 'static,
    {
        let targets: Vec<Target> = targets.iter().filter_map(|it| self.target(it)).collect();
        if let Some(from) = self.name(from) {
            let route = Arc::new(route_fn(targets, choose));
            self.graph.edges.push(Edge::Route { from, route, place: None });
        }
        self
    }

    /// Declares the targets that `from` itself may choose with the `goto` of its command.
    #[must_use]
    pub fn may_go<const N: usize>(mut self, from: &str, targets: [&str; N]) -> Self {
        let to: Vec<Target> = targets.iter().filter_map(|it| self.target(it)).collect();
        if let Some(from) = self.name(from) {
            self.graph.edges.push(Edge::May { from, to });
        }
        self
    }

    /// Sets the limits of a run.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.graph.limits = limits;
        self
    }

    /// Returns the graph, and the diagnostics for the names in it.
    pub fn build(self) -> (Graph, Diagnostics) {
        (self.graph, self.findings)
    }

    fn name(&mut self, name: &str) -> Option<NodeName> {
        if matches!(name, "end" | "fail") {
            let message = format!("`{name}` is built in and cannot name a node");
            self.findings.push(Diagnostic::error("GR016", message));
            return None;
        }
        self.noted(NodeName::parse_path(name))
    }

    fn target(&mut self, name: &str) -> Option<Target> {
        match name {
            "end" => Some(Target::End),
            "fail" => Some(Target::Fail),
            name => self.name(name).map(Target::Node),
        }
    }

    fn noted<T>(&mut self, name: Result<T, NameError>) -> Option<T> {
        name.map_err(|error| self.findings.push(Diagnostic::error("GR009", error.to_string()))).ok()
    }
}
