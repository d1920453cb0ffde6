//! The time limit of a run: it stops the run, also in the middle of a step, and a higher limit lets the run
//! continue.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use graphrun::{
    checkpoint::{CheckpointError, Checkpointer, Outcome, RunHistory as _},
    compile::CompiledGraph,
    engine::{Engine, RunError, ShutdownHandle},
    event::{EventSink, Report, Status, Usage},
    graph::{
        Backoff, Bounds, Dispatch, GraphBuilder, IntoNode, ItemNeeds, ItemOrder, ItemPolicy,
        ItemReads, Limits, Node, NodeContext, NodeError, Policies, RouteError, RouteView, START,
        Schedule, Target, node_fn,
    },
    models::TokenUsage,
    state::{Type, Update},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{Nothing, Saved, Team, compiled, name, noted, notes, notes_its_way};
use crate::support::disturbed::Disturbed;

/// The started nodes: their names, and the attempts.
type Begun = Arc<Mutex<Vec<(String, u32)>>>;

/// A node that takes this many seconds, or fails in these attempts.
fn takes(seconds: u64, fails: &'static [u32], begun: &Begun) -> impl Node + use<> {
    let begun = Arc::clone(begun);
    node_fn(move |_: Nothing, ctx: NodeContext| {
        let begun = Arc::clone(&begun);
        async move {
            begun.lock().unwrap().push((ctx.node.to_string(), ctx.attempt));
            if fails.contains(&ctx.attempt) && ctx.state.read::<Team>().unwrap().notes.is_empty() {
                return Err(NodeError::transient("not yet"));
            }
            sleep(Duration::from_secs(seconds)).await;
            let tokens = TokenUsage { input_tokens: 100, calls: 1, ..TokenUsage::default() };
            let usage = Usage { tokens, cost_usd: None };
            ctx.report(Report::ModelCall { model: "m".into(), usage, ms: 1 }).await;
            noted(ctx.node.to_string())
        }
    })
}

fn seconds(seconds: u64) -> Limits {
    Limits { time: Some(Duration::from_secs(seconds)), ..Limits::default() }
}

/// A node of one second beside a node of one minute, and a last node.
fn uneven(begun: &Begun, policies: Policies) -> GraphBuilder {
    GraphBuilder::new::<Team>("uneven")
        .node("quick", takes(1, &[], begun))
        .node("slow", takes(60, &[], begun).with_policies(policies))
        .node("last", notes_its_way())
        .edge(START, "quick")
        .edge(START, "slow")
        .edge(["quick", "slow"], "last")
        .edge("last", "end")
}

fn names(begun: &Begun) -> Vec<(String, u32)> {
    begun.lock().unwrap().clone()
}

