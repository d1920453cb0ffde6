//! The first and last node of a used workflow: one fills its fields, the other takes its results.

use async_trait::async_trait;
use graphrun_core::{
    graph::{Command, Contract, Node, NodeContext, NodeError, Read, SideEffects},
    state::Update,
};
use graphrun_workflow::{EnterNode, LeaveNode};

use super::expression_view;
/// Fills the fields of a used workflow.
#[derive(Debug)]
pub(super) struct Enter(pub(super) EnterNode);

/// Takes the results of a used workflow.
#[derive(Debug)]
pub(super) struct Leave(pub(super) LeaveNode);

#[async_trait]
impl Node for Enter {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let view = expression_view(&ctx, None);
        let mut update = Update::default();
        for (channel, expression) in &self.0.sets {
            update = update.write_shared(channel.clone(), expression.evaluate(&view)?);
        }
        Ok(update.into())
    }

    fn contract(&self) -> Contract {
        let set = self.0.sets.iter().map(|(channel, _)| channel.clone());
        Contract { reads: None, writes: Some(set.collect()) }
    }

    fn calls_max(&self) -> Option<u64> {
        Some(0)
    }

    fn kind(&self) -> &'static str {
        "use"
    }

    fn side_effects(&self) -> SideEffects {
        SideEffects::Nothing
    }
}

#[async_trait]
impl Node for Leave {
    /// Fields that the used workflow has not assigned are left unchanged.
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let mut update = Update::default();
        for (to, from) in &self.0.takes {
            if let Some(value) = ctx.state.get(from.as_str()) {
                update = update.write(to.clone(), value.clone());
            }
        }
        Ok(update.into())
    }

    fn contract(&self) -> Contract {
        let read = |(_, from): &(_, graphrun_core::id::ChannelName)| Read {
            channel: from.clone(),
            required: false,
        };
        Contract {
            reads: Some(self.0.takes.iter().map(read).collect()),
            writes: Some(self.0.takes.iter().map(|(to, _)| to.clone()).collect()),
        }
    }

    fn calls_max(&self) -> Option<u64> {
        Some(0)
    }

    fn kind(&self) -> &'static str {
        "end of use"
    }

    fn side_effects(&self) -> SideEffects {
        SideEffects::Nothing
    }
}
