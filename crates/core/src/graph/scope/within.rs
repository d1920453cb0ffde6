//! Edges and policies of an inner graph, converted for the outer graph.

use super::Scope;
use crate::graph::{Bounds, Catch, Defer, Edge, ItemPolicy, OnFinish, Policies, Schedule, Target};

impl Scope {
    /// Redirects an outer edge that leaves the node which uses the graph: it leaves the end of the
    /// inner graph instead.
    pub fn redirect(&self, edge: &mut Edge) {
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

    /// Converts an inner edge for the outer graph.
    pub fn edge(&self, edge: Edge) -> Edge {
        match edge {
            Edge::Then { from, to, span } => {
                Edge::Then { from: self.node_name(&from), to: self.target(&to), span }
            }
            Edge::Join { from, to, count, span } => {
                let from = from.iter().map(|it| self.node_name(it)).collect();
                Edge::Join { from, to: self.node_name(&to), count, span }
            }
            Edge::Route { from, route, span } => {
                Edge::Route { from: self.node_name(&from), route: self.route(route), span }
            }
            Edge::May { from, to, is_dispatched } => {
                let to = to.iter().map(|it| self.target(it)).collect();
                Edge::May { from: self.node_name(&from), to, is_dispatched }
            }
        }
    }

    /// Converts the policies of an inner node. The outer `catch` takes the failures that the node
    /// does not catch itself.
    pub fn policies(&self, policies: Policies, outside: &[Catch]) -> Policies {
        let Policies { attempts, bounds, mut catch, inherits_catch, on_finish, schedule, emits } =
            policies;
        for it in &mut catch {
            it.to = self.target(&it.to);
        }
        let collects = schedule.items.as_ref().is_some_and(|it| it.failed.is_some());
        Catch::complete(&mut catch, outside.iter().filter(|_| !collects));
        let is_bounded = bounds.is_bounded();
        let exhausted = is_bounded.then(|| bounds.exhausted.unwrap_or(Target::Fail));
        let failed = |policy: ItemPolicy| ItemPolicy {
            failed: policy.failed.map(|it| self.channel_name(&it)),
            ..policy
        };
        let defer = |it: Defer| match it {
            Defer::Siblings => Defer::Siblings,
            Defer::Scope(inner) => Defer::Scope(self.node_name(&inner)),
        };
        Policies {
            attempts,
            bounds: Bounds {
                exhausted: exhausted.map(|it| self.target(&it)),
                visits_field: bounds.visits_field.map(|it| self.channel_name(&it)),
                ..bounds
            },
            catch,
            inherits_catch,
            on_finish: OnFinish {
                resets: on_finish.resets.iter().map(|it| self.node_name(it)).collect(),
                clears: on_finish.clears.iter().map(|it| self.channel_name(it)).collect(),
                may_clear: on_finish.may_clear.iter().map(|it| self.channel_name(it)).collect(),
                fail_reason: on_finish.fail_reason.map(|it| self.channel_name(&it)),
            },
            schedule: Schedule {
                defer: schedule.defer.map(defer),
                items: schedule.items.map(failed),
                ..schedule
            },
            emits,
        }
    }
}
