//! The outline of the graph that a run was started with: the parts on which a run depends, as short digests.

use std::collections::BTreeMap;

use graphrun_analysis::CompiledGraph;
use graphrun_core::{
    graph::{Edge, Limits, NodeDescription, NodeSpec, Target},
    id::{ChannelName, NodeName},
    state::Channel,
};
use graphrun_guard::redact::redact;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The parts of a graph that a run depends on, in a short form: long parts are digests.
///
/// It is saved with each run, so that another process can detect changes since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphOutline {
    /// The nodes.
    pub nodes: BTreeMap<NodeName, NodeOutline>,
    /// The channels.
    pub channels: BTreeMap<ChannelName, ChannelOutline>,
    /// The nodes of the first step.
    pub entry: Vec<NodeName>,
    /// A digest of the limits of a run.
    pub limits: String,
    /// The outlines of the graphs of nested runs at any depth, by the full name of their node: a flat map, because saved
    /// values have a largest depth.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nested: BTreeMap<String, Self>,
}

/// The outline of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeOutline {
    /// The word for its kind.
    pub kind: String,
    /// A digest of its behaviour: settings, prompts, and the channels it reads and writes.
    pub behaviour: String,
    /// A digest of its policies and its condition.
    pub policies: String,
    /// The maximum number of visits, if it is bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_visits: Option<u32>,
    /// Its targets as text; sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// The nodes that its join awaits; sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub awaits: Vec<NodeName>,
}

/// The outline of a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelOutline {
    /// Its type, in the syntax of a workflow.
    #[serde(rename = "type")]
    pub ty: String,
    /// A digest of its schema and its default.
    pub schema: String,
    /// Its reducer; `None` if it keeps the last write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reducer: Option<String>,
    /// Whether only nodes see it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_private: bool,
}

impl GraphOutline {
    /// Returns the outline of a graph.
    pub fn of(compiled: &CompiledGraph) -> Self {
        let graph = compiled.definition();
        let nodes = graph.nodes.iter();
        let nodes = nodes.map(|(name, spec)| (name.clone(), NodeOutline::of(compiled, name, spec)));
        let channels = graph.schema.channels().iter();
        let channels = channels.map(|it| (it.name().clone(), ChannelOutline::of(it)));
        let mut entry = graph.entry.clone();
        entry.sort();
        let limits = graph.declared_limits.as_ref().unwrap_or(&graph.limits);
        Self {
            nodes: nodes.collect(),
            channels: channels.collect(),
            entry,
            // Their place in the file is no part of them.
            limits: digest(&json!(format!("{:?}", Limits { span: None, ..limits.clone() }))),
            nested: nested_outlines(compiled),
        }
    }

    /// Returns the outline of the graph of the nested runs of a node.
    pub fn nested_of(&self, node: &NodeName) -> Option<Self> {
        let outline = self.nested.get(node.as_str())?.clone();
        let within = self.nested.iter().filter_map(|(name, it)| {
            let name = name.strip_prefix(node.as_str())?.strip_prefix('.')?;
            Some((name.to_owned(), it.clone()))
        });
        Some(Self { nested: within.collect(), ..outline })
    }

    /// Returns whether it has a list that may take messages from people.
    pub(crate) fn accepts_messages(&self) -> bool {
        self.channels.values().any(|it| it.reducer.is_some())
    }

    /// Returns a digest that identifies it.
    pub fn fingerprint(&self) -> String {
        digest(&json!(self))
    }
}

/// Returns the outlines of the graphs within a graph.
fn nested_outlines(compiled: &CompiledGraph) -> BTreeMap<String, GraphOutline> {
    let mut outlines = BTreeMap::new();
    for node in compiled.definition().nodes.keys() {
        let Some(graph) = compiled.nested_graph_of(node) else { continue };
        let mut outline = GraphOutline::of(graph);
        let within = std::mem::take(&mut outline.nested).into_iter();
        outlines.extend(within.map(|(name, it)| (format!("{node}.{name}"), it)));
        outlines.insert(node.to_string(), outline);
    }
    outlines
}

impl NodeOutline {
    fn of(compiled: &CompiledGraph, name: &NodeName, spec: &NodeSpec) -> Self {
        let NodeDescription { kind, contract, fingerprint, .. } = spec.describe();
        let behaviour = json!([fingerprint, format!("{contract:?}")]);
        let condition = spec.when.as_ref().map(|it| it.text().to_owned());
        let policies = json!([format!("{:?}", spec.policies), condition]);
        let mut targets: Vec<String> = compiled.leaving(name).flat_map(targets).collect();
        targets.sort();
        targets.dedup();
        let mut awaits = compiled.awaited_by(name).to_vec();
        awaits.sort();
        Self {
            kind: (*kind).to_owned(),
            behaviour: digest(&behaviour),
            policies: digest(&policies),
            max_visits: spec.policies.bounds.max_visits,
            targets,
            awaits,
        }
    }
}

impl ChannelOutline {
    fn of(channel: &Channel) -> Self {
        let reducer = channel.reducer();
        let reducer = (!reducer.is_replace()).then(|| reducer.to_string());
        let default = channel.default().map(std::sync::Arc::as_ref);
        Self {
            // A schema may contain a key as a constant.
            ty: redact(&channel.ty().to_string()).into_owned(),
            schema: digest(&json!([channel.schema(), default])),
            reducer,
            is_private: channel.is_private(),
        }
    }
}

/// Returns the targets of an edge as text.
fn targets(edge: &Edge) -> Vec<String> {
    let shown = |it: &Target| it.to_string();
    match edge {
        Edge::Then { to, .. } => vec![shown(to)],
        Edge::Join { from, to, count, .. } if *count < from.len() => {
            vec![format!("{to} (a join of {count} of {})", from.len())]
        }
        Edge::Join { to, .. } => vec![format!("{to} (a join)")],
        Edge::May { to, .. } => to.iter().map(|it| format!("{it} (by choice)")).collect(),
        Edge::Route { route, .. } => {
            let targets = route.targets().iter();
            targets
                .map(|target| match &target.label {
                    Some(label) => format!("{} ({})", target.to, redact(label)),
                    None => shown(&target.to),
                })
                .collect()
        }
    }
}

/// Returns the first 64 bits of a hash: enough to detect a change.
fn digest(value: &Value) -> String {
    let hash = blake3::hash(value.to_string().as_bytes()).to_hex();
    hash.as_str()[..16].to_owned()
}
