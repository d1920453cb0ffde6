//! A server as it is declared: a program on a host or in a sandbox, or an address.

use std::{sync::Arc, time::Duration};

use graphrun_sandbox::SourceFile;
use serde_json::{Value, json};

use super::{LockedServer, LockedTool, ResourcePattern};
use crate::{
    Approval, SandboxSettings,
    sections::hosts::{HostSettings, HostUse},
    tool::{
        DeclaredTool, RequestTool, ServerRequest, ServerTool, ToolAction, ToolSignature, WebAccess,
    },
};

/// The tools that list and read the resources of a server, unless the server has a tool of the name itself.
pub(super) const RESOURCE_TOOLS: [(&str, ServerRequest); 2] = [
    ("list_resources", ServerRequest::ListResources),
    ("read_resource", ServerRequest::ReadResource),
];

/// A server as it is declared.
#[derive(Clone, Debug, PartialEq)]
pub struct McpServer {
    /// Its name in the workflow.
    pub name: String,
    /// Where it runs, and how it is reached.
    pub place: McpPlace,
    /// The tools that are locked; `None` means all.
    pub tools: Option<Vec<String>>,
    /// The prompts that are locked.
    pub prompts: Vec<String>,
    /// The resources that calls can read; `None` means all.
    pub resources: Option<Vec<ResourcePattern>>,
    /// The time limit of a call, and of its start.
    pub time: Duration,
    /// What the lock file has about it.
    pub locked: LockedServer,
}

/// Where a server runs, and how it is reached.
#[derive(Clone, Debug, PartialEq)]
pub enum McpPlace {
    /// A program on this machine, over its standard streams.
    Host {
        /// The program and its constant arguments.
        command: Vec<String>,
        /// The host.
        host: HostSettings,
    },
    /// A program in a sandbox, over its standard streams.
    Sandbox {
        /// The program and its constant arguments.
        command: Vec<String>,
        /// The sandbox.
        sandbox: SandboxSettings,
        /// The files beside the workflow that it gets.
        scripts: Vec<SourceFile>,
    },
    /// A server elsewhere, over HTTP. Each message has this address and these headers.
    Web(RequestTool),
}

impl McpServer {
    /// Returns its program and the arguments, if graphrun starts it.
    pub fn command(&self) -> &[String] {
        match &self.place {
            McpPlace::Host { command, .. } | McpPlace::Sandbox { command, .. } => command,
            McpPlace::Web(_) => &[],
        }
    }

