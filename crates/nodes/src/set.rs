//! `set`: computes fields of the state.

use std::sync::Arc;

use async_trait::async_trait;
use graphrun_core::{
    graph::{Command, Contract, Node, NodeContext, NodeError, SideEffects},
    state::{Reducer, Update},
};
use graphrun_workflow::SetNode;
use serde_json::{Value, json};

use super::expression_view;
/// Computes fields of the state by expressions that all read the state before the node.
#[derive(Debug)]
pub(super) struct Set(SetNode);

impl Set {
    pub(super) fn new(definition: SetNode) -> Self {
        Self(definition)
    }
}

#[async_trait]
impl Node for Set {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let view = expression_view(&ctx, None);
        let mut update = Update::default();
        for (channel, expression) in &self.0.sets {
            let replaces = ctx.state.schema().channel(channel.as_str());
            let replaces = replaces.is_some_and(|it| matches!(it.reducer(), Reducer::Replace));
            // A reducer copies the items of a list into another list.
            let value = if replaces {
                expression.evaluate(&view)?
            } else {
                Arc::new(expression.evaluate_owned(&view)?)
            };
            update = update.write_shared(channel.clone(), value);
        }
        Ok(update.into())
    }

    fn contract(&self) -> Contract {
        let writes = self.0.sets.iter().map(|(channel, _)| channel.clone()).collect();
        Contract { reads: None, writes: Some(writes) }
    }

    fn calls_max(&self) -> Option<u64> {
        Some(0)
    }

    fn fingerprint(&self) -> Value {
        let sets = self.0.sets.iter().map(|(channel, it)| json!([channel, it.source()]));
        sets.collect()
    }

    fn kind(&self) -> &'static str {
        "set"
    }

    fn side_effects(&self) -> SideEffects {
        SideEffects::Nothing
    }
}