fn began(list: &[(&str, u32)]) -> Vec<(String, u32)> {
    list.iter().map(|(node, attempt)| ((*node).to_owned(), *attempt)).collect()
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_aborts_a_step_and_resume_continues() {
    let begun = Begun::default();
    let saved = Saved::new();
    let graph = compiled(uneven(&begun, Policies::default()));
    let start = Instant::now();
    let engine = |limit| saved.engine(&graph).with_limits(seconds(limit));
    let end = saved.start(&engine(10)).await;
    assert_eq!((end.status, start.elapsed().as_secs()), (Status::Limit, 10));
    assert_eq!(
        end.reason.as_deref(),
        Some(
            "the limit of 10s is reached: the run has worked for \
                                            10s"
        )
    );
    let records = saved.storage.records(saved.run()).await.unwrap();
    let became = records.iter().map(|it| (it.node.as_str(), it.ms, it.outcome == Outcome::Aborted));
    assert_eq!(became.collect::<Vec<_>>(), [("quick", 1_000, false), ("slow", 10_000, true)]);

    let again = saved.resume(&engine(10)).await.unwrap();
    assert_eq!((again.status, again.reason), (Status::Limit, end.reason));
    assert_eq!(names(&begun), began(&[("quick", 1), ("slow", 1)]), "nothing begins without time");

    let more = saved.resume(&engine(40)).await.unwrap();
    assert_eq!((more.status, start.elapsed().as_secs()), (Status::Limit, 40), "30 s were left");
    let done = saved.resume(&engine(120)).await.unwrap();
    assert_eq!((done.status, start.elapsed().as_secs()), (Status::Done, 100));
    assert_eq!(notes(&done.state), ["quick", "slow", "last"]);
    let all = [("quick", 1), ("slow", 1), ("slow", 1), ("slow", 1)];
    assert_eq!(names(&begun), began(&all), "aborted tasks did not fail, and start again");
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_leads_to_exhausted_with_finished_tasks() {
    let begun = Begun::default();
    let saved = Saved::new();
    let limits = Limits { exhausted: Some(Target::Node(name("flush"))), ..seconds(10) };
    let graph = uneven(&begun, Policies::default()).limits(limits);
    let graph = compiled(graph.node("flush", notes_its_way()).edge("flush", "end"));
    let end = saved.start(&saved.engine(&graph)).await;
    let reason = "the limit of 10s is reached: the run has worked for 10s";
    assert_eq!((end.status, end.reason.as_deref()), (Status::Done, Some(reason)));
    assert_eq!(notes(&end.state), ["quick".to_owned(), format!("flush after: {reason}")]);
    assert_eq!(end.position.used.elapsed_ms, 10_000, "the time of aborted tasks counts");
    assert_eq!(end.position.visits.get(&name("slow")), Some(&0), "it has not run");
}

/// The last of three items needs the one before it.
#[derive(Debug)]
struct LastAfterSecond;

impl ItemOrder for LastAfterSecond {
    fn needs(&self, items: &[&Value], _: &RouteView<'_>) -> Result<ItemNeeds, RouteError> {
        let keys = items.iter().map(ToString::to_string).collect();
        Ok(ItemNeeds { keys, needs: vec![vec![], vec![], vec![1]], missing: None })
    }

    fn reads(&self) -> ItemReads {
        ItemReads { item: Type::Any, key: vec![vec![]], after: vec![vec![]] }
    }
}

#[tokio::test(start_paused = true)]
async fn an_item_released_at_the_time_limit_does_not_start() {
    let begun = Begun::default();
    let saved = Saved::new();
    let list = Arc::clone(&begun);
    let item = node_fn(move |_: Nothing, ctx: NodeContext| {
        let list = Arc::clone(&list);
        async move {
            let name = format!("item {}", ctx.task.index);
            list.lock().unwrap().push((name.clone(), ctx.attempt));
            if ctx.task.index == 0 {
                // The driver sets its timer again after this, so that it notices the limit after the second item has ended.
                sleep(Duration::from_secs(1)).await;
                let tokens = TokenUsage { calls: 1, ..TokenUsage::default() };
                let usage = Usage { tokens, cost_usd: None };
                ctx.report(Report::ModelCall { model: "m".into(), usage, ms: 1 }).await;
                sleep(Duration::from_secs(60)).await;
            } else {
                sleep(Duration::from_secs(10)).await;
            }
            noted(name)
        }
    });
    let items = ItemPolicy { order: Some(Arc::new(LastAfterSecond)), ..ItemPolicy::default() };
    let schedule = Schedule { items: Some(items), ..Schedule::default() };
    let graph = GraphBuilder::new::<Team>("ordered")
        .node("start", notes_its_way())
        .node("item", item.with_policies(Policies::from(schedule)))
        .node("flush", notes_its_way())
        .edge(START, "start")
        .route("start", ["item"], |_: &Nothing| {
            [0, 1, 2].map(|it| Dispatch::new(name("item"), json!(it))).to_vec()
        })
        .edge("item", "end")
        .edge("flush", "end")
        .limits(Limits { exhausted: Some(Target::Node(name("flush"))), ..seconds(10) });
    let graph = compiled(graph);
    // In a separate task, the driver runs after the items that were woken before it.
    let driver = async move { saved.start(&saved.engine(&graph)).await };
    let end = tokio::spawn(driver).await.unwrap();
    assert_eq!(end.status, Status::Done, "{:?}", end.reason);
    assert!(notes(&end.state).contains(&"item 1".to_owned()), "{:?}", notes(&end.state));
    assert_eq!(names(&begun), began(&[("item 0", 1), ("item 1", 1)]));
}

#[tokio::test(start_paused = true)]
async fn aborted_attempts_and_waits_are_not_counted() {
    let begun = Begun::default();
    let saved = Saved::new();
    let wait = Duration::from_secs(20);
    let retry = Backoff {
        attempts_max: Some(2),
        initial: wait,
        max: wait,
        total: None,
        ..Backoff::default()
    };
    let graph = GraphBuilder::new::<Team>("late")
        .node("late", takes(9, &[1], &begun).backoff(retry))
        .edge(START, "late")
        .edge("late", "end");
    let graph = compiled(graph);
    let end = saved.start(&saved.engine(&graph).with_limits(seconds(5))).await;
    assert_eq!((end.status, names(&begun)), (Status::Limit, began(&[("late", 1), ("late", 2)])));
    let end = saved.resume(&saved.engine(&graph).with_limits(seconds(50))).await.unwrap();
    assert_eq!(end.status, Status::Done, "{:?}", end.reason);
    assert_eq!(names(&begun)[2..], began(&[("late", 2)]), "the second is the last, and not failed");
}

#[tokio::test(start_paused = true)]
async fn a_failure_takes_precedence_over_the_time_limit() {
    let begun = Begun::default();
    let saved = Saved::new();
    let graph = uneven(&begun, Policies::default());
    let fails = node_fn(|_: Nothing, _: NodeContext| async {
        Err::<super::Noted, _>(NodeError::permanent("no"))
    });
    let graph = graph.node("fails", fails).edge(START, "fails").edge("fails", "end");
    let graph = compiled(graph);
    let end = saved.start(&saved.engine(&graph).with_limits(seconds(10))).await;
    assert_eq!((end.status, end.reason.as_deref()), (Status::Failed, Some("`fails` failed: no")));
}

/// A loop of two nodes that take a second and a hundred tokens each.
fn around(begun: &Begun, limits: Limits) -> CompiledGraph {
    let exhausted = Some(Target::End);
    let bound = Policies::from(Bounds { max_visits: Some(7), exhausted, ..Bounds::default() });
    let graph = GraphBuilder::new::<Team>("around")
        .node("there", takes(1, &[], begun).with_policies(bound))
        .node("back", takes(1, &[], begun))
        .edge(START, "there")
        .edge("there", "back")
        .edge("back", "there")
        .limits(limits);
    compiled(graph)
}

#[tokio::test(start_paused = true)]
async fn limits_count_across_crashes() {
    let tokens = Limits { tokens: Some(500), ..Limits::default() };
    let steps = Limits { steps: 5, ..Limits::default() };
    let visits = Limits::default();
    // The limit is reached in the middle of a node.
    let time = Limits { time: Some(Duration::from_millis(4_500)), ..Limits::default() };
    for (limits, begins) in [(tokens, 5), (steps, 5), (visits, 14), (time, 5)] {
        let calm = Begun::default();
        let saved = Saved::new();
        let expected = saved.start(&saved.engine(&around(&calm, limits.clone()))).await;
        assert_eq!(
            (names(&calm).len(), expected.position.step.0 > 3),
            (begins, true),
            "{expected:?}"
        );
        for writes in 0.. {
            let begun = Begun::default();
            let saved = Saved::new();
            let graph = around(&begun, limits.clone());
            let dying =
                Disturbed::dying_after(writes, Arc::clone(&saved.storage) as Arc<dyn Checkpointer>);
            let info = saved.info.clone();
            let input = Update::default();
            let events = EventSink::default();
            let stop = ShutdownHandle::default();
            let engine = Engine::new(graph.clone()).with_storage(Arc::new(dying));
            if engine
                .run(input)
                .with_info(info)
                .with_events(events)
                .with_shutdown(&stop)
                .await
                .is_ok()
            {
                assert!(writes > begins, "it has not died often");
                break;
            }
            let engine = saved.engine(&graph);
            let end = match saved.resume(&engine).await {
                Err(RunError::Checkpoint(CheckpointError::UnknownRun(_))) => {
                    saved.start(&engine).await
                }
                end => end.unwrap(),
            };
            assert_eq!((end.status, &end.reason), (expected.status, &expected.reason), "{writes}");
            assert_eq!(end.position, expected.position, "after {writes} writes");
            let begun = names(&begun).len();
            assert!((begins..=begins + 1).contains(&begun), "{begun} after {writes} writes");
        }
    }
}
