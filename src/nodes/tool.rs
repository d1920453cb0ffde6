//! `tool`: calls a tool, and writes what it gives to the fields of the state.

use std::sync::Arc;

use async_trait::async_trait;
use jsonschema::Validator;
use serde_json::{Map, Value, json};

use super::expression_view;
use crate::{
    graph::{Command, Contract, ErrorKind, Failure, Node, NodeContext, NodeError},
    state::{Update, validator_for},
    tool::{Tool, ToolContext},
    workflow::ToolNode,
};

/// What a tool may give, in bytes of JSON.
const OUTPUT_BYTES_MAX: usize = 4 << 20;

/// Calls a tool.
#[derive(Debug)]
pub(super) struct Call {
    definition: ToolNode,
    tool: Arc<dyn Tool>,
    input: Validator,
    output: Validator,
}

impl Call {
    /// Fails when one of the schemas of the tool is none.
    pub(super) fn new(definition: ToolNode, tool: Arc<dyn Tool>) -> Result<Self, String> {
        let compile = |what: &str, schema: &Value| {
            validator_for(schema).map_err(|error| format!("the schema of its {what}: {error}"))
        };
        let input = compile("input", tool.input_schema())?;
        let output = compile("output", tool.output_schema())?;
        Ok(Self { definition, tool, input, output })
    }

    fn arguments(&self, ctx: &NodeContext) -> Result<Value, NodeError> {
        let view = expression_view(ctx, None);
        let mut arguments = Map::new();
        for (name, argument) in &self.definition.args {
            arguments.insert(name.clone(), argument.evaluate(&view)?);
        }
        Ok(Value::Object(arguments))
    }

    fn failure(&self, message: impl std::fmt::Display) -> Failure {
        Failure::new(ErrorKind::Tool, format!("`{}`: {message}", self.definition.tool))
    }

    fn check(&self, what: &str, validator: &Validator, value: &Value) -> Result<(), Failure> {
        let problems: Vec<String> = validator
            .iter_errors(value)
            .take(5)
            .map(|error| format!("{}: {error}", error.instance_path()).chars().take(300).collect())
            .collect();
        if problems.is_empty() {
            return Ok(());
        }
        Err(self.failure(format!("{what} does not fit its schema: {}", problems.join("; "))))
    }
}

#[async_trait]
impl Node for Call {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let input = self.arguments(&ctx)?;
        self.check("the input", &self.input, &input)?;
        let told = ToolContext { key: ctx.idempotency_key(), cancel: ctx.cancel.clone() };
        let output = self.tool.call(input, &told).await.map_err(|error| {
            let transient = error.transient;
            Failure { transient, ..self.failure(error) }
        })?;
        let bytes = output.to_string().len();
        if bytes > OUTPUT_BYTES_MAX {
            let message = format!("it gave {bytes} bytes, more than {OUTPUT_BYTES_MAX}");
            return Err(self.failure(message).into());
        }
        self.check("the output", &self.output, &output)?;
        let mut update = Update::default();
        for (channel, path) in &self.definition.writes {
            let part = path.iter().try_fold(&output, |it, name| it.get(name));
            update = update.write(channel.clone(), part.cloned().unwrap_or_default());
        }
        Ok(update.into())
    }

    fn contract(&self) -> Contract {
        let writes = self.definition.writes.iter().map(|(channel, _)| channel.clone()).collect();
        Contract { reads: None, writes: Some(writes) }
    }

    /// A tool does not say whether it asks a model.
    fn calls_max(&self) -> Option<u64> {
        crate::tool::BUILT_IN.contains(&self.definition.tool.as_str()).then_some(0)
    }

    fn kind(&self) -> &'static str {
        "tool"
    }

    fn identity(&self) -> Value {
        json!({
            "tool": self.definition.tool,
            "input": self.tool.input_schema(),
            "output": self.tool.output_schema(),
            "writes": self.definition.writes,
        })
    }

    fn given(&self, ctx: &NodeContext) -> Result<Value, NodeError> {
        self.arguments(ctx)
    }
}
