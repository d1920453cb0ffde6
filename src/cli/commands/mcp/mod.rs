//! `graphrun mcp …`: the MCP servers of a workflow, and the lock file with their tools.

mod list;
mod lock;

use std::{path::Path, sync::Arc};

use crate::{
    cli::{
        allow::{hosts, network, web},
        arguments::{globals::Globals, options::RunOptions},
        error::CliError,
        exit::Exit,
        process::runtime::block_on,
        run::loaded::refuse,
        settings::{run_settings::Settings, user_folders::cache_dir},
    },
    graph::with_causes,
    mcp::{McpError, Offer, ServerAccess, look},
    sandbox::NetworkHost,
    workflow::{McpServer, mcp_servers},
};

/// List and lock the tools of MCP servers
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

commands! {
    enum Command {
        List(list::Args),
        Lock(lock::Args),
    }
}

impl Args {
    pub(crate) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        self.command.run(globals)
    }
}

/// What the operator allows the servers.
#[derive(Debug, clap::Args)]
struct AllowedAccess {
    /// Let this host of the workflow run its servers; can be given several times
    #[arg(long = "allow-host", value_name = "NAME")]
    host: Vec<String>,
    /// Connect to servers at this host by `https`; can be given several times
    #[arg(long = "allow-http", value_name = "HOST")]
    http: Vec<String>,
    /// Connect to servers at this host by `http` or `https`, also on this machine or in a private network; can be given
    /// several times
    #[arg(long = "allow-http-private", value_name = "HOST")]
    http_private: Vec<String>,
    /// Let servers in sandboxes reach this host by `https`; can be given several times
    #[arg(long = "allow-network", value_name = "HOST")]
    network: Vec<NetworkHost>,
    /// Let servers in sandboxes reach this host by `https`, also on this machine or in a private network; can be given
    /// several times
    #[arg(long = "allow-network-private", value_name = "HOST")]
    network_private: Vec<NetworkHost>,
}

/// Starts each server of a workflow, and returns its offer.
///
/// # Errors
///
/// Fails if the workflow has no servers, if the operator does not allow one, and if one cannot be asked.
fn look_at_all(
    path: &Path,
    allowed: AllowedAccess,
    globals: &Globals,
) -> Result<Vec<(McpServer, Offer)>, CliError> {
    let servers = mcp_servers(path).map_err(|it| refuse(path, it))?;
    if servers.is_empty() {
        let message = format!("`{}` declares no servers under `mcp`", path.display());
        return Err(CliError::usage(message));
    }
    let options = RunOptions {
        allow_host: allowed.host,
        allow_http: allowed.http,
        allow_http_private: allowed.http_private,
        allow_network: allowed.network,
        allow_network_private: allowed.network_private,
        ..RunOptions::default()
    };
    let settings: Settings = globals.settings(&options)?;
    let commands = || servers.iter().filter_map(McpServer::host_use);
    let on_hosts = hosts::access(&settings, commands().flat_map(|it| &it.host.secrets));
    hosts::check(&on_hosts, commands(), path)?;
    hosts::check_servers(&on_hosts, servers.iter(), path)?;
    let web = web::access(&settings, web::of_servers(servers.iter()));
    web::check(&web, web::of_servers(servers.iter()), path)?;
    let network = network::access(&settings.options);
    let sandboxes: Vec<_> = servers.iter().filter_map(McpServer::sandbox).collect();
    network::check(&network, &sandboxes, &[], path)?;
    let access = ServerAccess {
        hosts: Arc::new(on_hosts),
        web: Arc::new(web),
        network: Arc::new(network),
        cache_dir: cache_dir(),
    };
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
