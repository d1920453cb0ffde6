//! Disk usage follows the written changes, not the size of the existing data.

use std::{path::Path, sync::Arc, time::Duration};

use graphrun::{
    engine::Engine,
    event::Status,
    graph::{
        Bounds, GraphBuilder, IntoNode, Limits, NodeContext, NodeError, Policies, START, Target,
        node_fn,
    },
    storage::SqliteStorage,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tempfile::TempDir;

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Items {
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    items: Vec<String>,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Chat {
    #[serde(default)]
    #[schemars(extend("x-merge" = "messages"))]
    messages: Vec<Message>,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Message {
    id: String,
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// Returns a text that hardly compresses.
fn noise(seed: u32, length: usize) -> String {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    let characters: Vec<char> = (' '..='~').filter(|it| !['"', '\\'].contains(it)).collect();
    bytes.into_iter().map(|it| characters[usize::from(it) % characters.len()]).collect()
}

fn bounded(turns: u32) -> (Policies, Limits) {
    let bound = Policies::from(Bounds {
        max_visits: Some(turns),
        exhausted: Some(Target::End),
        ..Bounds::default()
    });
    (bound, Limits { steps: u64::from(turns) + 1, ..Limits::default() })
}

/// Returns the bytes of a database after closing it.
async fn stored(path: &Path) -> u64 {
    // The thread that renewed the lease keeps it open for a moment longer.
    for _ in 0..1_000 {
        if !path.with_extension("db-wal").exists() {
            return path.metadata().unwrap().len();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it stays open")
}

/// Runs a graph to its end and returns the bytes on disk.
async fn bytes_of(graph: GraphBuilder, turns: u32) -> u64 {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("runs.db");
    {
        let storage = Arc::new(SqliteStorage::open(&path).unwrap());
        let engine = Engine::new(graph.compile().unwrap()).with_storage(storage);
        let end = engine.run(&json!({})).await.unwrap();
        assert_eq!((end.status, end.position.step.0), (Status::Done, u64::from(turns)));
    }
    stored(&path).await
}

#[tokio::test]
async fn a_list_that_grows_is_stored_once() {
    let append = node_fn(|_: Nothing, ctx: NodeContext| async move {
        let seed = u32::try_from(ctx.task.step.0).unwrap();
        Ok::<_, NodeError>(Items { items: vec![noise(seed, 1_000)] })
    });
    let turns = 1_000;
    let (bound, limits) = bounded(turns);
    let graph = GraphBuilder::new::<Items>("appender")
        .node("append", append.with_policies(bound))
        .edge(START, "append")
        .edge("append", "append")
        .limits(limits);
    let stored = bytes_of(graph, turns).await;
    let content = u64::from(turns) * 1_000;
    assert!(stored * 2 <= content * 3, "{stored} bytes for {content}");
}

#[tokio::test]
async fn a_chat_that_grows_is_stored_once() {
    let speak = node_fn(|_: Nothing, ctx: NodeContext| async move {
        let turn = u32::try_from(ctx.task.step.0).unwrap();
        let message = |half: u32| Message {
            id: format!("m{}", 2 * turn + half),
            text: noise(2 * turn + half, 1_000),
        };
        Ok::<_, NodeError>(Chat { messages: vec![message(0), message(1)] })
    });
    let turns = 400;
    let (bound, limits) = bounded(turns);
    let graph = GraphBuilder::new::<Chat>("chat")
        .node("speak", speak.with_policies(bound))
        .edge(START, "speak")
        .edge("speak", "speak")
        .limits(limits);
    let stored = bytes_of(graph, turns).await;
    let content = u64::from(turns) * 2_000;
    assert!(stored * 2 <= content * 3, "{stored} bytes for {content}");
}
