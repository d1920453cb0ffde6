//! Engines without storage, and nodes that are polled where they are started.

use std::{
    collections::BTreeMap,
    env, fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::support::{
    child_test,
    team::{Noted, Nothing, Team, compiled, name, noted, notes},
};
use graphrun::{
    checkpoint::CheckpointError,
    engine::{Answers, Engine, RunEnd, RunError},
    event::{Event, EventSink, Status},
    graph::{
        Bounds, Catch, ErrorKind, GraphBuilder, IntoNode, Limits, NodeContext, NodeError, Policies,
        Question, START, Target, node_fn,
    },
    storage::InMemoryStorage,
};
use serde_json::json;
use tokio::{sync::Semaphore, time::timeout};

fn bounded(visits: u32) -> Policies {
    Policies::from(Bounds {
        max_visits: Some(visits),
        exhausted: Some(Target::End),
        ..Bounds::default()
    })
}

async fn resume(engine: &Engine, end: &RunEnd, answers: Answers) -> Result<RunEnd, RunError> {
    engine.resume(&end.run).with_answers(answers).await
}

#[tokio::test]
async fn a_run_without_storage_waits_for_its_answer() {
    let ask = node_fn(|_: Nothing, ctx: NodeContext| async move {
        let answer: String = ctx.ask(Question::new("go", "Continue?"))?;
        noted(answer)
    });
    let graph = GraphBuilder::new::<Team>("asks")
        .node("before", node_fn(|_: Nothing, _| async { noted("before") }))
        .node("asks", ask)
        .edge(START, "before")
        .edge("before", "asks")
        .edge("asks", "end");
    let engine = Engine::new(compiled(graph));
    let end = engine.run(&()).await.unwrap();
    assert_eq!(end.status, Status::Paused);
    let done = resume(&engine, &end, BTreeMap::from([("go".to_owned(), json!("yes"))]).into())
        .await
        .unwrap();
    assert_eq!(
        (done.status, notes(&done.state)),
        (Status::Done, vec!["before".into(), "yes".into()])
    );
    // A run that is done needs nothing that could be resumed, so nothing of it is kept.
    let gone = resume(&engine, &end, Answers::default()).await.unwrap_err();
    assert!(matches!(gone, RunError::Checkpoint(CheckpointError::UnknownRun(_))), "{gone:?}");
}

/// A step whose only node is skipped ends at once, so one event of a task ends two steps.
#[tokio::test]
async fn each_step_is_reported_with_its_number_and_what_follows() {
    let note = |text: &'static str| node_fn(move |_: Nothing, _| async move { noted(text) });
    let graph = GraphBuilder::new::<Team>("skips")
        .node("first", note("first"))
        .node("skipped", note("skipped"))
        .node("last", note("last"))
        .edge(START, "first")
        .when("skipped", "never", |_: &Team| false)
        .edge("first", "skipped")
        .edge("skipped", "last")
        .edge("last", "end");
    let mut sink = EventSink::default();
    let mut events = sink.subscribe();
    let end = Engine::new(compiled(graph)).run(&()).with_events(sink).await.unwrap();
    assert_eq!(
        (end.status, notes(&end.state)),
        (Status::Done, vec!["first".into(), "last".into()])
    );
    let mut steps = Vec::new();
    while let Some(event) = events.recv().await {
        if let Event::StepCommitted { step, next } = event.event {
            steps
                .push((step.0, next.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")));
        }
    }
    let steps: Vec<(u64, &str)> = steps.iter().map(|(step, next)| (*step, next.as_str())).collect();
    assert_eq!(steps, [(1, "skipped"), (2, "last"), (3, "")]);
}

#[tokio::test]
async fn a_run_without_storage_retries_only_what_failed() {
    let runs = Arc::new(AtomicUsize::new(0));
    let fails = Arc::new(AtomicUsize::new(0));
    let works = {
        let runs = Arc::clone(&runs);
        node_fn(move |_: Nothing, _| {
            runs.fetch_add(1, Ordering::Relaxed);
            async { noted("works") }
        })
    };
    let fails_first = node_fn(move |_: Nothing, _| {
        let is_first = fails.fetch_add(1, Ordering::Relaxed) == 0;
        async move { if is_first { Err(NodeError::permanent("first")) } else { noted("fails") } }
    });
    let graph = GraphBuilder::new::<Team>("retries")
        .node("fails", fails_first)
        .node("works", works)
        .edge(START, "fails")
        .edge(START, "works")
        .edge("fails", "end")
        .edge("works", "end");
    let engine = Engine::new(compiled(graph));
    let end = engine.run(&()).await.unwrap();
    assert_eq!(end.status, Status::Failed);
    let end = engine.retry(&end.run).await.unwrap();
    assert_eq!(
        (end.status, notes(&end.state)),
        (Status::Done, vec!["fails".into(), "works".into()])
    );
    assert_eq!(runs.load(Ordering::Relaxed), 1, "a finished task never runs again");
}

/// Runs in a separate process: the other tests of this binary need memory at the same time.
#[test]
fn the_memory_of_a_run_without_storage_stays_flat() {
    const NAME: &str = "the_memory_of_a_run_without_storage_stays_flat";
    const IS_CHILD: &str = "GRAPHRUN_TEST_MEASURES_MEMORY";
    if env::var_os(IS_CHILD).is_some() {
        return measure_memory();
    }
    let output = child_test(module_path!(), NAME).env(IS_CHILD, "1").output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{output:?}");
}

fn measure_memory() {
    const SHORT: u32 = 3_000;
    const LONG: u32 = 30_000;
    let peak_kb = || {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    let run = |steps: u32| {
        let node = node_fn(|(): (), _| async { Ok::<_, NodeError>(()) });
        let graph = GraphBuilder::new::<Team>("loop")
            .node("again", node.with_policies(bounded(steps)))
            .edge(START, "again")
            .edge("again", "again")
            .limits(Limits { steps: 2 * u64::from(LONG), ..Limits::default() });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let end = runtime.block_on(async { Engine::new(compiled(graph)).run(&()).await.unwrap() });
        assert_eq!(end.position.step.0, u64::from(steps));
    };
    run(SHORT);
    let before = peak_kb();
    run(LONG);
    // A journal of all entries would take 80 MB.
    let more = peak_kb() - before;
    assert!(more < 20_000, "{more} KB more");
}

/// A node that is quick at its first visit and does something else at its second.
fn second_visit(
    work: impl Fn() -> Result<Noted, NodeError> + Clone + Send + Sync + 'static,
) -> GraphBuilder {
    let node = node_fn(move |_: Nothing, ctx: NodeContext| {
        let work = work.clone();
        async move { if ctx.visit() == 1 { noted("first") } else { work() } }
    });
    let caught = Catch { kind: Some(ErrorKind::Panic), to: Target::Node(name("late")) };
    let policies = Policies { catch: vec![caught], ..bounded(2) };
    GraphBuilder::new::<Team>("twice")
        .node("works", node.with_policies(policies))
        .node(
            "late",
            node_fn(|_: Nothing, ctx: NodeContext| async move {
                noted(ctx.trigger.error().unwrap_or_default())
            }),
        )
        .edge(START, "works")
        .edge("works", "works")
        .edge("late", "end")
}

#[tokio::test]
async fn a_panic_of_a_node_polled_in_place_is_its_failure() {
    struct PanicsOnDrop;
    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let panics = second_visit(|| panic!("polled"));
    let end = Engine::new(compiled(panics)).run(&()).await.unwrap();
    assert_eq!(notes(&end.state), ["first", "the node panicked: polled"]);
    let drops = second_visit(|| {
        drop(PanicsOnDrop);
        noted("never")
    });
    let end = Engine::new(compiled(drops)).run(&()).await.unwrap();
    assert_eq!(notes(&end.state), ["first", "the node panicked: dropped"]);
}

#[tokio::test]
async fn a_quick_node_that_has_to_wait_gets_a_task() {
    let open = Arc::new(Semaphore::new(0));
    let waits = {
        let open = Arc::clone(&open);
        node_fn(move |_: Nothing, ctx: NodeContext| {
            let open = Arc::clone(&open);
            async move {
                if ctx.visit() > 1 {
                    drop(open.acquire().await);
                }
                noted(ctx.visit().to_string())
            }
        })
    };
    let graph = GraphBuilder::new::<Team>("waits")
        .node("waits", waits.with_policies(bounded(3)))
        .edge(START, "waits")
        .edge("waits", "waits");
    let engine = Engine::new(compiled(graph));
    let (end, ()) = tokio::join!(engine.run(&()), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        open.add_permits(1);
    });
    assert_eq!(notes(&end.unwrap().state), ["1", "2", "3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_node_that_blocks_its_thread_delays_no_other() {
    // It blocks at every visit, so it is never polled in place, and its sibling works meanwhile. The pause is
    // needed where the message of its sibling is there before it asks for it, which would make it a quick node.
    const PAUSE: Duration = Duration::from_millis(5);
    let (sent, received) = std::sync::mpsc::channel::<()>();
    let received = Arc::new(std::sync::Mutex::new(received));
    let blocks = node_fn(move |_: Nothing, _| {
        let received = Arc::clone(&received);
        async move {
            // The lock of this thread is meant to block it, and so is the pause.
            std::thread::sleep(PAUSE);
            let lock = received.lock().unwrap();
            let _ = lock.recv_timeout(Duration::from_secs(30));
            noted("blocks")
        }
    });
    let works = node_fn(move |_: Nothing, _| {
        let _ = sent.send(());
        async { noted("works") }
    });
    let graph = GraphBuilder::new::<Team>("beside")
        .node("begin", node_fn(|_: Nothing, _| async { noted("begin") }))
        .node("blocks", blocks.with_policies(bounded(3)))
        .node("works", works.with_policies(bounded(3)))
        .edge(START, "begin")
        .edge("begin", "blocks")
        .edge("begin", "works")
        .edge("blocks", "blocks")
        .edge("works", "works");
    let engine = Engine::new(compiled(graph));
    let end = timeout(Duration::from_secs(20), engine.run(&())).await.expect("it was delayed");
    assert_eq!(notes(&end.unwrap().state).len(), 7);
}

#[tokio::test]
async fn quick_nodes_leave_a_turn_to_other_futures() {
    const STEPS: u32 = 5_000;
    let graph = GraphBuilder::new::<Team>("loop")
        .node(
            "again",
            node_fn(|(): (), _| async { Ok::<_, NodeError>(()) }).with_policies(bounded(STEPS)),
        )
        .edge(START, "again")
        .edge("again", "again")
        .limits(Limits { steps: 2 * u64::from(STEPS), ..Limits::default() });
    let engine = Engine::new(compiled(graph));
    let turns = Arc::new(AtomicUsize::new(0));
    let others = {
        let turns = Arc::clone(&turns);
        tokio::spawn(async move {
            loop {
                turns.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        })
    };
    engine.run(&()).await.unwrap();
    others.abort();
    assert!(turns.load(Ordering::Relaxed) > 20, "{turns:?}");
}

#[tokio::test]
async fn all_runs_of_a_process_share_one_thread_for_their_leases() {
    let open = Arc::new(Semaphore::new(0));
    let waits = {
        let open = Arc::clone(&open);
        node_fn(move |_: Nothing, _| {
            let open = Arc::clone(&open);
            async move {
                drop(open.acquire().await);
                noted("done")
            }
        })
    };
    let graph = GraphBuilder::new::<Team>("waits")
        .node("waits", waits)
        .edge(START, "waits")
        .edge("waits", "end");
    let storage = Arc::new(InMemoryStorage::default());
    let engine = Engine::new(compiled(graph)).with_storage(storage);
    let runs: Vec<_> = (0..50)
        .map(|_| {
            let engine = engine.clone();
            tokio::spawn(async move { engine.run(&()).await.unwrap().status })
        })
        .collect();
    tokio::task::yield_now().await;
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let names = threads.filter_map(|it| fs::read_to_string(it.ok()?.path().join("comm")).ok());
    assert_eq!(names.filter(|it| it.trim() == "lease").count(), 1);
    open.add_permits(1);
    for run in runs {
        assert_eq!(run.await.unwrap(), Status::Done);
    }
}
