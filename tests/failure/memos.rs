//! Memos: parts of a node's work that are saved before the node continues (G2).

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use graphrun::{
    checkpoint::RunHistory as _,
    compile::CompiledGraph,
    event::{Report, Status, Usage},
    graph::{
        Attempts, Backoff, GraphBuilder, IntoNode, NodeContext, NodeError, Policies, START, node_fn,
    },
    models::TokenUsage,
};

use super::{Nothing, Saved, Team, compiled, noted};

/// The parts that were done, in their order.
type Done = Arc<Mutex<Vec<&'static str>>>;

/// The event between the two parts of the node.
#[derive(Clone, Copy, PartialEq)]
enum Between {
    Nothing,
    /// It waits forever.
    Waits,
    /// It fails, and may be retried.
    Transient,
    /// It fails for good.
    Permanent,
}

async fn part(done: &Done, ctx: &NodeContext, name: &'static str) -> Result<String, NodeError> {
    done.lock().unwrap().push(name);
    // Each part costs ten tokens.
    let tokens = TokenUsage { output_tokens: 10, calls: 1, ..TokenUsage::default() };
    let usage = Usage { tokens, cost_usd: None };
    ctx.report(Report::ModelCall { model: "m".into(), usage, ms: 1 }).await;
    Ok(format!("{name} in attempt {}", ctx.attempt))
}

/// A node of two parts. The event between them happens only the first time.
fn graph(done: &Done, between: Between) -> CompiledGraph {
    let done = Arc::clone(done);
    let is_first = Arc::new(AtomicBool::new(true));
    let node = node_fn(move |_: Nothing, ctx: NodeContext| {
        let done = Arc::clone(&done);
        let is_first = Arc::clone(&is_first);
        async move {
            let one: String = ctx.memo("one", part(&done, &ctx, "one")).await?;
            if is_first.swap(false, Ordering::Relaxed) {
                match between {
                    Between::Nothing => (),
                    Between::Waits => std::future::pending().await,
                    Between::Transient => return Err(NodeError::transient("once")),
                    Between::Permanent => return Err(NodeError::permanent("for good")),
                }
            }
            let two: String = ctx.memo("two", part(&done, &ctx, "two")).await?;
            noted(format!("{one}, {two}"))
        }
    });
    let retry = Backoff { attempts_max: Some(2), ..Backoff::default() };
    let policies = Policies::from(Attempts { retry, ..Attempts::default() });
    compiled(
        GraphBuilder::new::<Team>("parts")
            .node("parts", node.with_policies(policies))
            .edge(START, "parts")
            .edge("parts", "end"),
    )
}

async fn tokens(saved: &Saved) -> u64 {
    let records = saved.storage.records(saved.run()).await.unwrap();
    records.last().unwrap().usage.total_tokens()
}

#[tokio::test(start_paused = true)]
async fn another_process_does_not_repeat_a_saved_part() {
    let done = Done::default();
    let saved = Saved::new();
    let engine = saved.engine(&graph(&done, Between::Waits));
    let run = saved.start(&engine);
    // Simulates the death of the process: the run is dropped at its current position.
    let minute = std::time::Duration::from_secs(60);
    assert!(tokio::time::timeout(minute, run).await.is_err(), "it waits between its parts");
    assert_eq!(*done.lock().unwrap(), ["one"]);
    let engine = saved.engine(&graph(&done, Between::Nothing));
    let end = saved.resume(&engine).await.unwrap();
    assert_eq!(end.status, Status::Done);
    assert_eq!(*done.lock().unwrap(), ["one", "two"]);
    assert_eq!(super::notes(&end.state), ["one in attempt 1, two in attempt 1"]);
    assert_eq!(tokens(&saved).await, 20, "what the first process took is known, and counted once");
}

#[tokio::test(start_paused = true)]
async fn the_next_attempt_does_not_repeat_a_saved_part() {
    let done = Done::default();
    let saved = Saved::new();
    let end = saved.start(&saved.engine(&graph(&done, Between::Transient))).await;
    assert_eq!(super::notes(&end.state), ["one in attempt 1, two in attempt 2"]);
    assert_eq!(*done.lock().unwrap(), ["one", "two"]);
    assert_eq!(tokens(&saved).await, 20);
}

#[tokio::test(start_paused = true)]
async fn retry_repeats_all_parts_of_a_failed_task() {
    let done = Done::default();
    let saved = Saved::new();
    let graph = graph(&done, Between::Permanent);
    let engine = saved.engine(&graph);
    assert_eq!(saved.start(&engine).await.status, Status::Failed);
    let end = saved.resume(&engine).await.unwrap();
    assert_eq!(end.status, Status::Done);
    assert_eq!(
        *done.lock().unwrap(),
        ["one", "one", "two"],
        "a saved memo may be the cause of \
        the failure"
    );
}

#[tokio::test]
async fn two_parts_of_one_name_are_refused() {
    let node = node_fn(|_: Nothing, ctx: NodeContext| async move {
        let one: u32 = ctx.memo("part", async { Ok(1) }).await?;
        let two: u32 = ctx.memo("part", async { Ok(2) }).await?;
        noted(format!("{one}{two}"))
    });
    let graph = compiled(
        GraphBuilder::new::<Team>("twice")
            .node("twice", node)
            .edge(START, "twice")
            .edge("twice", "end"),
    );
    let saved = Saved::new();
    let end = saved.start(&saved.engine(&graph)).await;
    assert_eq!(end.reason.unwrap(), "`twice` failed: two memos of this node are called `part`");
}

#[tokio::test]
async fn a_part_that_fails_is_not_saved() {
    let done = Done::default();
    let fails = Arc::new(AtomicBool::new(true));
    let noted_down = Arc::clone(&done);
    let node = node_fn(move |_: Nothing, ctx: NodeContext| {
        let done = Arc::clone(&noted_down);
        let fails = Arc::clone(&fails);
        async move {
            let work = async {
                done.lock().unwrap().push("part");
                if fails.swap(false, Ordering::Relaxed) {
                    return Err(NodeError::permanent("not this time"));
                }
                Ok(7)
            };
            let number: u32 = ctx.memo("part", work).await?;
            noted(number.to_string())
        }
    });
    let graph = compiled(
        GraphBuilder::new::<Team>("once")
            .node("once", node)
            .edge(START, "once")
            .edge("once", "end"),
    );
    let saved = Saved::new();
    let engine = saved.engine(&graph);
    assert_eq!(saved.start(&engine).await.status, Status::Failed);
    assert_eq!(super::notes(&saved.resume(&engine).await.unwrap().state), ["7"]);
    assert_eq!(*done.lock().unwrap(), ["part", "part"]);
}
