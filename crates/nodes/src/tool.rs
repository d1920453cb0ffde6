//! `tool`: calls a tool and writes its output to the fields of the state.

mod constants;
mod read;

use std::sync::Arc;

use async_trait::async_trait;
use graphrun_core::{
    graph::{Command, Contract, ErrorKind, Failure, Node, NodeContext, NodeDescription, NodeError},
    state::{Type, Update},
};
use graphrun_workflow::{
    ExpressionView,
    kind::{NodeSettings as _, Services},
    tool::{ToolContext, ToolError},
};
use serde_json::{Map, Value, json};

pub(super) use self::read::ToolKind;
pub use self::read::ToolSettings;
use self::read::part_of;
use super::{
    approval::{AskedCall, CallPermission},
    checked::CheckedTool,
    in_folder::tools_folder,
    memory::task_memory,
};

/// Calls a tool.
#[derive(Debug)]
struct Call {
    definition: ToolSettings,
    tool: CheckedTool,
    services: Services,
}

impl Call {
    fn arguments(&self, ctx: &NodeContext) -> Result<Value, NodeError> {
        let view = ExpressionView::of(ctx);
        let mut arguments = Map::new();
        for (name, argument) in &self.definition.args {
            arguments.insert(name.clone(), Arc::unwrap_or_clone(argument.evaluate(&view)?));
        }
        Ok(Value::Object(arguments))
    }

    fn failure(&self, error: &ToolError) -> Failure {
        let message = format!("`{}`: {error}", self.definition.tool);
        Failure { transient: error.transient, ..Failure::new(ErrorKind::Tool, message) }
    }
}

#[async_trait]
impl Node for Call {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let input = self.arguments(&ctx)?;
        let folder = tools_folder(&ctx, self.definition.folder.as_ref()).await?;
        let key = ctx.idempotency_key();
        let cancel = ctx.cancel.token();
        let memory = task_memory(&ctx, &self.services, &self.definition.tiers);
        let caller = ctx.node.to_string();
        let node = Some(ctx.clone());
        let tool_ctx = ToolContext { key, cancel, folder, caller, memory, node, place: None };
        let folder = self.definition.folder.as_deref();
        let asked = AskedCall { tool: &self.tool, input: &input, name: "tool", folder };
        let input = match asked.ask(&ctx).await? {
            CallPermission::Approved => input,
            CallPermission::Changed(input) => input,
            CallPermission::Rejected(comment) => {
                let tool = &self.definition.tool;
                let reason = comment.map(|it| format!(": {it}")).unwrap_or_default();
                let message = format!("a person declined the call of `{tool}`{reason}");
                return Err(Failure::new(ErrorKind::Declined, message).into());
            }
        };
        let output = self.tool.call(input, &tool_ctx).await.map_err(|it| self.failure(&it))?;
        let mut update = Update::default();
        for (channel, path) in &self.definition.writes {
            let part = path.iter().try_fold(&output, |it, name| it.get(name));
            let part = part.cloned().unwrap_or_default();
            let schema = ctx.state.schema();
            let part = Arc::new(schema.cut(channel, part));
            let ty = || part_of(&Type::of_schema(self.tool.tool.output_schema()), path);
            update = update.write_shared(channel.clone(), schema.write_of(channel, part, ty));
        }
        Ok(update.into())
    }

    fn describe(&self) -> NodeDescription {
        let writes = self.definition.writes.iter().map(|(channel, _)| channel.clone()).collect();
        let embeddings = self.definition.embeddings();
        let mut fingerprint = json!({
            "tool": match self.definition.declared.first() {
                Some(declared) => declared.fingerprint(),
                None => self.definition.tool.as_str().into(),
            },
            "input": self.tool.tool.input_schema(),
            "output": self.tool.tool.output_schema(),
            "writes": self.definition.writes,
        });
        if let Some(embeddings) = &embeddings {
            fingerprint["embeddings"] = json!(embeddings.models);
        }
        NodeDescription {
            kind: "tool",
            contract: Contract { reads: None, writes: Some(writes) },
            // A tool in Rust does not declare whether it asks a model.
            calls_max: self.tool.asks_no_model.then(|| embeddings.map_or(0, |it| it.calls_max)),
            fingerprint,
            ..NodeDescription::default()
        }
    }

    fn cache_key(&self, ctx: &NodeContext) -> Result<Value, NodeError> {
        self.arguments(ctx)
    }
}
