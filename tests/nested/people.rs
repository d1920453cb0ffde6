//! People and time in nested runs: the question that an answer is for, and the deadlines and waits while one is open.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use graphrun::{
    checkpoint::{RunJournal as _, next_due},
    compile::CompiledGraph,
    engine::{Clock, Engine, RunEnd, subgraph},
    event::Status,
    graph::{
        Attempts, ErrorKind, GraphBuilder, IntoNode as _, Limits, NodeContext, NodeError, Policies,
        Question, START, node_fn,
    },
    prelude::{END, FAIL},
    storage::InMemoryStorage,
};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Log {
    #[serde(default)]
    draft: u32,
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    log: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct Noted {
    log: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct Drafted {
    draft: u32,
}

fn noted(text: &str) -> Noted {
    Noted { log: vec![text.to_owned()] }
}

/// Returns a graph that runs another one, with the same fields.
fn around(inner: CompiledGraph) -> GraphBuilder {
    let node = subgraph(inner, |(): ()| Log::default(), |it: Log| Noted { log: it.log });
    GraphBuilder::new::<Log>("outer").node("inner", node).edge(START, "inner")
}

fn second(of: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(of)
}

/// Returns a clock that starts at the epoch and goes with the timers of the runtime.
fn clock() -> Clock {
    let begun = Instant::now();
    let elapsed = move || SignedDuration::try_from(begun.elapsed()).unwrap();
    Clock::new(move || Timestamp::UNIX_EPOCH + elapsed())
}

/// Returns a clock that stands still: waits end by the timers of the runtime only.
fn stopped() -> Clock {
    Clock::new(|| Timestamp::UNIX_EPOCH)
}

/// Returns the names of the open questions, and the second in which the run continues without an answer.
async fn waits(storage: &InMemoryStorage, end: &RunEnd) -> (Vec<String>, Option<i64>) {
    let names = end.questions.iter().map(|it| it.name.clone()).collect();
    let due = next_due(&storage.load(&end.run).await.unwrap().records);
    (names, due.map(Timestamp::as_second))
}

/// The innermost run fails the first time, after it has sent the draft, and the run around it after the second draft.
#[tokio::test]
async fn an_answer_about_one_draft_sends_no_other_one() {
    let drafts = Arc::new(AtomicU32::new(0));
    let sent = Arc::<Mutex<Vec<u32>>>::default();
    let keys = Arc::<Mutex<BTreeSet<String>>>::default();
    let write = node_fn(move |(): (), _: NodeContext| {
        let draft = drafts.fetch_add(1, Ordering::Relaxed) + 1;
        async move { Ok::<_, NodeError>(Drafted { draft }) }
    });
    let legal = node_fn(|Log { draft, .. }: Log, ctx: NodeContext| async move {
        ctx.ask::<bool>(Question::new("legal", format!("May we send draft {draft}?"))).map(drop)
    });
    let send = {
        let (sent, keys) = (Arc::clone(&sent), Arc::clone(&keys));
        node_fn(move |Log { draft, .. }: Log, ctx: NodeContext| {
            sent.lock().unwrap().push(draft);
            keys.lock().unwrap().insert(ctx.idempotency_key());
            async { Ok::<_, NodeError>(()) }
        })
    };
    let innermost = GraphBuilder::new::<Log>("publish")
        .node("write", write)
        .node("legal", legal)
        .node("send", send)
        .edge(START, "write")
        .edge("write", "legal")
        .edge("legal", "send")
        .route("send", [END, FAIL], |it: &Log| if it.draft == 2 { END } else { FAIL });
    let middle = around(innermost.compile().unwrap()).edge("inner", FAIL);
    let middle = middle.node("beside", || async { Ok::<_, NodeError>(noted("beside")) });
    let middle = middle.edge(START, "beside").edge("beside", END);
    let outer = around(middle.compile().unwrap()).edge("inner", END).compile().unwrap();
    let engine = Engine::new(outer).with_storage(Arc::new(InMemoryStorage::default()));

    let mut end = engine.run(&Log::default()).await.unwrap();
    let mut names = Vec::new();
    for draft in 1..=4 {
        let [open] = end.questions.as_slice() else { panic!("draft {draft}: {end:?}") };
        assert_eq!(open.question.prompt, format!("May we send draft {draft}?"));
        assert_eq!(sent.lock().unwrap().len() + 1, draft, "a draft is sent after its answer");
        names.push(open.name.clone());
        let failed = engine.resume(&end.run).answer(&open.name, true).await.unwrap();
        assert_eq!(failed.status, Status::Failed, "{failed:?}");
        assert_eq!(sent.lock().unwrap().len(), draft, "the answer reaches its question");
        end = engine.retry(&end.run).await.unwrap();
    }
    assert_eq!(*sent.lock().unwrap(), [1, 2, 3, 4]);
    assert_eq!(keys.lock().unwrap().len(), 4, "each sends under its own key");
    assert_eq!(names, ["legal", "legal~1~0", "legal~1", "legal~1~1"]);
}

/// Returns a graph of a question without a deadline, one with a deadline after three seconds, and a wait of eight.
fn questions_and_a_wait() -> CompiledGraph {
    let asks = |key: &'static str, deadline: Option<Timestamp>| {
        node_fn(move |(): (), ctx: NodeContext| async move {
            let question = Question { deadline, ..Question::new(key, "Continue?") };
            Ok(noted(&ctx.ask::<String>(question)?))
        })
    };
    let tick = node_fn(|(): (), ctx: NodeContext| async move {
        ctx.wait_for("tick", Duration::from_secs(8))?;
        Ok(noted("tick"))
    });
    GraphBuilder::new::<Log>("inner")
        .node("first", asks("first", None))
        .node("second", asks("second", Some(second(3))))
        .node("late", || async { Ok::<_, NodeError>(noted("late")) })
        .node("tick", tick)
        .edge(START, "first")
        .edge(START, "second")
        .edge(START, "tick")
        .catch("second", ErrorKind::Timeout, "late")
        .edge("late", END)
        .compile()
        .unwrap_or_else(|it| panic!("{it}"))
}

/// Returns graphs with one and with two runs around [`questions_and_a_wait`].
fn with_runs_around() -> [CompiledGraph; 2] {
    let one = || around(questions_and_a_wait()).edge("inner", END).compile().unwrap();
    [one(), around(one()).edge("inner", END).compile().unwrap()]
}

/// Returns an engine that keeps its process for a wait of a second at most.
fn engine_with(graph: CompiledGraph, clock: Clock) -> (Engine, Arc<InMemoryStorage>) {
    let storage = Arc::new(InMemoryStorage::default());
    let engine = Engine::new(graph).with_storage(storage.clone()).with_clock(clock);
    (engine.with_wait_max(Duration::from_secs(1)), storage)
}

#[tokio::test]
async fn a_nested_question_keeps_neither_deadlines_nor_waits_from_passing() {
    for graph in with_runs_around() {
        let now = Arc::new(Mutex::new(second(0)));
        let clock = {
            let now = Arc::clone(&now);
            Clock::new(move || *now.lock().unwrap())
        };
        let (engine, storage) = engine_with(graph, clock);
        let end = engine.run(&Log::default()).await.unwrap();
        assert_eq!(waits(&storage, &end).await, (vec!["second".to_owned()], Some(3)));
        let first = || vec!["first".to_owned()];
        *now.lock().unwrap() = second(3);
        let end = engine.resume(&end.run).await.unwrap();
        assert_eq!(waits(&storage, &end).await, (first(), Some(8)));
        *now.lock().unwrap() = second(8);
        let end = engine.resume(&end.run).await.unwrap();
        assert_eq!(waits(&storage, &end).await, (first(), None));
        let end = engine.resume(&end.run).answer("first", "yes").await.unwrap();
        assert_eq!(end.status, Status::Done, "{:?}", end.reason);
        assert_eq!(end.output::<Log>().unwrap().log, ["yes", "tick", "late"]);
    }
}

/// People can answer both before anything has passed.
#[tokio::test(start_paused = true)]
async fn the_questions_of_a_nested_run_follow_each_other() {
    for graph in with_runs_around() {
        let (engine, storage) = engine_with(graph, clock());
        let end = engine.run(&Log::default()).await.unwrap();
        let end = engine.resume(&end.run).answer("second", "two").await.unwrap();
        assert_eq!(waits(&storage, &end).await, (vec!["first".to_owned()], Some(8)));
        let end = engine.resume(&end.run).answer("first", "one").await.unwrap();
        assert_eq!(waits(&storage, &end).await, (Vec::new(), Some(8)));
        tokio::time::advance(Duration::from_secs(8)).await;
        let end = engine.resume(&end.run).await.unwrap();
        assert_eq!(end.status, Status::Done, "{:?}", end.reason);
        assert_eq!(end.output::<Log>().unwrap().log, ["one", "two", "tick"]);
    }
}

/// As in a run without nested ones, `--wait` says whether the process stays.
#[tokio::test(start_paused = true)]
async fn a_process_that_stays_for_a_wait_stays_beside_a_nested_question() {
    for graph in with_runs_around() {
        let storage = Arc::new(InMemoryStorage::default());
        let engine = Engine::new(graph).with_storage(storage.clone()).with_clock(clock());
        let end = engine.with_wait_max(Duration::from_mins(2)).run(&Log::default()).await.unwrap();
        assert_eq!(end.status, Status::Paused, "{:?}", end.reason);
        assert_eq!(waits(&storage, &end).await, (vec!["first".to_owned()], None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_works_elsewhere_continues_a_nested_run_on_time() {
    for clock in [clock as fn() -> Clock, stopped] {
        let inner = questions_and_a_wait();
        let node = subgraph(inner, |(): ()| Log::default(), |it: Log| Noted { log: it.log });
        let works = || async {
            sleep(Duration::from_secs(20)).await;
            Ok::<_, NodeError>(noted("worked"))
        };
        let graph = GraphBuilder::new::<Log>("outer").node("inner", node).node("works", works);
        let graph = graph.edge(START, "inner").edge(START, "works").compile().unwrap();
        let (engine, storage) = engine_with(graph, clock());
        let end = engine.run(&Log::default()).await.unwrap();
        assert_eq!(end.status, Status::Paused, "{:?}", end.reason);
        assert_eq!(waits(&storage, &end).await, (vec!["first".to_owned()], None));
    }
}

/// A stopped clock must not let the run wait for ever.
#[tokio::test(start_paused = true)]
async fn a_wait_of_a_nested_run_is_no_work() {
    let waits = || {
        let waits = node_fn(|(): (), ctx: NodeContext| async move {
            ctx.wait_for("five", Duration::from_secs(5))?;
            Ok(noted("waited"))
        });
        let graph = GraphBuilder::new::<Log>("waits").node("waits", waits);
        graph.edge(START, "waits").edge("waits", END).compile().unwrap()
    };
    let three = Some(Duration::from_secs(3));
    for clock in [clock as fn() -> Clock, stopped] {
        for wait_max in [None, Some(Duration::from_mins(2))] {
            let inner = around(waits()).edge("inner", END).compile().unwrap();
            let node = subgraph(inner, |(): ()| Log::default(), |it: Log| Noted { log: it.log });
            let timeout = Attempts { timeout: three, ..Attempts::default() };
            let node = node.with_policies(Policies::from(timeout));
            let graph = GraphBuilder::new::<Log>("outer").node("inner", node);
            let graph = graph.edge(START, "inner").edge("inner", END);
            let graph = graph.limits(Limits { time: three, ..Limits::default() });
            let mut engine = Engine::new(graph.compile().unwrap()).with_clock(clock());
            if let Some(max) = wait_max {
                engine = engine.with_wait_max(max);
            }
            let end = engine.run(&Log::default()).await.unwrap();
            assert_eq!(end.status, Status::Done, "{:?}", end.reason);
            assert_eq!(end.output::<Log>().unwrap().log, ["waited"]);
        }
    }
}
