//! What a server offers: its tools and prompts for a lock file, and its resources and prompts for people.

use std::collections::BTreeMap;

use graphrun_workflow::{LockedServer, LockedTool, McpServer};
use serde_json::Value;

use crate::{McpError, ServerAccess, connection::Connection};

/// The longest name of a tool behind the name of its server; providers accept 64 characters.
const NAME_CHARACTERS_MAX: usize = 64;

/// What a server offers.
#[derive(Debug)]
pub struct Offer {
    /// Its tools, as a lock file has them.
    pub locked: LockedServer,
    /// Its resources.
    pub resources: Vec<ResourceLine>,
    /// Its prompts.
    pub prompts: Vec<PromptLine>,
}

/// A resource of a server.
#[derive(Debug)]
pub struct ResourceLine {
    /// Its URI.
    pub uri: String,
    /// Its name.
    pub name: String,
}

/// A prompt of a server.
#[derive(Debug)]
pub struct PromptLine {
    /// Its name.
    pub name: String,
    /// Its description.
    pub about: String,
}

/// Starts a server in the current folder, asks for all that it offers, and ends it.
///
/// # Errors
///
/// Fails if the operator does not allow it, if it does not answer, and if one of the wanted tools cannot be used.
pub async fn look(server: &McpServer, access: &ServerAccess) -> Result<Offer, McpError> {
    access.check(server)?;
    let connection = Connection::open(server, access, None).await?;
    let offer = offer(server, &connection).await;
    connection.close().await;
    offer
}

async fn offer(server: &McpServer, connection: &Connection) -> Result<Offer, McpError> {
    let mut tools = LockedParts { server, kind: "tool", parts: BTreeMap::new() };
    for (name, tool) in connection.tools().await? {
        if server.wants(&name) {
            tools.add(name, tool)?;
        }
    }
    let mut resources = Vec::new();
    let mut prompts = Vec::new();
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    if connection.has("resources") {
        let line = |resource: &Value| ResourceLine {
            uri: text(&resource["uri"]),
            name: text(&resource["name"]),
        };
        resources.extend(connection.resources().await?.iter().map(line));
    }
    let mut locked_prompts = LockedParts { server, kind: "prompt", parts: BTreeMap::new() };
    if connection.has("prompts") {
        for (name, prompt) in connection.prompts().await? {
            prompts.push(PromptLine { name: name.clone(), about: prompt.about.clone() });
            if server.wants_prompt(&name) {
                locked_prompts.add(name, prompt)?;
            }
        }
    }
    let has_resources = connection.has("resources");
    let locked = LockedServer {
        resources: has_resources,
        tools: tools.parts,
        prompts: locked_prompts.parts,
        ..server.unlocked()
    };
    Ok(Offer { locked, resources, prompts })
}

/// The tools or the prompts of a server that a workflow uses.
struct LockedParts<'a> {
    server: &'a McpServer,
    /// `tool` or `prompt`, for errors.
    kind: &'static str,
    parts: BTreeMap<String, LockedTool>,
}

impl LockedParts<'_> {
    /// Adds a tool or a prompt, if it can be used.
    fn add(&mut self, name: String, tool: LockedTool) -> Result<(), McpError> {
        let Self { server, kind, parts } = self;
        let twice = || parts.contains_key(&name).then(|| "it is listed twice".to_owned());
        if let Some(reason) = problem(&server.name, &name, &tool).or_else(twice) {
            return Err(McpError::Unusable {
                server: server.name.clone(),
                part: kind,
                name,
                reason,
            });
        }
        parts.insert(name, tool);
        Ok(())
    }
}

/// Returns why a tool cannot be used, if so.
fn problem(server: &str, name: &str, tool: &LockedTool) -> Option<String> {
    let fits = |it: char| it.is_ascii_alphanumeric() || "_-./".contains(it);
    if name.is_empty() || !name.chars().all(fits) {
        return Some(
            "its name has other characters than letters, digits, `_`, `-`, `.` and `/`".to_owned(),
        );
    }
    if server.len() + 1 + name.len() > NAME_CHARACTERS_MAX {
        return Some(format!("`{server}.{name}` has more than {NAME_CHARACTERS_MAX} characters"));
    }
    tool.check().err()
}
