//! Limits of calls, tokens and money: once a limit is reached, no model call begins, also in the middle of a step,
//! and the paid results are kept.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use graphrun::{
    checkpoint::{Outcome, RunHistory as _},
    engine::{Engine, subgraph},
    event::{Report, Status, Usage},
    graph::{
        Attempts, Backoff, Bounds, Dispatch, GraphBuilder, IntoNode, ItemPolicy, Limits, Node,
        NodeContext, NodeError, NodeLimits, Policies, Question, START, Schedule, Target, node_fn,
    },
    models::TokenUsage,
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{
    CompiledGraph, Noted, Nothing, Saved, Team, compiled, name, noted, notes, notes_its_way,
};

/// The model calls.
type Calls = Arc<Mutex<Vec<String>>>;

/// A node that makes this many sequential calls, of a second and a hundred tokens each.
fn spends(calls: u32, made: &Calls) -> impl Node + use<> {
    let made = Arc::clone(made);
    node_fn(move |_: Nothing, ctx: NodeContext| {
        let made = Arc::clone(&made);
        async move {
            for call in 1..=calls {
                let call = format!("{} {call}", ctx.node);
                let answer = async {
                    ctx.within_budget().await;
                    sleep(Duration::from_secs(1)).await;
                    made.lock().unwrap().push(call.clone());
                    let tokens =
                        TokenUsage { input_tokens: 100, calls: 1, ..TokenUsage::default() };
                    let usage = Usage { tokens, cost_usd: Some(0.25) };
                    ctx.report(Report::ModelCall { model: "m".into(), usage, ms: 1 }).await;
                    Ok::<_, NodeError>(call.clone())
                };
                ctx.memo(&call, answer).await?;
            }
            noted(ctx.node.to_string())
        }
    })
}

fn waits(seconds: u64) -> impl Node {
    node_fn(move |_: Nothing, ctx: NodeContext| async move {
        sleep(Duration::from_secs(seconds)).await;
        noted(ctx.node.to_string())
    })
}

fn tokens(tokens: u64) -> Limits {
    Limits { tokens: Some(tokens), ..Limits::default() }
}

fn at_most(calls: u64) -> Limits {
    Limits { calls: Some(calls), ..Limits::default() }
}

