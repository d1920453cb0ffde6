//! Drawings of a graph: the content, separate from its output forms.
//!
//! [`Drawing::of`] collects nodes and arrows, [`Drawing::with_details`] adds the details of the
//! workflow, and [`Drawing::with_run`] adds a run. Each form has one file: [`Drawing::to_listing`],
//! `to_mermaid`, `to_dot`, `to_svg`, [`Drawing::to_document`]. A graph with errors can be drawn
//! too.

mod arrows;
mod details;
mod document;
mod dot;
mod edges;
mod groups;
mod layers;
mod listing;
mod mermaid;
mod run;
mod svg;

use std::collections::{BTreeMap, BTreeSet};

use self::layers::Layers;
pub use self::{
    arrows::{Arrow, Bound, Reason},
    details::Details,
    document::{
        BoundDocument, DrawingDocument, EdgeDocument, EdgeKind, GroupDocument, NodeDocument,
        RunDocument, VisitsDocument,
    },
    groups::Group,
    listing::Charset,
    run::{DrawnRun, NodeStatus, Visits},
};
use crate::{
    graph::{Graph, NodeSpec},
    id::{ChannelName, NodeName},
};

/// A drawing of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawing {
    /// The name of the workflow.
    pub name: String,
    /// Its purpose.
    pub about: Option<String>,
    /// The nodes from the first to the last: each after those that lead to it, except in loops.
    pub nodes: Vec<DrawnNode>,
    /// All arrows, in the order of their declaration.
    pub arrows: Vec<Arrow>,
    /// The groups of nodes.
    pub groups: Vec<Group>,
    /// The run over the drawing.
    pub run: Option<DrawnRun>,
}

/// Returns the bounds of the nodes that have one.
fn bounds(nodes: &[DrawnNode]) -> BTreeMap<NodeName, u32> {
    nodes.iter().filter_map(|it| Some((it.name.clone(), it.max_visits?))).collect()
}

/// A node of a drawing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrawnNode {
    /// Its name.
    pub name: NodeName,
    /// The word for its kind; `None` for a name that the graph mentions without a node.
    pub kind: Option<&'static str>,
    /// The agent, source or custom name of the node.
    pub detail: Option<String>,
    /// Its purpose.
    pub about: Option<String>,
    /// The condition under which it runs; without it the node is skipped.
    pub when: Option<String>,
    /// Whether it waits until other nodes have run.
    pub defer: bool,
    /// The maximum number of visits before its count is reset; over a run, the number of this run.
    pub max_visits: Option<u32>,
    /// The input with this number, if it is one.
    pub visits_field: Option<ChannelName>,
    /// The nodes whose counts are reset when it finishes.
    pub resets: Vec<NodeName>,
    /// The length of the longest path to it, without loops; `None` if no path leads to it.
    pub layer: Option<usize>,
    /// The visits of the run over the drawing; `None` if the run did not reach this node.
    pub visits: Option<Visits>,
}

impl Drawing {
    /// Collects the nodes and arrows of a graph.
    pub fn of(graph: &Graph) -> Self {
        let mut all = arrows::arrows(graph);
        let gathered = arrows::gather(&all, graph.nodes.len());
        let named = all.iter().flat_map(|it| it.from.iter().chain(it.to.node()));
        let names: BTreeSet<&NodeName> = graph.nodes.keys().chain(named).collect();
        let layers = Layers::of(&names, &gathered);
        let mut nodes: Vec<DrawnNode> = names
            .into_iter()
            .map(|name| DrawnNode::of(name, graph.nodes.get(name), layers.layer(name)))
            .collect();
        // Unreachable nodes come last; within a layer the nodes are in the order in which they
        // would run.
        nodes.sort_by_key(|it| it.layer.unwrap_or(usize::MAX));
        for arrow in &mut all {
            arrow.back = layers.is_back(arrow);
        }
        arrows::bound_loops(&mut all, &bounds(&nodes));
        let groups = groups::groups(&nodes, &BTreeMap::new());
        Self { name: graph.name.clone(), about: None, nodes, arrows: all, groups, run: None }
    }

