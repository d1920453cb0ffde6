//! The tools that a workflow declares: a command in a sandbox, or an HTTP request.

use std::sync::Arc;

use async_trait::async_trait;
use graphrun_core::{
    graph::{ErrorKind, Failure, NodeError},
    state::read_json_bytes,
};
use graphrun_models::{FetchRequest, fetch};
use graphrun_sandbox::{SandboxError, clean_output};
use graphrun_workflow::{
    kind::Services,
    tool::{
        CommandTool, DeclaredTool, McpCaller, Method, RequestTool, Tool, ToolAction, ToolContext,
        ToolError, WebAccess, WebPermission,
    },
};
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::{
    in_folder::SandboxFolder,
    sandbox_command::{CommandStop, STREAM_BYTES_MAX, SandboxCommand},
    sandboxed::{PreparedSandbox, SandboxRun, SandboxServices},
};

/// The most characters of an output in an error.
const SHOWN_CHARACTERS_MAX: usize = 500;

/// The header by which a service recognises a repeated request:
/// <https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/>.
const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// A declared tool with the services that it needs.
#[derive(Debug)]
pub(crate) struct CallableTool {
    definition: Arc<DeclaredTool>,
    sandboxes: SandboxServices,
    web: Arc<WebAccess>,
    mcp: Arc<dyn McpCaller>,
    prepared: OnceCell<PreparedSandbox>,
}

impl CallableTool {
    pub(crate) fn new(definition: Arc<DeclaredTool>, services: &Services) -> Self {
        let sandboxes = SandboxServices::of(services);
        let web = Arc::clone(&services.web);
        let mcp = Arc::clone(&services.mcp);
        Self { definition, sandboxes, web, mcp, prepared: OnceCell::new() }
    }

    async fn run(
        &self,
        tool: &CommandTool,
        input: &Value,
        ctx: &ToolContext,
    ) -> Result<Value, ToolError> {
        let prepare = || PreparedSandbox::prepare(&tool.sandbox, &self.sandboxes);
        let no_sandbox = |error| {
            let message = match error {
                NodeError::Failed(failure) => failure.message,
                NodeError::Ask(_) | NodeError::Wait(_) => "no sandbox".to_owned(),
            };
            ToolError::permanent(message)
        };
        let prepared = self.prepared.get_or_try_init(prepare).await.map_err(no_sandbox)?;
        let command = SandboxCommand {
            argv: tool.argv.clone(),
            stdin: Some(input.to_string()),
            files: tool.scripts.clone(),
            limits: tool.sandbox.limits(),
            ..SandboxCommand::default()
        };
        let run = match &tool.folder {
            None => prepared.run(command.job(&SandboxFolder::none()), ctx).await,
            Some(name) => {
                let no_node = || ToolError::permanent("only a node of a run has its folders");
                let node = ctx.node.as_ref().ok_or_else(no_node)?;
                prepared.run_in_folder(node, Some(name), |folder| command.job(folder)).await
            }
        };
        let SandboxRun { result, refused } = run.map_err(no_sandbox)?;
        let refused = refused.map(|it| format!(" ({it})")).unwrap_or_default();
        let result = match result {
            Ok(result) => result,
            Err(SandboxError::ProgramNotFound { program }) => {
                let message = format!("there is no program `{program}` inside the sandbox");
                return Err(ToolError::permanent(message));
            }
            Err(error) => {
                let failure = Failure::of(ErrorKind::Sandbox, &error);
                return Err(ToolError::permanent(failure.message));
            }
        };
        let output = command.output(result).map_err(|stopped| {
            let message = stopped.message("the command") + &refused;
            ToolError { message, transient: matches!(stopped, CommandStop::TimedOut(_)) }
        })?;
        if output.code != 0 {
            let text = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
            let message = format!("the command ended with {}{refused}", output.code);
            return Err(ToolError::permanent(with_text(message, text)));
        }
        if output.stdout.len() > STREAM_BYTES_MAX {
            return Err(ToolError::permanent("the output of the command is larger than 1 MiB"));
        }
        parse(&output.stdout, "the command printed")
    }

    async fn request(
        &self,
        tool: &RequestTool,
        input: &Value,
        ctx: &ToolContext,
    ) -> Result<Value, ToolError> {
        let permission = self.web.check(tool).map_err(ToolError::permanent)?;
        let mut headers = self.web.headers_of(tool);
        let has_key = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(IDEMPOTENCY_KEY));
        if tool.method != Method::Get && !has_key && !ctx.key.is_empty() {
            headers.push((IDEMPOTENCY_KEY.to_owned(), ctx.key.clone()));
        }
        let request = FetchRequest {
            method: tool.method.as_str().to_owned(),
            url: tool.url.fill(input).map_err(ToolError::permanent)?,
            headers,
            body: tool.body(input),
            time: tool.time,
            allows_private: permission == WebPermission::Private,
        };
        let response = fetch(request).await.map_err(|error| {
            let transient = error.is_transient();
            ToolError { transient, ..ToolError::permanent(error) }
        })?;
        let status = response.status;
        if !(200..300).contains(&status) {
            let message = with_text(format!("the server answered {status}"), &response.body);
            let transient = status == 429 || status >= 500;
            return Err(ToolError { message, transient });
        }
        if self.definition.signature.output["type"] == "string" {
            return Ok(clean_output(&response.body, false).into());
        }
        parse(&response.body, "the server answered")
    }
}

#[async_trait]
impl Tool for CallableTool {
    fn name(&self) -> &str {
        &self.definition.signature.name
    }

    fn description(&self) -> &str {
        &self.definition.about
    }

    fn input_schema(&self) -> &Value {
        &self.definition.signature.input
    }

    fn output_schema(&self) -> &Value {
        &self.definition.signature.output
    }

    async fn call(&self, input: Value, ctx: &ToolContext) -> Result<Value, ToolError> {
        match &self.definition.action {
            ToolAction::Command(tool) => self.run(tool, &input, ctx).await,
            ToolAction::Request(tool) => self.request(tool, &input, ctx).await,
            ToolAction::Server(tool) => self.mcp.call(tool, input, ctx).await,
        }
    }
}

/// Reads JSON. `what` begins the error.
fn parse(text: &[u8], what: &str) -> Result<Value, ToolError> {
    read_json_bytes(text).map_err(|error| {
        ToolError::permanent(with_text(format!("{what} no JSON that can be read ({error})"), text))
    })
}

/// Adds the beginning of an output, without keys and control characters, to an error.
fn with_text(message: String, output: &[u8]) -> String {
    let output = clean_output(output, false);
    let output = output.trim();
    match output.char_indices().nth(SHOWN_CHARACTERS_MAX) {
        _ if output.is_empty() => message,
        None => format!("{message}: {output}"),
        Some((end, _)) => format!("{message}: {}…", &output[..end]),
    }
}