fn made(calls: &Calls) -> Vec<String> {
    calls.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn used_up_tokens_prevent_further_model_calls() {
    for (limits, reason) in [
        (at_most(3), "the limit of 3 model calls is reached: the run has made 3"),
        (tokens(250), "the limit of 250 tokens is reached: 300 are used"),
        (
            Limits { usd: Some(0.7), ..Limits::default() },
            "the limit of 0.70 USD is reached: 0.75 are used",
        ),
    ] {
        let calls = Calls::default();
        let saved = Saved::new();
        let graph = GraphBuilder::new::<Team>("one").node("agent", spends(5, &calls));
        let graph = compiled(graph.edge(START, "agent").edge("agent", "end"));
        let engine = |limits: &Limits| saved.engine(&graph).with_limits(limits.clone());
        let end = saved.start(&engine(&limits)).await;
        assert_eq!((end.status, end.reason.as_deref()), (Status::Limit, Some(reason)));
        assert_eq!(made(&calls), ["agent 1", "agent 2", "agent 3"]);

        let again = saved.resume(&engine(&limits)).await.unwrap();
        assert_eq!((again.status, again.reason), (Status::Limit, end.reason));
        assert_eq!(made(&calls).len(), 3, "nothing more is there to be spent");

        let done = saved.resume(&engine(&tokens(10_000))).await.unwrap();
        assert_eq!((done.status, notes(&done.state)), (Status::Done, vec!["agent".to_owned()]));
        assert_eq!(made(&calls), ["agent 1", "agent 2", "agent 3", "agent 4", "agent 5"]);
        assert_eq!(done.position.used.usage.total_tokens(), 500);
    }
}

/// Two nodes that spend and one that does not, in parallel, and a node after them.
fn three(calls: &Calls) -> GraphBuilder {
    GraphBuilder::new::<Team>("three")
        .node("left", spends(4, calls))
        .node("right", spends(1, calls))
        .node("slow", waits(60))
        .node("last", notes_its_way())
        .edge(START, "left")
        .edge(START, "right")
        .edge(START, "slow")
        .edge(["left", "right", "slow"], "last")
        .edge("last", "end")
}

#[tokio::test(start_paused = true)]
async fn model_calls_in_progress_complete_and_are_kept() {
    let calls = Calls::default();
    let saved = Saved::new();
    let graph = compiled(three(&calls));
    let engine = |limit| saved.engine(&graph).with_limits(tokens(limit));
    let start = Instant::now();
    let end = saved.start(&engine(300)).await;
    assert_eq!((end.status, start.elapsed().as_secs()), (Status::Limit, 60));
    let mut first = made(&calls);
    first.sort();
    assert_eq!(first, ["left 1", "left 2", "right 1"], "what all of them spend is counted");
    let records = saved.storage.records(saved.run()).await.unwrap();
    let ended = records.iter().filter(|it| !matches!(it.outcome, Outcome::MemoSaved { .. }));
    let mut ended: Vec<_> =
        ended.map(|it| (it.node.as_str(), it.outcome == Outcome::Aborted)).collect();
    ended.sort_unstable();
    assert_eq!(ended, [("left", true), ("right", false), ("slow", false)]);

    let done = saved.resume(&engine(1_000)).await.unwrap();
    assert_eq!((done.status, start.elapsed().as_secs()), (Status::Done, 62));
    assert_eq!(notes(&done.state), ["left", "right", "slow", "last"]);
    assert_eq!(made(&calls)[3..], ["left 3", "left 4"]);
}

#[tokio::test(start_paused = true)]
async fn used_up_tokens_in_mid_step_lead_to_exhausted() {
    let calls = Calls::default();
    let saved = Saved::new();
    let limits = Limits { exhausted: Some(Target::Node(name("flush"))), ..tokens(300) };
    let graph = three(&calls).limits(limits);
    // The `exhausted` target may spend more.
    let graph = graph.node("flush", spends(2, &calls)).edge("flush", "end");
    let graph = compiled(graph);
    let end = saved.start(&saved.engine(&graph)).await;
    let reason = "the limit of 300 tokens is reached: 300 are used";
    assert_eq!((end.status, end.reason.as_deref()), (Status::Done, Some(reason)));
    assert_eq!(notes(&end.state), ["right", "slow", "flush"]);
    assert_eq!(made(&calls)[3..], ["flush 1", "flush 2"]);
}

/// A node that makes calls of a hundred tokens each, and knows so before.
fn plans(calls: &Calls) -> impl Node + use<> {
    let calls = Arc::clone(calls);
    node_fn(move |_: Nothing, ctx: NodeContext| {
        let calls = Arc::clone(&calls);
        async move {
            let tokens = TokenUsage { input_tokens: 100, calls: 1, ..TokenUsage::default() };
            let usage = Usage { tokens, cost_usd: Some(0.25) };
            for call in 1..=4 {
                let call = format!("{} {call}", ctx.node);
                let answer = async {
                    let _permit = ctx.within_budget_for(usage).await;
                    calls.lock().unwrap().push(call.clone());
                    ctx.report(Report::ModelCall { model: "m".into(), usage, ms: 1 }).await;
                    Ok::<_, NodeError>(call.clone())
                };
                ctx.memo(&call, answer).await?;
            }
            noted(ctx.node.to_string())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_fit_into_the_limit_is_not_made() {
    for limits in [tokens(299), Limits { usd: Some(0.74), ..Limits::default() }] {
        let calls = Calls::default();
        let saved = Saved::new();
        let graph = GraphBuilder::new::<Team>("one").node("agent", plans(&calls));
        let graph = compiled(graph.edge(START, "agent").edge("agent", "end"));
        let engine = |limits: &Limits| saved.engine(&graph).with_limits(limits.clone());
        let end = saved.start(&engine(&limits)).await;
        let reason = match limits.tokens {
            Some(_) => {
                "the limit of 299 tokens is reached: 200 are used, and the next call needs at least 100"
            }
            None => {
                "the limit of 0.74 USD is reached: 0.50 are used, and the next call costs at least 0.25"
            }
        };
        assert_eq!((end.status, end.reason.as_deref()), (Status::Limit, Some(reason)));
        assert_eq!(made(&calls), ["agent 1", "agent 2"]);

        let again = saved.resume(&engine(&limits)).await.unwrap();
        assert_eq!((again.status, again.reason), (Status::Limit, end.reason));
        let done = saved.resume(&engine(&tokens(400))).await.unwrap();
        assert_eq!(
            (done.status, made(&calls).len()),
            (Status::Done, 4),
            "the last one fits exactly"
        );
    }
}

/// Three nodes in parallel that plan calls of some seconds each.
fn planners(calls: &Calls) -> GraphBuilder {
    let plans = |seconds: u64| {
        let calls = Arc::clone(calls);
        node_fn(move |_: Nothing, ctx: NodeContext| {
            let calls = Arc::clone(&calls);
            async move {
                let tokens = TokenUsage { calls: 1, ..TokenUsage::default() };
                let usage = Usage { tokens, cost_usd: None };
                for call in 1..=4 {
                    let call = format!("{} {call}", ctx.node);
                    let answer = async {
                        let permit = ctx.within_budget_for(usage).await;
                        calls.lock().unwrap().push(call.clone());
                        sleep(Duration::from_secs(seconds)).await;
                        ctx.report(Report::ModelCall { model: "m".into(), usage, ms: 1 }).await;
                        drop(permit);
                        Ok::<_, NodeError>(call.clone())
                    };
                    ctx.memo(&call, answer).await?;
                }
                noted(ctx.node.to_string())
            }
        })
    };
    let names = ["a", "b", "c"];
    let graph = GraphBuilder::new::<Team>("planners");
    let graph = names
        .into_iter()
        .zip([2, 3, 7])
        .fold(graph, |graph, (name, seconds)| graph.node(name, plans(seconds)).edge(START, name));
    let last = notes_its_way().without_models();
    graph.node("last", last).edge(names, "last").edge("last", "end")
}

#[tokio::test(start_paused = true)]
async fn no_call_beyond_a_limit_of_calls_is_made() {
    for limit in 1..=5 {
        let calls = Calls::default();
        let saved = Saved::new();
        let graph = compiled(planners(&calls));
        let engine = |limit| saved.engine(&graph).with_limits(at_most(limit));
        let end = saved.start(&engine(limit)).await;
        assert_eq!((end.status, made(&calls).len() as u64), (Status::Limit, limit));
        let done = saved.resume(&engine(12)).await.unwrap();
        assert_eq!((done.status, made(&calls).len()), (Status::Done, 12), "{:?}", done.reason);
        assert_eq!(done.position.used.usage.tokens.calls, 12);
    }
}

#[tokio::test(start_paused = true)]
async fn used_up_calls_lead_to_exhausted_and_do_not_stop_free_nodes() {
    let calls = Calls::default();
    let saved = Saved::new();
    let limits = Limits { exhausted: Some(Target::Node(name("flush"))), ..at_most(2) };
    let graph = GraphBuilder::new::<Team>("one")
        .node("free", notes_its_way().without_models())
        .node("agent", spends(5, &calls))
        .node("flush", spends(2, &calls))
        .edge(START, "free")
        .edge("free", "agent")
        .edge("agent", "end")
        .edge("flush", "end");
    let end = saved.start(&saved.engine(&compiled(graph.limits(limits)))).await;
    let reason = "the limit of 2 model calls is reached: the run has made 2";
    assert_eq!((end.status, end.reason.as_deref()), (Status::Done, Some(reason)));
    // The `exhausted` target may call models.
    assert_eq!(made(&calls), ["agent 1", "agent 2", "flush 1", "flush 2"]);

    let calls = Calls::default();
    let saved = Saved::new();
    let graph = GraphBuilder::new::<Team>("one")
        .node("agent", spends(1, &calls))
        .node("free", notes_its_way().without_models())
        .node("more", spends(1, &calls))
        .edge(START, "agent")
        .edge("agent", "free")
        .edge("free", "more")
        .edge("more", "end");
    let end = saved.start(&saved.engine(&compiled(graph)).with_limits(at_most(1))).await;
    assert_eq!((end.status, made(&calls)), (Status::Limit, vec!["agent 1".to_owned()]));
    assert_eq!(notes(&end.state), ["agent", "free"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_fit_leads_to_exhausted() {
    let calls = Calls::default();
    let saved = Saved::new();
    let limits = Limits { exhausted: Some(Target::Node(name("flush"))), ..tokens(150) };
    let graph = GraphBuilder::new::<Team>("one")
        .node("agent", plans(&calls))
        .node("flush", plans(&calls))
        .edge(START, "agent")
        .edge("agent", "end")
        .edge("flush", "end")
        .limits(limits);
    let end = saved.start(&saved.engine(&compiled(graph))).await;
    let reason =
        "the limit of 150 tokens is reached: 100 are used, and the next call needs at least 100";
    assert_eq!((end.status, end.reason.as_deref()), (Status::Done, Some(reason)));
    assert_eq!(made(&calls)[..2], ["agent 1", "flush 1"]);
    assert_eq!((made(&calls).len(), notes(&end.state)), (5, vec!["flush".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn waiting_tasks_do_not_start_without_tokens() {
    let calls = Calls::default();
    let saved = Saved::new();
    let graph = GraphBuilder::new::<Team>("queue")
        .node("first", spends(3, &calls).with_policies(Policies::default()))
        .node("second", spends(1, &calls))
        .edge(START, "first")
        .edge(START, "second")
        .edge("first", "end")
        .edge("second", "end");
    let graph = compiled(graph);
    let engine = |limit| {
        let limits = Limits { concurrency: 1, ..tokens(limit) };
        let engine: Engine = saved.engine(&graph).with_limits(limits);
        engine
    };
    let end = saved.start(&engine(200)).await;
    assert_eq!((end.status, made(&calls).len()), (Status::Limit, 2));
    let done = saved.resume(&engine(1_000)).await.unwrap();
    assert_eq!(done.status, Status::Done);
    assert_eq!(made(&calls), ["first 1", "first 2", "first 3", "second 1"]);
}

/// A node with one call of a second, which plans a hundred tokens and uses this many.
fn plans_too_much(used: u64, calls: &Calls) -> impl Node + use<> {
    let calls = Arc::clone(calls);
    node_fn(move |_: Nothing, ctx: NodeContext| {
        let calls = Arc::clone(&calls);
        async move {
            let usage = |input_tokens| {
                let tokens = TokenUsage { input_tokens, calls: 1, ..TokenUsage::default() };
                Usage { tokens, cost_usd: None }
            };
            let _permit = ctx.within_budget_for(usage(100)).await;
            calls.lock().unwrap().push(ctx.node.to_string());
            sleep(Duration::from_secs(1)).await;
            let usage = usage(used);
            ctx.report(Report::ModelCall { model: "m".into(), usage, ms: 1 }).await;
            noted(ctx.node.to_string())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn calls_at_once_fit_into_the_limit_together() {
    // The limit, the tokens that each call uses, and then: how many calls are made, and in which time.
    let cases = [(1_000, 100, 3, 1), (250, 100, 2, 1), (150, 100, 1, 1), (150, 20, 3, 3)];
    for (limit, used, calls_made, seconds) in cases {
        let calls = Calls::default();
        let saved = Saved::new();
        let mut graph = GraphBuilder::new::<Team>("parallel");
        for node in ["a", "b", "c"] {
            graph = graph.node(node, plans_too_much(used, &calls)).edge(START, node);
            graph = graph.edge(node, "end");
        }
        let engine = saved.engine(&compiled(graph)).with_limits(tokens(limit));
        let start = Instant::now();
        let end = saved.start(&engine).await;
        let status = if calls_made == 3 { Status::Done } else { Status::Limit };
        let seen = (end.status, made(&calls).len(), start.elapsed().as_secs());
        assert_eq!(seen, (status, calls_made, seconds), "{limit} {used}: {:?}", end.reason);
        assert!(end.position.used.usage.total_tokens() <= limit);
    }
}

/// Reserves a hundred tokens for a call of a second, which uses that many or fails without a usage.
async fn calls_once(ctx: &NodeContext, fails: bool) -> Result<(), NodeError> {
    let tokens = TokenUsage { input_tokens: 100, calls: 1, ..TokenUsage::default() };
    let usage = Usage { tokens, cost_usd: None };
    let permit = ctx.within_budget_for(usage).await;
    sleep(Duration::from_secs(1)).await;
    if fails {
        return Err(NodeError::permanent("no connection"));
    }
    ctx.report(Report::ModelCall { model: "m".into(), usage, ms: 1 }).await;
    drop(permit);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ends_without_usage_lets_the_next_one_begin() {
    let node = || {
        node_fn(|_: Nothing, ctx: NodeContext| async move {
            // The first call fails, and another one is dropped while it waits.
            let failed = calls_once(&ctx, true);
            let dropped = tokio::time::timeout(Duration::from_millis(1), calls_once(&ctx, false));
            let (failed, dropped) = tokio::join!(failed, dropped);
            assert!(failed.is_err() && dropped.is_err());
            calls_once(&ctx, false).await?;
            sleep(Duration::from_secs(600)).await;
            noted(ctx.node.to_string())
        })
    };
    let graph = GraphBuilder::new::<Team>("failing").node("a", node()).node("b", node());
    let graph = graph.edge(START, "a").edge(START, "b").edge("a", "end").edge("b", "end");
    let saved = Saved::new();
    let engine = saved.engine(&compiled(graph)).with_limits(tokens(250));
    let start = Instant::now();
    let end = saved.start(&engine).await;
    assert_eq!(
        (end.status, notes(&end.state)),
        (Status::Done, vec!["a".to_owned(), "b".to_owned()])
    );
    assert!(start.elapsed().as_secs() < 610, "no call waits for one that has ended");
}

#[tokio::test(start_paused = true)]
async fn calls_of_nested_runs_share_the_limit_of_the_outer_run() {
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let of_node = Arc::clone(&running);
    let seen = Arc::clone(&most);
    let agent = move || {
        let running = Arc::clone(&of_node);
        let most = Arc::clone(&seen);
        node_fn(move |_: Nothing, ctx: NodeContext| {
            let running = Arc::clone(&running);
            let most = Arc::clone(&most);
            async move {
                let tokens = TokenUsage { input_tokens: 100, calls: 1, ..TokenUsage::default() };
                let usage = Usage { tokens, cost_usd: None };
                let permit = ctx.within_budget_for(usage).await;
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(Duration::from_secs(90)).await;
                running.fetch_sub(1, Ordering::SeqCst);
                drop(permit);
                noted(ctx.node.to_string())
            }
        })
    };
    let mut inner = GraphBuilder::new::<Team>("inner");
    for node in ["a", "b", "c"] {
        inner = inner.node(node, agent()).edge(START, node).edge(node, "end");
    }
    let nested = subgraph(compiled(inner), |(): ()| Noted { notes: Vec::new() }, |it: Team| it);
    // The wait for the permit is not idle.
    let idle_timeout = Some(Duration::from_secs(100));
    let attempts = Attempts { idle_timeout, ..Attempts::default() };
    let graph = GraphBuilder::new::<Team>("outer")
        .node("nested", nested.with_policies(Policies::from(attempts)))
        .node("beside", agent())
        .edge(START, "nested")
        .edge(START, "beside")
        .edge("nested", "end")
        .edge("beside", "end");
    let saved = Saved::new();
    let end = saved.start(&saved.engine(&compiled(graph)).with_limits(tokens(250))).await;
    assert_eq!((end.status, most.load(Ordering::SeqCst)), (Status::Done, 2), "{:?}", end.reason);
}

#[tokio::test(start_paused = true)]
async fn the_usage_of_a_nested_call_counts_before_the_next_one() {
    let calls = Calls::default();
    let mut inner = GraphBuilder::new::<Team>("inner");
    for node in ["a", "b", "c"] {
        inner = inner.node(node, plans_too_much(100, &calls)).edge(START, node).edge(node, "end");
    }
    let nested = subgraph(compiled(inner), |(): ()| Noted { notes: Vec::new() }, |it: Team| it);
    let mut graph = GraphBuilder::new::<Team>("outer").node("nested", nested);
    graph = graph.edge(START, "nested").edge("nested", "end");
    for node in ["d", "e", "f"] {
        graph = graph.node(node, plans_too_much(100, &calls)).edge(START, node).edge(node, "end");
    }
    let saved = Saved::new();
    let end = saved.start(&saved.engine(&compiled(graph)).with_limits(tokens(250))).await;
    assert_eq!((end.status, made(&calls).len()), (Status::Limit, 2), "{:?}", end.reason);
    assert_eq!(end.position.used.usage.total_tokens(), 0, "the step is not committed");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waited_for_its_turn_must_still_fit() {
    let calls = Calls::default();
    let made_late = Arc::clone(&calls);
    let waits = node_fn(move |_: Nothing, ctx: NodeContext| {
        let calls = Arc::clone(&made_late);
        async move {
            let tokens = TokenUsage { input_tokens: 10, calls: 1, ..TokenUsage::default() };
            let least = Usage { tokens, cost_usd: None };
            let permit = ctx.within_budget_for(least).await;
            ctx.reporter.still_within_budget(least).await;
            calls.lock().unwrap().push("in time".into());
            // The other node has used the rest meanwhile.
            sleep(Duration::from_secs(5)).await;
            ctx.reporter.still_within_budget(least).await;
            calls.lock().unwrap().push("late".into());
            drop(permit);
            noted("waits")
        }
    });
    let graph = GraphBuilder::new::<Team>("g")
        .node("spends", spends(1, &Calls::default()))
        .node("waits", waits)
        .edge(START, "spends")
        .edge(START, "waits")
        .edge("spends", "end")
        .edge("waits", "end");
    let saved = Saved::new();
    let end = saved.start(&saved.engine(&compiled(graph)).with_limits(tokens(105))).await;
    let reason =
        "the limit of 105 tokens is reached: 100 are used, and the next call needs at least 10";
    assert_eq!((end.status, end.reason.as_deref()), (Status::Limit, Some(reason)));
    assert_eq!(made(&calls), ["in time"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_an_attempt_left_behind_spends_nothing_later() {
    let calls = Calls::default();
    let made_later = Arc::clone(&calls);
    let leaves = node_fn(move |_: Nothing, ctx: NodeContext| {
        let calls = Arc::clone(&made_later);
        async move {
            if ctx.attempt == 1 {
                tokio::spawn(async move {
                    sleep(Duration::from_secs(60)).await;
                    ctx.within_budget().await;
                    calls.lock().unwrap().push("late".to_owned());
                });
                return Err(NodeError::transient("try again"));
            }
            sleep(Duration::from_secs(3_600)).await;
            noted("second")
        }
    });
    let retry = Backoff { attempts_max: Some(2), ..Backoff::default() };
    let attempts = Attempts { retry, ..Attempts::default() };
    let leaves = leaves.with_policies(Policies::from(attempts));
    let graph = GraphBuilder::new::<Team>("late").node("leaves", leaves);
    let graph = compiled(graph.edge(START, "leaves").edge("leaves", "end"));
    let saved = Saved::new();
    let end = saved.start(&saved.engine(&graph)).await;
    assert_eq!((end.status, notes(&end.state)), (Status::Done, vec!["second".to_owned()]));
    assert!(made(&calls).is_empty());
}

/// A map over ten numbers, two at once, each of which uses a hundred tokens; the node has a limit of 250.
fn narrow_map(exhausted: Option<&Target>, calls: &Calls) -> CompiledGraph {
    let calls = Arc::clone(calls);
    let work = node_fn(move |_: Nothing, ctx: NodeContext| {
        let calls = Arc::clone(&calls);
        async move {
            sleep(Duration::from_secs(1)).await;
            calls.lock().unwrap().push(format!("{}", ctx.task.index));
            let tokens = TokenUsage { input_tokens: 100, calls: 1, ..TokenUsage::default() };
            let usage = Usage { tokens, cost_usd: None };
            ctx.report(Report::ModelCall { model: "m".into(), usage, ms: 1 }).await;
            noted("worked")
        }
    });
    let limits = NodeLimits { tokens: Some(250), ..NodeLimits::default() };
    let items = Some(ItemPolicy::default());
    let policies = Policies {
        bounds: Bounds { limits: Some(limits), exhausted: exhausted.cloned(), ..Bounds::default() },
        schedule: Schedule { width_max: Some(2), items, ..Schedule::default() },
        ..Policies::default()
    };
    let graph = GraphBuilder::new::<Team>("map")
        .node("start", notes_its_way())
        .node("work", work.with_policies(policies))
        .node("then", notes_its_way())
        .edge(START, "start")
        .route("start", ["work"], |_: &Nothing| {
            (0..10).map(|it| Dispatch::new(name("work"), json!(it))).collect::<Vec<_>>()
        })
        .edge("work", "then")
        .edge("then", "end");
    let has_over = exhausted.is_some();
    compiled(if has_over { graph.node("over", notes_its_way()).edge("over", "end") } else { graph })
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_a_node_stops_the_items_that_have_not_begun() {
    let reason = "`work` has used 400 of its 250 tokens";
    let calls = Calls::default();
    let saved = Saved::new();
    let graph = narrow_map(Some(&Target::Node(name("over"))), &calls);
    let end = saved.start(&saved.engine(&graph)).await;
    let mut expected = vec!["start".to_owned()];
    expected.extend(vec!["worked".to_owned(); made(&calls).len()]);
    expected.push(format!("over after: {reason}"));
    assert_eq!((end.status, notes(&end.state)), (Status::Done, expected));
    assert_eq!(made(&calls).len(), 4, "two at once, until the limit is reached");

    let calls = Calls::default();
    let saved = Saved::new();
    let graph = narrow_map(None, &calls);
    let end = saved.start(&saved.engine(&graph)).await;
    assert_eq!((end.status, made(&calls).len()), (Status::Failed, 4));
    assert!(end.reason.as_ref().is_some_and(|it| it.contains(reason)), "{:?}", end.reason);
    // The limit still holds when the run is retried.
    let again = saved.engine(&graph).retry(saved.run()).await.unwrap();
    assert_eq!((again.status, made(&calls).len()), (Status::Failed, 4));
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_a_node_ends_no_task_that_waits_for_a_person() {
    let asks = node_fn(|_: Nothing, ctx: NodeContext| async move {
        if ctx.answers.is_empty() {
            let tokens = TokenUsage { input_tokens: 100, calls: 1, ..TokenUsage::default() };
            let usage = Usage { tokens, cost_usd: None };
            ctx.report(Report::ModelCall { model: "m".into(), usage, ms: 1 }).await;
        }
        noted(ctx.ask::<String>(Question::new("which", "Which one?"))?)
    });
    let limits = NodeLimits { tokens: Some(50), ..NodeLimits::default() };
    let policies = Policies::from(Bounds { limits: Some(limits), ..Bounds::default() });
    let graph = GraphBuilder::new::<Team>("asks").node("asks", asks.with_policies(policies));
    let graph = compiled(graph.edge(START, "asks").edge("asks", "end"));
    let saved = Saved::new();
    let engine = saved.engine(&graph);
    assert_eq!(saved.start(&engine).await.status, Status::Paused);
    let end = engine.resume(saved.run()).answer("which", "this one").await.unwrap();
    assert_eq!((end.status, notes(&end.state)), (Status::Done, vec!["this one".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_a_node_ends_its_retries() {
    let calls = Calls::default();
    let attempts = Arc::clone(&calls);
    let fails = node_fn(move |_: Nothing, ctx: NodeContext| {
        let calls = Arc::clone(&attempts);
        async move {
            calls.lock().unwrap().push(format!("{}", ctx.attempt));
            let tokens = TokenUsage { input_tokens: 100, calls: 1, ..TokenUsage::default() };
            let usage = Usage { tokens, cost_usd: None };
            ctx.report(Report::ModelCall { model: "m".into(), usage, ms: 1 }).await;
            Err::<Noted, _>(NodeError::transient("broken"))
        }
    });
    let retry = Backoff { attempts_max: Some(9), ..Backoff::default() };
    let limits = NodeLimits { tokens: Some(250), ..NodeLimits::default() };
    let policies = Policies {
        attempts: Attempts { retry, ..Attempts::default() },
        bounds: Bounds { limits: Some(limits), ..Bounds::default() },
        ..Policies::default()
    };
    let graph = GraphBuilder::new::<Team>("retries").node("fails", fails.with_policies(policies));
    let graph = compiled(graph.edge(START, "fails").edge("fails", "end"));
    let saved = Saved::new();
    let end = saved.start(&saved.engine(&graph)).await;
    assert_eq!((end.status, made(&calls).len()), (Status::Failed, 3));
}
