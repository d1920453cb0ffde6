//! What the operator allows servers.

use std::{path::PathBuf, sync::Arc};

use graphrun_sandbox::NetworkAccess;
use graphrun_workflow::{Approval, HostAccess, McpPlace, McpServer, tool::WebAccess};

use crate::McpError;

/// What the operator allows servers, and the folder for the packages of sandboxes.
#[derive(Clone, Debug, Default)]
pub struct ServerAccess {
    /// The commands on this machine.
    pub hosts: Arc<HostAccess>,
    /// The hosts of servers over HTTP.
    pub web: Arc<WebAccess>,
    /// The hosts that servers in sandboxes reach.
    pub network: Arc<NetworkAccess>,
    /// The folder for the packages of sandboxes.
    pub cache_dir: PathBuf,
}

impl ServerAccess {
    /// Checks that the operator allows a server.
    pub(super) fn check(&self, server: &McpServer) -> Result<(), McpError> {
        let name = || server.name.clone();
        let refused = |source| McpError::Refused { server: name(), source };
        match &server.place {
            McpPlace::Host { .. } => {
                let approvals = server.host_use().map(|it| self.hosts.check(it));
                match approvals.transpose().map_err(|it| refused(it.into()))? {
                    None | Some(Approval::Never) => Ok(()),
                    Some(Approval::Each | Approval::Once) => Err(McpError::Asks { server: name() }),
                }
            }
            McpPlace::Sandbox { sandbox, .. } => {
                match sandbox.network.iter().find(|it| !self.network.allows(it)) {
                    None => Ok(()),
                    Some(host) => {
                        let reason =
                            format!("the operator does not allow sandboxes to reach `{host}`");
                        Err(refused(reason.into()))
                    }
                }
            }
            McpPlace::Web(request) => {
                self.web.check(request).map(drop).map_err(|it| refused(it.into()))
            }
        }
    }
}
