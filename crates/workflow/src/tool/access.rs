//! The hosts to which the operator lets tools of a workflow send requests.

use std::collections::BTreeMap;

use graphrun_guard::address::is_inside;
use thiserror::Error;

use super::{HeaderText, RequestTool};

/// What the operator allows. By default no tool sends a request.
#[derive(Clone, Debug, Default)]
pub struct WebAccess {
    hosts: BTreeMap<String, WebPermission>,
    secrets: BTreeMap<String, String>,
}

/// How far a host is allowed, the narrower permission first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WebPermission {
    /// By `https`, at public addresses.
    Public,
    /// Also without encryption, and at addresses of this machine and of private networks.
    Private,
}

impl WebPermission {
    /// Returns the flag by which the operator gives it.
    pub fn flag(self) -> &'static str {
        match self {
            Self::Public => "--allow-http",
            Self::Private => "--allow-http-private",
        }
    }
}

/// Why a request cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WebRefusal {
    /// The host is not allowed.
    #[error("the operator does not allow requests to `{host}`")]
    Host {
        /// The host, with its port if the address has one.
        host: String,
        /// The permission that it needs.
        needed: WebPermission,
    },
    /// The request would not be encrypted.
    #[error("requests to `{host}` would not be encrypted")]
    Plain {
        /// The host.
        host: String,
    },
    /// A secret has no value.
    #[error("requests to `{host}` need the environment variable `{secret}`, which is not set")]
    Unset {
        /// The host.
        host: String,
        /// The name of the variable.
        secret: String,
    },
}

impl WebAccess {
    /// Allows a host. With a port, as in `localhost:8080`, only this port is allowed.
    #[must_use]
    pub fn allow(mut self, host: &str, permission: WebPermission) -> Self {
        let known = self.hosts.entry(host.to_ascii_lowercase()).or_insert(permission);
        *known = permission.max(*known);
        self
    }

    /// Gives the value of a secret.
    #[must_use]
    pub fn with_secret(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.secrets.insert(name.into(), value.into());
        self
    }

    /// Checks that the requests of a tool may be sent.
    ///
    /// # Errors
    ///
    /// Fails with the part that is not allowed.
    pub fn check(&self, tool: &RequestTool) -> Result<WebPermission, WebRefusal> {
        let (scheme, host, without_port) = parts_of(tool);
        let permission = self.hosts.get(host).or_else(|| self.hosts.get(without_port));
        let host = || host.to_owned();
        let refused = || WebRefusal::Host { host: host(), needed: Self::needed(tool) };
        let permission = *permission.ok_or_else(refused)?;
        if scheme != "https" && permission != WebPermission::Private {
            return Err(WebRefusal::Plain { host: host() });
        }
        match tool.secrets().find(|it| !self.secrets.contains_key(*it)) {
            Some(secret) => Err(WebRefusal::Unset { host: host(), secret: secret.to_owned() }),
            None => Ok(permission),
        }
    }

    /// Returns the narrowest permission that the requests of a tool need, as far as its address shows.
    pub fn needed(tool: &RequestTool) -> WebPermission {
        let (scheme, _, name) = parts_of(tool);
        if scheme != "https" || is_inside(name) {
            WebPermission::Private
        } else {
            WebPermission::Public
        }
    }

    /// Returns the headers of a request, with the values of its secrets.
    pub fn headers_of(&self, tool: &RequestTool) -> Vec<(String, String)> {
        let header = |(name, value): &(String, HeaderText)| {
            let text = match value {
                HeaderText::Text(text) => text.clone(),
                HeaderText::Secret { prefix, variable } => {
                    let secret = self.secrets.get(variable).map_or("", String::as_str);
                    format!("{prefix}{secret}")
                }
            };
            (name.clone(), text)
        };
        tool.headers.iter().map(header).collect()
    }
}

/// Returns the scheme of the address of a tool, its host with the port if there is one, and the host alone.
fn parts_of(tool: &RequestTool) -> (&str, &str, &str) {
    let (scheme, host) = tool.url.origin().split_once("://").unwrap_or_default();
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
        _ => host,
    };
    (scheme, host, without_port)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tool::{HeaderText, Method, UrlTemplate};

    fn tool(url: &str) -> RequestTool {
        let variable = "TRACKER_TOKEN".to_owned();
        let secret = HeaderText::Secret { prefix: "Bearer ".to_owned(), variable };
        RequestTool {
            method: Method::Get,
            url: UrlTemplate::parse(url).unwrap(),
            headers: vec![("Authorization".to_owned(), secret)],
            time: Duration::from_secs(1),
        }
    }

    #[test]
    fn a_request_needs_the_operator_for_its_host_and_port() {
        let access = |host, permission| {
            WebAccess::default().allow(host, permission).with_secret("TRACKER_TOKEN", "x")
        };
        let check = |access: WebAccess, url| access.check(&tool(url)).ok();
        let public = WebPermission::Public;
        let private = WebPermission::Private;
        assert_eq!(check(WebAccess::default(), "https://example.com/"), None);
        assert_eq!(check(access("Example.com", public), "https://example.com/x"), Some(public));
        assert_eq!(check(access("example.com", public), "https://example.com:8443/"), Some(public));
        assert_eq!(check(access("example.com:8443", public), "https://example.com/"), None);
        assert_eq!(check(access("example.com", public), "https://example.com.evil.com/"), None);
        assert_eq!(check(access("example.com", public), "http://example.com/"), None);
        assert_eq!(check(access("[::1]", private), "http://[::1]:80/"), Some(private));
    }

    #[test]
    fn a_refusal_names_the_permission_that_suffices() {
        let refused = |url| match WebAccess::default().check(&tool(url)) {
            Err(WebRefusal::Host { needed, .. }) => needed,
            other => panic!("{other:?}"),
        };
        for url in ["https://example.com/", "https://93.184.215.14:8443/", "https://localhost.com/"]
        {
            assert_eq!(refused(url), WebPermission::Public, "{url}");
        }
        for url in [
            "http://example.com/",
            "http://127.0.0.1:9911/",
            "https://127.0.0.1/",
            "https://[::1]:8080/",
            "https://10.0.0.1/",
            "https://Localhost:1/",
        ] {
            assert_eq!(refused(url), WebPermission::Private, "{url}");
        }
    }

    #[test]
    fn a_missing_secret_is_found_before_a_request() {
        let access = WebAccess::default().allow("example.com", WebPermission::Public);
        let refused = access.check(&tool("https://example.com/")).unwrap_err().to_string();
        assert!(refused.contains("`TRACKER_TOKEN`"), "{refused}");
    }
}
