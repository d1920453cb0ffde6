//! The HTTP service under async-openai: one attempt, no redirects, a limit on everything.
//!
//! It reads the whole reply itself, also one that arrives as a stream of events, and passes it on as one JSON value.
//! Everything else becomes a [`ModelError`]. So async-openai neither retries, nor reads without a limit, nor logs a body.
//! The requests of protocols that async-openai does not have use the same transport.

use std::{
    error::Error,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use async_openai::{error::OpenAIError, middleware::HttpRequestFactory};
use jiff::Timestamp;
use reqwest::{
    Client, Response,
    header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, LOCATION},
};
use rustls::{ClientConfig, crypto::ring};
use rustls_platform_verifier::BuilderVerifierExt as _;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use tower::Service;

use super::{
    chat::Patience,
    deltas::AnswerSink,
    error::{ModelError, Phase},
    failure::{ErrorReply, readable},
    gate::Gate,
    protocol::{IncomingReply, Pace, completion},
    provider::{Profile, Protocol, is_local},
    rates::Rates,
    retry_after::read_retry_after,
    secret::Secret,
};

/// The limits of an exchange: times and size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeLimits {
    /// To open a connection.
    pub connect: Duration,
    /// Between two pieces of a reply that has begun.
    pub idle: Duration,
    /// For the whole exchange, unless the [request](crate::ChatRequest::timeout) has its own limit. Long, because a
    /// reasoning model is silent for minutes before it answers.
    pub total: Duration,
    /// The largest reply, in bytes.
    pub reply_bytes_max: usize,
}

impl Default for ExchangeLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            total: Duration::from_secs(600),
            reply_bytes_max: 16 * 1024 * 1024,
        }
    }
}

/// TLS with the authorities that this system trusts.
pub(super) fn tls() -> Result<ClientConfig, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions()?.with_platform_verifier()?;
    Ok(builder.with_no_client_auth())
}

/// Returns the builder of a client for the server of this URL, which follows no redirect and repeats no request.
///
/// # Errors
///
/// Fails when the authorities that this system trusts cannot be read.
pub fn client_builder(url: &str) -> Result<reqwest::ClientBuilder, rustls::Error> {
    let builder = Client::builder()
        .tls_backend_preconfigured(tls()?)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .user_agent(concat!("graphrun/", env!("CARGO_PKG_VERSION")));
    // A proxy cannot reach a server on this machine.
    Ok(if is_local(url) { builder.no_proxy() } else { builder })
}

/// How long the usage of a whole answer may take to arrive. Some servers keep the connection open without a sign of the end.
const USAGE_WAIT_MAX: Duration = Duration::from_secs(3);

/// The longest time for a request: ten years, for nodes whose timeout is as good as none.
const TOTAL_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// The most bytes of an error's body that are read.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// Sends requests and reads replies within limits.
#[derive(Debug, Clone)]
pub(super) struct Transport {
    http: Client,
    limits: ExchangeLimits,
    has_key: bool,
    /// Scheme, host and port, for messages. The rest of the address may hold a password.
    origin: String,
    /// The query of the base URL.
    query: Option<String>,
    /// The header that has the key alone, if not `Authorization`.
    key_header: Option<HeaderName>,
    /// The provider's headers of every request.
    headers: HeaderMap,
    protocol: Protocol,
    /// Where the pieces of the answer go.
    deltas: AnswerSink,
    /// The gate of the model, which learns the rates of the provider.
    gate: Option<Arc<Gate>>,
    /// How long the provider may be silent, besides the limits.
    patience: Option<Patience>,
}

/// A wait for a provider.
#[derive(Clone, Copy)]
struct Wait {
    until: Instant,
    /// How long it is, for an error.
    after: Duration,
}

impl Transport {
    pub(super) fn new(
        base_url: &str,
        query: Option<&str>,
        limits: ExchangeLimits,
        api_key: &Secret,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let http = client_builder(base_url)?.connect_timeout(limits.connect);
        let origin = reqwest::Url::parse(base_url).map(|url| url.origin().ascii_serialization());
        Ok(Self {
            http: http.build()?,
            limits,
            has_key: !api_key.is_empty(),
            origin: origin.unwrap_or_default(),
            query: query.map(str::to_owned),
            // Azure's older addresses have a version, and their key there.
            key_header: query
                .is_some_and(|query| query.split('&').any(|it| it.starts_with("api-version=")))
                .then(|| HeaderName::from_static("api-key")),
            headers: HeaderMap::new(),
            protocol: Protocol::Chat,
            deltas: AnswerSink::default(),
            gate: None,
            patience: None,
        })
    }

    /// Returns a transport for one request.
    pub(super) fn for_request(&self, timeout: Option<Duration>, gate: &Arc<Gate>) -> Self {
        let mut transport = self.clone();
        // Adding a much longer time to an `Instant` could panic.
        transport.limits.total = timeout.unwrap_or(self.limits.total).min(TOTAL_MAX);
        transport.gate = Some(Arc::clone(gate));
        transport
    }

