//! The targets of the edges of a graph: all choices that a task may make, each as a whole.

use std::collections::{BTreeMap, BTreeSet};

use graphrun_core::{
    graph::{Edge, Graph, Route, RouteChoice, Spread, Target},
    id::NodeName,
};

use super::tokens::Arrival;
use crate::flow_model::Draft;

/// One node that a choice leads to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lead {
    pub(super) to: usize,
    pub(super) by: Arrival,
    /// Whether items are dispatched to it.
    pub(super) is_dispatched: bool,
}

/// The choices of a node's tasks along an edge: one of these lists, and all of its leads at once.
pub(super) type Choices = Vec<Vec<Lead>>;

/// The data of a graph from which the leads are computed.
#[derive(Debug)]
pub(super) struct Leads<'a> {
    graph: &'a Graph,
    numbers: BTreeMap<&'a NodeName, usize>,
    /// Each awaited node, with the node that awaits it.
    awaited: BTreeSet<(&'a NodeName, &'a NodeName)>,
    /// The joins that do not wait for all of their nodes.
    partial: BTreeSet<&'a NodeName>,
    /// The awaited nodes that arrive by a route, and not whenever they have finished.
    routed: BTreeSet<(&'a NodeName, &'a NodeName)>,
}

impl<'a> Leads<'a> {
    pub(super) fn of(graph: &'a Graph) -> Self {
        let numbers = graph.nodes.keys().enumerate().map(|(at, name)| (name, at)).collect();
        let joins = graph.edges.iter().filter_map(|edge| match edge {
            Edge::Join { from, to, .. } => Some(from.iter().map(move |it| (it, to))),
            _ => None,
        });
        let awaited = joins.flatten().collect();
        let partial = graph.edges.iter().filter_map(|edge| match edge {
            Edge::Join { from, to, count, .. } => (*count < from.len()).then_some(to),
            _ => None,
        });
        let partial = partial.collect();
        let routed = Draft::of(graph).routed_arrivals();
        Self { graph, numbers, awaited, partial, routed }
    }

    pub(super) fn number(&self, name: &NodeName) -> usize {
        self.numbers[name]
    }

    /// Returns for each node that an edge leaves the choices of its tasks along the edge.
    pub(super) fn along(&self, edge: &'a Edge) -> Vec<(usize, Choices)> {
        match edge {
            Edge::Then { from, to, .. } => {
                let only = self.to(from, to).into_iter().collect();
                vec![(self.number(from), vec![only])]
            }
            Edge::Route { from, route, .. } => {
                vec![(self.number(from), self.choices(from, route.as_ref()))]
            }
            Edge::May { from, to, is_dispatched } => {
                let lead =
                    |it| if *is_dispatched { self.sent(from, it) } else { self.to(from, it) };
                vec![(self.number(from), vec![to.iter().filter_map(lead).collect()])]
            }
            Edge::Join { from, to, .. } => {
                let own = from.iter().filter(|it| !self.routed.contains(&(*it, to)));
                let arrive = |it| (self.number(it), vec![vec![self.arriving(it, to)]]);
                own.map(arrive).collect()
            }
        }
    }

    /// Returns the choices of a route; if it does not declare them, all combinations that its
    /// spread allows.
    fn choices(&self, from: &'a NodeName, route: &dyn Route) -> Choices {
        let targets = || route.targets().iter().map(|it| &it.to);
        let by_route = |to: &Target| self.by_route(from, to);
        let sent = |to: &Target| self.sent(from, to);
        let all = || targets().filter_map(by_route);
        match (route.spread(), route.choices()) {
            // The fields that are known after each choice do not matter here, because each leads to
            // one node.
            (Spread::One, _) => all().map(|it| vec![it]).collect(),
            (_, Some(choices)) => {
                let leads = |RouteChoice { to, is_dispatched, .. }: RouteChoice| {
                    if to.contains(&Target::Fail) {
                        // The run fails at once.
                        Vec::new()
                    } else if is_dispatched {
                        to.iter().filter_map(sent).collect()
                    } else {
                        to.iter().filter_map(by_route).collect()
                    }
                };
                choices.into_iter().map(leads).collect()
            }
            (Spread::Several, None) => vec![all().collect()],
            (Spread::Items, None) => vec![all().chain(targets().filter_map(sent)).collect()],
        }
    }

    /// Returns the lead of a route; a route to a node that awaits this one decides whether it
    /// arrives.
    fn by_route(&self, from: &'a NodeName, to: &Target) -> Option<Lead> {
        let joined = to.node().and_then(|it| self.awaited.get(&(from, it)));
        joined.map(|(_, to)| self.arriving(from, to)).or_else(|| self.to(from, to))
    }

    /// Returns the lead of an edge.
    pub(super) fn to(&self, from: &NodeName, to: &Target) -> Option<Lead> {
        let by = Arrival::Visit(self.number(from));
        Some(Lead { to: self.number(to.node()?), by, is_dispatched: false })
    }

    fn sent(&self, from: &NodeName, to: &Target) -> Option<Lead> {
        let from = self.number(from);
        let to = to.node()?;
        let waits = self.graph.nodes[to].policies.schedule.defer.is_some();
        let by = if waits { Arrival::Sent(from) } else { Arrival::Visit(from) };
        Some(Lead { to: self.number(to), by, is_dispatched: true })
    }

    fn arriving(&self, from: &NodeName, to: &NodeName) -> Lead {
        let from = self.number(from);
        let is_partial = self.partial.contains(to);
        let by = if is_partial { Arrival::PartialJoin(from) } else { Arrival::Join(from) };
        Lead { to: self.number(to), by, is_dispatched: false }
    }
}
