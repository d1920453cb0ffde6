//! `set`: computes fields of the state.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::expression_view;
use crate::{
    graph::{Command, Contract, Node, NodeContext, NodeError, Touches},
    state::Update,
    workflow::SetNode,
};

/// Computes fields of the state by expressions that all see it as it was before.
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
            update = update.write(channel.clone(), expression.evaluate(&view)?);
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

    fn identity(&self) -> Value {
        let sets = self.0.sets.iter().map(|(channel, it)| json!([channel, it.source()]));
        sets.collect()
    }

    fn kind(&self) -> &'static str {
        "set"
    }

    fn touches(&self) -> Touches {
        Touches::Nothing
    }
}