    /// Gives up a provider that is silent for longer than that.
    pub(super) fn with_patience(self, patience: Option<Patience>) -> Self {
        Self { patience, ..self }
    }

    /// Returns the wait for a provider whose last sign of life was at `last`.
    fn wait_from(&self, last: Instant, limit: Wait) -> Wait {
        match self.patience.and_then(|it| it.end(last)) {
            Some(until) if until < limit.until => {
                // A message with nanoseconds is no better one.
                let ms = until.saturating_duration_since(last).as_millis();
                Wait { until, after: Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX)) }
            }
            _ => limit,
        }
    }

    /// Sends the pieces of the answer there.
    pub(super) fn with_deltas(self, deltas: &AnswerSink) -> Self {
        Self { deltas: deltas.clone(), ..self }
    }

    pub(super) fn http(&self) -> Client {
        self.http.clone()
    }

    /// Makes one attempt for async-openai, and returns a reply that it accepts.
    async fn exchange(&self, factory: HttpRequestFactory) -> Result<Response, OpenAIError> {
        let request = factory.build().await?;
        let body = self.post(request).await.map_err(|error| OpenAIError::Boxed(Box::new(error)))?;
        let body = serde_json::to_vec(&body).expect("a JSON value can always be written");
        Ok(Response::from(http::Response::new(body)))
    }

    /// Makes one attempt. The request has its key as `Authorization: Bearer KEY`.
    pub(super) async fn post(&self, mut request: reqwest::Request) -> Result<Value, ModelError> {
        if let Some(query) = &self.query {
            let url = request.url_mut();
            let whole = url.query().map_or_else(|| query.clone(), |own| format!("{own}&{query}"));
            url.set_query(Some(&whole));
        }
        for (name, value) in &self.headers {
            // Those of the request come first.
            request.headers_mut().entry(name).or_insert_with(|| value.clone());
        }
        self.set_key(request.headers_mut());
        self.send(request).await
    }

    /// Sets the protocol, and adds the headers of the provider and of the protocol. Those that cannot be sent are left out: the reader of the table has reported them.
    pub(super) fn with_profile(mut self, profile: &Profile) -> Self {
        self.protocol = profile.protocol;
        let own = profile.key_header.as_ref().and_then(|it| HeaderName::try_from(it).ok());
        let (of_protocol, version) = match profile.protocol {
            Protocol::Chat | Protocol::Responses => (None, None),
            Protocol::Anthropic => (Some("x-api-key"), Some(("anthropic-version", "2023-06-01"))),
            Protocol::Gemini => (Some("x-goog-api-key"), None),
        };
        self.key_header = own.or(of_protocol.map(HeaderName::from_static)).or(self.key_header);
        if let Some((name, version)) = version {
            self.headers.insert(name, HeaderValue::from_static(version));
        }
        let headers = profile.headers.iter();
        self.headers.extend(headers.filter_map(|(name, value)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
        }));
        self
    }

    /// Removes an empty key, and moves that of a provider with another header there.
    fn set_key(&self, headers: &mut HeaderMap) {
        let Some(mut header) = headers.remove(AUTHORIZATION).filter(|_| self.has_key) else {
            return;
        };
        header.set_sensitive(true);
        let bearer = header.as_bytes().strip_prefix(b"Bearer ");
        let key = bearer.and_then(|it| HeaderValue::from_bytes(it).ok());
        match key.zip(self.key_header.clone()) {
            Some((mut key, name)) => {
                key.set_sensitive(true);
                headers.insert(name, key);
            }
            None => drop(headers.insert(AUTHORIZATION, header)),
        }
    }

    async fn send(&self, request: reqwest::Request) -> Result<Value, ModelError> {
        let began = Instant::now();
        let deadline = began + self.limits.total;
        let limit = Wait { until: deadline, after: self.limits.total };
        let Wait { until, after } = self.wait_from(began, limit);
        let mut response = match timeout_at(until, self.http.execute(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.network_error(&error)),
            Err(_) => return Err(ModelError::Timeout { phase: Phase::Response, after }),
        };
        if let Some(gate) = &self.gate {
            let headers = response.headers();
            let header = |name: &str| headers.get(name).and_then(|it| it.to_str().ok());
            gate.learn_rates(Rates::read(header, Timestamp::now()));
        }
        let status = response.status();
        if status.is_success() {
            return self.read(&mut response, deadline).await;
        }
        let after = retry_after(response.headers());
        // The status is more informative than an unreadable body.
        let body = self.read_start(&mut response, deadline).await;
        let body = String::from_utf8_lossy(&body);
        let failure = ErrorReply { status: status.as_u16(), after, body: &body };
        let classified = failure.classify().map(|reply| completion(&reply));
        classified.map_err(|error| self.with_address(error, &response))
    }

    /// Adds the address to an error that a wrong `base_url` causes most often, without its password and its query.
    fn with_address(&self, error: ModelError, response: &Response) -> ModelError {
        let address = readable(&format!("{}{}", self.origin, response.url().path()));
        match error {
            ModelError::NotFound { message } => {
                ModelError::NotFound { message: format!("{message} ({address})") }
            }
            ModelError::BadRequest { status: status @ (300..400 | 405), message } => {
                let target = response.headers().get(LOCATION).and_then(|it| it.to_str().ok());
                let target = target.and_then(|it| reqwest::Url::parse(it).ok());
                // The path and the query of the target may hold a key.
                let to = target.map(|it| format!(" to {}", it.origin().ascii_serialization()));
                let message = format!("{message} ({address}{})", to.unwrap_or_default());
                ModelError::BadRequest { status, message }
            }
            error => error,
        }
    }

    /// Reads a reply. In a stream, only data counts as a sign of life, not what keeps the connection open. Before its
    /// answer, and while it thinks without showing it, a model may be silent until the deadline.
    async fn read(&self, response: &mut Response, deadline: Instant) -> Result<Value, ModelError> {
        let ExchangeLimits { idle, total, reply_bytes_max, .. } = self.limits;
        let mut incoming = IncomingReply::new(self.protocol, &self.deltas, reply_bytes_max);
        let mut last = Instant::now();
        loop {
            let limit = match incoming.pace() {
                Pace::Over => break,
                Pace::Ending => {
                    Wait { until: deadline.min(last + USAGE_WAIT_MAX), after: USAGE_WAIT_MAX }
                }
                Pace::Steady if last + idle < deadline => Wait { until: last + idle, after: idle },
                Pace::Steady | Pace::Silent => Wait { until: deadline, after: total },
            };
            let Wait { until, after } = self.wait_from(last, limit);
            let chunk = match timeout_at(until, response.chunk()).await {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None)) => break,
                // The end of an answer is enough, also if the connection has no end.
                _ if incoming.is_whole() => break,
                Ok(Err(_)) if incoming.has_begun() => break,
                Ok(Err(error)) => return Err(self.network_error(&error)),
                Err(_) => {
                    return Err(incoming.fail(ModelError::Timeout { phase: Phase::Body, after }));
                }
            };
            match incoming.add(&chunk) {
                Ok(true) => last = Instant::now(),
                Ok(false) => {}
                Err(error) => return Err(incoming.fail(error)),
            }
        }
        incoming.finish()
    }

    /// Reads the available beginning of an error's body.
    async fn read_start(&self, response: &mut Response, deadline: Instant) -> Vec<u8> {
        let mut body = Vec::new();
        while let Ok(Some(chunk)) = self.next_chunk(response, deadline).await {
            body.extend_from_slice(&chunk);
            if body.len() > ERROR_BYTES_MAX {
                body.truncate(ERROR_BYTES_MAX);
                break;
            }
        }
        body
    }

    async fn next_chunk(
        &self,
        response: &mut Response,
        deadline: Instant,
    ) -> Result<Option<impl AsRef<[u8]> + std::ops::Deref<Target = [u8]>>, ModelError> {
        let last = Instant::now();
        let idle = last + self.limits.idle;
        let limit = if idle < deadline {
            Wait { until: idle, after: self.limits.idle }
        } else {
            Wait { until: deadline, after: self.limits.total }
        };
        let Wait { until, after } = self.wait_from(last, limit);
        match timeout_at(until, response.chunk()).await {
            Ok(chunk) => chunk.map_err(|error| self.network_error(&error)),
            Err(_) => Err(ModelError::Timeout { phase: Phase::Body, after }),
        }
    }

    fn network_error(&self, error: &reqwest::Error) -> ModelError {
        if error.is_connect() && error.is_timeout() {
            return ModelError::Timeout { phase: Phase::Connect, after: self.limits.connect };
        }
        // The last error of the chain is the informative one ("connection refused").
        let mut cause: &dyn std::error::Error = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        let doing = if error.is_connect() { "connect to" } else { "talk to" };
        let message = format!("cannot {doing} {}: {cause}", self.origin);
        ModelError::Transient { after: None, message: readable(&message) }
    }
}

impl Service<HttpRequestFactory> for Transport {
    type Response = Response;
    type Error = OpenAIError;
    type Future = Pin<Box<dyn Future<Output = Result<Response, OpenAIError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), OpenAIError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, factory: HttpRequestFactory) -> Self::Future {
        let transport = self.clone();
        Box::pin(async move { transport.exchange(factory).await })
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    read_retry_after(header("retry-after"), header("retry-after-ms"), Timestamp::now())
}
