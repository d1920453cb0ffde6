//! The hosts that sandboxes of a workflow reach: what the operator allows, by a flag.
//!
//! Neither the environment nor a file can allow a host, and no run keeps a permission.

use std::path::Path;

use super::refusals::Refusals;
use crate::{
    cli::{arguments::options::RunOptions, error::CliError, output::words::shell_word},
    sandbox::NetworkAccess,
    workflow::{HostAccess, HostRefusal, Program, SandboxSettings},
};

/// Returns what the operator allows.
pub(crate) fn access(options: &RunOptions) -> NetworkAccess {
    let public = options.allow_network.iter().cloned();
    let access = public.fold(NetworkAccess::default(), NetworkAccess::allow);
    options.allow_network_private.iter().cloned().fold(access, NetworkAccess::allow_private)
}

/// Checks that the operator allows each host of each sandbox, before the first node runs. `programs` are those in the
/// sandboxes.
///
/// # Errors
///
/// Fails with each host that is not allowed, and the flag that allows it.
pub(crate) fn check(
    access: &NetworkAccess,
    sandboxes: &[&SandboxSettings],
    programs: &[&Program],
    workflow: &Path,
) -> Result<(), CliError> {
    let mut refusals = Refusals::default();
    for host in sandboxes.iter().flat_map(|it| &it.network).filter(|it| !access.allows(it)) {
        // The permission for the host covers the secrets, so a person reads both together.
        let reaches = |program: &&&Program| {
            program.sandbox().is_some_and(|it| it.settings.network.contains(host))
        };
        for grant in programs.iter().filter(reaches).filter_map(|it| it.grant()) {
            refusals.add_problem(grant);
        }
        refusals.add(
            format!("programs in a sandbox reach `{host}`"),
            format!(
                "read the file, and pass `--allow-network {}` to allow it in this process",
                shell_word(&host.to_string())
            ),
        );
    }
    refusals.or_ok(format!(
        "sandboxes of `{}` reach hosts that you have not allowed; nothing was started",
        workflow.display()
    ))
}

/// Checks that the secrets of programs in sandboxes have values, before the first node runs.
///
/// # Errors
///
/// Fails with each secret without a value.
pub(crate) fn check_secrets(
    variables: &HostAccess,
    programs: &[&Program],
    workflow: &Path,
) -> Result<(), CliError> {
    let mut refusals = Refusals::default();
    for refusal in programs.iter().filter_map(|it| variables.secrets_of(it.sandbox()?).err()) {
        if let HostRefusal::UnsetInSandbox { secret, .. } = &refusal {
            refusals.add(refusal.to_string(), format!("set `{secret}`"));
        }
    }
    refusals.or_ok(format!(
        "programs of `{}` need secrets that are not set; nothing was started",
        workflow.display()
    ))
}
