//! HTTP requests of tools: a server that the operator allows, at addresses that are public unless the operator allows
//! others, and a limit on everything.

#[cfg(feature = "openai")]
mod client;

use std::{io, net::IpAddr, time::Duration};

use serde_json::Value;
use thiserror::Error;

/// A request.
#[derive(Clone, Debug, Default)]
pub struct FetchRequest {
    /// The method, in capitals.
    pub method: String,
    /// The address.
    pub url: String,
    /// The headers. Their values never appear in an error.
    pub headers: Vec<(String, String)>,
    /// The body, sent as JSON.
    pub body: Option<Value>,
    /// The longest duration of the whole exchange.
    pub time: Duration,
    /// Whether the server may be on this machine or in a private network, and need not encrypt.
    pub allows_private: bool,
}

/// An answer with any status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchResponse {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// A request got no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FetchError {
    /// The request is invalid.
    #[error("the request is invalid: {reason}")]
    Invalid {
        /// The reason.
        reason: String,
    },
    /// The program was built without a client.
    #[error("this program was built without an HTTP client")]
    Unavailable,
    /// The host cannot be resolved.
    #[error("the host `{host}` cannot be resolved")]
    Resolve {
        /// The host.
        host: String,
        /// The reason.
        source: io::Error,
    },
    /// The host has an address that is not public.
    #[error("the host `{host}` has the address {address}, which is not public")]
    Private {
        /// The host.
        host: String,
        /// The address.
        address: IpAddr,
    },
    /// The server cannot be reached.
    #[error("`{host}` cannot be reached: {reason}")]
    Unreachable {
        /// The host.
        host: String,
        /// The reason.
        reason: String,
    },
    /// The exchange took too long.
    #[error("`{host}` did not answer within {time:?}")]
    Timeout {
        /// The host.
        host: String,
        /// The limit.
        time: Duration,
    },
    /// The answer is a redirect.
    #[error("`{host}` answered with a redirect ({status}), which is not followed")]
    Redirect {
        /// The host.
        host: String,
        /// The status.
        status: u16,
    },
    /// The answer is too large.
    #[error("the answer of `{host}` is larger than 1 MiB")]
    TooLarge {
        /// The host.
        host: String,
    },
}

impl FetchError {
    /// Returns whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Resolve { .. } | Self::Unreachable { .. } | Self::Timeout { .. })
    }
}

/// Sends a request and reads its answer.
///
/// # Errors
///
/// Fails when the request is invalid or must not be sent, and when there is no answer within the limits.
#[cfg(feature = "openai")]
pub async fn fetch(request: FetchRequest) -> Result<FetchResponse, FetchError> {
    client::fetch(request).await
}

/// Returns a client for many requests to the host of a URL, under the rules of [`fetch`]: it connects only to the
/// addresses that the host has now, and an answer that is a redirect is an error.
///
/// # Errors
///
/// Fails when the URL is invalid, or when its host may not be reached.
#[cfg(feature = "openai")]
pub async fn connect(url: &str, allows_private: bool) -> Result<reqwest::Client, FetchError> {
    client::connect(url, allows_private).await
}

/// Sends a request and reads its answer.
///
/// # Errors
///
/// Always fails: this program was built without the feature `openai`, which has the HTTP client.
#[cfg(not(feature = "openai"))]
pub async fn fetch(_: FetchRequest) -> Result<FetchResponse, FetchError> {
    Err(FetchError::Unavailable)
}
