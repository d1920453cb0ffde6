//! The memory across runs, for the nodes and tools that use it.

mod embedder;

use std::{collections::BTreeSet, sync::Arc};

use graphrun_core::graph::{ErrorKind, Failure, NodeContext, NodeError};
use graphrun_memory::Source;
use graphrun_workflow::{
    kind::{EmbeddingUse, Services},
    memory::{SEARCH_CALLS_MAX, TaskMemory, TaskMemoryError, Tiers, embedding_models},
    tool::{BuiltIn, Needs},
};

use self::embedder::TaskEmbedder;

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
    let memory = services.memory.clone();
    let tiers = Arc::clone(tiers);
    let embedder = Arc::new(TaskEmbedder::new(ctx, services));
    Some(Arc::new(TaskMemory { memory, tiers, source, embedder }))
}

/// Returns the models that make vectors in one call of each of these tools, and the most calls of one of the tools.
pub(super) fn embeddings_of<'t>(
    tools: impl IntoIterator<Item = &'t str>,
    tiers: &Tiers,
) -> Option<EmbeddingUse<'_>> {
    let mut models = BTreeSet::new();
    let mut calls_max = 0;
    for tool in tools.into_iter().filter_map(BuiltIn::named).filter(|it| it.needs.is_memory()) {
        let writes = tool.needs == Needs::WritableMemory;
        models.extend(embedding_models(tiers, writes));
        calls_max = calls_max.max(if writes { 1 } else { SEARCH_CALLS_MAX });
    }
    EmbeddingUse::of(models, calls_max)
}

/// The kinds of [`failure`].
pub(super) const FAILURES: [ErrorKind; 2] = [ErrorKind::Memory, ErrorKind::Recording];

/// Returns the failure of a node.
pub(super) fn failure(error: &TaskMemoryError) -> NodeError {
    use graphrun_memory::StoreError;
    let kind = match error {
        TaskMemoryError::Store(StoreError::Recording(_)) => ErrorKind::Recording,
        TaskMemoryError::Store(StoreError::Filter(_)) => ErrorKind::Other,
        TaskMemoryError::Store(_) => ErrorKind::Memory,
        _ => ErrorKind::Other,
    };
    let is_transient = matches!(error, TaskMemoryError::Store(it) if it.is_transient());
    Failure { transient: is_transient, ..Failure::of(kind, error) }.into()
}
