//! The cost of the engine itself, beside a hand-written tokio loop that does the same work.
//!
//! `cargo bench --bench engine`. Each line is the median of several rounds; both sides alternate in
//! one process, so that a slower machine slows both. `GRAPHRUN_BENCH_ROUNDS` sets the rounds.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use graphrun::{
    compile::{CompiledGraph, compile},
    engine::Engine,
    event::Status,
    graph::{
        Dispatch, GraphBuilder, Input, Limits, NodeContext, NodeError, Policies, Target, node_fn,
    },
    id::NodeName,
    storage::MemoryStorage,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const STEPS: u64 = 10_000;
const FAN_OUTS: [u64; 3] = [100, 1_000, 10_000];
const ROUNDS: usize = 7;

fn main() {
    let rounds = std::env::var("GRAPHRUN_BENCH_ROUNDS").ok().and_then(|it| it.parse().ok());
    let rounds = rounds.unwrap_or(ROUNDS);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    println!("{:<28} {:>12} {:>12} {:>8}", "", "graphrun", "by hand", "ratio");
    let counter = counter();
    report("loop, µs a super-step", STEPS, rounds, || {
        let ours = timed(|| runtime.block_on(count(&counter)));
        let floor = timed(|| runtime.block_on(count_by_hand()));
        (ours, floor)
    });
    for width in FAN_OUTS {
        let fan_out = fan_out(width);
        report(&format!("fan-out of {width}, µs a task"), width, rounds, || {
            let ours = timed(|| runtime.block_on(spread(&fan_out, width)));
            let floor = timed(|| runtime.block_on(spread_by_hand(width)));
            (ours, floor)
        });
    }
}

/// Prints the medians of both sides, by unit of work, and the ratio.
fn report(what: &str, units: u64, rounds: usize, mut round: impl FnMut() -> (Duration, Duration)) {
    let (mut ours, mut floor): (Vec<Duration>, Vec<Duration>) =
        (0..rounds).map(|_| round()).unzip();
    let (ours, floor) = (median(&mut ours, units), median(&mut floor, units));
    println!("{what:<28} {ours:>12.2} {floor:>12.2} {:>8.1}", ours / floor);
}

#[expect(clippy::cast_precision_loss, reason = "there are at most ten thousand")]
fn median(times: &mut [Duration], units: u64) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6 / units as f64
}

fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let started = Instant::now();
    std::hint::black_box(work());
    started.elapsed()
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Counter {
    #[serde(default)]
    count: u64,
}

async fn increment(reads: Counter, _: NodeContext) -> Result<Counter, NodeError> {
    Ok(Counter { count: reads.count + 1 })
}

fn counter() -> CompiledGraph {
    let bound = Policies {
        max_visits: Some(u32::try_from(STEPS).unwrap()),
        exhausted: Some(Target::End),
        ..Policies::default()
    };
    let graph = GraphBuilder::new::<Counter>("counter")
        .node_with("increment", node_fn(increment), bound)
        .entry("increment")
        .then("increment", "increment")
        .limits(Limits { steps: STEPS + 1, ..Limits::default() });
    compile(graph.build()).unwrap().0
}

async fn count(graph: &CompiledGraph) {
    let engine = Engine::new(graph.clone(), Arc::new(MemoryStorage::default()));
    let end = engine.run(&()).await.unwrap();
    assert_eq!((end.status, end.position.step.0), (Status::Done, STEPS));
    assert_eq!(end.state.get("count"), Some(&json!(STEPS)));
}

/// The same by hand: one task per step, which reads the state as a struct and writes it back as
/// JSON.
async fn count_by_hand() {
    let mut state = json!({"count": 0});
    for _ in 0..STEPS {
        let read: Counter = Counter::deserialize(&state).unwrap();
        let task = tokio::spawn(async move { Counter { count: read.count + 1 } });
        state = serde_json::to_value(task.await.unwrap()).unwrap();
    }
    assert_eq!(state["count"], json!(STEPS));
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Items {
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    items: Vec<u64>,
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

async fn start(_: Nothing, _: NodeContext) -> Result<(), NodeError> {
    Ok(())
}

async fn square(_: Nothing, ctx: NodeContext) -> Result<Items, NodeError> {
    let Input::Value(item) = &ctx.input else { return Err(NodeError::permanent("dispatched")) };
    let item = item.as_u64().unwrap_or_default();
    Ok(Items { items: vec![item * item] })
}

fn fan_out(width: u64) -> CompiledGraph {
    let node = NodeName::parse("square").unwrap();
    let graph = GraphBuilder::new::<Items>("fan_out")
        .node("start", node_fn(start))
        .node("square", node_fn(square))
        .entry("start")
        .route("start", ["square"], move |_: &Nothing| {
            let send = |item| Dispatch { node: node.clone(), input: json!(item) };
            (0..width).map(send).collect::<Vec<_>>()
        })
        .then("square", "end")
        .limits(Limits { concurrency: 64, ..Limits::default() });
    compile(graph.build()).unwrap().0
}

async fn spread(graph: &CompiledGraph, width: u64) {
    let engine = Engine::new(graph.clone(), Arc::new(MemoryStorage::default()));
    let end = engine.run(&()).await.unwrap();
    assert_eq!(end.status, Status::Done);
    let items = end.state.get("items").and_then(Value::as_array).map(Vec::len);
    assert_eq!(items, Some(usize::try_from(width).unwrap()));
}

/// The same by hand: one task per item, results as JSON, in the order of dispatch.
async fn spread_by_hand(width: u64) {
    let mut tasks = JoinSet::new();
    for item in 0..width {
        let input = json!(item);
        tasks.spawn(async move {
            let item = input.as_u64().unwrap_or_default();
            (item, serde_json::to_value(Items { items: vec![item * item] }).unwrap())
        });
    }
    let mut results = tasks.join_all().await;
    results.sort_by_key(|(item, _)| *item);
    let items: Vec<Value> =
        results.into_iter().filter_map(|(_, it)| it["items"].get(0).cloned()).collect();
    assert_eq!(items.len(), usize::try_from(width).unwrap());
}
