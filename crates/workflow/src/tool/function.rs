//! A tool made from an async function.

use std::{fmt, marker::PhantomData};

use async_trait::async_trait;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{Tool, ToolContext, ToolError};

/// Makes a tool of an async function; its types are the schemas of input and output.
///
/// ```
/// use graphrun_workflow::tool::{Tool, ToolContext, ToolError, tool_fn};
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Text {
///     text: String,
/// }
///
/// #[derive(Serialize, JsonSchema)]
/// struct Count {
///     words: usize,
/// }
///
/// async fn count(input: Text, _: ToolContext) -> Result<Count, ToolError> {
///     Ok(Count { words: input.text.split_whitespace().count() })
/// }
///
/// let tool = tool_fn("count_words", "Counts the words of a text.", count);
/// assert_eq!(tool.input_schema()["required"][0], "text");
/// ```
pub fn tool_fn<F, I, O, Fut>(name: &str, description: &str, function: F) -> ToolFn<F, I, O>
where
    F: Fn(I, ToolContext) -> Fut + Send + Sync,
    Fut: Future<Output = Result<O, ToolError>> + Send,
    I: DeserializeOwned + JsonSchema + Send,
    O: Serialize + JsonSchema + Send,
{
    let settings = SchemaSettings::draft2020_12;
    ToolFn {
        name: name.to_owned(),
        description: description.to_owned(),
        input: settings().for_deserialize().into_generator().into_root_schema_for::<I>().to_value(),
        output: settings().for_serialize().into_generator().into_root_schema_for::<O>().to_value(),
        function,
        types: PhantomData,
    }
}

/// A tool made by [`tool_fn`].
pub struct ToolFn<F, I, O> {
    name: String,
    description: String,
    input: Value,
    output: Value,
    function: F,
    types: PhantomData<fn(I) -> O>,
}

#[async_trait]
impl<F, I, O, Fut> Tool for ToolFn<F, I, O>
where
    F: Fn(I, ToolContext) -> Fut + Send + Sync,
    Fut: Future<Output = Result<O, ToolError>> + Send,
    I: DeserializeOwned + JsonSchema + Send,
    O: Serialize + JsonSchema + Send,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn input_schema(&self) -> &Value {
        &self.input
    }

    fn output_schema(&self) -> &Value {
        &self.output
    }

    async fn call(&self, input: Value, ctx: &ToolContext) -> Result<Value, ToolError> {
        let input = I::deserialize(input).map_err(ToolError::permanent)?;
        let output = (self.function)(input, ctx.clone()).await?;
        serde_json::to_value(output).map_err(ToolError::permanent)
    }
}

impl<F, I, O> fmt::Debug for ToolFn<F, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ToolFn({})", self.name)
    }
}
