//! A graph that another one uses, as `use` in a workflow puts it there.

use std::sync::Arc;

use graphrun::{
    graph::{Catch, Defer, Edge, Graph, NodeSpec, Policies, Scope, Target},
    id::NodeName,
    state::Schema,
};

use super::Decided;

/// Puts a graph between a node and what follows it.
pub(crate) fn absorb(graph: &mut Graph, user: &NodeName, used: Graph) {
    let Some(spec) = graph.nodes.get_mut(user) else { return };
    let outside = spec.policies.catch.clone();
    let fail = outside.iter().find(|it| it.kind.is_none());
    let fail = fail.map_or(Target::Fail, |it| it.to.clone());
    let scope = Scope::new(user.clone(), Schema::default(), fail);
    spec.policies.resets = used.nodes.keys().map(|it| scope.node_name(it)).collect();
    for edge in &mut graph.edges {
        leave_from(edge, user, &scope.end());
    }
    let defer = Some(Defer::Scope(user.clone()));
    let policies = Policies { defer, catch: outside.clone(), ..Policies::default() };
    let end = NodeSpec { node: Arc::new(Decided), policies, when: None, place: None };
    graph.nodes.insert(scope.end(), end);
    let begin = |first: &NodeName| Edge::Then {
        from: user.clone(),
        to: Target::Node(scope.node_name(first)),
        place: None,
    };
    graph.edges.extend(used.entry.iter().map(begin));
    for (inner, mut spec) in used.nodes {
        spec.policies = policies_within(&scope, spec.policies, &outside);
        graph.nodes.insert(scope.node_name(&inner), spec);
    }
    graph.edges.extend(used.edges.into_iter().map(|it| edge_within(&scope, it)));
}

fn leave_from(edge: &mut Edge, user: &NodeName, end: &NodeName) {
    match edge {
        Edge::Then { from, .. } | Edge::Route { from, .. } | Edge::May { from, .. } => {
            if from == user {
                from.clone_from(end);
            }
        }
        Edge::Join { from, .. } => {
            from.iter_mut().filter(|it| *it == user).for_each(|it| it.clone_from(end));
        }
    }
}

fn edge_within(scope: &Scope, edge: Edge) -> Edge {
    match edge {
        Edge::Then { from, to, place } => {
            Edge::Then { from: scope.node_name(&from), to: scope.target(&to), place }
        }
        Edge::Route { from, route, place } => {
            Edge::Route { from: scope.node_name(&from), route: scope.route(route), place }
        }
        Edge::Join { from, to, place } => {
            let from = from.iter().map(|it| scope.node_name(it)).collect();
            Edge::Join { from, to: scope.node_name(&to), place }
        }
        Edge::May { from, to } => {
            let to = to.iter().map(|it| scope.target(it)).collect();
            Edge::May { from: scope.node_name(&from), to }
        }
    }
}

fn policies_within(scope: &Scope, policies: Policies, outside: &[Catch]) -> Policies {
    let mut catch = policies.catch;
    for it in &mut catch {
        it.to = scope.target(&it.to);
    }
    for it in outside {
        if !catch.iter().any(|inner| inner.kind == it.kind || inner.kind.is_none()) {
            catch.push(it.clone());
        }
    }
    catch.sort_by_key(|it| it.kind.is_none());
    let defer = |it| match it {
        Defer::Siblings => Defer::Siblings,
        Defer::Scope(inner) => Defer::Scope(scope.node_name(&inner)),
    };
    Policies {
        exhausted: policies.exhausted.map(|it| scope.target(&it)),
        resets: policies.resets.iter().map(|it| scope.node_name(it)).collect(),
        catch,
        defer: policies.defer.map(defer),
        ..policies
    }
}
