//! The parts of `via` that a node can read without a guard.
//!
//! `via.node` and `via.error` depend on how the run reached the node. The flow of the workflow and
//! conditions on `via.reason` exclude kinds of triggers; a part is there for certain if all kinds that
//! remain have it. The excluded kinds are marks among the paths that are known to be present, so they are
//! known exactly as long as these.

use graphrun_core::graph::TriggerKind;

const REASON: &str = "via.reason";

/// Returns the mark of a kind that is excluded.
pub(crate) fn excludes(kind: TriggerKind) -> String {
    format!("{REASON} != {}", kind.as_str())
}

/// Returns the marks of the kinds that are excluded once the value of a path is equal to a text, or is not.
pub(crate) fn learned(path: &str, to: &str, is_equal: bool) -> impl Iterator<Item = String> {
    let is_reason = path == REASON;
    let excluded = move |it: &TriggerKind| is_reason && (it.as_str() == to) != is_equal;
    TriggerKind::ALL.into_iter().filter(excluded).map(excludes)
}

/// Returns whether a part of `via` is there for certain.
pub(crate) fn is_sure(path: &str, known: &[String]) -> bool {
    let has: fn(TriggerKind) -> bool = match path {
        "via.node" => TriggerKind::has_node,
        "via.error" => TriggerKind::has_error,
        _ => return false,
    };
    let mut lacking = TriggerKind::ALL.into_iter().filter(|it| !has(*it));
    lacking.all(|it| known.contains(&excludes(it)))
}
