//! `graphrun mcp …`: the MCP servers of a workflow, and the lock file with their tools.

mod list;
mod lock;

use std::path::Path;

use super::{
    error::CliError,
    exit::Exit,
    globals::Globals,
    hosts,
    options::{RunOptions, Settings},
    prepare::refuse,
    runtime::block_on,
};
use crate::{
    graph::with_causes,
    mcp::{McpError, Offer, look},
    workflow::{McpServer, mcp_servers},
};

/// List and lock the tools of MCP servers
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

commands! {
    List(list::Args),
    Lock(lock::Args),
}

impl Args {
    pub(super) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        self.command.run(globals)
    }
}

/// Starts each server of a workflow, and returns its offer.
///
/// # Errors
///
/// Fails if the workflow has no servers, if the operator does not allow one, and if one cannot be asked.
fn look_at_all(
    path: &Path,
    allow_host: Vec<String>,
    globals: &Globals,
) -> Result<Vec<(McpServer, Offer)>, CliError> {
    let servers = mcp_servers(path).map_err(|it| refuse(path, it))?;
    if servers.is_empty() {
        let message = format!("`{}` declares no servers under `mcp`", path.display());
        return Err(CliError::usage(message));
    }
    let settings: Settings =
        globals.settings(&RunOptions { allow_host, ..RunOptions::default() })?;
    let access = hosts::access(&settings, servers.iter().flat_map(|it| &it.host.secrets));
    hosts::check(&access, servers.iter().map(McpServer::host_use), path)?;
    hosts::check_servers(&access, servers.iter(), path)?;
    block_on(async {
        let mut offers = Vec::new();
        for server in servers {
            let offer = look(&server, &access).await.map_err(|it| failed(&it))?;
            offers.push((server, offer));
        }
        Ok(offers)
    })
}

fn failed(error: &McpError) -> CliError {
    CliError::new(Exit::Unusable, with_causes(error))
}
