//! The client: checks the address, resolves the host once, and sends one request.
//!
//! All addresses of the host are checked, and the connection uses only these: a name that resolves to another address a
//! moment later reaches nothing. Redirects are not followed, and no proxy of the environment is used, because either
//! would choose another server.

use std::{error::Error as _, io, net::SocketAddr};

use graphrun_core::graph::with_causes;
use graphrun_guard::address::{ResolveError, Scope, resolve as resolve_name};
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
    let (url, host) = checked_url(&request.url, request.allows_private)?;
    let time = request.time;
    let exchange = exchange(request, url, &host);
    timeout(time, exchange).await.unwrap_or(Err(FetchError::Timeout { host: host.clone(), time }))
}

/// Returns a client for many requests to one host. A redirect is an error of the client.
pub(super) async fn connect(url: &str, allows_private: bool) -> Result<Client, FetchError> {
    let (url, host) = checked_url(url, allows_private)?;
    let refused = Policy::custom(|attempt| {
        let status = attempt.status();
        attempt.error(format!("the answer is a redirect ({status}), which is not followed"))
    });
    client(&url, &host, allows_private, refused).await
}

fn checked_url(url: &str, allows_private: bool) -> Result<(Url, String), FetchError> {
    let invalid = |reason: String| FetchError::Invalid { reason };
    let url = Url::parse(url).map_err(|error| invalid(error.to_string()))?;
    let is_allowed = match url.scheme() {
        "https" => true,
        "http" => allows_private,
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
    let client = client(&url, host, request.allows_private, Policy::none()).await?;
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

/// Returns a client that connects to the addresses which the host has now.
async fn client(
    url: &Url,
    host: &str,
    allows_private: bool,
    redirects: Policy,
) -> Result<Client, FetchError> {
    let invalid = |reason: String| FetchError::Invalid { reason };
    let addresses = resolve(url, host, allows_private).await?;
    let tls = tls().map_err(|error| invalid(error.to_string()))?;
    Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(redirects)
        .retry(reqwest::retry::never())
        .no_proxy()
        .resolve_to_addrs(host, &addresses)
        .user_agent(concat!("graphrun/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| invalid(with_causes(&error)))
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

/// Returns the addresses of the server.
async fn resolve(
    url: &Url,
    host: &str,
    allows_private: bool,
) -> Result<Vec<SocketAddr>, FetchError> {
    let port = url.port_or_known_default().unwrap_or(443);
    let scope = if allows_private { Scope::Any } else { Scope::Public };
    let name = host.to_owned();
    let found = spawn_blocking(move || resolve_name(&name, port, scope)).await;
    let failed = |source| FetchError::Resolve { host: host.to_owned(), source };
    found.map_err(|error| failed(io::Error::other(error)))?.map_err(|error| match error {
        ResolveError::Unknown(source) => failed(source),
        ResolveError::Inside(address) => FetchError::Private { host: host.to_owned(), address },
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn request(url: &str) -> FetchRequest {
        let method = "GET".to_owned();
        let time = Duration::from_secs(10);
        FetchRequest { method, url: url.to_owned(), time, ..FetchRequest::default() }
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
}
