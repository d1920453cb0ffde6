//! Deferred nodes: which work each of them lets run first.

use graphrun_core::{graph::Defer, id::NodeName};

/// Returns whether a deferred node lets another one run first.
pub(super) fn waits_for(name: &NodeName, defer: &Defer, other: &NodeName) -> bool {
    let scope = match defer {
        Defer::Siblings => name.scope(),
        Defer::Scope(scope) => Some(scope.as_str()),
    };
    scope.is_none_or(|it| other.strip_scope(it).is_some())
}

/// Orders nodes that wait for each other: the node of the inner workflow goes first, and the end of a
/// workflow comes after the nodes that wait in it.
pub(super) fn rank(name: &NodeName, defer: &Defer) -> (usize, bool) {
    let depth = |scope: Option<&str>| scope.map_or(0, |it| it.split('.').count());
    match defer {
        Defer::Siblings => (depth(name.scope()), true),
        Defer::Scope(scope) => (depth(Some(scope.as_str())), false),
    }
}
