//! Commands on this machine: what the operator allows, by a flag or the own configuration.
//!
//! Neither the environment nor a file beside the workflow can allow a host, and no run keeps a permission.

use std::{env, path::Path};

use super::refusals::Refusals;
use crate::{
    cli::{error::CliError, settings::run_settings::Settings},
    redact::learn,
    workflow::{Approval, HostAccess, HostPermission, HostRefusal, HostUse, McpServer},
};

/// Returns what the operator allows, with these secrets, as far as the environment has them.
pub(crate) fn access<'a>(
    settings: &Settings,
    secrets: impl Iterator<Item = &'a String>,
) -> HostAccess {
    let own = settings.hosts.iter().map(|(name, it)| (name.clone(), it.clone()));
    // A flag allows everything that the workflow beside it declares, also without a question.
    let all = HostPermission { commands: None, secrets: None, approve: Approval::Never };
    let flags = settings.options.allow_host.iter().map(|name| (name.clone(), all.clone()));
    let access = own
        .chain(flags)
        .fold(HostAccess::default(), |it, (name, permission)| it.allow(name, permission));
    let value = |name: &str| Some((name.to_owned(), env::var(name).ok()?));
    let secrets = secrets.filter_map(|it| value(it));
    let secrets: Vec<_> = secrets.filter(|(_, value)| !value.is_empty()).collect();
    for (_, value) in &secrets {
        learn(value);
    }
    let common = HostAccess::COMMON.into_iter().filter_map(value);
    common.chain(secrets).fold(access, |it, (name, value)| it.with_variable(name, value))
}

/// Checks that the operator allows each command, before the first node runs.
///
/// # Errors
///
/// Fails with each command that is not allowed, and the flag that allows it.
pub(crate) fn check<'a>(
    access: &HostAccess,
    commands: impl Iterator<Item = HostUse<'a>>,
    workflow: &Path,
) -> Result<(), CliError> {
    let mut refusals = Refusals::default();
    for used in commands {
        let Err(refusal) = access.check(used) else { continue };
        let name = &used.host.name;
        let help = match &refusal {
            HostRefusal::Unset { secret, .. } => format!("set `{secret}`"),
            HostRefusal::Host { host } => format!(
                "read the file, and pass `--allow-host {host}` to allow these commands in this process"
            ),
            _ => format!(
                "add it to `[hosts.{name}]` in your own configuration, or pass `--allow-host {name}`"
            ),
        };
        refusals.add(problem(used, &refusal), help);
    }
    refusals.or_ok(format!(
        "`{}` runs commands on this machine, outside of a sandbox, that you have not allowed; nothing was started",
        workflow.display()
    ))
}

/// Checks that each server starts without a question, since no person can be asked at its first call.
///
/// # Errors
///
/// Fails with each server whose host asks in the operator's own configuration.
pub(crate) fn check_servers<'a>(
    access: &HostAccess,
    servers: impl Iterator<Item = &'a McpServer>,
    workflow: &Path,
) -> Result<(), CliError> {
    let mut refusals = Refusals::default();
    for server in servers {
        let Some(used) = server.host_use() else { continue };
        if access.check(used).is_ok_and(|it| it != Approval::Never) {
            let host = &used.host.name;
            let command = used.shape.join(" ");
            let help = format!(
                "write `approve = \"never\"` into `[hosts.{host}]`, or pass `--allow-host {host}`"
            );
            refusals.add(format!("{}: `{command}`", server.name), help);
        }
    }
    refusals.or_ok(format!(
        "servers of `{}` start without a question, and your configuration asks before their commands; nothing was started",
        workflow.display()
    ))
}

/// Returns a command with all that decides whether to allow it.
fn problem(used: HostUse<'_>, refusal: &HostRefusal) -> String {
    let HostUse { host, shape } = used;
    if !matches!(refusal, HostRefusal::Host { .. }) {
        return refusal.to_string();
    }
    let secrets = match host.secrets.as_slice() {
        [] => String::new(),
        some => format!(", with `{}`", some.join("`, `")),
    };
    let asks = match host.approve {
        Approval::Each => "asks each time",
        Approval::Once => "asks once",
        Approval::Never => "never asks",
    };
    format!("{}: `{} …`{secrets} ({asks})", host.name, shape.join(" "))
}
