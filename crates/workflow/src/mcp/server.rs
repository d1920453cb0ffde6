//! A server as it is declared: a program on a host or in a sandbox, or an address.

use std::{sync::Arc, time::Duration};

use graphrun_sandbox::SourceFile;
use serde_json::{Value, json};

use super::{LockedServer, LockedTool};
use crate::{
    Approval, SandboxSettings,
    hosts::{HostSettings, HostUse},
    tool::{DeclaredTool, RequestTool, ServerTool, ToolAction, ToolSignature},
};

/// The tool that reads a resource of a server, unless the server has a tool of this name itself.
pub(super) const RESOURCE_TOOL: &str = "read_resource";

/// A server as it is declared.
#[derive(Clone, Debug, PartialEq)]
pub struct McpServer {
    /// Its name in the workflow.
    pub name: String,
    /// Where it runs, and how it is reached.
    pub place: McpPlace,
    /// The tools that are locked; `None` means all.
    pub tools: Option<Vec<String>>,
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
        self.tools.as_ref().is_none_or(|it| it.iter().any(|it| it == tool))
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
                let hash = |it: &SourceFile| {
                    json!([it.path, blake3::hash(it.content.as_bytes()).to_hex().as_str()])
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
                Some(("https", host)) => vec![format!(" --allow-http {host}")],
                Some((_, host)) => vec![format!(" --allow-http-private {host}")],
                None => Vec::new(),
            },
        }
    }

    /// Returns the tools that agents and nodes can name.
    pub(super) fn declare(self: &Arc<Self>) -> impl Iterator<Item = DeclaredTool> {
        let read = (self.locked.resources && self.wants(RESOURCE_TOOL)).then(|| {
            let input = json!({
                "type": "object",
                "required": ["uri"],
                "properties": {"uri": {"type": "string"}},
                "additionalProperties": false,
            });
            let about = format!("Reads a resource of `{}` by its URI.", self.name);
            (RESOURCE_TOOL.to_owned(), LockedTool { about, input, output: None })
        });
        let own = self.locked.tools.clone();
        let read = read.filter(|(name, _)| !own.contains_key(name));
        let is_resource = read.is_some();
        let server = Arc::clone(self);
        own.into_iter().chain(read).map(move |(tool, locked)| {
            let LockedTool { about, input, output } = locked;
            let name = format!("{}.{tool}", server.name);
            let output = output.unwrap_or_else(|| json!({"type": "string"}));
            let reads_resource = is_resource && tool == RESOURCE_TOOL;
            let action = ServerTool { server: Arc::clone(&server), tool, reads_resource };
            DeclaredTool {
                signature: ToolSignature { name, input, output },
                about,
                action: ToolAction::Server(action),
                approve: Approval::Never,
            }
        })
    }
}
