//! Tools that a workflow declares: a command in a sandbox, or an HTTP request.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc, time::Duration};

use graphrun_core::state::plain_text;
use graphrun_sandbox::SourceFile;
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::ToolSignature;
use crate::{Approval, McpServer, SandboxSettings};

/// A tool of a workflow.
#[derive(Clone, Debug)]
pub struct DeclaredTool {
    /// Its name and its types.
    pub signature: ToolSignature,
    /// The purpose of the tool, for a model to choose by.
    pub about: String,
    /// What a call does.
    pub action: ToolAction,
    /// When a person is asked before a call.
    pub approve: Approval,
}

/// What a call of a declared tool does.
#[derive(Clone, Debug)]
pub enum ToolAction {
    /// Runs a command in a sandbox.
    Command(CommandTool),
    /// Sends a request.
    Request(RequestTool),
    /// Calls a tool of an MCP server.
    Server(ServerTool),
}

/// A tool of an MCP server.
#[derive(Clone, Debug)]
pub struct ServerTool {
    /// The server.
    pub server: Arc<McpServer>,
    /// The name of the tool, or of the prompt, on the server.
    pub tool: String,
    /// What a call asks of the server.
    pub request: ServerRequest,
}

/// What the call of a tool asks of an MCP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerRequest {
    /// It calls a tool of the server.
    CallTool,
    /// It fills in a prompt of the server.
    GetPrompt,
    /// It lists the resources.
    ListResources,
    /// It reads a resource.
    ReadResource,
}

/// A command that gets the input as JSON on its standard input, and prints the output as JSON.
#[derive(Clone, Debug)]
pub struct CommandTool {
    /// The program and its constant arguments.
    pub argv: Vec<String>,
    /// The sandbox.
    pub sandbox: SandboxSettings,
    /// The files beside the workflow that the command gets.
    pub scripts: Vec<SourceFile>,
    /// The folder of the run in which the command starts.
    pub folder: Option<String>,
}

/// An HTTP request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestTool {
    /// The method.
    pub method: Method,
    /// The address.
    pub url: UrlTemplate,
    /// The headers.
    pub headers: Vec<(String, HeaderText)>,
    /// The time limit of a call.
    pub time: Duration,
}

/// The method of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    #[default]
    Get,
    /// Sends the arguments that are not in the address as JSON.
    Post,
    /// Sends the arguments as JSON, as `POST` does.
    Put,
    /// Sends the arguments as JSON, as `POST` does.
    Patch,
    /// Deletes.
    Delete,
}

/// The value of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderText {
    /// A constant.
    Text(String),
    /// A secret of the environment, after a constant.
    Secret {
        /// The text before it, such as `Bearer `.
        prefix: String,
        /// The name of the variable.
        variable: String,
    },
}

/// An address whose parts in braces are arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlTemplate {
    /// The scheme, the host and the port: a constant.
    origin: String,
    parts: Vec<UrlPart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum UrlPart {
    Text(String),
    /// An argument as a whole or a part of a segment of the path.
    InPath(String),
    /// An argument behind `?`.
    InQuery(String),
}

/// An argument cannot be a part of an address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the argument `{name}` cannot be a part of the path: it is {value:?}")]
pub struct UrlError {
    name: String,
    value: String,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Get, Self::Post, Self::Put, Self::Patch, Self::Delete];

    /// Returns the method as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// Returns whether a request has a body.
    pub fn has_body(self) -> bool {
        matches!(self, Self::Post | Self::Put | Self::Patch)
    }
}

