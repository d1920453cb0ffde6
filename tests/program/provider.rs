//! A model server that answers from a recording, like a provider, and logs requests.

use std::{
    ops::RangeInclusive,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use graphrun::models::{ChatModel, ChatRequest, Message, Replay};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::Semaphore, task::JoinHandle, time::sleep};

use super::recording_path;
use crate::support::new_loopback;

/// The latency of a model, in milliseconds.
const LATENCY_MS: RangeInclusive<u64> = 5..=120;

/// The server; it stops when it is dropped.
pub(crate) struct Provider {
    pub(crate) base_url: String,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

struct Shared {
    recording: Replay,
    /// The `Idempotency-Key` of every request, in order of arrival.
    asked: Mutex<Vec<String>>,
    gate: Option<Gate>,
}

/// Holds back the calls of one node.
struct Gate {
    node: &'static str,
    /// One permit for each call that has arrived.
    arrived: Semaphore,
    /// One permit for each call that may pass.
    open: Semaphore,
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Provider {
    pub(crate) async fn start(recording: &str) -> Self {
        Self::serve(recording, None).await
    }

    /// Starts a server that holds back calls of this node until `release`.
    pub(crate) async fn holding(recording: &str, node: &'static str) -> Self {
        let arrived = Semaphore::new(0);
        let open = Semaphore::new(0);
        Self::serve(recording, Some(Gate { node, arrived, open })).await
    }

    async fn serve(recording: &str, gate: Option<Gate>) -> Self {
        let recording = Replay::load(recording_path(recording)).unwrap();
        let shared = Arc::new(Shared { recording, asked: Mutex::default(), gate });
        let router = Router::new()
            .route("/v1/chat/completions", post(answer))
            .with_state(Arc::clone(&shared));
        let listener = TcpListener::bind(new_loopback()).await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { base_url, shared, server }
    }

    /// Returns the keys of the requests, sorted.
    pub(crate) fn asked(&self) -> Vec<String> {
        let mut asked = self.shared.asked.lock().unwrap().clone();
        asked.sort();
        asked
    }

    /// Waits until a call is held back.
    pub(crate) async fn until_held(&self) {
        self.gate().arrived.acquire().await.unwrap().forget();
    }

    /// Lets a call pass.
    pub(crate) fn release(&self) {
        self.gate().open.add_permits(1);
    }

    fn gate(&self) -> &Gate {
        self.shared.gate.as_ref().expect("the server was started with `holding`")
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let key = headers["idempotency-key"].to_str().unwrap().to_owned();
    shared.asked.lock().unwrap().push(key.clone());
    let node = key.split('/').nth(2).expect("a key is `run/step/node/index`");
    if let Some(gate) = shared.gate.as_ref().filter(|gate| gate.node == node) {
        gate.arrived.add_permits(1);
        gate.open.acquire().await.unwrap().forget();
    }
    sleep(Duration::from_millis(rand::random_range(LATENCY_MS))).await;
    let messages: Vec<Message> = serde_json::from_value(body["messages"].clone()).unwrap();
    let request = ChatRequest { caller: node.to_owned(), messages, ..ChatRequest::default() };
    match shared.recording.chat(&request).await {
        Ok(reply) => Json(json!({
            "model": body["model"],
            "choices": [{
                "message": {"role": "assistant", "content": reply.text},
                "finish_reason": "stop",
            }],
            "usage": {
                "prompt_tokens": reply.usage.input_tokens,
                "completion_tokens": reply.usage.output_tokens,
            },
        }))
        .into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}
