//! The addresses of a host, for connections on behalf of a workflow or of an untrusted program.
//!
//! A name is resolved once. All addresses of the host are checked, and a connection uses only these: a name that
//! resolves to another address a moment later reaches nothing.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket},
};

use thiserror::Error;

/// The addresses that a host may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of the public Internet, except the ones of this machine.
    Public,
    /// Also those of this machine and of private networks.
    Any,
}

/// A host has no address that can be used.
#[derive(Debug, Error)]
pub enum ResolveError {
    /// The name cannot be resolved.
    #[error("it cannot be resolved")]
    Unknown(#[source] io::Error),
    /// An address is not public. A name with such an address is meant to reach something inside.
    #[error("it has the address {0}, which is not public")]
    Inside(IpAddr),
}

/// Returns the addresses of a host, which may be a name or an address, in brackets or not. Blocks.
///
/// # Errors
///
/// Fails when the name has no address, and when one of its addresses is outside of the scope.
pub fn resolve(host: &str, port: u16, scope: Scope) -> Result<Vec<SocketAddr>, ResolveError> {
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let addresses = if let Ok(address) = literal {
        vec![SocketAddr::new(address, port)]
    } else {
        (host, port).to_socket_addrs().map_err(ResolveError::Unknown)?.collect()
    };
    let inside = addresses.iter().map(SocketAddr::ip).find(|it| !is_public(*it) || is_own(*it));
    match inside.filter(|_| scope == Scope::Public) {
        Some(address) => Err(ResolveError::Inside(address)),
        None => Ok(addresses),
    }
}

/// Returns whether a host is inside by its text alone: an address that is not public, in brackets or not, or `localhost`.
pub fn is_inside(host: &str) -> bool {
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let name = host.to_ascii_lowercase();
    match literal {
        Ok(address) => !is_public(address),
        Err(_) => name == "localhost" || name.ends_with(".localhost"),
    }
}

/// Returns whether an address is one of this machine: only these can be bound.
fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// Returns whether an address belongs to the public Internet (the special ranges of RFC 6890 and its registries do
/// not).
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = matches!(
        (a, b, c),
        (0 | 10 | 127 | 224..=255, _, _)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (192, 168, _)
            | (198, 18 | 19, _)
            | (198, 51, 100)
            | (203, 0, 113)
    );
    !is_special
}

/// Only `2000::/3` is assigned for public use. Forms that contain an IPv4 address, such as 6to4, Teredo, NAT64 and mapped
/// ones, are refused or lie outside of it.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    let is_global = first & 0xe000 == 0x2000;
    let is_special = match first {
        0x2001 => second < 0x0200 || second == 0x0db8,
        0x2002 => true,
        0x3fff => second < 0x1000,
        _ => false,
    };
    is_global && !is_special
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_not_public() {
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.1.2.3",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "fc00::1",
            "fd00::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2001:10::1",
            "2001:20::1",
            "3fff::1",
            "4000::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "8.8.8.8",
            "100.63.0.1",
            "100.128.0.1",
            "172.32.0.1",
            "198.20.0.1",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "2a00::1",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn addresses_of_this_machine_are_known() {
        assert!(is_own("127.0.0.1".parse().unwrap()));
        assert!(!is_own("192.0.2.1".parse().unwrap()));
    }

    #[test]
    fn a_host_inside_is_refused_unless_any_address_will_do() {
        for host in ["127.0.0.1", "[::1]", "localhost", "0x7f.1", "2130706433"] {
            let found = resolve(host, 443, Scope::Public);
            let is_refused =
                matches!(found, Err(ResolveError::Inside(_) | ResolveError::Unknown(_)));
            assert!(is_refused, "{host}: {found:?}");
        }
        let found = resolve("127.0.0.1", 443, Scope::Any).unwrap();
        assert_eq!(found, ["127.0.0.1:443".parse().unwrap()]);
    }
}