impl RequestTool {
    /// Returns the names of the secrets.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.headers.iter().filter_map(|(_, value)| match value {
            HeaderText::Text(_) => None,
            HeaderText::Secret { variable, .. } => Some(variable.as_str()),
        })
    }

    /// Returns the part of it that identifies the nodes that send it.
    pub(crate) fn fingerprint(&self) -> Value {
        let Self { method, url, headers, .. } = self;
        let header = |(name, value): &(String, HeaderText)| match value {
            HeaderText::Text(text) => json!([name, text]),
            HeaderText::Secret { prefix, variable } => json!([name, prefix, variable]),
        };
        let headers: Vec<Value> = headers.iter().map(header).collect();
        json!({"method": method.as_str(), "url": url.text(), "headers": headers})
    }

    /// Returns the body of a request: the arguments that are not in the address.
    pub fn body(&self, input: &Value) -> Option<Value> {
        let input = input.as_object().filter(|_| self.method.has_body())?;
        let is_rest = |name: &String| !self.url.arguments().any(|it| it == name);
        let rest = input.iter().filter(|(name, _)| is_rest(name));
        let rest: Map<String, Value> =
            rest.map(|(name, value)| (name.clone(), value.clone())).collect();
        Some(Value::Object(rest))
    }
}

impl UrlTemplate {
    /// Parses a template such as `https://api.example.com/cities/{city}?units={units}`.
    ///
    /// # Errors
    ///
    /// Fails with the reason, a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let scheme = ["https://", "http://"].into_iter().find(|it| text.starts_with(it));
        let scheme = scheme.ok_or("it begins with neither `https://` nor `http://`")?;
        let rest = &text[scheme.len()..];
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        if authority.contains(['{', '}', '$']) {
            return Err("the host is a constant".to_owned());
        }
        let plain = |it: char| it.is_ascii_alphanumeric() || ".-:[]".contains(it);
        if authority.is_empty() || !authority.chars().all(plain) {
            return Err(format!("`{authority}` is no host"));
        }
        let origin = format!("{scheme}{}", authority.to_ascii_lowercase());
        let mut parts = Vec::new();
        let mut is_query = false;
        let mut open = rest;
        while !open.is_empty() {
            let at = open.find('{').unwrap_or(open.len());
            let (before, after) = open.split_at(at);
            let plain = |it: char| it.is_ascii_graphic() && !"#}\\\"<>^`|".contains(it);
            if let Some(wrong) = before.chars().find(|it| !plain(*it)) {
                return Err(format!("{wrong:?} must be percent-encoded, or is not allowed here"));
            }
            is_query |= before.contains('?');
            if !before.is_empty() {
                parts.push(UrlPart::Text(before.to_owned()));
            }
            open = after;
            if let Some(inner) = after.strip_prefix('{') {
                let end = inner.find('}').ok_or("a brace is not closed")?;
                let name = inner[..end].trim().to_owned();
                parts.push(if is_query { UrlPart::InQuery(name) } else { UrlPart::InPath(name) });
                open = &inner[end + 1..];
            }
        }
        Ok(Self { origin, parts })
    }

    /// Returns the scheme, the host and the port.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns the names of the arguments.
    pub fn arguments(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            UrlPart::Text(_) => None,
            UrlPart::InPath(name) | UrlPart::InQuery(name) => Some(name.as_str()),
        })
    }

    /// Returns the address with the arguments. Each is percent-encoded, so it never becomes more than its part.
    ///
    /// # Errors
    ///
    /// Fails if an argument would lead to another path: an empty one, or one of dots, which no encoding protects.
    pub fn fill(&self, input: &Value) -> Result<String, UrlError> {
        let mut url = self.origin.clone();
        for part in &self.parts {
            let (name, in_path) = match part {
                UrlPart::Text(text) => {
                    url.push_str(text);
                    continue;
                }
                UrlPart::InPath(name) => (name, true),
                UrlPart::InQuery(name) => (name, false),
            };
            let value = plain_text(&input[name.as_str()]);
            if in_path && value.chars().all(|it| it == '.') {
                return Err(UrlError { name: name.clone(), value });
            }
            for byte in value.bytes() {
                if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                    url.push(char::from(byte));
                } else {
                    let _ = write!(url, "%{byte:02X}");
                }
            }
        }
        Ok(url)
    }

    /// Returns the address as it is written.
    pub fn text(&self) -> String {
        let part = |part: &UrlPart| match part {
            UrlPart::Text(text) => text.clone(),
            UrlPart::InPath(name) | UrlPart::InQuery(name) => format!("{{{name}}}"),
        };
        self.origin.clone() + &self.parts.iter().map(part).collect::<String>()
    }
}

