//! Sends requests to the collector, from the threads that collect batches, and knows what went wrong.

use std::{
    error::Error,
    io,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use graphrun_core::graph::with_causes;
use graphrun_models::client_builder;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use thiserror::Error;
use tokio::{
    runtime::{Builder, Runtime},
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout_at},
};

use crate::config::Signal;

/// The wait before the first repetition of a request; each further one waits twice as long.
const WAIT_MIN: Duration = Duration::from_millis(100);

/// How long a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// The most bytes of a response that are read.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// What all clients share: their thread-less runtime, the end, and the last failure.
#[derive(Debug)]
pub(super) struct Line {
    /// `None` only in `drop`.
    runtime: Option<Runtime>,
    /// When the last request must have ended, once the program ends.
    end: watch::Sender<Option<Instant>>,
    failure: Mutex<Option<String>>,
    /// The spans and values that the collector took and then rejected.
    rejected: AtomicU64,
}

/// Sends the data of one kind.
#[derive(Debug)]
pub(super) struct Client {
    line: Arc<Line>,
    signal: Signal,
    http: OnceLock<reqwest::Client>,
}

/// A request without an answer.
#[derive(Debug, Error)]
enum SendError {
    #[error("{0}")]
    Http(String),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("the program ended before an answer came")]
    Ended,
    #[error("the answer has more than {RESPONSE_BYTES_MAX} bytes")]
    TooLarge,
    #[error("the answer is a page of HTML; name the address of an OTLP receiver")]
    Page,
}

impl Line {
    /// # Errors
    ///
    /// Fails when the system has no resources left for it.
    pub(super) fn new() -> io::Result<Arc<Self>> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Arc::new(Self {
            runtime: Some(runtime),
            end: watch::Sender::new(None),
            failure: Mutex::default(),
            rejected: AtomicU64::default(),
        }))
    }

    /// Lets requests end by this time. From now on none is repeated.
    pub(super) fn end_at(&self, end: Instant) {
        self.end.send_replace(Some(end));
    }

    /// Returns why the last request that failed did.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns how many spans and values the collector rejected in requests that it answered with success.
    pub(super) fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Notes what the collector rejected. The answers about spans and about metrics have the same form.
    fn note_rejections(&self, body: &[u8]) {
        let answer = ExportTraceServiceResponse::decode(body).ok();
        let Some(partly) = answer.and_then(|it| it.partial_success) else { return };
        // None are rejected if the message is only a warning.
        let count = u64::try_from(partly.rejected_spans).unwrap_or(0);
        if count > 0 {
            self.rejected.fetch_add(count, Ordering::Relaxed);
            self.note_failure(format!("it rejected them: {}", partly.error_message));
        }
    }

    fn note_failure(&self, reason: String) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }

    fn is_ending(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// Waits until requests must have ended.
    async fn ended(&self) {
        let mut changes = self.end.subscribe();
        // The sender lives as long as this.
        let end = changes.wait_for(Option::is_some).await.ok().and_then(|it| *it);
        if let Some(end) = end {
            sleep_until(end).await;
        }
    }

    /// Waits before a repetition, or until the program ends.
    async fn wait(&self, wait: Duration) {
        let mut changes = self.end.subscribe();
        tokio::select! {
            () = sleep(wait) => (),
            _ = changes.wait_for(Option::is_some) => (),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // It may be dropped by an async program, in which a runtime may not wait for its end.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Client {
    pub(super) fn new(line: &Arc<Line>, signal: Signal) -> Self {
        Self { line: Arc::clone(line), signal, http: OnceLock::new() }
    }

    /// Returns the client, which is made for the first request: reading the trusted authorities takes time.
    fn http(&self) -> Result<reqwest::Client, SendError> {
        if let Some(http) = self.http.get() {
            return Ok(http.clone());
        }
        let unusable = |error: &dyn Error| SendError::Http(with_causes(error));
        let builder = client_builder(&self.signal.address).map_err(|error| unusable(&error))?;
        let http = builder.connect_timeout(CONNECT_MAX).build().map_err(|it| unusable(&it))?;
        Ok(self.http.get_or_init(|| http).clone())
    }

    /// Sends a request, again while the server is unreachable or overloaded, until the limit.
    async fn send(&self, request: &Request<Bytes>) -> Result<Response<Bytes>, SendError> {
        let deadline = Instant::now() + self.signal.timeout;
        let mut wait = WAIT_MIN;
        loop {
            let answer = tokio::select! {
                biased;
                () = self.line.ended() => Err(SendError::Ended),
                answer = timeout_at(deadline, self.exchange(request)) => {
                    answer.unwrap_or(Err(SendError::Timeout(self.signal.timeout)))
                }
            };
            let may_succeed_later = match &answer {
                // Those of the OTLP specification.
                Ok(response) => matches!(response.status().as_u16(), 429 | 502..=504),
                Err(error) => matches!(error, SendError::Http(_)),
            };
            let is_late = Instant::now() + wait >= deadline;
            if !may_succeed_later || is_late || self.line.is_ending() {
                return answer;
            }
            self.line.wait(wait).await;
            wait *= 2;
        }
    }

    async fn exchange(&self, request: &Request<Bytes>) -> Result<Response<Bytes>, SendError> {
        // The address is in the warning already, and may have a password.
        let failed = |it: reqwest::Error| SendError::Http(with_causes(&it.without_url()));
        let request = reqwest::Request::try_from(request.clone()).map_err(failed)?;
        let mut answer = self.http()?.execute(request).await.map_err(failed)?;
        let is_page = |it: &reqwest::header::HeaderValue| it.as_bytes().starts_with(b"text/html");
        if answer.status().is_success() && answer.headers().get("content-type").is_some_and(is_page)
        {
            return Err(SendError::Page);
        }
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = answer.status();
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > RESPONSE_BYTES_MAX {
                return Err(SendError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        *response.body_mut() = body.into();
        Ok(response)
    }
}

#[async_trait]
impl HttpClient for Client {
    /// Blocks: the exporters call it on their threads, which have no runtime.
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let runtime = self.line.runtime.as_ref().expect("it is taken in `drop` only");
        let answer = runtime.block_on(self.send(&request));
        match &answer {
            Ok(response) if response.status().is_success() => {
                self.line.note_rejections(response.body());
            }
            Ok(response) => self.line.note_failure(format!("it answered {}", response.status())),
            Err(error) => self.line.note_failure(error.to_string()),
        }
        Ok(answer?)
    }
}
