//! Runs through the public API: time, panics, stops, crashes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::support::{
    Ledger,
    disturbed::Disturbed,
    team::{Noted, Nothing, compiled, name, noted},
};
use futures_util::future::BoxFuture;
use graphrun::{
    checkpoint::{CheckpointError, Checkpointer, Outcome, RunHistory as _, RunInfo},
    compile::CompiledGraph,
    engine::{Engine, RunEnd, RunError, ShutdownHandle},
    event::{Event, EventSink, Report, Status, Usage},
    graph::{
        Attempts, Backoff, Bounds, Catch, Command, Dispatch, ErrorKind, GraphBuilder, IntoNode,
        Limits, Node, NodeContext, NodeDescription, NodeError, Policies, Question, START, Schedule,
        Target, node_fn,
    },
    models::TokenUsage,
    state::{State, Update},
    storage::InMemoryStorage,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::{sync::Semaphore, time::sleep};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Team {
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    notes: Vec<String>,
    decision: Option<String>,
}

/// A node that waits, then notes its name.
fn waits(ms: u64) -> impl Node {
    node_fn(move |_: Nothing, ctx: NodeContext| async move {
        sleep(Duration::from_millis(ms)).await;
        noted(ctx.node.as_str())
    })
}

fn engine(graph: CompiledGraph) -> Engine {
    Engine::new(graph)
}

fn notes(state: &State) -> Vec<String> {
    state.read::<Team>().unwrap().notes
}

/// BA, then QC beside TA with any latency, then one that waits for both.
fn team(qc_ms: u64, ta_ms: u64) -> CompiledGraph {
    compiled(
        GraphBuilder::new::<Team>("team")
            .node("ba", waits(0))
            .node("qc", waits(qc_ms))
            .node("ta", waits(ta_ms))
            .node("sse", waits(0))
            .edge(START, "ba")
            .edge("ba", "ta")
            .edge("ba", "qc")
            .edge(["qc", "ta"], "sse")
            .edge("sse", "end"),
    )
}

#[tokio::test(start_paused = true)]
async fn the_state_is_the_same_over_100_runs_with_random_delays() {
    let expected = engine(team(0, 0)).run(&()).await.unwrap().state;
    for seed in 0..100_u64 {
        let delay = |salt: u64| (seed.wrapping_mul(6_364_136_223_846_793_005) ^ salt) >> 7 & 0xff;
        let end = engine(team(delay(1), delay(0xfedc_ba98))).run(&()).await.unwrap();
        assert_eq!(end.state, expected, "seed {seed}");
    }
    assert_eq!(notes(&expected), ["ba", "qc", "ta", "sse"]);
}

#[tokio::test(start_paused = true)]
async fn a_fan_out_of_64_ends_the_same_in_any_order() {
    let items = 0..64_u64;
    let expected: Vec<String> = items.clone().map(|it| it.to_string()).collect();
    let mut orders = BTreeSet::new();
    for seed in 0..20_u64 {
        let late = node_fn(move |_: Nothing, ctx: NodeContext| async move {
            let item = ctx.input.item().and_then(serde_json::Value::as_u64).unwrap();
            let mixed = (item ^ seed << 6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            sleep(Duration::from_millis(mixed >> 54)).await;
            noted(item.to_string())
        });
        let items = items.clone();
        let graph = GraphBuilder::new::<Team>("fan")
            .node("plan", node_fn(|_: Nothing, _| async { Ok::<_, NodeError>(json!({})) }))
            .node("late", late)
            .edge(START, "plan")
            .route("plan", ["late"], move |_: &Nothing| {
                let to = |it: u64| Dispatch::new(name("late"), json!(it));
                items.clone().map(to).collect::<Vec<_>>()
            })
            .edge("late", "end")
            .limits(Limits { concurrency: 64, ..Limits::default() });
        let storage = Arc::new(InMemoryStorage::default());
        let (info, engine) =
            (RunInfo::new("fan"), Engine::new(compiled(graph)).with_storage(storage.clone()));
        let (run, events, stop) =
            (info.id.clone(), EventSink::default(), ShutdownHandle::default());
        let end = engine
            .run(Update::default())
            .with_info(info)
            .with_events(events)
            .with_shutdown(&stop)
            .await
            .unwrap();
        assert_eq!(notes(&end.state), expected, "seed {seed}");
        let records = storage.records(&run).await.unwrap();
        orders.insert(records.iter().map(|it| it.task).collect::<Vec<_>>());
    }
    assert!(orders.len() > 15, "only {} orders of finishing were tried", orders.len());
}

#[tokio::test(start_paused = true)]
async fn a_returning_watcher_gets_every_event_once() {
    let storage = Arc::new(InMemoryStorage::default());
    let engine = Engine::new(team(40, 5)).with_storage(storage.clone());
    let (mut sink, stop, info) =
        (EventSink::default(), ShutdownHandle::default(), RunInfo::new("team"));
    let mut told = sink.subscribe();
    let run = info.id.clone();
    let watch = async {
        let mut heard = Vec::new();
        let mut meanwhile = Vec::new();
        while let Some(event) = told.recv().await {
            heard.push(event);
            // It stops and reads again at once: the saved events continue without a gap.
            meanwhile.push(storage.events(&run, heard.len() as u64).await.unwrap());
        }
        (heard, meanwhile)
    };
    let work = engine.run(Update::default()).with_info(info).with_events(sink).with_shutdown(&stop);
    let (end, (heard, meanwhile)) = tokio::join!(work, watch);
    assert_eq!(end.unwrap().status, Status::Done);
    assert!(heard.iter().map(|it| it.seq).eq(1..=heard.len() as u64), "{heard:?}");
    assert!(heard.len() > 10, "{heard:?}");
    for (seen, saved) in (1..).zip(meanwhile) {
        assert!(heard[seen..].starts_with(&saved), "after event {seen}: {saved:?}");
        let rest = storage.events(&run, seen as u64).await.unwrap();
        assert_eq!([&heard[..seen], &rest].concat(), heard, "after event {seen}");
    }
}

/// A database is closed before the program ends, so that no log with a part of its data is left beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_stopped_keeps_no_storage_open() {
    for round in 0..200 {
        let storage = Arc::new(InMemoryStorage::default());
        let end = Engine::new(team(0, 0))
            .with_storage(storage.clone())
            .run(Update::default())
            .with_info(RunInfo::new("team"))
            .await
            .unwrap();
        assert_eq!(end.status, Status::Done);
        assert_eq!(Arc::strong_count(&storage), 1, "run {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn parallel_nodes_with_any_latency_share_a_step() {
    let storage = Arc::new(InMemoryStorage::default());
    let engine =
        Engine::new(team(5_000, 1)).with_storage(Arc::clone(&storage) as Arc<dyn Checkpointer>);
    let info = RunInfo::new("team");
    let run = info.id.clone();
    let begun = tokio::time::Instant::now();
    engine.run(Update::default()).with_info(info).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(5), "they run at the same time");
    let records = storage.records(&run).await.unwrap();
    let mut steps: Vec<(u64, &str)> =
        records.iter().map(|it| (it.task.step.0, it.node.as_str())).collect();
    steps.sort_unstable();
    assert_eq!(steps, [(1, "ba"), (2, "qc"), (2, "ta"), (3, "sse")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_wakes_no_other_thread() {
    const STEPS: u64 = 2_000;
    let again = Policies::from(Bounds {
        max_visits: Some(u32::MAX),
        exhausted: Some(Target::End),
        ..Bounds::default()
    });
    let at_once = node_fn(|_: Nothing, _| async { Ok::<_, NodeError>(json!({})) });
    let graph = GraphBuilder::new::<Team>("loop")
        .node("again", at_once.with_policies(again))
        .edge(START, "again")
        .edge("again", "again")
        .limits(Limits { steps: STEPS, ..Limits::default() });
    let engine = engine(compiled(graph));
    // Every woken task goes to sleep again.
    let slept = || {
        let metrics = tokio::runtime::Handle::current().metrics();
        (0..metrics.num_workers()).map(|it| metrics.worker_park_count(it)).sum::<u64>()
    };
    // On a thread of those that run nodes.
    let run = tokio::spawn(async move {
        let before = slept();
        let end = engine.run(&()).await.unwrap();
        assert_eq!(end.position.step.0, STEPS);
        slept() - before
    });
    let slept = run.await.unwrap();
    assert!(slept < STEPS / 10, "{slept} times in {STEPS} steps");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_does_not_block_other_futures_of_its_task() {
    const WORDS: usize = 1_000;
    let (say, mut hear) = tokio::sync::mpsc::channel(1);
    let said = Arc::new(Semaphore::new(0));
    let until_said = {
        let said = Arc::clone(&said);
        node_fn(move |_: Nothing, ctx: NodeContext| {
            let said = Arc::clone(&said);
            async move {
                drop(said.acquire().await);
                noted(ctx.node.as_str())
            }
        })
    };
    let engine = engine(compiled(
        GraphBuilder::new::<Team>("waits")
            .node("waits", until_said)
            .edge(START, "waits")
            .edge("waits", "end"),
    ));
    tokio::spawn(async move {
        for word in 0..WORDS {
            say.send(word).await.unwrap();
        }
    });
    let others = async {
        let mut heard = 0;
        while hear.recv().await.is_some() {
            heard += 1;
        }
        said.add_permits(1);
        heard
    };
    // The run comes first whenever this task is polled.
    let both = futures_util::future::join(engine.run(&()).into_future(), others);
    let (end, heard) = tokio::time::timeout(Duration::from_secs(60), both).await.unwrap();
    assert_eq!((end.unwrap().status, heard), (Status::Done, WORDS));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_never_ready_times_out_and_is_caught() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let hangs = node_fn(move |_: Nothing, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { std::future::pending::<Result<Noted, NodeError>>().await }
    });
    let policies = Policies {
        attempts: Attempts {
            timeout: Some(Duration::from_secs(600)),
            retry: Backoff { attempts_max: Some(2), ..Backoff::default() },
            ..Attempts::default()
        },
        catch: vec![Catch { kind: Some(ErrorKind::Timeout), to: Target::Node(name("late")) }],
        ..Policies::default()
    };
    let graph = GraphBuilder::new::<Team>("hang")
        .node("hangs", hangs.with_policies(policies))
        .node("late", waits(0))
        .edge(START, "hangs")
        .edge("hangs", "end");
    let end = engine(compiled(graph)).run(&()).await.unwrap();
    assert_eq!((end.status, notes(&end.state)), (Status::Done, vec!["late".to_owned()]));
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

/// A node that panics before there is a future to poll, as one written without `async fn` may.
struct PanicsAtOnce;

impl Node for PanicsAtOnce {
    fn run<'s, 'f>(&'s self, _: NodeContext) -> BoxFuture<'f, Result<Command, NodeError>>
    where
        's: 'f,
        Self: 'f,
    {
        panic!("not even a future")
    }
}

#[tokio::test]
async fn a_panic_before_the_first_await_fails_its_node() {
    let graph = GraphBuilder::new::<Team>("eager").node("eager", PanicsAtOnce).edge(START, "eager");
    let end = engine(compiled(graph)).run(&()).await.unwrap();
    let reason = "`eager` failed: the node panicked: not even a future";
    assert_eq!((end.status, end.reason.as_deref()), (Status::Failed, Some(reason)));
}

#[tokio::test]
async fn a_panic_is_the_failure_of_its_node_and_siblings_are_kept() {
    let panics = node_fn(|_: Nothing, ctx: NodeContext| async move {
        assert!(ctx.attempt > 99, "index {} out of bounds", 7);
        noted("never")
    });
    let graph = GraphBuilder::new::<Team>("panic")
        .node("panics", panics)
        .node("works", waits(1))
        .edge(START, "panics")
        .edge(START, "works");
    let storage = Arc::new(InMemoryStorage::default());
    let engine =
        Engine::new(compiled(graph)).with_storage(Arc::clone(&storage) as Arc<dyn Checkpointer>);
    let info = RunInfo::new("panic");
    let run = info.id.clone();
    let end = engine.run(Update::default()).with_info(info).await.unwrap();
    assert_eq!(end.status, Status::Failed);
    let reason = end.reason.unwrap();
    assert_eq!(reason, "`panics` failed: the node panicked: index 7 out of bounds");
    let records = storage.records(&run).await.unwrap();
    let kept = records.iter().find(|it| it.node == name("works")).unwrap();
    assert!(matches!(kept.outcome, Outcome::Finished { .. }), "{kept:?}");
}

#[tokio::test(start_paused = true)]
async fn no_more_tasks_run_at_once_than_the_cap_allows() {
    let most = busy_at_once(Policies::default(), Limits { concurrency: 4, ..Limits::default() });
    assert_eq!(most.await, 4);
}

#[tokio::test(start_paused = true)]
async fn no_more_tasks_of_a_node_run_at_once_than_its_width_allows() {
    let narrow = Policies::from(Schedule { width_max: Some(3), ..Schedule::default() });
    assert_eq!(busy_at_once(narrow, Limits::default()).await, 3);
}

/// The most of fifty tasks that run at the same time.
async fn busy_at_once(policies: Policies, limits: Limits) -> usize {
    let now = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let at_work = Arc::clone(&now);
    let peak = Arc::clone(&most);
    let busy = node_fn(move |_: Nothing, _| {
        let now = Arc::clone(&at_work);
        let most = Arc::clone(&peak);
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_millis(10)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            noted("x")
        }
    });
    let graph = GraphBuilder::new::<Team>("cap")
        .node("start", waits(0))
        .node("busy", busy.with_policies(policies))
        .edge(START, "start")
        .route("start", ["busy"], |_: &Nothing| {
            (0..50).map(|it| Dispatch::new(name("busy"), json!(it))).collect::<Vec<_>>()
        })
        .limits(limits);
    let end = engine(compiled(graph)).run(&()).await.unwrap();
    assert_eq!(notes(&end.state).len(), 51);
    most.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn a_drain_lets_running_nodes_finish_and_starts_no_other() {
    let stop = ShutdownHandle::default();
    let asked = stop.clone();
    let stops = node_fn(move |_: Nothing, _| {
        let stop = asked.clone();
        async move {
            stop.drain();
            sleep(Duration::from_secs(3)).await;
            noted("finished all the same")
        }
    });
    let graph = compiled(
        GraphBuilder::new::<Team>("drain")
            .node("stops", stops)
            .node("after", waits(0))
            .edge(START, "stops")
            .edge("stops", "after"),
    );
    let engine = engine(graph);
    let info = RunInfo::new("drain");
    let run = info.id.clone();
    let end = engine.run(Update::default()).with_info(info).with_shutdown(&stop).await.unwrap();
    assert_eq!(end.status, Status::Interrupted);
    assert_eq!(notes(&end.state), ["finished all the same"]);

    let end = resume(&engine, &run, BTreeMap::new()).await.unwrap();
    assert_eq!(notes(&end.state), ["finished all the same", "after"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_drained_before_it_starts_starts_no_node() {
    let engine = engine(team(0, 0));
    let stop = ShutdownHandle::default();
    stop.drain();
    let info = RunInfo::new("team");
    let end = engine.run(Update::default()).with_info(info).with_shutdown(&stop).await.unwrap();
    assert_eq!((end.status, notes(&end.state).len()), (Status::Interrupted, 0));
}

#[tokio::test(start_paused = true)]
async fn finished_tasks_of_an_aborted_run_are_kept() {
    let stop = ShutdownHandle::default();
    let ledger = Ledger::default();
    let asked = stop.clone();
    let book = ledger.clone();
    let stops = node_fn(move |_: Nothing, ctx: NodeContext| {
        book.done(&ctx);
        asked.abort();
        async { noted("finished") }
    });
    let graph = GraphBuilder::new::<Team>("now")
        .node("stops", stops)
        .node("waits", waits(60_000))
        .edge(START, "stops")
        .edge(START, "waits");
    let engine = engine(compiled(graph));
    let info = RunInfo::new("now");
    let run = info.id.clone();
    let end = engine.run(Update::default()).with_info(info).with_shutdown(&stop).await.unwrap();
    assert_eq!(end.status, Status::Interrupted);
    let end = resume(&engine, &run, BTreeMap::new()).await.unwrap();
    assert_eq!(notes(&end.state), ["finished", "waits"]);
    assert_eq!(ledger.counts().into_values().collect::<Vec<_>>(), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_outlasts_the_grace_is_dropped_and_runs_again() {
    let stop = ShutdownHandle::default();
    let asked = stop.clone();
    let slow = node_fn(move |_: Nothing, _| {
        let stop = asked.clone();
        async move {
            stop.drain();
            sleep(Duration::from_secs(60)).await;
            noted("slow")
        }
    });
    let graph = compiled(GraphBuilder::new::<Team>("slow").node("slow", slow).edge(START, "slow"));
    let engine = engine(graph).with_grace(Duration::from_secs(10));
    let info = RunInfo::new("slow");
    let run = info.id.clone();
    let begun = tokio::time::Instant::now();
    let end = engine.run(Update::default()).with_info(info).with_shutdown(&stop).await.unwrap();
    assert_eq!((end.status, begun.elapsed().as_secs()), (Status::Interrupted, 10));
    let end = resume(&engine, &run, BTreeMap::new()).await.unwrap();
    assert_eq!((end.status, notes(&end.state)), (Status::Done, vec!["slow".to_owned()]));
}

#[tokio::test]
async fn tokens_of_failed_attempts_count_for_the_limit() {
    let talks = node_fn(|_: Nothing, ctx: NodeContext| async move {
        let tokens =
            TokenUsage { input_tokens: 30, output_tokens: 10, calls: 1, ..TokenUsage::default() };
        let usage = Usage { tokens, cost_usd: None };
        ctx.report(Report::ModelCall { model: "m".into(), usage, ms: 1 }).await;
        if ctx.attempt == 1 { Err(NodeError::transient("529")) } else { noted("said") }
    });
    let policies = Policies {
        attempts: Attempts {
            retry: Backoff { attempts_max: Some(2), initial: Duration::ZERO, ..Backoff::default() },
            ..Attempts::default()
        },
        bounds: Bounds { max_visits: Some(9), ..Bounds::default() },
        ..Policies::default()
    };
    let graph = GraphBuilder::new::<Team>("talk")
        .node("talks", talks.with_policies(policies))
        .edge(START, "talks")
        .edge("talks", "talks")
        .goto("talks", [])
        .route("talks", ["end"], |_: &Nothing| "end")
        .limits(Limits { tokens: Some(150), ..Limits::default() });
    let end = engine(compiled(graph)).run(&()).await.unwrap();
    assert_eq!(end.status, Status::Limit);
    assert_eq!(end.reason.unwrap(), "the limit of 150 tokens is reached: 160 are used");
    assert_eq!((end.position.used.usage.tokens.calls, end.position.step.0), (4, 2));
}

/// A node that never asks a model.
#[derive(Debug)]
struct Publishes;

#[async_trait::async_trait]
impl Node for Publishes {
    async fn run(&self, _: NodeContext) -> Result<Command, NodeError> {
        let notes = vec!["published".to_owned()];
        Ok(Update::of(&Noted { notes })?.into())
    }

    fn describe(&self) -> NodeDescription {
        NodeDescription { calls_max: Some(0), ..NodeDescription::default() }
    }
}

#[tokio::test]
async fn a_limit_of_tokens_stops_only_work_that_may_spend_some() {
    let talks = || {
        node_fn(|(): (), ctx: NodeContext| async move {
            let tokens = TokenUsage { input_tokens: 200, calls: 1, ..TokenUsage::default() };
            let usage = Usage { tokens, cost_usd: None };
            ctx.report(Report::ModelCall { model: "m".into(), usage, ms: 1 }).await;
            noted("said")
        })
    };
    for (exhausted, expected) in
        [(None, Status::Limit), (Some(Target::Node(name("flush"))), Status::Done)]
    {
        let graph = GraphBuilder::new::<Team>("spend")
            .node("talks", talks())
            .node("publish", Publishes)
            .node("again", talks())
            .edge(START, "talks")
            .edge("talks", "publish")
            .edge("publish", "again")
            .edge("again", "end");
        let graph = match exhausted {
            Some(_) => graph.node("flush", Publishes).edge("flush", "end"),
            None => graph,
        };
        let graph = graph.limits(Limits { tokens: Some(150), exhausted, ..Limits::default() });
        let end = engine(compiled(graph)).run(&()).await.unwrap();
        let is_flushed = expected == Status::Done;
        let steps = ["said", "published", "published"];
        assert_eq!(notes(&end.state), steps[..2 + usize::from(is_flushed)]);
        let reason = "the limit of 150 tokens is reached: 200 are used";
        assert_eq!((end.status, end.reason.as_deref()), (expected, Some(reason)));
    }
}

#[tokio::test]
async fn events_are_numbered_without_gaps_and_saved_as_emitted() {
    let mut sink = EventSink::default();
    let mut told = sink.subscribe();
    let storage = Arc::new(InMemoryStorage::default());
    let engine =
        Engine::new(team(2, 1)).with_storage(Arc::clone(&storage) as Arc<dyn Checkpointer>);
    let info = RunInfo::new("team");
    let run = info.id.clone();
    engine.run(Update::default()).with_info(info).with_events(sink).await.unwrap();
    let mut seen = Vec::new();
    while let Some(event) = told.recv().await {
        seen.push(event);
    }
    let seqs: Vec<u64> = seen.iter().map(|it| it.seq).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    assert_eq!(storage.events(&run, 0).await.unwrap(), seen);
    assert!(matches!(seen[0].event, Event::RunStarted { .. }));
    let last = &seen[seen.len() - 1].event;
    assert!(matches!(last, Event::RunFinished { status: Status::Done, steps: 3, .. }), "{last:?}");
}

async fn resume(
    engine: &Engine,
    run: &graphrun::id::RunId,
    answers: BTreeMap<String, serde_json::Value>,
) -> Result<RunEnd, RunError> {
    engine.resume(run).with_answers(answers).await
}

/// plan fans out to three writers beside a lint; a person reviews; it loops once.
fn workshop(ledger: &Ledger) -> CompiledGraph {
    let work = |ledger: &Ledger| {
        let ledger = ledger.clone();
        node_fn(move |_: Nothing, ctx: NodeContext| {
            let ledger = ledger.clone();
            async move {
                ledger.done(&ctx);
                noted(format!("{} {}", ctx.node, ctx.task))
            }
        })
    };
    let review = {
        let ledger = ledger.clone();
        node_fn(move |_: Nothing, ctx: NodeContext| {
            let ledger = ledger.clone();
            async move {
                let key = format!("ship-{}", ctx.task);
                let answer: String = ctx.ask(Question::new(key, "ship it?"))?;
                ledger.done(&ctx);
                noted(answer)
            }
        })
    };
    let bound = Policies::from(Bounds {
        max_visits: Some(2),
        exhausted: Some(Target::End),
        ..Bounds::default()
    });
    compiled(
        GraphBuilder::new::<Team>("workshop")
            .node("plan", work(ledger).with_policies(bound))
            .node("write", work(ledger))
            .node("lint", work(ledger))
            .node("gather", work(ledger))
            .node("review", review)
            .edge(START, "plan")
            .edge("plan", "lint")
            .route("plan", ["write"], |_: &Nothing| {
                let send = |it: u32| Dispatch::new(name("write"), json!(it));
                (0..3).map(send).collect::<Vec<_>>()
            })
            .edge(["lint", "write"], "gather")
            .edge("gather", "review")
            .edge("review", "plan"),
    )
}

/// Starts or resumes until the run is done, answering every question; stops at a failed write.
async fn see_through(
    graph: &CompiledGraph,
    storage: Arc<dyn Checkpointer>,
    info: &RunInfo,
) -> Result<State, RunError> {
    let engine = Engine::new(graph.clone()).with_storage(storage);
    let mut end = match resume(&engine, &info.id, BTreeMap::new()).await {
        Err(RunError::Checkpoint(CheckpointError::UnknownRun(_))) => {
            let input = Update::default();
            let sink = EventSink::default();
            engine.run(input).with_info(info.clone()).with_events(sink).await?
        }
        end => end?,
    };
    while end.status == Status::Paused {
        let answer = |it: &graphrun::engine::OpenQuestion| (it.name.clone(), json!("yes"));
        let answers = end.questions.iter().map(answer).collect();
        end = resume(&engine, &info.id, answers).await?;
    }
    assert_eq!(end.status, Status::Done, "{:?}", end.reason);
    Ok(end.state)
}

/// If the process dies at any write, resuming ends in the state of an undisturbed run, and no
/// task whose record was saved runs again.
#[tokio::test]
async fn a_crash_at_any_write_changes_nothing() {
    let info = RunInfo::new("workshop");
    let calm_ledger = Ledger::default();
    let calm = Arc::new(InMemoryStorage::default());
    let expected = see_through(&workshop(&calm_ledger), calm, &info).await.unwrap();
    assert_eq!(notes(&expected).len(), 14);

    let mut crashes = 0;
    for writes in 0.. {
        let ledger = Ledger::default();
        let graph = workshop(&ledger);
        let storage: Arc<dyn Checkpointer> = Arc::new(InMemoryStorage::default());
        let dying = Arc::new(Disturbed::dying_after(writes, Arc::clone(&storage)));
        let died = see_through(&graph, dying, &info).await.is_err();
        let saved = match storage.records(&info.id).await {
            Ok(records) => records,
            Err(CheckpointError::UnknownRun(_)) => Vec::new(),
            Err(error) => panic!("{error}"),
        };
        let finished = saved.iter().filter(|it| it.outcome.is_final()).map(|it| it.task);
        let finished: Vec<_> = finished.collect();
        let before = ledger.counts();
        match see_through(&graph, storage, &info).await {
            Ok(state) => assert_eq!(state, expected, "after a crash at write {writes}"),
            Err(RunError::AlreadyEnded(Status::Done)) => (),
            Err(error) => panic!("after a crash at write {writes}: {error}"),
        }
        for task in finished {
            assert_eq!(ledger.counts()[&task], before[&task], "{task} ran again");
        }
        if !died {
            break;
        }
        crashes += 1;
    }
    // A step that one task completes is one write.
    assert!(crashes > 15, "the run was only crashed {crashes} times");
}

#[tokio::test]
async fn defaults_are_saved_with_the_input_and_survive_a_resume() {
    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Seeded {
        #[serde(default = "seeds")]
        #[schemars(extend("x-merge" = "append"))]
        notes: Vec<String>,
    }
    fn seeds() -> Vec<String> {
        vec!["seed".into()]
    }
    let asks = node_fn(|_: Nothing, ctx: NodeContext| async move {
        let answer: String = ctx.ask(Question::new("more", "what else?"))?;
        noted(answer)
    });
    let graph =
        GraphBuilder::new::<Seeded>("seeded").input("notes").node("asks", asks).edge(START, "asks");
    let engine = engine(compiled(graph));
    let info = RunInfo::new("seeded");
    let run = info.id.clone();
    let input = Update::of(&Seeded { notes: vec!["given".into()] }).unwrap();
    engine.run(input).with_info(info).await.unwrap();
    let answers = BTreeMap::from([("more".to_owned(), json!("answered"))]);
    let end = resume(&engine, &run, answers).await.unwrap();
    assert_eq!(notes(&end.state), ["seed", "given", "answered"]);
}

#[tokio::test]
async fn a_run_without_its_declared_input_does_not_start() {
    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Asked {
        brief: String,
        notes: Option<Vec<String>>,
    }
    let graph = GraphBuilder::new::<Asked>("asked")
        .input("brief")
        .node("it", node_fn(|(): (), _| async { Ok(()) }))
        .edge(START, "it")
        .edge("it", "end");
    let engine = engine(compiled(graph));
    let error = engine.run(&()).await.unwrap_err();
    assert_eq!(error.to_string(), "the input lacks `brief`");
    let input = Asked { brief: "a shop".into(), notes: None };
    assert_eq!(engine.run(&input).await.unwrap().status, Status::Done);
}

#[tokio::test]
async fn a_run_that_pauses_gives_its_id() {
    let asks = node_fn(|(): (), ctx: NodeContext| async move {
        let answer: String = ctx.ask(Question::new("more", "what else?"))?;
        noted(answer)
    });
    let graph = GraphBuilder::new::<Team>("asks").node("asks", asks).edge(START, "asks");
    let engine = engine(compiled(graph.edge("asks", "end")));
    let paused = engine.run(&()).await.unwrap();
    let answers = BTreeMap::from([("more".to_owned(), json!("this"))]);
    let end = resume(&engine, &paused.run, answers).await.unwrap();
    assert_eq!((paused.status, end.status, end.run), (Status::Paused, Status::Done, paused.run));
}

#[tokio::test]
async fn an_attempt_that_asks_again_under_the_same_key_fails() {
    let asks = node_fn(|(): (), ctx: NodeContext| async move {
        let mut answer = String::new();
        while answer != "good" {
            answer = ctx.ask(Question::new("more", "what else?"))?;
        }
        noted(answer)
    });
    let graph = GraphBuilder::new::<Team>("loop").node("asks", asks).edge(START, "asks");
    let engine = engine(compiled(graph));
    let info = RunInfo::new("loop");
    let run = info.id.clone();
    engine.run(Update::default()).with_info(info).await.unwrap();
    let answers = BTreeMap::from([("more".to_owned(), json!("bad"))]);
    let end = resume(&engine, &run, answers).await.unwrap();
    let reason = end.reason.unwrap();
    assert!(reason.contains("the question `more` has its answer already"), "{reason}");
}

#[tokio::test]
async fn a_node_and_a_route_may_read_nothing() {
    let first = node_fn(|(): (), _| async { noted("first") });
    let graph = GraphBuilder::new::<Team>("nothing")
        .node("first", first)
        .node("second", node_fn(|(): (), _| async { noted("second") }))
        .edge(START, "first")
        .route("first", ["second"], |(): &()| "second")
        .edge("second", "end");
    let info = RunInfo::new("nothing");
    let sink = EventSink::default();
    let stop = ShutdownHandle::default();
    let end = engine(compiled(graph))
        .run(Update::default())
        .with_info(info)
        .with_events(sink)
        .with_shutdown(&stop)
        .await
        .unwrap();
    assert_eq!(notes(&end.state), ["first", "second"]);
}

#[tokio::test]
async fn an_answer_to_a_finished_task_reaches_no_other_task() {
    let (hand_over, reporter) = tokio::sync::oneshot::channel();
    let hand_over = std::sync::Mutex::new(Some(hand_over));
    let first = node_fn(move |_: Nothing, ctx: NodeContext| {
        let hand_over = hand_over.lock().unwrap().take().unwrap();
        assert!(hand_over.send(ctx.reporter).is_ok());
        async { noted("first") }
    });
    let reporter = tokio::sync::Mutex::new(Some(reporter));
    let reporter = Arc::new(reporter);
    let second = node_fn(move |_: Nothing, _| {
        let reporter = Arc::clone(&reporter);
        async move {
            let late = reporter.lock().await.take().unwrap().await.unwrap();
            late.report(Report::Note { message: "late".into() }).await;
            noted("second")
        }
    });
    let graph = GraphBuilder::new::<Team>("late")
        .node("first", first)
        .node("second", second)
        .edge(START, "first")
        .edge("first", "second");
    let mut sink = EventSink::default();
    let mut told = sink.subscribe();
    let info = RunInfo::new("late");
    let stop = ShutdownHandle::default();
    engine(compiled(graph))
        .run(Update::default())
        .with_info(info)
        .with_events(sink)
        .with_shutdown(&stop)
        .await
        .unwrap();
    while let Some(stamped) = told.recv().await {
        let is_report = matches!(stamped.event, Event::TaskReported { .. });
        assert!(!is_report, "{stamped:?}");
    }
}

#[tokio::test]
async fn a_run_that_is_done_cannot_be_resumed() {
    let engine = engine(team(0, 0)).with_storage(Arc::new(InMemoryStorage::default()));
    let info = RunInfo::new("team");
    let run = info.id.clone();
    engine.run(Update::default()).with_info(info).await.unwrap();
    let error = resume(&engine, &run, BTreeMap::new()).await.unwrap_err();
    assert_eq!(error.to_string(), "the run is done already");
}

#[tokio::test]
async fn a_command_ends_its_branch_only_where_it_was_declared_to() {
    let ends = || {
        node_fn(|_: Nothing, _| async {
            let goto = graphrun::graph::Goto::Instead(Vec::new());
            Ok::<_, NodeError>(Command { update: Noted { notes: vec!["ends".into()] }, goto })
        })
    };
    let graph = || {
        GraphBuilder::new::<Team>("goto")
            .node("ends", ends())
            .edge(START, "ends")
            .edge("ends", "fail")
    };
    let end = engine(compiled(graph().goto("ends", ["end"]))).run(&()).await.unwrap();
    assert_eq!((end.status, notes(&end.state)), (Status::Done, vec!["ends".to_owned()]));
    let end = engine(compiled(graph())).run(&()).await.unwrap();
    let reason = end.reason.unwrap();
    assert!(reason.contains("which is not declared with `goto` to `end`"), "{reason}");
}

#[tokio::test]
async fn a_command_may_go_only_where_it_was_declared_to() {
    let goes = |to: &'static str| {
        node_fn(move |_: Nothing, _| async move {
            let transition = graphrun::graph::Transition::To(Target::Node(name(to)));
            let goto = graphrun::graph::Goto::Instead(vec![transition]);
            Ok::<_, NodeError>(Command { update: Noted { notes: vec!["goes".into()] }, goto })
        })
    };
    let graph = |to: &'static str| {
        GraphBuilder::new::<Team>("goto")
            .node("goes", goes(to))
            .node("here", waits(0))
            .node("there", waits(0))
            .edge(START, "goes")
            .edge("goes", "here")
            .goto("goes", ["there"])
    };
    let end = engine(compiled(graph("there"))).run(&()).await.unwrap();
    assert_eq!(notes(&end.state), ["goes", "there"]);
    let end = engine(compiled(graph("here"))).run(&()).await.unwrap();
    let reason = end.reason.unwrap();
    assert!(reason.contains("`here`, which is not declared with `goto`"), "{reason}");
}
