//! A node that does nothing itself and exists for its edges.

use async_trait::async_trait;
use graphrun_core::graph::{Command, Contract, Node, NodeContext, NodeError, SideEffects};

/// Does nothing.
#[derive(Debug)]
pub(super) struct Pass;

#[async_trait]
impl Node for Pass {
    async fn run(&self, _: NodeContext) -> Result<Command, NodeError> {
        Ok(Command::default())
    }

    fn contract(&self) -> Contract {
        Contract { reads: Some(Vec::new()), writes: Some(Vec::new()) }
    }

    fn calls_max(&self) -> Option<u64> {
        Some(0)
    }

    fn kind(&self) -> &'static str {
        "map"
    }

    fn side_effects(&self) -> SideEffects {
        SideEffects::Nothing
    }
}
