//! Drawings of a graph: what is to be seen of it, apart from how it is shown.
//!
//! [`Drawing::of`] collects nodes and arrows, [`Drawing::to_mermaid`] and [`Drawing::to_listing`]
//! show them. A graph need not be right to be drawn.

mod layers;
mod listing;
mod mermaid;

use std::collections::BTreeSet;

use self::layers::Layers;
pub use self::listing::Charset;
use crate::{
    graph::{Edge, ErrorKind, Graph, NodeSpec, Target},
    id::NodeName,
};

/// How many equal arrows are worth one in their place.
const GATHERED_MIN: usize = 3;

/// What is to be seen of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawing {
    /// The name of the workflow.
    pub name: String,
    /// The nodes from the first to the last: each after those that lead to it, loops aside.
    pub nodes: Vec<DrawnNode>,
    /// The arrows, in the order in which they are declared.
    pub arrows: Vec<Arrow>,
}

/// A node of a drawing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrawnNode {
    /// Its name.
    pub name: NodeName,
    /// The word for what it does; `None` if the graph only speaks of it and has no such node.
    pub kind: Option<&'static str>,
    /// How often it may run before its count is reset.
    pub max_visits: Option<u32>,
    /// The longest way to it, loops aside; `None` if no way leads to it.
    pub layer: Option<usize>,
}

/// One way from a node to another, or from or to the outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrow {
    /// The node it leaves; `None` is the run itself.
    pub from: Option<NodeName>,
    /// Where it leads.
    pub to: Target,
    /// Why the run would take it.
    pub reason: Reason,
    /// Whether it closes a loop.
    pub back: bool,
}

/// Why a run takes an arrow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Whenever the node has finished, or the run starts.
    Always,
    /// When all of these have finished, the node among them.
    Join(Vec<NodeName>),
    /// When the route decides so, for this reason in words.
    Route(Option<String>),
    /// When the node itself decides so.
    Goto,
    /// When the bound of the node, or a limit of the run, is used up.
    Exhausted,
    /// When the node fails in this way; `None` is any.
    Catch(Option<ErrorKind>),
}

impl Drawing {
    /// Collects what is to be seen of a graph.
    pub fn of(graph: &Graph) -> Self {
        let mut arrows = gather_catches(arrows(graph), graph.nodes.len());
        let named = arrows.iter().flat_map(|it| it.from.iter().chain(it.to.node()));
        let names: BTreeSet<&NodeName> = graph.nodes.keys().chain(named).collect();
        let layers = Layers::of(&names, &arrows);
        let mut nodes: Vec<DrawnNode> = names
            .into_iter()
            .map(|name| DrawnNode::of(name, graph.nodes.get(name), layers.layer(name)))
            .collect();
        // What no way leads to comes last; within a layer, names are in the order they would run.
        nodes.sort_by_key(|it| it.layer.unwrap_or(usize::MAX));
        let backs: Vec<bool> = arrows.iter().map(|it| layers.is_back(it)).collect();
        for (arrow, back) in arrows.iter_mut().zip(backs) {
            arrow.back = back;
        }
        Self { name: graph.name.clone(), nodes, arrows }
    }

    /// Draws it as a Mermaid flowchart, for Markdown files and pages.
    pub fn to_mermaid(&self) -> String {
        mermaid::draw(self)
    }

    /// Draws it as a list of nodes with their ways, for a terminal of 80 columns.
    ///
    /// Only a name that is longer than that by itself makes a line longer.
    pub fn to_listing(&self, charset: Charset) -> String {
        listing::draw(self, charset)
    }
}

impl DrawnNode {
    fn of(name: &NodeName, spec: Option<&NodeSpec>, layer: Option<usize>) -> Self {
        Self {
            name: name.clone(),
            kind: spec.map(|it| it.node.kind()),
            max_visits: spec.and_then(|it| it.policies.max_visits),
            layer,
        }
    }
}

impl Arrow {
    fn new(from: Option<&NodeName>, to: Target, reason: Reason) -> Self {
        Self { from: from.cloned(), to, reason, back: false }
    }

