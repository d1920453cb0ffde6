//! Embeddings: requests and replies of each protocol, faults, and recordings.

use std::sync::Arc;

use axum::{
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use graphrun::models::{
    ClientConfig, ConfigError, EmbeddingClient, EmbeddingModel as _, EmbeddingRecorder,
    EmbeddingReplay, EmbeddingReply, EmbeddingRequest, ModelError, Profile, Protocol, Providers,
    Replay, Secret, TokenUsage,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::peer::{KEY, Peer};

fn reply(body: &Value) -> Response {
    body.to_string().into_response()
}

fn config(peer: &Peer, protocol: Protocol) -> ClientConfig {
    let profile = Profile { protocol, ..Profile::default() };
    ClientConfig {
        api_key: Secret::new(KEY),
        profile,
        ..ClientConfig::new(&peer.base_url, "vectors-1")
    }
}

fn client(peer: &Peer, protocol: Protocol) -> EmbeddingClient {
    EmbeddingClient::new(config(peer, protocol)).expect("the configuration is valid")
}

fn request(texts: &[&str]) -> EmbeddingRequest {
    let texts = texts.iter().map(|it| (*it).to_owned()).collect();
    EmbeddingRequest { caller: "learn".into(), texts, ..EmbeddingRequest::default() }
}

/// Asks a peer that answers with this body.
async fn answer(protocol: Protocol, body: Value) -> Result<EmbeddingReply, ModelError> {
    let peer = Peer::start(move |_| reply(&body)).await;
    client(&peer, protocol).embed(&request(&["a", "b"])).await
}

#[tokio::test]
async fn most_providers_take_a_list_of_texts() {
    let peer = Peer::start(|_| {
        reply(&json!({
            "object": "list",
            "model": "vectors-1-2026",
            // The numbers decide, not the order.
            "data": [
                {"object": "embedding", "index": 1, "embedding": [0, 1.5]},
                {"object": "embedding", "index": 0, "embedding": [-0.25, 0]},
            ],
            "usage": {"prompt_tokens": 8, "total_tokens": 8, "cost": 0.001},
        }))
    })
    .await;
    for protocol in [Protocol::Chat, Protocol::Responses] {
        let found = client(&peer, protocol).embed(&request(&["a", "b"])).await.unwrap();
        let usage = TokenUsage { input_tokens: 8, calls: 1, ..TokenUsage::default() };
        let vectors = vec![vec![-0.25, 0.0], vec![0.0, 1.5]];
        let model = "vectors-1-2026".to_owned();
        assert_eq!(
            found,
            EmbeddingReply {
                vectors,
                usage,
                cost_usd: Some(0.001),
                model,
                ..EmbeddingReply::default()
            }
        );
        let seen = peer.seen().pop().unwrap();
        assert_eq!(seen.path, "/v1/embeddings");
        assert_eq!(seen.body, json!({"model": "vectors-1", "input": ["a", "b"]}));
        assert_eq!(seen.headers["authorization"], format!("Bearer {KEY}"));
        assert_eq!(seen.headers["content-type"], "application/json");
    }
}

#[tokio::test]
async fn google_takes_a_list_of_requests() {
    let peer = Peer::start(|_| {
        reply(&json!({
            "embeddings": [{"values": [1, 0]}, {"values": [0, 1]}],
            "usageMetadata": {"promptTokenCount": 6},
        }))
    })
    .await;
    let found = client(&peer, Protocol::Gemini).embed(&request(&["a", "b"])).await.unwrap();
    assert_eq!(found.vectors, [[1.0, 0.0], [0.0, 1.0]]);
    assert_eq!((found.usage.input_tokens, found.model.as_str()), (6, "vectors-1"));
    let seen = peer.seen().pop().unwrap();
    assert_eq!(seen.path, "/v1/models/vectors-1:batchEmbedContents");
    let one =
        |text: &str| json!({"model": "models/vectors-1", "content": {"parts": [{"text": text}]}});
    assert_eq!(seen.body, json!({"requests": [one("a"), one("b")]}));
    assert_eq!(seen.headers["x-goog-api-key"], KEY);
    assert!(!seen.headers.contains_key("authorization"));
}

#[tokio::test]
async fn tokens_that_are_not_counted_are_estimated() {
    let body = json!({"data": [{"embedding": [1]}, {"embedding": [2]}]});
    let found = answer(Protocol::Chat, body).await.unwrap();
    assert!(found.usage.estimated && found.usage.input_tokens == 1 && found.usage.calls == 1);
    assert_eq!((found.vectors, found.model.as_str()), (vec![vec![1.0], vec![2.0]], "vectors-1"));
}

#[test]
fn a_provider_without_embeddings_is_refused() {
    let key = |name: &str| name.ends_with("_KEY").then(|| "a-key".to_owned());
    let made =
        |model: &str| EmbeddingClient::new(Providers::built_in().config(model, &key).unwrap());
    let error = made("anthropic/claude-sonnet-5").unwrap_err();
    assert!(matches!(error, ConfigError::NoEmbeddings { .. }));
    assert_eq!(
        error.to_string(),
        "anthropic has no embeddings: name a model of another provider, as in openai/text-embedding-3-small"
    );
    assert_eq!(made("text-embedding-3-small").unwrap().name(), "openai/text-embedding-3-small");
    assert_eq!(made("gemini/gemini-embedding-001").unwrap().name(), "gemini/gemini-embedding-001");
}

#[tokio::test]
async fn the_address_of_embeddings_can_be_copied_whole() {
    let peer = Peer::start(|_| reply(&json!({"data": [{"embedding": [1]}]}))).await;
    let base_url = format!("{}/embeddings?api-version=1", peer.base_url);
    let client =
        EmbeddingClient::new(ClientConfig { base_url, ..config(&peer, Protocol::Chat) }).unwrap();
    client.embed(&request(&["a"])).await.unwrap();
    let seen = peer.seen().pop().unwrap();
    assert_eq!(
        (seen.path.as_str(), seen.query.as_deref()),
        ("/v1/embeddings", Some("api-version=1"))
    );
}

#[tokio::test]
async fn a_reply_without_usable_vectors_is_transient() {
    let list = |items: Value| json!({"data": items});
    let cases = [
        (list(json!([{"embedding": [1]}])), "it has 1 vectors for 2 texts"),
        (list(json!([])), "it has 0 vectors for 2 texts"),
        (
            list(json!([{"embedding": [1]}, {"embedding": [1]}, {"embedding": [1]}])),
            "it has 3 vectors for 2 texts",
        ),
        (list(json!([{"embedding": [1]}, {"embedding": [1, 2]}])), "different dimensions, 1 and 2"),
        (list(json!([{"embedding": [1]}, {"embedding": []}])), "a vector is empty"),
        (list(json!([{"embedding": []}, {"embedding": []}])), "a vector is empty"),
        (list(json!([{"embedding": [1]}, {"embedding": [null]}])), "that is not finite"),
        (list(json!([{"embedding": [1]}, {"embedding": ["NaN"]}])), "that is not finite"),
        (list(json!([{"embedding": [1]}, {"embedding": [1e300]}])), "that is not finite"),
        (list(json!([{"embedding": [1]}, {"embedding": [0]}])), "a vector has no direction"),
        (list(json!([{"embedding": [1]}, {"vector": [1]}])), "an item has no vector"),
        (list(json!([{"embedding": [1]}, 7])), "an item has no vector"),
        (
            list(json!([{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}])),
            "two vectors have the same index",
        ),
        (json!({"data": {}}), "the reply is not a list of embeddings (it has [\"data\"])"),
        (json!({"choices": []}), "the reply is not a list of embeddings (it has [\"choices\"])"),
        (json!([1]), "the reply is not a list of embeddings (it has [])"),
    ];
    for (body, says) in cases {
        let error = answer(Protocol::Chat, body.clone()).await.unwrap_err();
        assert!(matches!(error.reason(), ModelError::Transient { .. }), "{body}: {error:?}");
        assert!(error.to_string().contains(says), "{body}: {error}");
    }
    let of_chat = json!({"data": [{"embedding": [1]}, {"embedding": [1]}]});
    let error = answer(Protocol::Gemini, of_chat).await.unwrap_err();
    assert!(error.to_string().contains("not a list of embeddings"), "{error}");
}

#[tokio::test]
async fn failures_have_the_classes_of_chats() {
    type Check = fn(&ModelError) -> bool;
    let cases: [(u16, &str, Check); 7] = [
        (401, "no", |it| matches!(it, ModelError::Auth { .. })),
        (404, "no", |it| matches!(it, ModelError::NotFound { .. })),
        (429, "slow down", |it| matches!(it, ModelError::RateLimited { .. })),
        (503, "no", |it| matches!(it, ModelError::Overloaded { .. })),
        (400, "This model's maximum context length is 8192 tokens", |it| {
            matches!(it, ModelError::ContextOverflow { .. })
        }),
        (200, "{\"error\": {\"code\": 429, \"message\": \"slow down\"}}", |it| {
            matches!(it, ModelError::RateLimited { .. })
        }),
        (200, "{\"data\": [], \"error\": {\"code\": 401, \"message\": \"no\"}}", |it| {
            matches!(it, ModelError::Auth { .. })
        }),
    ];
    for (status, body, is_right) in cases {
        let status = StatusCode::from_u16(status).unwrap();
        let peer = Peer::start(move |_| (status, body).into_response()).await;
        let error = client(&peer, Protocol::Chat).embed(&request(&["a"])).await.unwrap_err();
        assert!(is_right(&error), "{status} {body}: {error:?}");
        assert_eq!(peer.seen().len(), 1, "the client makes one attempt");
    }
}

#[tokio::test]
async fn a_provider_that_is_down_is_not_asked_for_long() {
    let peer = Peer::start(|_| StatusCode::SERVICE_UNAVAILABLE.into_response()).await;
    let client = client(&peer, Protocol::Chat);
    for _ in 0..8 {
        client.embed(&request(&["a"])).await.unwrap_err();
    }
    assert_eq!(peer.seen().len(), 5, "the breaker is open");
    let error = client.embed(&request(&["a"])).await.unwrap_err();
    assert!(error.retry_after().is_some(), "{error:?}");
}

#[tokio::test]
async fn a_recording_answers_by_node_model_and_texts() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run.jsonl");
    // Numbers in a text must survive the removal of keys.
    let vector: Vec<f32> = (1_u16..1_500).map(|it| f32::from(it).sin() / 40.0).collect();
    let sent = vector.clone();
    let peer = Peer::start(move |seen| {
        if seen.body["input"][0] == "bad" {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        let item = json!({"embedding": sent});
        let items = vec![item; seen.body["input"].as_array().unwrap().len()];
        reply(&json!({"model": "m", "data": items, "usage": {"prompt_tokens": 3}}))
    })
    .await;
    let model = Arc::new(client(&peer, Protocol::Chat));
    let recorder = EmbeddingRecorder::wrap(model, "lab/v", &path).unwrap();
    let first = recorder.embed(&request(&["a", "b"])).await.unwrap();
    let failed = recorder.embed(&request(&["bad"])).await.unwrap_err();
    assert_eq!(first.vectors, [vector.clone(), vector]);

    let replay = Arc::new(Replay::load(&path).unwrap());
    let recorded = EmbeddingReplay::new(Arc::clone(&replay), "lab/v");
    let again = recorded.embed(&request(&["a", "b"])).await.unwrap();
    assert_eq!(again, EmbeddingReply { cost_usd: None, ..first });
    assert_eq!(recorded.embed(&request(&["bad"])).await.unwrap_err().kind(), failed.kind());
    let missing = recorded.embed(&request(&["c"])).await.unwrap_err().to_string();
    assert!(missing.contains("answers node \"learn\": nearest is line"), "{missing}");
    let other = EmbeddingReplay::new(Arc::clone(&replay), "lab/w");
    other.embed(&request(&["a", "b"])).await.unwrap_err();
    let elsewhere = EmbeddingRequest { caller: "other".into(), ..request(&["a", "b"]) };
    let missing = recorded.embed(&elsewhere).await.unwrap_err().to_string();
    assert!(missing.contains("the recording has no entry for this node"), "{missing}");
}

#[tokio::test]
async fn a_recording_written_by_hand_has_vectors_as_json() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run.jsonl");
    let line = |text: &str, reply: Value| json!({"v": 1, "node": "learn", "when": {"contains": [text]}, "reply": {"json": reply}});
    let lines = [
        line("cat", json!({"vectors": [[1, 0]]})),
        line("dog", json!({"vectors": [[1, 0], [0, 1]]})),
        line("cow", json!([1])),
    ];
    std::fs::write(&path, lines.map(|it| it.to_string()).join("\n")).unwrap();
    let replay = EmbeddingReplay::new(Arc::new(Replay::load(&path).unwrap()), "lab/v");
    let found = replay.embed(&request(&["a cat"])).await.unwrap();
    assert_eq!((found.vectors, found.usage.estimated), (vec![vec![1.0, 0.0]], true));
    for (text, says) in [
        (
            "a dog",
            "nearest is line 2, but its reply is no list of `vectors`: it has 2 vectors for 1 texts",
        ),
        ("a cow", "nearest is line 3, but its reply is no list of `vectors`: "),
    ] {
        let error = replay.embed(&request(&[text])).await.unwrap_err();
        assert!(matches!(error, ModelError::NoRecording { .. }), "{error:?}");
        assert!(error.to_string().contains(says), "{error}");
    }
}
