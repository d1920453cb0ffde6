//! The hosts to which tools and MCP servers of a workflow send requests: what the operator allows, by a flag.
//!
//! Neither the environment nor a file can allow a host, and no run keeps a permission.

use std::{env, path::Path, sync::Arc};

use super::refusals::Refusals;
use crate::{
    cli::{error::CliError, settings::run_settings::Settings},
    redact::learn,
    tool::{DeclaredTool, RequestTool, ToolAction, WebAccess, WebPermission, WebRefusal},
    workflow::McpServer,
};

/// A request of a workflow, with the name of its tool or server.
pub(crate) type Request<'a> = (&'a str, &'a RequestTool);

/// Returns the requests of tools.
pub(crate) fn of_tools<'a>(
    tools: impl Iterator<Item = &'a Arc<DeclaredTool>>,
) -> impl Iterator<Item = Request<'a>> {
    tools.filter_map(|tool| match &tool.action {
        ToolAction::Command(_) | ToolAction::Server(_) => None,
        ToolAction::Request(request) => Some((tool.signature.name.as_str(), request)),
    })
}

/// Returns the requests of servers.
pub(crate) fn of_servers<'a>(
    servers: impl Iterator<Item = &'a McpServer>,
) -> impl Iterator<Item = Request<'a>> {
    servers.filter_map(|it| Some((it.name.as_str(), it.request()?)))
}

/// Returns what the operator allows, with the secrets of these requests.
pub(crate) fn access<'a>(
    settings: &Settings,
    requests: impl Iterator<Item = Request<'a>>,
) -> WebAccess {
    let options = &settings.options;
    let public = options.allow_http.iter().map(|it| (it, WebPermission::Public));
    let private = options.allow_http_private.iter().map(|it| (it, WebPermission::Private));
    let access = public
        .chain(private)
        .fold(WebAccess::default(), |it, (host, permission)| it.allow(host, permission));
    let secrets = requests.flat_map(|(_, it)| it.secrets());
    secrets.fold(access, |access, name| match env::var(name) {
        Ok(value) if !value.is_empty() => {
            learn(&value);
            access.with_secret(name, value)
        }
        _ => access,
    })
}

/// Checks that the operator allows the host of each request, before the first node runs.
///
/// # Errors
///
/// Fails with each tool and server whose host is not allowed, and the flag that allows it.
pub(crate) fn check<'a>(
    access: &WebAccess,
    requests: impl Iterator<Item = Request<'a>>,
    workflow: &Path,
) -> Result<(), CliError> {
    let mut refusals = Refusals::default();
    for (name, request) in requests {
        let Err(refusal) = access.check(request) else { continue };
        let secrets: Vec<String> = request.secrets().map(|it| format!("`{it}`")).collect();
        let secrets = match secrets.as_slice() {
            [] => String::new(),
            some => format!(", with {}", some.join(", ")),
        };
        let method = request.method.as_str();
        let origin = request.url.origin();
        let (problem, remedy) = match &refusal {
            WebRefusal::Host { host, needed } => {
                let beyond = match needed {
                    WebPermission::Public => "",
                    WebPermission::Private => {
                        ", also without encryption and at an address that is not public"
                    }
                };
                let flag = needed.flag();
                let remedy = format!(
                    "read the file, and pass `{flag} {host}` to allow it in this process{beyond}"
                );
                (format!("{name}: {method} {origin}{secrets}"), remedy)
            }
            WebRefusal::Plain { host } => (
                format!("{name}: {refusal}"),
                format!("use `https`, or pass `--allow-http-private {host}`"),
            ),
            WebRefusal::Unset { secret, .. } => (refusal.to_string(), format!("set `{secret}`")),
            _ => (refusal.to_string(), "read the file before you allow it".to_owned()),
        };
        refusals.add(problem, remedy);
    }
    refusals.or_ok(format!(
        "tools or servers of `{}` get requests that you have not allowed; nothing was started",
        workflow.display()
    ))
}
