//! The arrows of a drawing: all edges of a graph, and why a run would take each.

use std::collections::{BTreeMap, BTreeSet};

use super::clean;
use crate::{
    graph::{Edge, ErrorKind, Graph, NodeSpec, Target},
    id::NodeName,
};

/// From this number on, equal arrows are drawn as one.
const GATHERED_MIN: usize = 3;

/// The maximum number of names in the label of a gathered arrow.
const NAMES_SHOWN_MAX: usize = 3;

/// An arrow from a node to another, or from or to the outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrow {
    /// The node that it leaves; `None` for the run itself.
    pub from: Option<NodeName>,
    /// Its target.
    pub to: Target,
    /// Why a run takes it.
    pub reason: Reason,
    /// Whether it closes a loop.
    pub back: bool,
    /// The bounds of the loop that it closes: one node that each round passes, or else all bounded
    /// nodes that a round may pass.
    pub bounds: Vec<Bound>,
    /// How often the run of the drawing took it, or another arrow of the same kind between the same
    /// nodes. The saved data of a run does not distinguish these.
    pub taken: Option<u64>,
}

/// A node that ends a loop after some visits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The node.
    pub node: NodeName,
    /// The maximum number of visits before its count is reset.
    pub max_visits: u32,
}

/// Why a run takes an arrow.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Always when the node has finished, or when the run starts.
    Always,
    /// When all of these nodes, or enough of them, have finished; the source of the arrow is one of them.
    Join {
        /// The awaited nodes.
        of: Vec<NodeName>,
        /// How many of them are waited for.
        count: usize,
    },
    /// When the route decides so; with the condition in words.
    Route(Option<String>),
    /// When the node itself decides so.
    Goto,
    /// When the bound of the node or a limit of the run is used up.
    Exhausted,
    /// When the node fails with this kind; `None` is any kind.
    Catch(Option<ErrorKind>),
    /// When one of these nodes fails in any way; one arrow for many.
    Failures {
        /// The nodes.
        of: Vec<NodeName>,
        /// Whether these are all nodes, except for those with a separate arrow.
        is_all: bool,
    },
}

impl Arrow {
    fn new(from: Option<&NodeName>, to: Target, reason: Reason) -> Self {
        Self { from: from.cloned(), to, reason, back: false, bounds: Vec::new(), taken: None }
    }

    /// Returns whether it is taken only after a failure or a used-up bound; drawings show a dashed
    /// line.
    pub fn is_dashed(&self) -> bool {
        match self.reason {
            Reason::Always | Reason::Join { .. } | Reason::Route(_) | Reason::Goto => false,
            Reason::Exhausted | Reason::Catch(_) | Reason::Failures { .. } => true,
        }
    }

    /// Returns its label in one line, if it has one.
    pub fn label(&self) -> Option<String> {
        match &self.reason {
            Reason::Always => self.from.is_none().then(|| "start".to_owned()),
            Reason::Join { of, count } if *count == of.len() => Some("join".to_owned()),
            Reason::Join { of, count } => Some(format!("join {count} of {}", of.len())),
            Reason::Route(label) => label.as_deref().map(clean),
            Reason::Goto => Some("goto".to_owned()),
            Reason::Exhausted if self.from.is_none() => Some("limit reached".to_owned()),
            Reason::Exhausted => Some("exhausted".to_owned()),
            Reason::Catch(None) => Some("catch any".to_owned()),
            Reason::Catch(Some(kind)) => Some(format!("catch {kind}")),
            Reason::Failures { is_all: true, .. } => Some("any other failure".to_owned()),
            Reason::Failures { of, .. } => Some(format!("any failure of {}", names(of))),
        }
    }

    /// Returns the bounds of its loop in words: `≤3` for the node it leads to, `≤3 of tl` for
    /// another.
    pub(super) fn bound_words(&self, at_most: &str) -> Option<String> {
        let word = |it: &Bound| {
            let of_other = self.to.node() != Some(&it.node);
            let of = if of_other { format!(" of {}", it.node) } else { String::new() };
            format!("{at_most}{}{of}", it.max_visits)
        };
        let mut words: Vec<String> = self.bounds.iter().take(NAMES_SHOWN_MAX).map(word).collect();
        if self.bounds.len() > NAMES_SHOWN_MAX {
            words.push("…".to_owned());
        }
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// Returns all arrows: those of the run, then the declared edges, then for each node the arrows for
/// its bound and for the failures that it catches.
pub(super) fn arrows(graph: &Graph) -> Vec<Arrow> {
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
            Edge::Join { from, to, count, .. } => arrows.extend(from.iter().map(|source| {
                let to = Target::Node(to.clone());
                Arrow::new(Some(source), to, Reason::Join { of: from.clone(), count: *count })
            })),
            Edge::Route { from, route, .. } => {
                arrows.extend(route.targets().iter().map(|target| {
                    Arrow::new(Some(from), target.to.clone(), Reason::Route(target.label.clone()))
                }));
            }
            Edge::May { from, to, .. } => {
                arrows.extend(to.iter().map(|it| Arrow::new(Some(from), it.clone(), Reason::Goto)));
            }
        }
    }
    for (name, NodeSpec { policies, .. }) in &graph.nodes {
        if policies.bounds.max_visits.is_some() {
            let to = policies.bounds.exhausted.clone().unwrap_or(Target::Fail);
            arrows.push(Arrow::new(Some(name), to, Reason::Exhausted));
        }
        for catch in &policies.catch {
            arrows.push(Arrow::new(Some(name), catch.to.clone(), Reason::Catch(catch.kind)));
        }
    }
    arrows
}

