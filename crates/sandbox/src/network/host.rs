//! The hosts of a network, as workflows and operators write them.

use std::{fmt, str::FromStr};

use thiserror::Error;

/// The port of a host that is written without one.
const PORT: u16 = 443;
/// The longest name of a host, and of a part of it.
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// A host by its name, or all hosts below a name, at one port: `api.example.com`, `*.example.com`, `localhost:8080`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NetworkHost {
    /// In lower case.
    name: String,
    /// Whether it stands for all names below `name`, and not for `name`.
    is_below: bool,
    port: u16,
}

/// A text is not a host of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NetworkHostError {
    /// It is no name.
    #[error("is not the name of a host")]
    Name,
    /// It is an address.
    #[error("is an address, not the name of a host")]
    Address,
    /// The star is not in place of the first parts, or too few parts follow.
    #[error("has a `*` that does not stand before a name of two parts")]
    Star,
    /// The port is no port.
    #[error("has a port that is not a number from 1 to 65535")]
    Port,
}

impl NetworkHost {
    /// Returns whether the host of a connection is this one.
    pub(super) fn matches(&self, name: &str, port: u16) -> bool {
        let is_it = if self.is_below { is_below(name, &self.name) } else { name == self.name };
        is_it && port == self.port
    }

    /// Returns whether all hosts of the other one are hosts of this one.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let is_name = match (self.is_below, other.is_below) {
            (true, true) => other.name == self.name || is_below(&other.name, &self.name),
            (true, false) => is_below(&other.name, &self.name),
            (false, true) => false,
            (false, false) => other.name == self.name,
        };
        is_name && self.port == other.port
    }
}

impl FromStr for NetworkHost {
    type Err = NetworkHostError;

    fn from_str(text: &str) -> Result<Self, NetworkHostError> {
        let (name, port) = match text.rsplit_once(':') {
            // More than one colon belongs to an address.
            Some((name, _)) if name.contains(':') => return Err(NetworkHostError::Address),
            Some((name, port)) => (name, read_port(port)?),
            None => (text, PORT),
        };
        let name = name.to_ascii_lowercase();
        let (name, is_below) = match name.strip_prefix("*.") {
            Some(rest) => (rest.to_owned(), true),
            None => (name, false),
        };
        if name.contains('*') || is_below && !name.contains('.') {
            return Err(NetworkHostError::Star);
        }
        check_name(&name)?;
        Ok(Self { name, is_below, port })
    }
}

impl fmt::Display for NetworkHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.is_below { "*." } else { "" };
        write!(f, "{star}{}", self.name)?;
        if self.port == PORT { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

fn is_below(name: &str, above: &str) -> bool {
    name.strip_suffix(above).is_some_and(|it| it.ends_with('.'))
}

/// Reads the port of a host.
pub(super) fn read_port(text: &str) -> Result<u16, NetworkHostError> {
    let is_number = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    let port = text.parse().ok().filter(|it| is_number && *it != 0);
    port.ok_or(NetworkHostError::Port)
}

/// Checks that a text in lower case is a name. One whose last part begins with a digit is an address to some resolvers, in
/// any of its forms (`127.1`, `0x7f.1`, `2130706433`).
pub(super) fn check_name(name: &str) -> Result<(), NetworkHostError> {
    let is_label = |label: &str| {
        let is_letter =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && !label.starts_with('-')
            && label.bytes().all(is_letter)
    };
    if name.starts_with('[') {
        return Err(NetworkHostError::Address);
    }
    if name.len() > NAME_BYTES_MAX || !name.split('.').all(is_label) {
        return Err(NetworkHostError::Name);
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.starts_with(|it: char| it.is_ascii_digit()) {
        return Err(NetworkHostError::Address);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> NetworkHost {
        text.parse().unwrap()
    }

    #[test]
    fn a_host_is_a_name_with_a_port() {
        for (text, shown) in [
            ("api.example.com", "api.example.com"),
            ("API.Example.com:443", "api.example.com"),
            ("localhost:8080", "localhost:8080"),
            ("*.pypi.example", "*.pypi.example"),
            ("*.a_b.x-1.example:81", "*.a_b.x-1.example:81"),
        ] {
            assert_eq!(host(text).to_string(), shown);
        }
    }

    #[test]
    fn other_texts_are_no_hosts() {
        use NetworkHostError::{Address, Name, Port, Star};
        for (text, expected) in [
            ("", Name),
            ("a..b", Name),
            ("a.", Name),
            (".a", Name),
            ("a b", Name),
            ("-a.b", Name),
            ("a/b", Name),
            ("b\u{fc}cher.example", Name),
            ("user@host", Name),
            ("127.0.0.1", Address),
            ("127.1", Address),
            ("0x7f.1", Address),
            ("2130706433", Address),
            ("::1", Address),
            ("[::1]", Address),
            ("[::1]:443", Address),
            ("*", Star),
            ("*.com", Star),
            ("a.*.example", Star),
            ("**.a.example", Star),
            ("a:0", Port),
            ("a:65536", Port),
            ("a:+1", Port),
            ("a:", Port),
        ] {
            assert_eq!(text.parse::<NetworkHost>(), Err(expected), "{text:?}");
        }
    }

    #[test]
    fn a_star_stands_for_names_below() {
        let below = host("*.pypi.example");
        for (name, port, expected) in [
            ("files.pypi.example", 443, true),
            ("a.b.pypi.example", 443, true),
            ("pypi.example", 443, false),
            ("evilpypi.example", 443, false),
            ("files.pypi.example", 80, false),
            ("files.pypi.example.evil", 443, false),
        ] {
            assert_eq!(below.matches(name, port), expected, "{name}:{port}");
        }
        assert!(!host("api.example.com").matches("x.api.example.com", 443));
    }

    #[test]
    fn a_permission_covers_narrower_hosts() {
        for (allowed, declared, expected) in [
            ("a.example", "a.example", true),
            ("a.example", "a.example:444", false),
            ("a.example", "b.example", false),
            ("*.a.example", "x.a.example", true),
            ("*.a.example", "*.x.a.example", true),
            ("*.a.example", "*.a.example", true),
            ("*.a.example", "a.example", false),
            ("*.x.a.example", "*.a.example", false),
            ("x.a.example", "*.a.example", false),
        ] {
            assert_eq!(host(allowed).covers(&host(declared)), expected, "{allowed} {declared}");
        }
    }
}
