//! The external services of nodes.

use std::{fmt, path::PathBuf, sync::Arc};

use graphrun_memory::{InMemoryStore, Memory};
use graphrun_models::{
    ChatModel, ChatReply, ChatRequest, ContextWindows, EmbeddingModel, ModelError, Prices,
    TokenEstimates,
};
use graphrun_sandbox::{NetworkAccess, Replace};

use async_trait::async_trait;
use serde_json::Value;

use crate::{
    HostAccess,
    tool::{McpCaller, ServerTool, Tool, ToolContext, ToolError, WebAccess},
};

/// The source of the models of agents.
pub trait ModelSource: fmt::Debug + Send + Sync {
    /// Returns the model of that name, such as `openai/gpt-5-mini`.
    ///
    /// # Errors
    ///
    /// Fails with the reason if the model cannot be used.
    fn model(&self, name: &str) -> Result<Arc<dyn ChatModel>, ModelError>;

    /// Returns the model for embeddings of that name, such as `openai/text-embedding-3-small`. By default there is none.
    ///
    /// # Errors
    ///
    /// Fails with the reason if the model cannot be used.
    fn embeddings(&self, name: &str) -> Result<Arc<dyn EmbeddingModel>, ModelError> {
        let message =
            format!("no models for embeddings are connected here, so `{name}` is unavailable");
        Err(ModelError::Unavailable { message })
    }

    /// Returns the model that answers in place of the programs of agents, if there is one.
    fn in_place_of_programs(&self) -> Option<Arc<dyn ChatModel>> {
        None
    }

    /// Records an exchange with a program, if exchanges are recorded.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be recorded.
    fn record_program(
        &self,
        _request: &ChatRequest,
        _outcome: &Result<ChatReply, ModelError>,
    ) -> Result<(), ModelError> {
        Ok(())
    }
}

/// Results in place of calls of tools, for tests and for the replay of a recording.
pub trait ToolResults: fmt::Debug + Send + Sync {
    /// Returns the result of a call; with `None` the tool is called.
    fn result(
        &self,
        tool: &dyn Tool,
        input: &Value,
        ctx: &ToolContext,
    ) -> Option<Result<Value, ToolError>>;

    /// Returns whether the built-in tools are called all the same, on the files and the memory of the run.
    fn keeps_built_in(&self) -> bool {
        false
    }
}

/// The external services of nodes.
#[derive(Clone, Debug)]
pub struct Services {
    /// The source of the models of agents.
    pub models: Arc<dyn ModelSource>,
    /// The results in place of calls of tools; `None`: the tools are called.
    pub tool_results: Option<Arc<dyn ToolResults>>,
    /// The prices of models, as far as they are known.
    pub prices: Arc<Prices>,
    /// The context windows of models, as far as they are known.
    pub windows: Arc<ContextWindows>,
    /// What the providers of models have counted, for estimates.
    pub estimates: Arc<TokenEstimates>,
    /// The folder for environments of generated code.
    pub cache_dir: PathBuf,
    /// The folder that a run delivers to.
    pub output_dir: PathBuf,
    /// The files there that it may replace.
    pub replace: Replace,
    /// What the operator allows on this machine, outside of a sandbox.
    pub hosts: Arc<HostAccess>,
    /// The hosts to which declared tools may send requests.
    pub web: Arc<WebAccess>,
    /// The hosts that programs in sandboxes may reach.
    pub network: Arc<NetworkAccess>,
    /// The MCP servers.
    pub mcp: Arc<dyn McpCaller>,
    /// The memory across runs.
    pub memory: Memory,
}

impl Services {
    /// No models, deliveries to `out` in the current folder, and a memory that ends with the process: enough for
    /// workflows that compute, ask people, or run custom nodes.
    pub fn offline() -> Self {
        Self {
            models: Arc::new(NoModels),
            tool_results: None,
            prices: Arc::default(),
            windows: Arc::default(),
            estimates: Arc::default(),
            cache_dir: PathBuf::from(".graphrun/cache"),
            output_dir: PathBuf::from("out"),
            replace: Replace::default(),
            hosts: Arc::default(),
            web: Arc::default(),
            network: Arc::default(),
            mcp: Arc::new(NoServers),
            memory: Memory::new(Arc::new(InMemoryStore::default())),
        }
    }
}

/// No server is connected.
#[derive(Debug)]
struct NoServers;

#[async_trait]
impl McpCaller for NoServers {
    async fn call(&self, tool: &ServerTool, _: Value, _: &ToolContext) -> Result<Value, ToolError> {
        let server = &tool.server.name;
        Err(ToolError::permanent(format!(
            "no MCP servers are connected here, so `{server}` is unavailable"
        )))
    }
}

/// A source that has no model.
#[derive(Debug)]
struct NoModels;

impl ModelSource for NoModels {
    fn model(&self, name: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        let message = format!("no models are connected here, so `{name}` is unavailable");
        Err(ModelError::Unavailable { message })
    }
}
