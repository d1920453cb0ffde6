//! The MCP servers of a run that is recorded or replayed: the results of calls are part of a recording.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use serde_json::{Value, json};

use crate::{
    cli::{error::CliError, run::models},
    models::{RecordingFile, Replay},
    tool::{McpCaller, ServerTool, ToolContext, ToolError},
};

/// Servers whose results are added to a recording.
#[derive(Debug)]
struct RecordedServers {
    servers: Arc<dyn McpCaller>,
    file: RecordingFile,
}

/// The results of a recording, in place of servers.
#[derive(Debug)]
struct ReplayedServers(Replay);

/// Returns servers whose results are recorded.
///
/// # Errors
///
/// Fails when the recording cannot be written.
pub(crate) fn recorded(
    servers: Arc<dyn McpCaller>,
    path: &Path,
) -> Result<Arc<dyn McpCaller>, CliError> {
    let file = RecordingFile::open(path).map_err(|error| {
        CliError::usage("the recording cannot be written; nothing was started").because(error)
    })?;
    Ok(Arc::new(RecordedServers { servers, file }))
}

/// Returns the recorded results. No server is started.
///
/// # Errors
///
/// Fails when the recording cannot be read.
pub(crate) fn replayed(path: &Path) -> Result<Arc<dyn McpCaller>, CliError> {
    let replay = models::load_recording(path)?;
    Ok(Arc::new(ReplayedServers(replay)))
}

/// Returns a call as a recording has it.
fn question(tool: &ServerTool, input: &Value) -> String {
    format!("call {}.{}\n{input}", tool.server.name, tool.tool)
}

#[async_trait]
impl McpCaller for RecordedServers {
    async fn call(
        &self,
        tool: &ServerTool,
        input: Value,
        ctx: &ToolContext,
    ) -> Result<Value, ToolError> {
        let question = question(tool, &input);
        let called = self.servers.call(tool, input, ctx).await;
        let answer = match &called {
            Ok(output) => json!({ "output": output }),
            Err(error) => json!({ "error": error.message, "transient": error.transient }),
        };
        let written = self.file.append_answer(&ctx.caller, &question, &answer);
        written.map_err(ToolError::permanent)?;
        called
    }
}

#[async_trait]
impl McpCaller for ReplayedServers {
    async fn call(
        &self,
        tool: &ServerTool,
        input: Value,
        ctx: &ToolContext,
    ) -> Result<Value, ToolError> {
        let is_result = |it: &Value| it.get("output").is_some() || it.get("error").is_some();
        let found = self.0.look_up(&ctx.caller, &question(tool, &input), is_result);
        let mut found = found.map_err(ToolError::permanent)?;
        match found["error"].as_str() {
            None => Ok(found["output"].take()),
            Some(message) => {
                let transient = found["transient"] == Value::Bool(true);
                Err(ToolError { message: message.to_owned(), transient })
            }
        }
    }
}
