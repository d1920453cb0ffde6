//! Which failures of a run can be retried.

use graphrun_core::{event::Status, graph::Failure, id::NodeName, words::quoted_list};

use super::RunError;
use crate::checkpoint::{SavedRun, TaskRecord, last_records};

/// Checks whether a run has anything to [retry](super::Engine::retry).
///
/// # Errors
///
/// Fails with the reason why not.
pub fn check_retry(saved: &SavedRun, node: Option<&NodeName>) -> Result<(), RunError> {
    if saved.summary.status != Status::Failed {
        return Err(RunError::NotFailed(saved.summary.status));
    }
    let failed: Vec<NodeName> = failures(&saved.records).into_iter().map(|it| it.0).collect();
    // With tasks left and none that failed, the step itself could not be committed; that is tried again.
    let has_any = !failed.is_empty() || !saved.position.frontier.is_empty();
    let is_among = node.map_or(has_any, |it| failed.contains(it));
    if is_among { Ok(()) } else { Err(RunError::NothingFailed { node: node.cloned(), failed }) }
}

/// Returns the failures of the tasks of an open step, in task order: of nodes, and of the routes after nodes
/// that finished.
pub fn failures(records: &[TaskRecord]) -> Vec<(NodeName, Failure)> {
    let failed = failed_records(records).into_iter();
    failed.filter_map(|it| Some((it.node.clone(), it.final_failure()?.clone()))).collect()
}

/// Returns the last records of the failed tasks of an open step, in task order: of nodes, and of the routes after nodes
/// that finished.
pub fn failed_records(records: &[TaskRecord]) -> Vec<&TaskRecord> {
    last_records(records).filter(|it| it.final_failure().is_some()).collect()
}

pub(super) fn nothing_failed(node: Option<&NodeName>, failed: &[NodeName]) -> String {
    match node {
        Some(node) if failed.is_empty() => {
            format!("`{node}` did not fail, and neither did any other node")
        }
        Some(node) => {
            format!("`{node}` did not fail; the failed nodes are {}", quoted_list(failed))
        }
        None => "a route ended the run as failed; none of its nodes failed".to_owned(),
    }
}
