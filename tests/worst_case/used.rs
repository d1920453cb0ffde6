//! A graph that another one uses, as `use` in a workflow puts it there.

use graphrun::{
    graph::{Defer, Edge, Graph, IntoNode, Policies, Schedule, Scope, Target},
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
    spec.policies.on_finish.resets = used.nodes.keys().map(|it| scope.node_name(it)).collect();
    for edge in &mut graph.edges {
        scope.redirect(edge);
    }
    let defer = Some(Defer::Scope(user.clone()));
    let policies = Policies {
        schedule: Schedule { defer, ..Schedule::default() },
        catch: outside.clone(),
        ..Policies::default()
    };
    let end = Decided.with_policies(policies);
    graph.nodes.insert(scope.end(), end);
    let begin = |first: &NodeName| Edge::Then {
        from: user.clone(),
        to: Target::Node(scope.node_name(first)),
        span: None,
    };
    graph.edges.extend(used.entry.iter().map(begin));
    for (inner, mut spec) in used.nodes {
        spec.policies = scope.policies(spec.policies, &outside);
        graph.nodes.insert(scope.node_name(&inner), spec);
    }
    graph.edges.extend(used.edges.into_iter().map(|it| scope.edge(it)));
}