/// Draws equal arrows of many nodes for any failure once, as an arrow of the run; a default that
/// every node has would clutter the picture.
///
/// Arrows that a run has taken stay separate, and so do arrows to other targets.
pub(super) fn gather(arrows: &[Arrow], nodes: usize) -> Vec<Arrow> {
    let is_any = |it: &&Arrow| it.reason == Reason::Catch(None);
    let catching: BTreeSet<&NodeName> =
        arrows.iter().filter(is_any).filter_map(|it| it.from.as_ref()).collect();
    let mut sources: BTreeMap<&Target, Vec<NodeName>> = BTreeMap::new();
    for arrow in arrows.iter().filter(is_any).filter(|it| it.taken.unwrap_or(0) == 0) {
        sources.entry(&arrow.to).or_default().extend(arrow.from.clone());
    }
    sources.retain(|_, of| of.len() >= GATHERED_MIN);
    let folded =
        |it: &Arrow| is_any(&it) && it.taken.unwrap_or(0) == 0 && sources.contains_key(&it.to);
    let mut shown: Vec<Arrow> = arrows.iter().filter(|it| !folded(it)).cloned().collect();
    let starts = shown.iter().take_while(|it| it.from.is_none()).count();
    // If all nodes catch any failure, each node outside the gathered ones has a visible arrow.
    let is_all = catching.len() == nodes && sources.len() == 1;
    let gathered = sources.iter().map(|(to, of)| {
        Arrow::new(None, (*to).clone(), Reason::Failures { of: of.clone(), is_all })
    });
    shown.splice(starts..starts, gathered);
    shown
}

/// Sets the bounds of each arrow that closes a loop.
pub(super) fn bound_loops(arrows: &mut [Arrow], bounds: &BTreeMap<NodeName, u32>) {
    let bound = |node: &NodeName| {
        bounds.get(node).map(|&max_visits| Bound { node: node.clone(), max_visits })
    };
    // A used-up bound leaves the loop, so these arrows are not part of one.
    let mut next: BTreeMap<NodeName, BTreeSet<NodeName>> = BTreeMap::new();
    let mut before: BTreeMap<NodeName, BTreeSet<NodeName>> = BTreeMap::new();
    for arrow in arrows.iter().filter(|it| it.reason != Reason::Exhausted) {
        if let (Some(from), Some(to)) = (&arrow.from, arrow.to.node()) {
            next.entry(from.clone()).or_default().insert(to.clone());
            before.entry(to.clone()).or_default().insert(from.clone());
        }
    }
    for arrow in arrows.iter_mut().filter(|it| it.back) {
        let (Some(from), Some(to)) = (&arrow.from, arrow.to.node()) else { continue };
        // Every round passes both ends of the arrow, so one bounded end is enough.
        arrow.bounds = if let Some(one) = bound(to).or_else(|| bound(from)) {
            vec![one]
        } else {
            let on = reachable(to, &next);
            let back = reachable(from, &before);
            on.intersection(&back).filter_map(|it| bound(it)).collect()
        };
    }
}

fn reachable<'a>(
    from: &'a NodeName,
    next: &'a BTreeMap<NodeName, BTreeSet<NodeName>>,
) -> BTreeSet<&'a NodeName> {
    let mut found = BTreeSet::from([from]);
    let mut open = vec![from];
    while let Some(name) = open.pop() {
        let further = next.get(name).into_iter().flatten();
        open.extend(further.filter(|&it| found.insert(it)));
    }
    found
}

/// `a, b, c and 5 more`
fn names(of: &[NodeName]) -> String {
    let shown: Vec<&str> = of.iter().take(NAMES_SHOWN_MAX).map(NodeName::as_str).collect();
    match of.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
