//! The permissions that the flags of a command give.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    cli::{arguments::options::RunOptions, output::words::shell_word},
    sandbox::NetworkHost,
};

/// A permission that holds for one process. It is saved only to print the commands that continue the run: each of them
/// needs it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Permission {
    kind: PermissionKind,
    /// The host that is allowed.
    name: String,
}

/// The flag of a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PermissionKind {
    Host,
    Http,
    HttpPrivate,
    Network,
    NetworkPrivate,
}

impl Permission {
    /// Returns the permissions that options give.
    pub(crate) fn of(options: &RunOptions) -> Vec<Self> {
        use PermissionKind::{Host, Http, HttpPrivate, Network, NetworkPrivate};
        let texts = |hosts: &[NetworkHost]| hosts.iter().map(ToString::to_string).collect();
        let given: [(_, Vec<String>); 5] = [
            (Host, options.allow_host.clone()),
            (Http, options.allow_http.clone()),
            (HttpPrivate, options.allow_http_private.clone()),
            (Network, texts(&options.allow_network)),
            (NetworkPrivate, texts(&options.allow_network_private)),
        ];
        let of = |(kind, names): (PermissionKind, Vec<String>)| {
            names.into_iter().map(move |name| Self { kind, name })
        };
        given.into_iter().flat_map(of).collect()
    }
    /// Adds permissions to others, each once.
    pub(crate) fn merge(all: &mut Vec<Self>, more: Vec<Self>) {
        for permission in more {
            if !all.contains(&permission) {
                all.push(permission);
            }
        }
    }
}

impl fmt::Display for Permission {
    /// Writes the flag as it stands behind a command.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flag = match self.kind {
            PermissionKind::Host => "--allow-host",
            PermissionKind::Http => "--allow-http",
            PermissionKind::HttpPrivate => "--allow-http-private",
            PermissionKind::Network => "--allow-network",
            PermissionKind::NetworkPrivate => "--allow-network-private",
        };
        write!(f, "{flag} {}", shell_word(&self.name))
    }
}
