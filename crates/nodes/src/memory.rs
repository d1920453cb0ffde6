//! The memory across runs, for the nodes and tools that use it.

use std::sync::Arc;

use graphrun_core::graph::{ErrorKind, Failure, NodeContext, NodeError};
use graphrun_memory::Source;
use graphrun_workflow::{
    kind::Services,
    memory::{TaskMemory, TaskMemoryError, Tiers},
};

/// Returns the access of a task to the memory of its workflow.
pub(super) fn task_memory(
    ctx: &NodeContext,
    services: &Services,
    tiers: &Arc<Tiers>,
) -> Option<Arc<TaskMemory>> {
    if tiers.is_empty() {
        return None;
    }
    let source = Source::Run {
        workflow: ctx.facts.workflow.to_string(),
        run: ctx.run.to_string(),
        node: ctx.node.to_string(),
    };
    let (memory, tiers) = (services.memory.clone(), Arc::clone(tiers));
    Some(Arc::new(TaskMemory { memory, tiers, source }))
}

/// The kinds of [`failure`].
pub(super) const FAILURES: [ErrorKind; 2] = [ErrorKind::Memory, ErrorKind::Recording];

/// Returns the failure of a node.
pub(super) fn failure(error: &TaskMemoryError) -> NodeError {
    use graphrun_memory::StoreError;
    let kind = match error {
        TaskMemoryError::Store(StoreError::Recording(_)) => ErrorKind::Recording,
        TaskMemoryError::Store(StoreError::Unusable { .. } | StoreError::Failed { .. }) => {
            ErrorKind::Memory
        }
        _ => ErrorKind::Other,
    };
    let is_transient = matches!(error, TaskMemoryError::Store(it) if it.is_transient());
    Failure { transient: is_transient, ..Failure::of(kind, error) }.into()
}