impl DeclaredTool {
    /// Returns the sandbox of its command, if it is one.
    pub fn sandbox(&self) -> Option<&SandboxSettings> {
        match &self.action {
            ToolAction::Command(tool) => Some(&tool.sandbox),
            ToolAction::Request(_) | ToolAction::Server(_) => None,
        }
    }

    /// Returns the folder of the run in which its command starts, if it has one.
    pub fn folder(&self) -> Option<&str> {
        match &self.action {
            ToolAction::Command(tool) => tool.folder.as_deref(),
            ToolAction::Request(_) | ToolAction::Server(_) => None,
        }
    }

    /// Returns the part of it that identifies the nodes that call it.
    pub fn fingerprint(&self) -> Value {
        let action = match &self.action {
            ToolAction::Command(CommandTool { argv, sandbox, scripts, folder }) => {
                let hash = |text: &str| blake3::hash(text.as_bytes()).to_hex().to_string();
                let scripts = scripts.iter().map(|it| (it.path.as_str(), hash(&it.content)));
                let scripts: BTreeMap<&str, String> = scripts.collect();
                let mut fingerprint =
                    json!({"argv": argv, "sandbox": sandbox.fingerprint(), "scripts": scripts});
                if let Some(folder) = folder {
                    fingerprint["folder"] = folder.as_str().into();
                }
                fingerprint
            }
            ToolAction::Request(request) => request.fingerprint(),
            ToolAction::Server(ServerTool { server, tool, request }) => {
                let mut fingerprint = server.fingerprint();
                fingerprint["tool"] = tool.as_str().into();
                let reads = [ServerRequest::ListResources, ServerRequest::ReadResource];
                if reads.contains(request)
                    && let Some(resources) = &server.resources
                {
                    fingerprint["resources"] = json!(resources);
                }
                fingerprint
            }
        };
        let ToolSignature { name, input, output } = &self.signature;
        json!([name, self.about, input, output, action])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_stays_in_its_part_of_the_address() {
        let url = UrlTemplate::parse("https://API.example.com/v1/{city}/x?q={text}&n={n}").unwrap();
        assert_eq!(url.origin(), "https://api.example.com");
        assert_eq!(url.arguments().collect::<Vec<_>>(), ["city", "text", "n"]);
        let input = json!({"city": "a/../b?c#d", "text": "x&n=2 é%", "n": 3});
        assert_eq!(
            url.fill(&input).unwrap(),
            "https://api.example.com/v1/a%2F..%2Fb%3Fc%23d/x?q=x%26n%3D2%20%C3%A9%25&n=3"
        );
        for city in ["", ".", ".."] {
            let input = json!({"city": city, "text": "..", "n": 1});
            assert!(url.fill(&input).is_err(), "{city}");
        }
    }

    #[test]
    fn the_host_is_a_constant_without_a_password() {
        for text in [
            "ftp://example.com/",
            "example.com",
            "https://",
            "https://{host}/x",
            "https://a{b}.com/",
            "https://user:pw@example.com/",
            "https://example.com/a b",
            "https://example.com/#x",
            "https://example.com/{open",
            "https://example.com/}",
            "https://exa\u{301}mple.com/",
            "https://example.com\\@evil.com/",
        ] {
            assert!(UrlTemplate::parse(text).is_err(), "{text}");
        }
        for text in ["https://example.com", "http://127.0.0.1:80/x", "https://[::1]:8443/a?b={c}"] {
            assert_eq!(UrlTemplate::parse(text).unwrap().text(), text);
        }
    }
}
