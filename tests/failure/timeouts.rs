//! Nodes that take too long, in all or without a word, and nodes that block their thread.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use graphrun::{
    event::{Report, Status},
    graph::{GraphBuilder, NodeContext, NodeError, Policies, node_fn},
};
use tokio::time::{Instant, sleep};

use super::{Noted, Nothing, Saved, Team, caught_by, compiled, noted, notes, notes_its_way};

/// What a run of one node notes, which is caught when its time is over, and the seconds it took.
async fn caught_of(
    node: impl graphrun::graph::Node + 'static,
    policies: Policies,
) -> (String, u64) {
    let graph = GraphBuilder::new::<Team>("late")
        .node_with("works", node, Policies { catch: caught_by("late").catch, ..policies })
        .node("late", notes_its_way())
        .entry("works")
        .then("works", "end");
    let saved = Saved::new();
    let (engine, begun) = (saved.engine(&compiled(graph)), Instant::now());
    let end = saved.start(&engine).await;
    (notes(&end.state).join(", "), begun.elapsed().as_secs())
}

fn idle(seconds: u64) -> Policies {
    Policies { idle_timeout: Some(Duration::from_secs(seconds)), ..Policies::default() }
}

#[tokio::test(start_paused = true)]
async fn g12_a_node_that_falls_silent_is_dropped_however_long_it_may_work() {
    let silent = || {
        node_fn(|_: Nothing, ctx: NodeContext| async move {
            for _ in 0..3 {
                sleep(Duration::from_secs(8)).await;
                ctx.report(Report::Note { message: "still here".into() }).await;
            }
            std::future::pending::<Result<Noted, NodeError>>().await
        })
    };
    let told = "late after: nothing was heard of it for 10s";
    assert_eq!(caught_of(silent(), idle(10)).await, (told.to_owned(), 34));
    // Of two timeouts the one that is over first counts.
    let both = Policies { timeout: Some(Duration::from_secs(20)), ..idle(10) };
    let told = "late after: not finished within 20s";
    assert_eq!(caught_of(silent(), both).await, (told.to_owned(), 20));
}

#[tokio::test(start_paused = true)]
async fn g12_a_node_that_is_heard_of_in_time_may_take_any_time() {
    let beats = node_fn(|_: Nothing, ctx: NodeContext| async move {
        for _ in 0..100 {
            sleep(Duration::from_secs(9)).await;
            ctx.beat();
        }
        noted("worked on")
    });
    assert_eq!(caught_of(beats, idle(10)).await, ("worked on".to_owned(), 900));
}

/// How a node blocks the thread it runs on.
type Blocks = fn(&NodeContext, &AtomicBool);

/// Runs a node that blocks its thread beside one that does not, and gives what was noted.
async fn beside(blocks: Blocks, freed: &Arc<AtomicBool>) -> Vec<String> {
    let flag = Arc::clone(freed);
    let blocking = node_fn(move |_: Nothing, ctx: NodeContext| {
        let freed = Arc::clone(&flag);
        async move {
            blocks(&ctx, &freed);
            noted("never")
        }
    });
    let policies = Policies { timeout: Some(Duration::from_millis(200)), ..caught_by("late") };
    let works = node_fn(|_: Nothing, _| async {
        for _ in 0..20 {
            sleep(Duration::from_millis(5)).await;
        }
        noted("works")
    });
    let graph = GraphBuilder::new::<Team>("blocked")
        .node_with("blocks", blocking, policies)
        .node("works", works)
        .node("late", notes_its_way())
        .entry("blocks")
        .entry("works")
        .then("blocks", "end")
        .then("works", "end");
    let saved = Saved::new();
    let engine = saved.engine(&compiled(graph));
    let end = saved.start(&engine).await;
    assert_eq!(end.status, Status::Done);
    notes(&end.state)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn g12_a_node_that_blocks_its_thread_is_left_behind_and_holds_up_nobody() {
    let expected = ["works", "late after: not finished within 200ms"];
    let freed = Arc::new(AtomicBool::new(false));
    let begun = Instant::now();
    let sleeps: Blocks = |_, freed| {
        while !freed.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(10));
        }
    };
    assert_eq!(beside(sleeps, &freed).await, expected);
    let spins: Blocks = |_, freed| while !freed.load(Ordering::Relaxed) {};
    assert_eq!(beside(spins, &freed).await, expected);
    assert!(begun.elapsed() < Duration::from_secs(20), "both hang until the test is over");
    freed.store(true, Ordering::Relaxed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn g12_blocking_code_that_asks_is_told_that_nobody_waits_for_it() {
    let asks: Blocks = |ctx, freed| {
        while !ctx.cancel.is_cancelled() {
            thread::sleep(Duration::from_millis(5));
        }
        freed.store(true, Ordering::Relaxed);
    };
    let told = Arc::new(AtomicBool::new(false));
    assert_eq!(beside(asks, &told).await.len(), 2);
    assert!(told.load(Ordering::Relaxed));
}
