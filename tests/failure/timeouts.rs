//! Nodes that take too long, in total or without a report, and nodes that block their thread.

use std::{
    io::Read as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use graphrun::{
    event::{Report, Status},
    graph::{Attempts, GraphBuilder, IntoNode, NodeContext, NodeError, Policies, START, node_fn},
};
use tokio::time::{Instant, sleep};

use super::{Noted, Nothing, Saved, Team, caught_by, compiled, noted, notes, notes_its_way};

/// Returns the notes of a run with one node whose timeout is caught, and its seconds.
async fn caught_of(
    node: impl graphrun::graph::Node + 'static,
    policies: Policies,
) -> (String, u64) {
    let graph = GraphBuilder::new::<Team>("late")
        .node("works", node.with_policies(Policies { catch: caught_by("late").catch, ..policies }))
        .node("late", notes_its_way())
        .edge(START, "works")
        .edge("works", "end");
    let saved = Saved::new();
    let engine = saved.engine(&compiled(graph));
    let begun = Instant::now();
    let end = saved.start(&engine).await;
    (notes(&end.state).join(", "), begun.elapsed().as_secs())
}

fn idle(seconds: u64) -> Policies {
    Policies::from(Attempts {
        idle_timeout: Some(Duration::from_secs(seconds)),
        ..Attempts::default()
    })
}

#[tokio::test(start_paused = true)]
async fn the_idle_timeout_aborts_a_silent_node() {
    let silent = || {
        node_fn(|_: Nothing, ctx: NodeContext| async move {
            for _ in 0..3 {
                sleep(Duration::from_secs(8)).await;
                ctx.report(Report::Note { message: "still here".into() }).await;
            }
            std::future::pending::<Result<Noted, NodeError>>().await
        })
    };
    let told = "late after: no sign of progress for 10s";
    assert_eq!(caught_of(silent(), idle(10)).await, (told.to_owned(), 34));
    // Of two timeouts, the first to expire counts.
    let both = Attempts { timeout: Some(Duration::from_secs(20)), ..idle(10).attempts }.into();
    let told = "late after: not finished within 20s";
    assert_eq!(caught_of(silent(), both).await, (told.to_owned(), 20));
}

#[tokio::test(start_paused = true)]
async fn reports_prevent_the_idle_timeout() {
    let beats = node_fn(|_: Nothing, ctx: NodeContext| async move {
        for _ in 0..100 {
            sleep(Duration::from_secs(9)).await;
            ctx.heartbeat();
        }
        noted("worked on")
    });
    assert_eq!(caught_of(beats, idle(10)).await, ("worked on".to_owned(), 900));
}

/// Runs a blocking node beside one that does not block, and returns the notes.
async fn beside(blocks: impl Fn(&NodeContext) + Clone + Send + Sync + 'static) -> Vec<String> {
    let blocking = node_fn(move |_: Nothing, ctx: NodeContext| {
        let blocks = blocks.clone();
        async move {
            blocks(&ctx);
            noted("never")
        }
    });
    let policies = Policies {
        attempts: Attempts { timeout: Some(Duration::from_millis(200)), ..Attempts::default() },
        ..caught_by("late")
    };
    let works = node_fn(|_: Nothing, _| async {
        for _ in 0..20 {
            sleep(Duration::from_millis(5)).await;
        }
        noted("works")
    });
    let graph = GraphBuilder::new::<Team>("blocked")
        .node("blocks", blocking.with_policies(policies))
        .node("works", works)
        .node("late", notes_its_way())
        .edge(START, "blocks")
        .edge(START, "works")
        .edge("blocks", "end")
        .edge("works", "end");
    let saved = Saved::new();
    let engine = saved.engine(&compiled(graph));
    let end = saved.start(&engine).await;
    assert_eq!(end.status, Status::Done);
    notes(&end.state)
}

/// The expected notes: one node is timed out, and the other is not delayed.
const LEFT_BEHIND: [&str; 2] = ["works", "late after: not finished within 200ms"];

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_endless_loop_delays_no_other_node() {
    let freed = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&freed);
    let spins = move |_: &NodeContext| while !flag.load(Ordering::Relaxed) {};
    let noted = beside(spins).await;
    // The node spins until here; the test could not end if it continued.
    freed.store(true, Ordering::Relaxed);
    assert_eq!(noted, LEFT_BEHIND);
}

/// The timer cannot fire while the only thread is blocked.
#[tokio::test]
async fn a_node_that_blocks_the_only_thread_times_out() {
    let blocks = || async {
        thread::sleep(Duration::from_millis(60));
        Ok::<(), NodeError>(())
    };
    let timeout = Some(Duration::from_millis(20));
    let policies = Policies::from(Attempts { timeout, ..Attempts::default() });
    let (told, _) = caught_of(node_fn(move |_: Nothing, _: NodeContext| blocks()), policies).await;
    assert_eq!(told, "late after: not finished within 20ms");
    let policies = Policies::from(Attempts { idle_timeout: timeout, ..Attempts::default() });
    let (told, _) = caught_of(node_fn(move |_: Nothing, _: NodeContext| blocks()), policies).await;
    assert_eq!(told, "late after: no sign of progress for 20ms");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_blocked_read_delays_no_other_node() {
    let (reader, writer) = std::io::pipe().unwrap();
    let reader = Arc::new(reader);
    let read = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&read);
    let reads = move |_: &NodeContext| {
        (&*reader).read_to_end(&mut Vec::new()).unwrap();
        flag.store(true, Ordering::Relaxed);
    };
    let noted = beside(reads).await;
    assert!(!read.load(Ordering::Relaxed), "no writer has run yet");
    drop(writer);
    assert_eq!(noted, LEFT_BEHIND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn blocking_code_can_check_for_cancellation() {
    let told = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&told);
    let asks = move |ctx: &NodeContext| {
        while !ctx.cancel.is_cancelled() {
            thread::sleep(Duration::from_millis(5));
        }
        flag.store(true, Ordering::Relaxed);
    };
    assert_eq!(beside(asks).await, LEFT_BEHIND);
    assert!(told.load(Ordering::Relaxed));
}
