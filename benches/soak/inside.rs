//! Consecutive runs within this process, like in a long-lived program.

use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use graphrun::{
    checkpoint::{RunInfo, RunMaintenance as _},
    engine::{Engine, ShutdownHandle},
    event::EventSink,
    graph::{Attempts, GraphBuilder, IntoNode, NodeContext, NodeError, Policies, START, node_fn},
    state::Update,
    storage::SqliteStorage,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Soak, leaks::Sample};

/// The first runs fill pools and caches.
const WARM_UP: Duration = Duration::from_secs(10);

#[derive(Serialize, Deserialize, JsonSchema)]
struct Channels {
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    notes: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// Runs until the time is over, and returns the resources of this process after each run.
pub(crate) fn run(soak: &Soak) -> Vec<Sample> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let begun = Instant::now();
    let mut samples = Vec::new();
    while Instant::now() < soak.until && !soak.is_over.load(Ordering::Relaxed) {
        runtime.block_on(one(soak, samples.len()));
        if begun.elapsed() > WARM_UP {
            samples.extend(Sample::of(std::process::id()));
        }
        thread::sleep(Duration::from_millis(20));
    }
    samples
}

/// Runs once, with a node that times out; every third run is dropped as a whole.
async fn one(soak: &Soak, nth: usize) {
    let notes = node_fn(|_: Nothing, ctx: NodeContext| async move {
        Ok::<_, NodeError>(Channels { notes: vec![format!("{} {}", ctx.node, "x".repeat(1_000))] })
    });
    let hangs = node_fn(|_: Nothing, _: NodeContext| async {
        std::future::pending::<Result<Channels, NodeError>>().await
    });
    let late = Policies::from(Attempts {
        timeout: Some(Duration::from_millis(30)),
        ..Attempts::default()
    });
    let graph = GraphBuilder::new::<Channels>("inside")
        .node("notes", notes)
        .node("hangs", hangs.with_policies(late))
        .edge(START, "notes")
        .edge(START, "hangs")
        .edge("notes", "end")
        .edge("hangs", "end");
    let graph = graph.compile().unwrap();
    let storage = Arc::new(SqliteStorage::open(soak.folder.join("inside.db")).unwrap());
    let engine = Engine::new(graph).with_storage(storage.clone());
    let (info, events, stop) =
        (RunInfo::new("inside"), EventSink::default(), ShutdownHandle::default());
    let id = info.id.clone();
    let run =
        engine.run(Update::default()).with_info(info).with_events(events).with_shutdown(&stop);
    let patience =
        if nth.is_multiple_of(3) { Duration::from_millis(15) } else { Duration::from_secs(60) };
    // Dropping the run simulates the death of this process.
    drop(tokio::time::timeout(patience, run).await);
    // The release of the run takes some time.
    while storage.remove(&id).await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
