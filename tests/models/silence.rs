//! Providers that are silent while the time of a node runs: the next model of the list, and the end of the run.

use std::{path::Path, sync::Arc, time::Duration};

use axum::{body::Body, response::IntoResponse as _};
use futures_util::{StreamExt as _, stream};
use graphrun::{
    checkpoint::Checkpointer,
    compile::compile,
    diagnostic::SourceFile,
    engine::{Engine, RunEnd},
    event::Status,
    models::{ChatModel, ChatRequest, ModelError, Patience, ProviderClient},
    nodes::{ModelSource, Services, factory},
    registry,
    storage::InMemoryStorage,
    workflow,
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::peer::{Peer, completion, request};

/// A silent model and one that answers.
#[derive(Debug)]
struct Two {
    silent: Arc<ProviderClient>,
    good: Arc<ProviderClient>,
}

impl ModelSource for Two {
    fn model(&self, name: &str) -> Result<Arc<dyn ChatModel>, ModelError> {
        Ok(Arc::clone(if name == "p/x" { &self.silent } else { &self.good }) as _)
    }
}

/// Starts a server that accepts requests and answers none.
async fn silent() -> Peer {
    Peer::slow(std::future::pending).await
}

/// Starts a server whose answers stall after their first pieces.
async fn stalling() -> Peer {
    Peer::start(|_| {
        let first = r#"data: {"choices": [{"index": 0, "delta": {"content": "Te"}}]}"#;
        let pieces = stream::iter([Ok::<_, std::io::Error>(format!("{first}\n\n"))]);
        Body::from_stream(pieces.chain(stream::pending())).into_response()
    })
    .await
}

/// Starts a server that sends a piece of an endless answer every 100 ms.
async fn slow_but_alive() -> Peer {
    Peer::start(|_| {
        let pieces = stream::repeat(()).then(async |()| {
            sleep(Duration::from_millis(100)).await;
            let piece = r#"data: {"choices": [{"index": 0, "delta": {"content": "e"}}]}"#;
            Ok::<_, std::io::Error>(format!("{piece}\n\n"))
        });
        Body::from_stream(pieces).into_response()
    })
    .await
}

/// Runs a node with these models and settings at a provider. Its failures go to a node `flush`.
async fn run(peer: &Peer, models: &str, settings: &str) -> (RunEnd, usize) {
    let good = Peer::start(|_| completion("Teal.")).await;
    let text = format!(
        "graphrun: 1\nname: colour\nstate: {{ colour: string }}\nmodels: {{ m: [{models}] }}\nagents: {{ a: {{ model: m }} \
         }}\nstart: ask\nnodes:\n  ask: {{ agent: a, prompt: {{ text: Which? }}, writes: colour, {settings}, then: end \
         }}\n  flush: {{ set: {{ colour: '\"flushed\"' }}, then: end }}\n"
    );
    let two = Two { silent: Arc::new(peer.client()), good: Arc::new(good.client()) };
    let services = Services { models: Arc::new(two), ..Services::offline() };
    let file = Arc::new(SourceFile { name: "colour.yaml".into(), text });
    let (workflow, _) = workflow::parse(file, Path::new("."), &registry()).unwrap();
    let graph = compile(workflow.into_graph(&factory(services, registry()))).unwrap();
    let storage = Arc::new(InMemoryStorage::default());
    let engine = Engine::new(graph).with_storage(storage as Arc<dyn Checkpointer>);
    (engine.run(&()).await.unwrap(), good.seen().len())
}

#[tokio::test]
async fn the_next_model_is_asked_within_the_timeout_of_the_node() {
    for peer in [silent().await, stalling().await] {
        for settings in ["timeout: 3s", "timeout: { idle: 1s }"] {
            let settings = format!("{settings}, retry: {{ attempts: 1 }}, catch: {{ any: flush }}");
            let (end, asked) = run(&peer, "p/x, b/x", &settings).await;
            let told = (end.status, end.state.get("colour"), asked);
            assert_eq!(told, (Status::Done, Some(&json!("Teal.")), 1), "{:?}", end.reason);
        }
    }
}

#[tokio::test]
async fn silence_is_an_outage_and_slow_work_is_none() {
    let settings = "timeout: 3s, retry: { attempts: 1 }, catch: { any: flush }";
    for peer in [silent().await, stalling().await] {
        let (end, _) = run(&peer, "p/x", settings).await;
        assert_eq!(end.status, Status::Failed, "the run can continue: {:?}", end.reason);
        let reason = end.reason.unwrap();
        assert!(reason.contains("p/x: no answer within"), "{reason}");
    }
    let settings = "timeout: 1500ms, retry: { attempts: 1 }, catch: { timeout: flush }";
    let (end, _) = run(&slow_but_alive().await, "p/x", settings).await;
    let told = (end.status, end.state.get("colour"));
    assert_eq!(told, (Status::Done, Some(&json!("flushed"))), "{:?}", end.reason);
}

#[tokio::test]
async fn silence_opens_the_breaker() {
    let peer = silent().await;
    let client = peer.client();
    let ask = async || {
        let patience = Patience {
            until: Some(Instant::now() + Duration::from_millis(100)),
            silence_min: Duration::from_millis(50),
            silence_max: None,
        };
        let model = Some("silent".to_owned());
        let request = ChatRequest { patience: Some(patience), model, ..request("Which colour?") };
        client.chat(&request).await.unwrap_err()
    };
    for _ in 0..5 {
        assert!(matches!(ask().await, ModelError::Timeout { .. }));
    }
    let error = ask().await;
    assert!(error.is_unsent() && peer.seen().len() == 5, "{error}");
}