    /// Whether it is taken only when something went wrong, which drawings show by a dashed line.
    pub fn is_dashed(&self) -> bool {
        match self.reason {
            Reason::Always | Reason::Join(_) | Reason::Route(_) | Reason::Goto => false,
            Reason::Exhausted | Reason::Catch(_) => true,
        }
    }

    /// The words beside it in one line, if it needs any.
    pub fn label(&self) -> Option<String> {
        match &self.reason {
            Reason::Always => self.from.is_none().then(|| "start".to_owned()),
            Reason::Join(_) => Some("join".to_owned()),
            Reason::Route(label) => label.as_deref().map(clean),
            Reason::Goto => Some("goto".to_owned()),
            Reason::Exhausted if self.from.is_none() => Some("limit reached".to_owned()),
            Reason::Exhausted => Some("exhausted".to_owned()),
            Reason::Catch(None) if self.from.is_none() => Some("any other failure".to_owned()),
            Reason::Catch(None) => Some("catch any".to_owned()),
            Reason::Catch(Some(kind)) => Some(format!("catch {kind}")),
        }
    }
}

/// Every arrow: those of the run, then node by node what is written, what it does when its bound
/// is used up, and what it catches.
fn arrows(graph: &Graph) -> Vec<Arrow> {
    let mut arrows = Vec::new();
    for entry in &graph.entry {
        arrows.push(Arrow::new(None, Target::Node(entry.clone()), Reason::Always));
    }
    if let Some(to) = &graph.limits.exhausted {
        arrows.push(Arrow::new(None, to.clone(), Reason::Exhausted));
    }
    for edge in &graph.edges {
        match edge {
            Edge::Then { from, to, .. } => {
                arrows.push(Arrow::new(Some(from), to.clone(), Reason::Always));
            }
            Edge::Join { from, to, .. } => arrows.extend(from.iter().map(|source| {
                let to = Target::Node(to.clone());
                Arrow::new(Some(source), to, Reason::Join(from.clone()))
            })),
            Edge::Route { from, route, .. } => arrows.extend(route.ways().iter().map(|way| {
                Arrow::new(Some(from), way.to.clone(), Reason::Route(way.label.clone()))
            })),
            Edge::May { from, to } => {
                arrows.extend(to.iter().map(|it| Arrow::new(Some(from), it.clone(), Reason::Goto)));
            }
        }
    }
    for (name, NodeSpec { policies, .. }) in &graph.nodes {
        if policies.max_visits.is_some() {
            let to = policies.exhausted.clone().unwrap_or(Target::Fail);
            arrows.push(Arrow::new(Some(name), to, Reason::Exhausted));
        }
        for catch in &policies.catch {
            arrows.push(Arrow::new(Some(name), catch.to.clone(), Reason::Catch(catch.kind)));
        }
    }
    arrows
}

/// Draws what most nodes do with any failure once, as an arrow of the run.
///
/// Only where every node catches any failure, so that the one arrow claims nothing wrong; nodes
/// that lead theirs elsewhere keep their own.
fn gather_catches(mut arrows: Vec<Arrow>, nodes: usize) -> Vec<Arrow> {
    let any: Vec<&Arrow> = arrows.iter().filter(|it| it.reason == Reason::Catch(None)).collect();
    let sources: BTreeSet<&Option<NodeName>> = any.iter().map(|it| &it.from).collect();
    if any.is_empty() || sources.len() < nodes {
        return arrows;
    }
    let count = |to: &Target| any.iter().filter(|it| it.to == *to).count();
    let targets: BTreeSet<Target> = any.iter().map(|it| it.to.clone()).collect();
    let Some(most) = targets.into_iter().max_by_key(count) else { return arrows };
    if count(&most) < GATHERED_MIN {
        return arrows;
    }
    arrows.retain(|it| it.reason != Reason::Catch(None) || it.to != most);
    let starts = arrows.iter().take_while(|it| it.from.is_none()).count();
    arrows.insert(starts, Arrow::new(None, most, Reason::Catch(None)));
    arrows
}

/// One line of a text that may have several, without what a terminal would act upon.
fn clean(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace(char::is_control, "")
}
