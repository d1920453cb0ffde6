//! `set`: computes fields of the state.

use std::sync::Arc;

use async_trait::async_trait;
use graphrun_core::{
    diagnostic::Diagnostic,
    graph::{
        Command, Contract, ErrorKind, Node, NodeContext, NodeDescription, NodeError, SideEffects,
    },
    id::ChannelName,
    state::Update,
};
use graphrun_workflow::{
    Expression, ExpressionView, Registry,
    kind::{
        CacheRefusal, Computation, Data, Entry, Keys, Kind, MakeContext, NodeReader, NodeSettings,
        Yaml,
        values::{self, FieldName, NamedMap},
    },
};
use schemars::JsonSchema;
use serde_json::json;

/// The kind `set`.
#[derive(Debug)]
pub(super) struct SetKind;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct SetKeys {
    /// Computes fields by expressions. All of them read the state before this node.
    set: NamedMap<FieldName, values::Expression>,
}

/// A node that computes fields of the state by expressions that all read the state before it.
#[derive(Clone, Debug)]
pub struct SetNode {
    /// Each field and its value.
    pub sets: Vec<(ChannelName, Expression)>,
}

impl Kind for SetKind {
    fn key(&self) -> &'static str {
        "set"
    }

    fn keys(&self) -> Keys {
        Keys::of::<SetKeys>()
    }

    fn reads_only_named_values(&self) -> bool {
        true
    }

    fn read(&self, reader: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        let yaml = reader.value();
        let Data::Map(entries) = &yaml.data else {
            reader.report().wrong_kind(yaml, "`set`", "a mapping from fields to expressions");
            return None;
        };
        let mut sets = Vec::new();
        for Entry { key, value } in entries {
            let channel = reader.channel(key);
            let expression = match &channel {
                Some(channel) => reader.expression_for_update(value, channel),
                None => reader.expression(value),
            };
            let (Some(channel), Some(expression)) = (channel, expression) else { continue };
            reader.expect_update_of(value, &channel, &expression);
            sets.push((channel, expression));
        }
        Some(Arc::new(SetNode { sets }))
    }

    fn refuses_cache(&self, _: &Yaml, _: &Registry) -> Option<CacheRefusal> {
        let help = "omit it: computing the fields is faster than a lookup";
        Some(CacheRefusal::of_kind(self, help))
    }
}

impl NodeSettings for SetNode {
    fn make(&self, _: &MakeContext<'_>) -> Result<Arc<dyn Node>, Diagnostic> {
        Ok(Arc::new(self.clone()))
    }

    fn failures(&self) -> Option<Vec<ErrorKind>> {
        Some(Vec::new())
    }

    fn computes(&self) -> Option<Vec<Computation>> {
        Some(self.sets.iter().map(|(to, value)| Computation::of(to, value)).collect())
    }
}

#[async_trait]
impl Node for SetNode {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let view = ExpressionView::of(&ctx);
        let mut update = Update::default();
        for (channel, expression) in &self.sets {
            let replaces = ctx.state.schema().channel(channel.as_str());
            let replaces = replaces.is_some_and(|it| it.reducer().is_replace());
            // A reducer copies the items of a list into another list.
            let value = if replaces {
                expression.evaluate(&view)?
            } else {
                Arc::new(expression.evaluate_owned(&view)?)
            };
            let ty = || Some(expression.ty().clone());
            let value = ctx.state.schema().write_of(channel, value, ty);
            update = update.write_shared(channel.clone(), value);
        }
        Ok(update.into())
    }

    fn describe(&self) -> NodeDescription {
        let writes = self.sets.iter().map(|(channel, _)| channel.clone()).collect();
        let sets = self.sets.iter().map(|(channel, it)| json!([channel, it.source()]));
        NodeDescription {
            kind: "set",
            contract: Contract { reads: None, writes: Some(writes) },
            calls_max: Some(0),
            side_effects: SideEffects::Nothing,
            fingerprint: sets.collect(),
            ..NodeDescription::default()
        }
    }
}
