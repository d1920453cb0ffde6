//! A server with scripted answers that remembers its requests.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use graphrun::models::{
    ChatRequest, ClientConfig, ExchangeLimits, Message, Profile, Protocol, ProviderClient, Secret,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

use crate::support::new_loopback;

/// The key every client here has. It has none of the known forms, so only its owner can remove it.
pub(crate) const KEY: &str = "correct-horse-battery-staple";

type Answer = dyn Fn(&Seen) -> Response + Send + Sync;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

/// The server; it stops when it is dropped.
pub(crate) struct Peer {
    pub(crate) base_url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    server: JoinHandle<()>,
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

#[derive(Clone)]
struct Shared {
    seen: Arc<Mutex<Vec<Seen>>>,
    answer: Arc<Answer>,
}

impl Peer {
    /// Starts a server that gives every request to `answer`.
    pub(crate) async fn start(answer: impl Fn(&Seen) -> Response + Send + Sync + 'static) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let shared = Shared { seen: seen.clone(), answer: Arc::new(answer) };
        Self::serve(Router::new().fallback(handle).with_state(shared), seen).await
    }

    /// Starts a server that answers every request when a future is ready.
    pub(crate) async fn slow<F: Future<Output = Response> + Send + 'static>(
        answer: impl Fn() -> F + Clone + Send + Sync + 'static,
    ) -> Self {
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let arrived = Arc::clone(&seen);
        let handle = move |uri: Uri, headers: HeaderMap| {
            let path = uri.path().to_owned();
            let seen = Seen { path, query: None, headers, body: Value::Null };
            arrived.lock().expect("no handler panics").push(seen);
            answer()
        };
        Self::serve(Router::new().fallback(handle), seen).await
    }

    async fn serve(router: Router, seen: Arc<Mutex<Vec<Seen>>>) -> Self {
        let listener = TcpListener::bind(new_loopback()).await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let server = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("the server runs until it is dropped");
        });
        Self { base_url: format!("http://{address}/v1"), seen, server }
    }

    /// Returns the requests that arrived.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no handler panics").clone()
    }

    /// Creates a client of this server.
    pub(crate) fn client(&self) -> ProviderClient {
        client_of(&self.base_url)
    }

    /// Creates a client of this server that speaks a protocol.
    pub(crate) fn client_with(&self, protocol: Protocol) -> ProviderClient {
        client(&self.base_url, Profile { protocol, ..Profile::default() })
    }
}

async fn handle(
    State(shared): State<Shared>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let path = uri.path().to_owned();
    let query = uri.query().map(str::to_owned);
    let seen = Seen { path, query, headers, body };
    shared.seen.lock().expect("no handler panics").push(seen.clone());
    (shared.answer)(&seen)
}

/// Creates a client whose limits are so short that tests can wait for them. On a busy machine, a healthy server may exceed them too.
pub(crate) fn hurried_client(base_url: &str, protocol: Protocol) -> ProviderClient {
    let idle = SHORT_IDLE;
    let total = SHORT_TOTAL;
    let limits = ExchangeLimits { idle, total, ..ExchangeLimits::default() };
    let profile = Profile { protocol, ..Profile::default() };
    client_with_limits(base_url, profile, Some(limits))
}

/// The idle limit of a [hurried client](hurried_client).
pub(crate) const SHORT_IDLE: Duration = Duration::from_millis(300);
/// The limit of an exchange of a [hurried client](hurried_client).
pub(crate) const SHORT_TOTAL: Duration = Duration::from_millis(1500);

/// Creates a client that waits as long as a busy machine may need.
pub(crate) fn client_of(base_url: &str) -> ProviderClient {
    client(base_url, Profile::default())
}

/// Creates a client of a provider that waits as long as a busy machine may need.
pub(crate) fn client(base_url: &str, profile: Profile) -> ProviderClient {
    client_with_limits(base_url, profile, None)
}

/// Creates a client of a provider with these limits, or the default ones.
pub(crate) fn client_with_limits(
    base_url: &str,
    profile: Profile,
    limits: Option<ExchangeLimits>,
) -> ProviderClient {
    let limits = limits.unwrap_or_default();
    let api_key = Secret::new(KEY);
    let config = ClientConfig { api_key, limits, profile, ..ClientConfig::new(base_url, "small") };
    ProviderClient::new(config).expect("the configuration is valid")
}

/// Returns a request with one question.
pub(crate) fn request(question: &str) -> ChatRequest {
    ChatRequest {
        caller: "painter".into(),
        key: "run-1/3/painter".into(),
        messages: vec![Message::user(question)],
        ..ChatRequest::default()
    }
}

/// Returns a well-formed reply.
pub(crate) fn completion(text: &str) -> Response {
    let body = json!({
        "model": "small-1",
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7}
    });
    (StatusCode::OK, body.to_string()).into_response()
}
