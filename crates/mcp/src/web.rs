//! A server that is reached over HTTP.
//!
//! The client connects to the addresses that the host had at first, follows no redirect, and reads no answer beyond the
//! limit. A session that the server has forgotten is not renewed here: a new connection compares the tools first.

use std::{collections::HashMap, error::Error, iter::successors, sync::Arc};

use graphrun_core::graph::with_causes;
use graphrun_models::{FetchError, connect};
use graphrun_sandbox::clean_text;
use graphrun_workflow::{
    McpServer,
    tool::{RequestTool, WebPermission},
};
use reqwest::{
    Client,
    header::{HeaderName, HeaderValue},
};
use rmcp::transport::{
    StreamableHttpClientTransport,
    common::client_side_sse::ExponentialBackoff,
    streamable_http_client::{StreamableHttpClientTransportConfig, StreamableHttpError},
};
use tokio::time::timeout;

use crate::{McpError, ServerAccess, connection::MESSAGE_BYTES_MAX};

/// The most bytes of an error page that are read.
const ERROR_BYTES_MAX: usize = 2_000;
/// How often a stream that the server has closed is opened again.
const REOPENED_MAX: usize = 3;

/// Returns the transport to a server. It sends nothing yet.
pub(super) async fn transport(
    server: &McpServer,
    request: &RequestTool,
    access: &ServerAccess,
) -> Result<StreamableHttpClientTransport<Client>, McpError> {
    let name = || server.name.clone();
    let permission = access.web.check(request);
    let permission =
        permission.map_err(|it| McpError::Refused { server: name(), source: it.into() })?;
    let url = request.url.text();
    let connected = timeout(server.time, connect(&url, permission == WebPermission::Private)).await;
    let Ok(connected) = connected else {
        return Err(McpError::TimedOut { server: name(), time: server.time });
    };
    let client = connected.map_err(|error| match error {
        FetchError::Invalid { .. } => McpError::Start { server: name(), source: error.into() },
        error => McpError::Unreachable { server: name(), reason: with_causes(&error) },
    })?;
    let mut headers = HashMap::new();
    for (header, value) in access.web.headers_of(request) {
        let invalid = |what: &str| McpError::Start {
            server: name(),
            source: format!("the {what} of the header `{header}` is invalid").into(),
        };
        // The errors of the library are about the texts, which may be secrets.
        let key = HeaderName::try_from(header.as_str()).map_err(|_| invalid("name"))?;
        let mut value = HeaderValue::try_from(value).map_err(|_| invalid("value"))?;
        value.set_sensitive(true);
        headers.insert(key, value);
    }
    let mut reopening = ExponentialBackoff::default();
    reopening.max_times = Some(REOPENED_MAX);
    let mut config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(headers)
        .max_sse_event_size(MESSAGE_BYTES_MAX)
        .max_json_response_size(MESSAGE_BYTES_MAX)
        .max_error_response_size(ERROR_BYTES_MAX);
    config.retry_config = Arc::new(reopening);
    config.reinit_on_expired_session = false;
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

/// Returns what an error of the transport means, if it is one.
pub(super) fn error_of(server: &str, error: &(dyn Error + 'static)) -> Option<McpError> {
    type Failure = StreamableHttpError<reqwest::Error>;
    let mut errors = successors(Some(error), |&it| it.source());
    let failure = errors.find_map(|it| it.downcast_ref::<Failure>())?;
    let server = server.to_owned();
    Some(match failure {
        Failure::AuthRequired(_) => McpError::Denied { server, status: 401 },
        Failure::InsufficientScope(_) => McpError::Denied { server, status: 403 },
        Failure::HttpStatus(it) => McpError::Status { server, status: it.status },
        Failure::Client(error) => {
            // The address may have an argument that is a key.
            let reason = error.source().map_or_else(|| "no connection".to_owned(), with_causes);
            if error.is_redirect() {
                McpError::Invalid { server, reason }
            } else {
                McpError::Unreachable { server, reason }
            }
        }
        Failure::SessionExpired => McpError::Status { server, status: 404 },
        Failure::ResponseBodyTooLarge { .. } => McpError::TooLarge { server },
        Failure::UnexpectedContentType(kind) => {
            let kind = kind.as_deref().map_or("no content type".to_owned(), |it| format!("`{it}`"));
            McpError::Invalid { server, reason: format!("it sent {}", clean_text(&kind)) }
        }
        // The library has no status for these.
        Failure::UnexpectedServerResponse(text) if text.starts_with("HTTP 401") => {
            McpError::Denied { server, status: 401 }
        }
        Failure::UnexpectedServerResponse(text) if text.starts_with("HTTP 403") => {
            McpError::Denied { server, status: 403 }
        }
        other => McpError::Invalid { server, reason: clean_text(&with_causes(other)) },
    })
}
