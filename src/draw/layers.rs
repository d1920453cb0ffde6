//! The layers of nodes (their distance from the start), and the arrows that lead back.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::{
    Direction::Incoming,
    graphmap::DiGraphMap,
    visit::{DfsEvent, depth_first_search},
};

use super::{Arrow, Reason};
use crate::id::NodeName;

/// The layer of each node, computed without the arrows that close loops.
#[derive(Debug, Default)]
pub(super) struct Layers {
    layers: BTreeMap<NodeName, usize>,
    backs: BTreeSet<(NodeName, NodeName)>,
}

impl Layers {
    pub(super) fn of(names: &BTreeSet<&NodeName>, arrows: &[Arrow]) -> Self {
        let mut graph: DiGraphMap<&NodeName, ()> = DiGraphMap::new();
        for name in names {
            graph.add_node(*name);
        }
        // The search follows arrows in this order. The regular ones come first, so that the search
        // classifies the exceptional ones as back arrows.
        let (dashed, solid): (Vec<&Arrow>, Vec<&Arrow>) =
            arrows.iter().partition(|it| it.is_dashed());
        for arrow in solid.into_iter().chain(dashed) {
            if let (Some(from), Some(to)) = (&arrow.from, arrow.to.node()) {
                graph.add_edge(from, to, ());
            }
        }

        let mut backs = Vec::new();
        let mut order = Vec::new();
        let starts = entries(arrows).chain(names.iter().copied());
        depth_first_search(&graph, starts, |event| match event {
            DfsEvent::BackEdge(from, to) => backs.push((from, to)),
            DfsEvent::Finish(name, _) => order.push(name),
            DfsEvent::Discover(..) | DfsEvent::TreeEdge(..) | DfsEvent::CrossForwardEdge(..) => {}
        });
        for (from, to) in &backs {
            graph.remove_edge(from, to);
        }

        let mut layers = BTreeMap::new();
        let mut assign = |starts: Vec<&NodeName>, first: usize| -> usize {
            for start in starts {
                layers.entry(start.clone()).or_insert(first);
            }
            // Without back arrows, the reverse finishing order of the search is a topological
            // order: all nodes that lead to a node get their layer before that node.
            for name in order.iter().rev() {
                let before =
                    graph.neighbors_directed(name, Incoming).filter_map(|it| layers.get(it));
                if let Some(last) = before.max().copied() {
                    let layer = layers.entry((*name).clone()).or_default();
                    *layer = (*layer).max(last + 1);
                }
            }
            layers.values().max().map_or(0, |it| it + 1)
        };
        let after = assign(entries(arrows).collect(), 0);
        // Nodes that only a limit of the run or any failure leads to come last.
        let is_last =
            |it: &&Arrow| matches!(it.reason, Reason::Exhausted | Reason::Failures { .. });
        let last = arrows.iter().filter(|it| it.from.is_none()).filter(is_last);
        assign(last.filter_map(|it| it.to.node()).collect(), after);

        let backs = backs.into_iter().map(|(from, to)| (from.clone(), to.clone())).collect();
        Self { layers, backs }
    }

    /// Returns the length of the longest path to a node, without loops; `None` if no path leads to
    /// it.
    pub(super) fn layer(&self, name: &NodeName) -> Option<usize> {
        self.layers.get(name).copied()
    }

    /// Returns whether an arrow closes a loop.
    pub(super) fn is_back(&self, arrow: &Arrow) -> bool {
        let (Some(from), Some(to)) = (&arrow.from, arrow.to.node()) else { return false };
        // The search did not see gathered arrows; such an arrow leads back if it does not lead
        // down.
        let rises = self.layer(from).zip(self.layer(to)).is_some_and(|(from, to)| to <= from);
        rises || self.backs.contains(&(from.clone(), to.clone()))
    }
}

/// Returns the nodes of the first step.
fn entries(arrows: &[Arrow]) -> impl Iterator<Item = &NodeName> {
    let is_entry = |it: &&Arrow| it.from.is_none() && it.reason == Reason::Always;
    arrows.iter().filter(is_entry).filter_map(|it| it.to.node())
}
