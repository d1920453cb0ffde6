//! The hosts that the operator lets sandboxes reach.

use std::sync::Arc;

use graphrun_guard::address::Scope;

use super::{Network, NetworkHost};

/// What the operator allows. By default no sandbox reaches a host.
#[derive(Clone, Debug, Default)]
pub struct NetworkAccess {
    hosts: Vec<(NetworkHost, Scope)>,
}

impl NetworkAccess {
    /// Allows a host at public addresses.
    #[must_use]
    pub fn allow(mut self, host: NetworkHost) -> Self {
        self.hosts.push((host, Scope::Public));
        self
    }

    /// Allows a host also at addresses of this machine and of private networks.
    #[must_use]
    pub fn allow_private(mut self, host: NetworkHost) -> Self {
        self.hosts.push((host, Scope::Any));
        self
    }

    /// Returns whether a host is allowed, or all hosts that it stands for.
    pub fn allows(&self, host: &NetworkHost) -> bool {
        self.scope_of(host).is_some()
    }

    /// Makes the network of a sandbox that declares these hosts.
    ///
    /// # Errors
    ///
    /// Fails with the first host that is not allowed.
    pub fn open<'h>(&self, hosts: &'h [NetworkHost]) -> Result<Arc<Network>, &'h NetworkHost> {
        let scope = |it: &'h NetworkHost| Ok((it.clone(), self.scope_of(it).ok_or(it)?));
        Ok(Arc::new(Network::new(hosts.iter().map(scope).collect::<Result<_, _>>()?)))
    }

    fn scope_of(&self, host: &NetworkHost) -> Option<Scope> {
        let covering = self.hosts.iter().filter(|(allowed, _)| allowed.covers(host));
        covering.map(|(_, scope)| *scope).max_by_key(|it| *it == Scope::Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_opens_only_if_each_host_is_allowed() {
        let host = |text: &str| text.parse::<NetworkHost>().unwrap();
        let access = NetworkAccess::default()
            .allow(host("*.a.example"))
            .allow(host("b.example:81"))
            .allow_private(host("b.example:81"));
        let declared = [host("x.a.example"), host("b.example:81")];
        let network = access.open(&declared).unwrap();
        assert_eq!(network.scope_of("x.a.example", 443), Some(Scope::Public));
        assert_eq!(network.scope_of("y.a.example", 443), None, "allowed, and not declared");
        assert_eq!(network.scope_of("b.example", 81), Some(Scope::Any));
        let declared = [host("x.a.example"), host("c.example")];
        assert_eq!(access.open(&declared).unwrap_err(), &host("c.example"));
        assert!(NetworkAccess::default().open(&declared).is_err());
    }
}