    /// Returns the command as the operator allows it, if it runs on a host.
    pub fn host_use(&self) -> Option<HostUse<'_>> {
        match &self.place {
            McpPlace::Host { command, host } => Some(HostUse { host, shape: command }),
            McpPlace::Sandbox { .. } | McpPlace::Web(_) => None,
        }
    }

    /// Returns its sandbox, if it runs in one.
    pub fn sandbox(&self) -> Option<&SandboxSettings> {
        match &self.place {
            McpPlace::Sandbox { sandbox, .. } => Some(sandbox),
            McpPlace::Host { .. } | McpPlace::Web(_) => None,
        }
    }

    /// Returns the request that carries its messages, if it is reached over HTTP.
    pub fn request(&self) -> Option<&RequestTool> {
        match &self.place {
            McpPlace::Web(request) => Some(request),
            McpPlace::Host { .. } | McpPlace::Sandbox { .. } => None,
        }
    }

    /// Returns whether a tool of the server is part of the lock file.
    pub fn wants(&self, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.iter().any(|it| it == tool))
    }

    /// Returns whether a prompt of the server is part of the lock file.
    pub fn wants_prompt(&self, prompt: &str) -> bool {
        self.prompts.iter().any(|it| it == prompt)
    }

    /// Returns whether calls can read a resource.
    pub fn allows_resource(&self, uri: &str) -> bool {
        self.resources.as_ref().is_none_or(|resources| resources.iter().any(|it| it.matches(uri)))
    }

    /// Returns whether calls can read a resource that a template such as `note://{name}` makes.
    pub fn allows_template(&self, template: &str) -> bool {
        self.resources
            .as_ref()
            .is_none_or(|resources| resources.iter().any(|it| it.matches_template(template)))
    }

    /// Returns what a lock file has about it, without the parts that the server describes.
    pub fn unlocked(&self) -> LockedServer {
        let url = self.request().map(|it| it.url.text());
        LockedServer { command: self.command().to_vec(), url, ..LockedServer::default() }
    }

    /// Returns the part of it that identifies the nodes that call it.
    pub(crate) fn fingerprint(&self) -> Value {
        match &self.place {
            McpPlace::Host { command, host } => json!({"command": command, "host": host.name}),
            McpPlace::Sandbox { command, sandbox, scripts } => {
                let hash = |file: &SourceFile| {
                    json!([file.path, blake3::hash(file.content.as_bytes()).to_hex().as_str()])
                };
                let scripts: Vec<Value> = scripts.iter().map(hash).collect();
                json!({"command": command, "sandbox": sandbox.fingerprint(), "scripts": scripts})
            }
            McpPlace::Web(request) => request.fingerprint(),
        }
    }

    /// Returns the flags of the operator that `graphrun mcp lock` needs.
    pub(super) fn flags(&self) -> Vec<String> {
        match &self.place {
            McpPlace::Host { host, .. } => vec![format!(" --allow-host {}", host.name)],
            McpPlace::Sandbox { sandbox, .. } => {
                sandbox.network.iter().map(|it| format!(" --allow-network {it}")).collect()
            }
            McpPlace::Web(request) => match request.url.origin().split_once("://") {
                Some((_, host)) => vec![format!(" {} {host}", WebAccess::needed(request).flag())],
                None => Vec::new(),
            },
        }
    }

    /// Returns the tools that agents and nodes can name: those of the server, its prompts, and those for its resources.
    pub(super) fn declare(self: &Arc<Self>) -> impl Iterator<Item = DeclaredTool> {
        let LockedServer { tools, prompts, resources: has_resources, .. } = &self.locked;
        let of = |request| {
            move |(name, tool): (&String, &LockedTool)| (name.clone(), request, tool.clone())
        };
        let mut all: Vec<(String, ServerRequest, LockedTool)> =
            tools.iter().map(of(ServerRequest::CallTool)).collect();
        all.extend(prompts.iter().map(of(ServerRequest::GetPrompt)));
        for (name, request) in RESOURCE_TOOLS.into_iter().filter(|_| *has_resources) {
            if self.wants(name) && all.iter().all(|(taken, ..)| taken != name) {
                all.push((name.to_owned(), request, self.resource_tool(request)));
            }
        }
        let server = Arc::clone(self);
        all.into_iter().map(move |(tool, request, locked)| {
            let LockedTool { about, input, output } = locked;
            let name = format!("{}.{tool}", server.name);
            let output = output.unwrap_or_else(|| json!({"type": "string"}));
            DeclaredTool {
                signature: ToolSignature { name, input, output },
                about,
                action: ToolAction::Server(ServerTool {
                    server: Arc::clone(&server),
                    tool,
                    request,
                }),
                approve: Approval::Never,
            }
        })
    }

    /// Returns the description of a tool that lists or reads resources.
    fn resource_tool(&self, request: ServerRequest) -> LockedTool {
        if request != ServerRequest::ListResources {
            let about = format!("Reads a resource of `{}` by its URI.", self.name);
            let uri = json!({"uri": {"type": "string"}});
            let input = json!({
                "type": "object",
                "required": ["uri"],
                "properties": uri,
                "additionalProperties": false,
            });
            return LockedTool { about, input, output: None };
        }
        let about = format!(
            "Lists the resources of `{}`, and the templates of their URIs, whose parts in braces are yours to fill in.",
            self.name
        );
        let text = json!({"type": "string"});
        let resource = json!({
            "type": "object",
            "required": ["uri", "name"],
            "properties": {"uri": text, "name": text, "about": text, "media_type": text},
        });
        let list = json!({"type": "array", "items": resource});
        let output = json!({
            "type": "object",
            "required": ["resources", "templates"],
            "properties": {"resources": list, "templates": list},
        });
        let input = json!({"type": "object", "properties": {}, "additionalProperties": false});
        LockedTool { about, input, output: Some(output) }
    }
}
