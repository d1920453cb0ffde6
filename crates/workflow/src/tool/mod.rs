//! Tools: named operations with a typed input and a typed output, for workflows and models.
//!
//! Start with [`Tool`]; [`tool_fn`] makes one from an async function. The built-in ones read files
//! below a folder, write files of a folder of the run, and use the memory across runs: [`BUILT_IN`].

mod access;
mod declared;
mod fs;
mod function;
mod memory;

use std::{fmt, path::Path, sync::Arc};

use async_trait::async_trait;
use graphrun_core::graph::NodeContext;
use graphrun_models::CallPlace;
use serde_json::Value;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

pub(crate) use self::memory::can_use;
pub use self::{
    access::{WebAccess, WebPermission, WebRefusal},
    declared::{
        CommandTool, DeclaredTool, HeaderText, Method, RequestTool, ServerRequest, ServerTool,
        ToolAction, UrlError, UrlTemplate,
    },
    function::{ToolFn, tool_fn},
};
use crate::sections::memory::{TaskMemory, Tiers};

/// The built-in tools, in the order of the documentation.
pub const BUILT_IN: &[BuiltIn] = &{
    let mut all = [fs::TOOLS[0]; fs::TOOLS.len() + memory::TOOLS.len()];
    let mut at = 1;
    while at < all.len() {
        all[at] = match at.checked_sub(fs::TOOLS.len()) {
            Some(at) => memory::TOOLS[at],
            None => fs::TOOLS[at],
        };
        at += 1;
    }
    all
};

/// A built-in tool.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    /// The name in workflows.
    pub name: &'static str,
    /// The purpose of the tool, in one sentence.
    pub about: &'static str,
    /// The resources that it works on.
    pub needs: Needs,
    /// Makes the tool.
    make: Make,
}

/// The resources that a built-in tool works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// It reads files.
    Files,
    /// It changes files, so that its node names a folder of the run.
    Folder,
    /// It reads the memory across runs.
    Memory,
    /// It writes to the memory across runs.
    WritableMemory,
}

/// Makes a built-in tool.
#[derive(Clone, Copy, Debug)]
enum Make {
    /// For the files below a folder.
    OfFiles(fn(Arc<Path>) -> Arc<dyn Tool>),
    /// For the tiers of a workflow.
    OfMemory(fn(&Tiers) -> Arc<dyn Tool>),
}

impl Needs {
    /// Returns whether it is the memory across runs.
    pub fn is_memory(self) -> bool {
        matches!(self, Self::Memory | Self::WritableMemory)
    }
}

impl BuiltIn {
    /// Returns the built-in tool of a name.
    pub fn named(name: &str) -> Option<Self> {
        BUILT_IN.iter().copied().find(|it| it.name == name)
    }

    /// Makes the tool for the files below a folder, or for the tiers of a workflow.
    pub fn make(&self, root: &Path, tiers: &Tiers) -> Arc<dyn Tool> {
        match self.make {
            Make::OfFiles(make) => make(root.into()),
            Make::OfMemory(make) => make(tiers),
        }
    }
}

/// A named operation.
#[async_trait]
pub trait Tool: Send + Sync {
    /// Returns the name in workflows, such as `fs.read`.
    fn name(&self) -> &str;

    /// Returns the purpose of the tool, for a model or a person to choose by.
    fn description(&self) -> &str;

    /// Returns the JSON Schema of its input, an object. The input in a workflow is checked against it when the workflow
    /// is loaded, and again before each call.
    fn input_schema(&self) -> &Value;

    /// Returns the JSON Schema of its output, which is checked after each call.
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

/// The name and the types of a tool, by which its calls are checked.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSignature {
    /// The name in workflows.
    pub name: String,
    /// The JSON Schema of its input.
    pub input: Value,
    /// The JSON Schema of its output.
    pub output: Value,
}

impl ToolSignature {
    /// Returns the signature of a tool.
    pub fn of(tool: &dyn Tool) -> Self {
        let input = tool.input_schema().clone();
        let output = tool.output_schema().clone();
        Self { name: tool.name().to_owned(), input, output }
    }
}

/// The context of a call besides its input.
#[derive(Clone, Debug, Default)]
pub struct ToolContext {
    /// An idempotency key: the same whenever this call is repeated.
    pub key: String,
    /// Cancelled when the run is aborted.
    pub cancel: CancellationToken,
    /// The folder of the run that the node names. The built-in tools work there instead of in the folder of the tools.
    pub folder: Option<Arc<Path>>,
    /// The node that calls.
    pub caller: String,
    /// The memory of the workflow, if it declares any.
    pub memory: Option<Arc<TaskMemory>>,
    /// The context of the node that calls, with the folders of the run.
    pub node: Option<NodeContext>,
    /// The place of the call in the conversation of a model, if recorded results can take the place of calls.
    pub place: Option<CallPlace>,
}

/// Calls the tools of MCP servers.
#[async_trait]
pub trait McpCaller: fmt::Debug + Send + Sync {
    /// Calls a tool. The input fits its schema.
    ///
    /// # Errors
    ///
    /// Fails with a reason that is shown to the model or to the reader of the run.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time, which cancels the request.
    async fn call(
        &self,
        tool: &ServerTool,
        input: Value,
        ctx: &ToolContext,
    ) -> Result<Value, ToolError>;
}

/// The error of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ToolError {
    /// The reason.
    pub message: String,
    /// Whether a retry may help.
    pub transient: bool,
}

impl ToolError {
    /// An error that a retry would repeat.
    pub fn permanent(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), transient: false }
    }

    /// An error that a retry may resolve.
    pub fn transient(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), transient: true }
    }
}

impl fmt::Debug for dyn Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tool({})", self.name())
    }
}
