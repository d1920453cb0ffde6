//! The edges and policies of a graph within, as those of the graph outside.

use super::Scope;
use crate::graph::{Catch, Defer, Edge, Policies, Target};

impl Scope {
    /// Has an edge outside that leaves the node which uses the graph leave its end: what follows the
    /// one follows the other.
    pub fn follow(&self, edge: &mut Edge) {
        match edge {
            Edge::Then { from, .. } | Edge::Route { from, .. } | Edge::May { from, .. } => {
                if *from == self.name {
                    *from = self.end();
                }
            }
            Edge::Join { from, .. } => {
                for from in from.iter_mut().filter(|it| **it == self.name) {
                    *from = self.end();
                }
            }
        }
    }

    /// An edge within, as one of the graph outside.
    pub fn edge(&self, edge: Edge) -> Edge {
        match edge {
            Edge::Then { from, to, place } => {
                Edge::Then { from: self.node_name(&from), to: self.target(&to), place }
            }
            Edge::Join { from, to, place } => {
                let from = from.iter().map(|it| self.node_name(it)).collect();
                Edge::Join { from, to: self.node_name(&to), place }
            }
            Edge::Route { from, route, place } => {
                Edge::Route { from: self.node_name(&from), route: self.route(route), place }
            }
            Edge::May { from, to } => {
                let to = to.iter().map(|it| self.target(it)).collect();
                Edge::May { from: self.node_name(&from), to }
            }
        }
    }

    /// The policies of a node within; what it does not catch itself is caught outside.
    pub fn policies(&self, policies: Policies, outside: &[Catch]) -> Policies {
        let Policies { exhausted, resets, clears, mut catch, defer, .. } = policies;
        for it in &mut catch {
            it.to = self.target(&it.to);
        }
        for it in outside {
            if !catch.iter().any(|inner| inner.kind == it.kind || inner.kind.is_none()) {
                catch.push(it.clone());
            }
        }
        catch.sort_by_key(|it| it.kind.is_none());
        let bounded = policies.max_visits.is_some() || policies.limits.is_some();
        Policies {
            exhausted: bounded.then(|| self.target(&exhausted.unwrap_or(Target::Fail))),
            resets: resets.iter().map(|it| self.node_name(it)).collect(),
            clears: clears.iter().map(|it| self.channel_name(it)).collect(),
            catch,
            defer: defer.map(|it| match it {
                Defer::Siblings => Defer::Siblings,
                Defer::Scope(inner) => Defer::Scope(self.node_name(&inner)),
            }),
            ..policies
        }
    }
}