    /// Returns a list of the nodes with their edges, for a terminal of 80 columns.
    ///
    /// Only a name that is longer than that makes a line longer.
    pub fn to_listing(&self, charset: Charset) -> String {
        listing::draw(self, charset)
    }

    /// Returns a Mermaid flowchart, for Markdown files and pages.
    pub fn to_mermaid(&self) -> String {
        mermaid::draw(self)
    }

    /// Returns a graph in the DOT language of Graphviz.
    pub fn to_dot(&self) -> String {
        dot::draw(self)
    }

    /// Returns an SVG picture with a built-in layout, for light and dark pages.
    pub fn to_svg(&self) -> String {
        svg::draw(self)
    }

    /// Returns the drawing as data for programs.
    pub fn to_document(&self) -> DrawingDocument {
        document::of(self)
    }

    /// Returns the arrows to draw: equal arrows of many nodes for any failure become one.
    pub(super) fn shown_arrows(&self) -> Vec<Arrow> {
        let nodes = self.nodes.iter().filter(|it| it.kind.is_some()).count();
        arrows::gather(&self.arrows, nodes)
    }

    /// Returns the innermost group of a node.
    pub(super) fn group_of(&self, name: &NodeName) -> Option<&Group> {
        self.groups.iter().find(|it| it.nodes.contains(name))
    }

    /// Returns the groups around a group including itself, the outermost first.
    pub(super) fn group_path(&self, group: &Group) -> Vec<&Group> {
        groups::path(&self.groups, &group.name)
    }

    /// Returns whether the drawing has a run that did not reach this node.
    pub(super) fn is_unreached(&self, node: &DrawnNode) -> bool {
        self.run.is_some() && node.visits.is_none()
    }

    /// Returns the class that colours a node in pictures, if the drawing has a run.
    pub(super) fn run_class(&self, node: &DrawnNode) -> Option<&'static str> {
        self.run.as_ref()?;
        let Some(visits) = node.visits else { return Some("unreached") };
        Some(match visits.status {
            Some(NodeStatus::Failed) => "failed",
            Some(NodeStatus::Waiting) => "waiting",
            // A node that was only ever skipped did no work.
            None if visits.tasks == 0 => "unreached",
            Some(NodeStatus::Next) | None => "reached",
        })
    }
}

impl DrawnNode {
    fn of(name: &NodeName, spec: Option<&NodeSpec>, layer: Option<usize>) -> Self {
        Self {
            name: name.clone(),
            kind: spec.map(|it| it.describe().kind),
            detail: None,
            about: None,
            when: spec.and_then(|it| it.when.as_ref()).map(|it| it.text().to_owned()),
            defer: spec.is_some_and(|it| it.policies.schedule.defer.is_some()),
            max_visits: spec.and_then(|it| it.policies.bounds.max_visits),
            visits_field: spec.and_then(|it| it.policies.bounds.visits_field.clone()),
            resets: spec.map(|it| it.policies.on_finish.resets.clone()).unwrap_or_default(),
            layer,
            visits: None,
        }
    }

    /// Returns the kind of the node, and its detail unless the name is the same.
    pub(super) fn kind_words(&self) -> String {
        let kind = self.kind.unwrap_or("missing");
        match &self.detail {
            Some(detail) if detail != self.name.as_str() => format!("{kind} {}", clean(detail)),
            _ => kind.to_owned(),
        }
    }

    /// Returns the conditions under which it runs, if it has any.
    pub(super) fn condition_words(&self) -> Vec<String> {
        let mut words: Vec<String> =
            self.when.iter().map(|it| format!("when {}", clean(it))).collect();
        words.extend(self.defer.then(|| "after all others".to_owned()));
        words
    }
}

/// Returns a text in one line, without control characters that a terminal would interpret.
fn clean(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace(char::is_control, "")
}
