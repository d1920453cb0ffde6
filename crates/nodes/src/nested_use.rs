//! `use` for the items of a `map`: each item is a nested run of the workflow.

use async_trait::async_trait;
use graphrun_core::{
    graph::{Command, Contract, Node, NodeContext, NodeDescription, NodeError},
    state::Update,
};
use graphrun_engine::NestedGraph;
use graphrun_folders::RunFolders;
use graphrun_workflow::{ExpressionView, NestedUse};

use super::in_folder::{failure, folders_of};

/// The node of a [`NestedUse`].
#[derive(Clone, Debug)]
pub struct NestedUseNode {
    settings: NestedUse,
    nested: NestedGraph,
    calls_again_max: Option<u64>,
}

impl NestedUseNode {
    /// Makes the node from its settings and the graph of its workflow.
    pub fn new(settings: NestedUse, nested: NestedGraph) -> Self {
        let calls_again_max = nested.graph().calls_again_max();
        Self { settings, nested, calls_again_max }
    }
}

/// Returns the folders of the run with worktrees of this task, if it has some.
async fn folders_of_task(
    ctx: &NodeContext,
    own: &[String],
) -> Result<Option<RunFolders>, NodeError> {
    if own.is_empty() {
        return Ok(None);
    }
    let task = ctx.original.as_ref().map_or(ctx.task, |it| it.task);
    let task = format!("{}-{}", task.step, task.index);
    let folders = folders_of(ctx)?.of_task(ctx.run.as_str(), &task, own).await;
    folders.map(Some).map_err(|it| failure(&it))
}

#[async_trait]
impl Node for NestedUseNode {
    async fn run(&self, mut ctx: NodeContext) -> Result<Command, NodeError> {
        let own = &self.settings.worktrees;
        let folders = folders_of_task(&ctx, own).await?;
        if let Some(folders) = &folders {
            ctx.provided.insert(folders.clone());
        }
        let mut input = Update::default();
        {
            let view = ExpressionView::of(&ctx);
            for (channel, expression) in &self.settings.sets {
                input = input.write_shared(channel.clone(), expression.evaluate(&view)?);
            }
        }
        let state = self.nested.run(&ctx, input).await?;
        if let Some(folders) = folders {
            folders.close(own).await.map_err(|it| failure(&it))?;
        }
        Ok(self.settings.outputs(&state, ctx.state.schema()).into())
    }

    fn describe(&self) -> NodeDescription {
        let takes = self.settings.takes.iter().map(|(to, _)| to.clone());
        self.nested.describe(NodeDescription {
            kind: "use",
            contract: Contract { reads: None, writes: Some(takes.collect()) },
            writes_always: Some(self.settings.takes_always.clone()),
            calls_again_max: self.calls_again_max,
            fingerprint: self.settings.fingerprint(),
            ..NodeDescription::default()
        })
    }
}
