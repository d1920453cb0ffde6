//! Tools: things that a workflow can do, by a name, with a typed input and a typed output.
//!
//! Start with [`Tool`]; [`tool_fn`] makes one of an async function. The built-in ones read files
//! below a folder: [`built_in`].

mod folder;
mod fs;
mod function;

use std::fmt;

use async_trait::async_trait;
use serde_json::Value;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

pub use self::{
    fs::{BUILT_IN, built_in},
    function::{ToolFn, tool_fn},
};

/// Something that can be done, by a name.
#[async_trait]
pub trait Tool: Send + Sync {
    /// The name that workflows call it by, such as `fs.read`.
    fn name(&self) -> &str;

    /// The purpose of the tool, for a model or a person to choose by.
    fn description(&self) -> &str;

    /// The JSON Schema of its input, an object. The input in a workflow is checked against it when
    /// the workflow is loaded, and again before each call.
    fn input_schema(&self) -> &Value;

    /// The JSON Schema of its output, which is checked after each call.
    fn output_schema(&self) -> &Value;

    /// Calls the tool. The input fits the schema.
    ///
    /// # Errors
    ///
    /// Fails with a reason that is shown to the reader of the run.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when the node runs out of time or the run is aborted.
    async fn call(&self, input: Value, ctx: &ToolContext) -> Result<Value, ToolError>;
}

/// The context of a call besides its input.
#[derive(Clone, Debug, Default)]
pub struct ToolContext {
    /// The same whenever this call is made again, for services that take an idempotency key.
    pub key: String,
    /// Cancelled when the run should stop at once.
    pub cancel: CancellationToken,
}

/// A tool could not do its work.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ToolError {
    /// Why.
    pub message: String,
    /// Whether trying again may help.
    pub transient: bool,
}

impl ToolError {
    /// An error that trying again would repeat.
    pub fn permanent(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), transient: false }
    }

    /// An error that trying again may mend.
    pub fn transient(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), transient: true }
    }
}

impl fmt::Debug for dyn Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tool({})", self.name())
    }
}
