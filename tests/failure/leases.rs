//! Leases that can no longer be renewed in time: no task of the run starts after the end of the term.

use std::{
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use graphrun::{
    checkpoint::{CheckpointError, Checkpointer},
    compile::CompiledGraph,
    engine::{Engine, RunError},
    graph::{GraphBuilder, NodeContext, NodeError, START, node_fn},
    storage::InMemoryStorage,
};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::{Nothing, Team, compiled, noted};
use crate::support::disturbed::{Disturbed, Happens};

const LEASE: Duration = Duration::from_millis(60);

/// Much longer than any lease here.
const LONG: Duration = Duration::from_secs(60);

/// Returns the error of a run that is overtaken.
async fn overtaken(graph: CompiledGraph, storage: Disturbed) -> CheckpointError {
    let storage: Arc<dyn Checkpointer> = Arc::new(storage);
    let engine = Engine::new(graph).with_storage(storage).with_lease_duration(LEASE);
    let end = timeout(LONG, engine.run(&())).await.expect("the run ends");
    match end.map(|it| it.status).unwrap_err() {
        RunError::Checkpoint(error @ CheckpointError::Overtaken { .. }) => error,
        error => panic!("{error:?}"),
    }
}

fn undisturbed() -> Disturbed {
    Disturbed::new(Arc::new(InMemoryStorage::default()), |_| Happens::Nothing)
}

#[tokio::test]
async fn a_renewal_without_an_answer_ends_with_the_term() {
    let hangs = node_fn(|_: Nothing, _| async { pending::<Result<Value, NodeError>>().await });
    let graph = GraphBuilder::new::<Team>("hangs").node("hangs", hangs).edge(START, "hangs");
    let graph = compiled(graph.edge("hangs", "end"));
    overtaken(graph, undisturbed().with_renewals(|_| Happens::Late(Duration::MAX))).await;
}

/// The thread that renews leases stands still, like one of a process that was stopped.
#[tokio::test]
async fn no_task_starts_after_a_term_that_is_over() {
    let begun = Arc::new(AtomicUsize::new(0));
    let outlives = || {
        let begun = Arc::clone(&begun);
        node_fn(move |_: Nothing, ctx: NodeContext| {
            begun.fetch_add(1, Ordering::SeqCst);
            async move {
                sleep(LEASE * 2).await;
                noted(ctx.node.as_str())
            }
        })
    };
    let graph = GraphBuilder::new::<Team>("two")
        .node("first", outlives())
        .node("second", outlives())
        .edge(START, "first")
        .edge("first", "second")
        .edge("second", "end");
    let (continues, stands_still) = mpsc::channel();
    let stands_still = Mutex::new(stands_still);
    let storage = undisturbed().with_renewals(move |_| {
        if thread::current().name() == Some("lease") {
            let _ = stands_still.lock().unwrap().recv_timeout(LONG);
            return Happens::Nothing;
        }
        continues.send(()).unwrap();
        Happens::Stolen
    });
    overtaken(compiled(graph), storage).await;
    assert_eq!(begun.load(Ordering::SeqCst), 1);
}
