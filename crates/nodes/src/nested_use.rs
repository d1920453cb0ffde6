//! `use` for the items of a `map`: each item is a nested run of the workflow.

use async_trait::async_trait;
use graphrun_core::{
    graph::{Command, Contract, Node, NodeContext, NodeDescription, NodeError},
    state::Update,
};
use graphrun_engine::NestedGraph;
use graphrun_workflow::{ExpressionView, NestedUse};

/// The node of a [`NestedUse`].
#[derive(Clone, Debug)]
pub struct NestedUseNode {
    settings: NestedUse,
    nested: NestedGraph,
}

impl NestedUseNode {
    /// Makes the node from its settings and the graph of its workflow.
    pub fn new(settings: NestedUse, nested: NestedGraph) -> Self {
        Self { settings, nested }
    }
}

#[async_trait]
impl Node for NestedUseNode {
    /// Fields that the nested run has not assigned are left unchanged.
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let mut input = Update::default();
        {
            let view = ExpressionView::of(&ctx);
            for (channel, expression) in &self.settings.sets {
                input = input.write_shared(channel.clone(), expression.evaluate(&view)?);
            }
        }
        let state = self.nested.run(&ctx, input).await?;
        let mut update = Update::default();
        for (to, from) in &self.settings.takes {
            if let Some(value) = state.get_shared(from.as_str()) {
                let ty = || state.schema().channel(from.as_str()).map(|it| it.ty().clone());
                let value = ctx.state.schema().write_of(to, value, ty);
                update = update.write_shared(to.clone(), value);
            }
        }
        Ok(update.into())
    }

    fn describe(&self) -> NodeDescription {
        let takes = self.settings.takes.iter().map(|(to, _)| to.clone());
        self.nested.describe(NodeDescription {
            kind: "use",
            contract: Contract { reads: None, writes: Some(takes.collect()) },
            writes_always: Some(self.settings.takes_always.clone()),
            ..NodeDescription::default()
        })
    }
}
