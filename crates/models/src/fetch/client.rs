//! The client: checks the address, resolves the host once, and sends one request.
//!
//! All addresses of the host are checked, and the connection uses only these: a name that resolves to another address a
//! moment later reaches nothing. Redirects are not followed, and no proxy of the environment is used, because either
//! would choose another server.

use std::{
    error::Error as _,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket},
};

use graphrun_core::graph::with_causes;
use reqwest::{
    Client, Method, Response, Url,
    header::{HeaderName, HeaderValue},
    redirect::Policy,
};
use tokio::{task::spawn_blocking, time::timeout};

use super::{FetchError, FetchRequest, FetchResponse};
use crate::transport::tls;

/// The most bytes of an answer that are read.
const BODY_BYTES_MAX: usize = 1 << 20;

pub(super) async fn fetch(request: FetchRequest) -> Result<FetchResponse, FetchError> {
    let (url, host) = checked_url(&request)?;
    let time = request.time;
    let exchange = exchange(request, url, &host);
    timeout(time, exchange).await.unwrap_or(Err(FetchError::Timeout { host: host.clone(), time }))
}

fn checked_url(request: &FetchRequest) -> Result<(Url, String), FetchError> {
    let invalid = |reason: String| FetchError::Invalid { reason };
    let url = Url::parse(&request.url).map_err(|error| invalid(error.to_string()))?;
    let is_allowed = match url.scheme() {
        "https" => true,
        "http" => request.allows_private,
        _ => false,
    };
    if !is_allowed {
        return Err(invalid(format!("`{}` is not `https`", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("its address has a password".to_owned()));
    }
    let host = url.host_str().ok_or_else(|| invalid("its address has no host".to_owned()))?;
    let host = host.to_owned();
    Ok((url, host))
}

async fn exchange(
    request: FetchRequest,
    url: Url,
    host: &str,
) -> Result<FetchResponse, FetchError> {
    let invalid = |reason: String| FetchError::Invalid { reason };
    let addresses = resolve(&url, host, request.allows_private).await?;
    let tls = tls().map_err(|error| invalid(error.to_string()))?;
    let client = Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy()
        .resolve_to_addrs(host, &addresses)
        .user_agent(concat!("graphrun/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| invalid(with_causes(&error)))?;
    let method = Method::from_bytes(request.method.as_bytes());
    let method = method.map_err(|error| invalid(error.to_string()))?;
    let mut sent = client.request(method, url);
    for (name, value) in &request.headers {
        let name = HeaderName::try_from(name).map_err(|error| invalid(error.to_string()))?;
        // The error of the library is about the value, which may be a secret.
        let value = HeaderValue::try_from(value);
        let mut value =
            value.map_err(|_| invalid(format!("the value of the header `{name}` is invalid")))?;
        value.set_sensitive(true);
        sent = sent.header(name, value);
    }
    if let Some(body) = &request.body {
        sent = sent.header("content-type", "application/json").body(body.to_string());
    }
    let unreachable = |error: &reqwest::Error| FetchError::Unreachable {
        host: host.to_owned(),
        // The address has the arguments of the call.
        reason: error.source().map_or_else(|| "no connection".to_owned(), with_causes),
    };
    let answer = sent.send().await.map_err(|error| unreachable(&error))?;
    let status = answer.status().as_u16();
    if answer.status().is_redirection() {
        return Err(FetchError::Redirect { host: host.to_owned(), status });
    }
    let body = read(answer, host).await?.map_err(|error| unreachable(&error))?;
    Ok(FetchResponse { status, body })
}

/// Reads a body up to the limit.
async fn read(
    mut answer: Response,
    host: &str,
) -> Result<Result<Vec<u8>, reqwest::Error>, FetchError> {
    let mut body = Vec::new();
    loop {
        match answer.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > BODY_BYTES_MAX => {
                return Err(FetchError::TooLarge { host: host.to_owned() });
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(Ok(body)),
            Err(error) => return Ok(Err(error)),
        }
    }
}

/// Returns the addresses of the server. One that is not public is an error, because a name with such an address is
/// meant to reach something inside.
async fn resolve(
    url: &Url,
    host: &str,
    allows_private: bool,
) -> Result<Vec<SocketAddr>, FetchError> {
    let port = url.port_or_known_default().unwrap_or(443);
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let addresses = if let Ok(address) = literal {
        vec![SocketAddr::new(address, port)]
    } else {
        let name = host.to_owned();
        let failed = |source| FetchError::Resolve { host: host.to_owned(), source };
        let found = spawn_blocking(move || (name.as_str(), port).to_socket_addrs()).await;
        let found = found.map_err(|error| failed(io::Error::other(error)))?;
        found.map_err(failed)?.collect()
    };
    let inside = addresses.iter().map(SocketAddr::ip).find(|it| !is_public(*it) || is_own(*it));
    match inside.filter(|_| !allows_private) {
        Some(address) => Err(FetchError::Private { host: host.to_owned(), address }),
        None => Ok(addresses),
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
    use std::time::Duration;

    use super::*;

    fn request(url: &str) -> FetchRequest {
        let (method, time) = ("GET".to_owned(), Duration::from_secs(10));
        FetchRequest { method, url: url.to_owned(), time, ..FetchRequest::default() }
    }

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

    #[tokio::test]
    async fn no_spelling_of_an_inner_address_is_reached() {
        for host in [
            "127.0.0.1",
            "0x7f.1",
            "2130706433",
            "017700000001",
            "127.1",
            "[::1]",
            "localhost",
            "LOCALHOST",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "169.254.169.254",
            "0",
            "[64:ff9b::7f00:1]",
            "\u{ff11}27.0.0.1",
            "127.0.0.1.",
        ] {
            let error = fetch(request(&format!("https://{host}/"))).await.unwrap_err();
            assert!(
                matches!(error, FetchError::Private { .. } | FetchError::Resolve { .. }),
                "{host}: {error}"
            );
        }
    }

    #[tokio::test]
    async fn only_encrypted_addresses_without_a_password_are_valid() {
        for url in ["http://8.8.8.8/", "ftp://8.8.8.8/", "https://a:b@8.8.8.8/", "https://", "x"] {
            let error = fetch(request(url)).await.unwrap_err();
            assert!(matches!(error, FetchError::Invalid { .. }), "{url}: {error}");
        }
    }

    #[tokio::test]
    async fn a_header_that_cannot_be_sent_is_not_shown() {
        let headers = vec![("authorization".to_owned(), "canary\n".to_owned())];
        let request =
            FetchRequest { headers, allows_private: true, ..request("http://127.0.0.1:1/") };
        let error = fetch(request).await.unwrap_err();
        assert!(matches!(error, FetchError::Invalid { .. }), "{error}");
        assert!(!format!("{error:?}").contains("canary"), "{error:?}");
    }

    #[test]
    fn addresses_of_this_machine_are_known() {
        assert!(is_own("127.0.0.1".parse().unwrap()));
        assert!(!is_own("192.0.2.1".parse().unwrap()));
    }
}
