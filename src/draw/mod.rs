//! Drawings of a graph: what is to be seen of it, apart from how it is shown.
//!
//! [`Drawing::of`] collects nodes and arrows, [`Drawing::with_details`] adds what only the workflow
//! knows, and [`Drawing::with_run`] lays a run over it. Each form is a file: [`Drawing::to_listing`],
//! `to_mermaid`, `to_dot`, `to_svg`, [`Drawing::to_document`]. A graph need not be right to be drawn.

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
    run::{DrawnRun, Standing, Visits},
};
use crate::{
    graph::{Graph, NodeSpec},
    id::NodeName,
};

/// What is to be seen of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawing {
    /// The name of the workflow.
    pub name: String,
    /// What it is for.
    pub about: Option<String>,
    /// The nodes from the first to the last: each after those that lead to it, loops aside.
    pub nodes: Vec<DrawnNode>,
    /// Every arrow, in the order in which they are declared.
    pub arrows: Vec<Arrow>,
    /// The nodes that belong together.
    pub groups: Vec<Group>,
    /// The run that is laid over it.
    pub run: Option<DrawnRun>,
}

/// A node of a drawing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrawnNode {
    /// Its name.
    pub name: NodeName,
    /// The word for what it does; `None` if the graph only speaks of it and has no such node.
    pub kind: Option<&'static str>,
    /// Who or what does it, such as the name of an agent.
    pub detail: Option<String>,
    /// What it is for.
    pub about: Option<String>,
    /// The condition without which it is skipped.
    pub when: Option<String>,
    /// Whether it lets others go first.
    pub defer: bool,
    /// How often it may run before its count is reset.
    pub max_visits: Option<u32>,
    /// The nodes whose counts start anew when it finishes.
    pub resets: Vec<NodeName>,
    /// The longest way to it, loops aside; `None` if no way leads to it.
    pub layer: Option<usize>,
    /// What the run that is laid over the drawing did here; `None` if it did not come here.
    pub visits: Option<Visits>,
}

impl Drawing {
    /// Collects what is to be seen of a graph.
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
        // What no way leads to comes last; within a layer, names are in the order they would run.
        nodes.sort_by_key(|it| it.layer.unwrap_or(usize::MAX));
        for arrow in &mut all {
            arrow.back = layers.is_back(arrow);
        }
        let bounds: BTreeMap<NodeName, u32> =
            nodes.iter().filter_map(|it| Some((it.name.clone(), it.max_visits?))).collect();
        arrows::bound_loops(&mut all, &bounds);
        let groups = groups::groups(&nodes, &BTreeMap::new());
        Self { name: graph.name.clone(), about: None, nodes, arrows: all, groups, run: None }
    }

    /// Draws it as a list of nodes with their ways, for a terminal of 80 columns.
    ///
    /// Only a name that is longer than that by itself makes a line longer.
    pub fn to_listing(&self, charset: Charset) -> String {
        listing::draw(self, charset)
    }

    /// Draws it as a Mermaid flowchart, for Markdown files and pages.
    pub fn to_mermaid(&self) -> String {
        mermaid::draw(self)
    }

    /// Draws it in the language of Graphviz.
    pub fn to_dot(&self) -> String {
        dot::draw(self)
    }

    /// Draws it as a picture, laid out here, for light and dark pages.
    pub fn to_svg(&self) -> String {
        svg::draw(self)
    }

    /// Tells programs what is to be seen.
    pub fn to_document(&self) -> DrawingDocument {
        document::of(self)
    }

    /// The arrows to draw: what many nodes do with any failure is one.
    pub(super) fn shown_arrows(&self) -> Vec<Arrow> {
        let nodes = self.nodes.iter().filter(|it| it.kind.is_some()).count();
        arrows::gather(&self.arrows, nodes)
    }

    /// The innermost group that a node is in.
    pub(super) fn group_of(&self, name: &NodeName) -> Option<&Group> {
        self.groups.iter().find(|it| it.nodes.contains(name))
    }

    /// The groups around a group, itself included, the outermost first.
    pub(super) fn group_path(&self, group: &Group) -> Vec<&Group> {
        groups::path(&self.groups, &group.name)
    }

    /// Whether a run is laid over it that did not come to this node.
    pub(super) fn is_unreached(&self, node: &DrawnNode) -> bool {
        self.run.is_some() && node.visits.is_none()
    }

    /// The word by which pictures colour a node, if a run is laid over the drawing.
    pub(super) fn run_class(&self, node: &DrawnNode) -> Option<&'static str> {
        self.run.as_ref()?;
        let Some(visits) = node.visits else { return Some("unreached") };
        Some(match visits.standing {
            Some(Standing::Failed) => "failed",
            Some(Standing::Waiting) => "waiting",
            // What was only ever skipped did nothing.
            None if visits.tasks == 0 => "unreached",
            Some(Standing::Next) | None => "reached",
        })
    }
}

impl DrawnNode {
    fn of(name: &NodeName, spec: Option<&NodeSpec>, layer: Option<usize>) -> Self {
        Self {
            name: name.clone(),
            kind: spec.map(|it| it.node.kind()),
            detail: None,
            about: None,
            when: spec.and_then(|it| it.when.as_ref()).map(|it| it.text().to_owned()),
            defer: spec.is_some_and(|it| it.policies.defer.is_some()),
            max_visits: spec.and_then(|it| it.policies.max_visits),
            resets: spec.map(|it| it.policies.resets.clone()).unwrap_or_default(),
            layer,
            visits: None,
        }
    }

    /// What it does, and who does it unless its name says so.
    pub(super) fn kind_words(&self) -> String {
        let kind = self.kind.unwrap_or("missing");
        match &self.detail {
            Some(detail) if detail != self.name.as_str() => format!("{kind} {}", clean(detail)),
            _ => kind.to_owned(),
        }
    }

    /// When it runs, if not always at once.
    pub(super) fn condition_words(&self) -> Vec<String> {
        let mut words: Vec<String> =
            self.when.iter().map(|it| format!("when {}", clean(it))).collect();
        words.extend(self.defer.then(|| "after all others".to_owned()));
        words
    }
}

/// One line of a text that may have several, without what a terminal would act upon.
fn clean(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace(char::is_control, "")
}
