//! The cost of the engine in memory, each workload beside a hand-written program that does the same work.
//!
//! `cargo bench --bench engine`. Each figure is the median of several rounds; both sides alternate in one process, so that
//! a slower machine slows both, and both check the same result. All rows but the last are the CPU time of all threads,
//! which other work on the machine hardly changes; the last one waits, so it is elapsed time. The floors read and write
//! the same state as JSON and call the same nodes as boxed futures, without a graph, rules or bounds.
//! `GRAPHRUN_BENCH_ROUNDS` sets the rounds, and words after `--` choose rows: `cargo bench --bench engine -- chain`.
//! With `GRAPHRUN_BENCH_JSON=1`, each row with a floor is a JSON object. `benches/peers/run` compares other engines.

#[path = "shared/mod.rs"]
mod shared;

use std::{fs, future::Future, pin::Pin, sync::Arc, time::Duration};

use graphrun::{
    compile::CompiledGraph,
    engine::{Engine, RunEnd},
    event::Status,
    graph::{
        Bounds, Dispatch, GraphBuilder, Input, IntoNode, Limits, NodeContext, NodeError, Policies,
        START, Target, node_fn,
    },
    id::{ChannelName, NodeName},
    state::{Channel, Reducer, Schema},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::{runtime::Runtime, task::JoinSet};

use self::shared::{
    table::{Row, Table, busy, cpu_time, timed},
    team, write,
};

const STEPS: u64 = 10_000;
const WIDTH: u64 = 1_000;
const CHANNELS: usize = 1_000;
const RUNS: usize = 1_000;
const TEAM_RUNS: u64 = 100;
const WAIT: Duration = Duration::from_millis(10);
const ROUNDS: u32 = 15;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let table = Table::begin(ROUNDS);
    let row = |name, units, at_most| Row { name, units, at_most };

    let counter = counter(STEPS);
    table.measure(row("chain, µs a step", STEPS, "1.5"), || {
        let ours = busy(|| runtime.block_on(count(&counter, STEPS)));
        (ours, busy(|| runtime.block_on(count_by_hand())))
    });
    if table.is_wanted("memory") {
        let before = resident_mb();
        let long = self::counter(10 * STEPS);
        runtime.block_on(count(&long, 10 * STEPS));
        println!("{:<48} {:>10.1}", "memory: MB more after 100,000 steps", resident_mb() - before);
        memory_of_runs(&runtime);
    }

    let by_edges = fan_out_by_edges();
    table.measure(row("fan-out of 1,000 by edges, µs a task", WIDTH, "1.5"), || {
        let ours = busy(|| runtime.block_on(spread(&by_edges)));
        (ours, busy(|| runtime.block_on(spread_by_hand())))
    });
    let by_dispatch = fan_out_by_dispatch();
    table.measure(row("fan-out of 1,000 by dispatch, µs a task", WIDTH, "1.5"), || {
        let ours = busy(|| runtime.block_on(spread(&by_dispatch)));
        (ours, busy(|| runtime.block_on(spread_by_hand())))
    });

    let wide = wide_state();
    table.measure(row("1,000 channels, one changes, µs a step", STEPS, "3"), || {
        let ours = busy(|| runtime.block_on(count(&wide, STEPS)));
        (ours, busy(|| runtime.block_on(count_in_a_wide_state_by_hand())))
    });

    let team = Engine::new(team::team());
    table.measure(row("dev-team shape, instant nodes, µs a run", TEAM_RUNS, "30"), || {
        let ours = busy(|| (0..TEAM_RUNS).for_each(|_| runtime.block_on(team::run(&team))));
        let by_hand = || runtime.block_on(team::run_by_hand(|_| ()));
        (ours, busy(|| (0..TEAM_RUNS).for_each(|_| by_hand())))
    });

    many_runs(&runtime, &table);
}

/// Returns a figure of this process from the system, such as `VmRSS`.
fn figure(name: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|it| it.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().find_map(|it| it.parse().ok()).unwrap_or(f64::NAN)
}

fn resident_mb() -> f64 {
    figure("VmRSS:") / 1024.0
}

// A chain.

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Counter {
    #[serde(default)]
    count: u64,
}

async fn increment(reads: Counter, _: NodeContext) -> Result<Counter, NodeError> {
    Ok(Counter { count: reads.count + 1 })
}

/// A node that leads to itself.
fn chain(graph: GraphBuilder, steps: u64) -> CompiledGraph {
    let bound = Policies::from(Bounds {
        max_visits: Some(u32::try_from(steps).unwrap()),
        exhausted: Some(Target::End),
        ..Bounds::default()
    });
    let graph = graph
        .node("increment", node_fn(increment).with_policies(bound))
        .edge(START, "increment")
        .edge("increment", "increment")
        .limits(Limits { steps: steps + 1, ..Limits::default() });
    graph.compile().unwrap()
}

fn counter(steps: u64) -> CompiledGraph {
    chain(GraphBuilder::new::<Counter>("counter"), steps)
}

/// The same in a state with a thousand channels.
fn wide_state() -> CompiledGraph {
    let channel = |name: &str| {
        let name = ChannelName::parse(name).unwrap();
        let channel = Channel::new(name, json!({"type": "integer"}), Reducer::Replace).unwrap();
        channel.with_default(json!(0))
    };
    let others = (1..CHANNELS).map(|it| channel(&format!("other_{it:03}")));
    let schema = Schema::new(others.chain([channel("count")])).unwrap();
    chain(GraphBuilder::with_schema("wide", schema), STEPS)
}

async fn count(graph: &CompiledGraph, steps: u64) {
    let end = run(graph).await;
    assert_eq!((end.status, end.position.step.0), (Status::Done, steps));
    assert_eq!(end.state.get("count"), Some(&json!(steps)));
}

async fn run(graph: &CompiledGraph) -> RunEnd {
    Engine::new(graph.clone()).run(&()).await.unwrap()
}

type Work = Box<dyn Fn(&Map<String, Value>) -> Pin<Box<dyn Future<Output = Value> + Send>>>;

/// Returns a node by hand: it reads its struct from the state, and writes one as JSON.
fn counting() -> Work {
    Box::new(|state| {
        let read = Counter { count: state["count"].as_u64().unwrap_or_default() };
        Box::pin(async move { serde_json::to_value(Counter { count: read.count + 1 }).unwrap() })
    })
}

async fn count_by_hand() {
    count_in(Map::from_iter([("count".to_owned(), json!(0))])).await;
}

async fn count_in_a_wide_state_by_hand() {
    let others = (1..CHANNELS).map(|it| (format!("other_{it:03}"), json!(0)));
    count_in(others.chain([("count".to_owned(), json!(0))]).collect()).await;
}

async fn count_in(mut state: Map<String, Value>) {
    let node = counting();
    for _ in 0..STEPS {
        let update = node(&state).await;
        write(&mut state, update);
    }
    assert_eq!(state["count"], json!(STEPS));
}

// Fan-out and merge.

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Items {
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    items: Vec<u64>,
}

async fn nothing((): (), _: NodeContext) -> Result<(), NodeError> {
    Ok(())
}

async fn square((): (), ctx: NodeContext) -> Result<Items, NodeError> {
    let Input::Value(item) = &ctx.input else { return Err(NodeError::permanent("dispatched")) };
    let item = item.as_u64().unwrap_or_default();
    Ok(Items { items: vec![item * item] })
}

fn fan_out_by_dispatch() -> CompiledGraph {
    let node = NodeName::parse("square").unwrap();
    let graph = GraphBuilder::new::<Items>("dispatch")
        .node("begin", node_fn(nothing))
        .node("square", node_fn(square))
        .edge(START, "begin")
        .route("begin", ["square"], move |_: &Value| {
            let send = |item| Dispatch::new(node.clone(), json!(item));
            (0..WIDTH).map(send).collect::<Vec<_>>()
        })
        .edge("square", "end")
        .limits(Limits { concurrency: 64, ..Limits::default() });
    graph.compile().unwrap()
}

fn fan_out_by_edges() -> CompiledGraph {
    let mut graph = GraphBuilder::new::<Items>("edges")
        .node("begin", node_fn(nothing))
        .node("merge", node_fn(nothing))
        .edge(START, "begin")
        .limits(Limits { concurrency: 64, ..Limits::default() });
    for item in 0..WIDTH {
        let square = node_fn(move |(): (), _: NodeContext| async move {
            Ok::<_, NodeError>(Items { items: vec![item * item] })
        });
        let name = format!("square_{item:03}");
        graph = graph.node(&name, square).edge("begin", &name).edge(&name, "merge");
    }
    graph.edge("merge", "end").compile().unwrap()
}

async fn spread(graph: &CompiledGraph) {
    let end = run(graph).await;
    assert_eq!(end.status, Status::Done);
    check_sum(end.state.get("items"));
}

fn check_sum(items: Option<&Value>) {
    let items = items.and_then(Value::as_array).unwrap();
    let sum: u64 = items.iter().filter_map(Value::as_u64).sum();
    assert_eq!(sum, (0..WIDTH).map(|it| it * it).sum::<u64>());
}

async fn spread_by_hand() {
    let mut tasks = JoinSet::new();
    for item in 0..WIDTH {
        let input = json!(item);
        tasks.spawn(async move {
            let item = input.as_u64().unwrap_or_default();
            (item, serde_json::to_value(Items { items: vec![item * item] }).unwrap())
        });
    }
    let mut results = tasks.join_all().await;
    results.sort_by_key(|(item, _)| *item);
    let items: Value =
        results.into_iter().filter_map(|(_, it)| it["items"].get(0).cloned()).collect();
    check_sum(Some(&items));
}

// Many runs at once.

/// Returns a chain of five nodes that each wait.
fn waits(wait: Duration) -> CompiledGraph {
    let mut graph = GraphBuilder::new::<Counter>("waits").edge(START, "wait_0");
    for index in 0..5 {
        let node = node_fn(move |(): (), _: NodeContext| async move {
            tokio::time::sleep(wait).await;
            Ok::<_, NodeError>(())
        });
        let next = if index < 4 { format!("wait_{}", index + 1) } else { "end".to_owned() };
        let name = format!("wait_{index}");
        graph = graph.node(&name, node).edge(&name, &next);
    }
    graph.compile().unwrap()
}

/// Prints the memory of 10,000 runs that are active at once. Their waits are longer than the time in which all of them
/// start.
fn memory_of_runs(runtime: &Runtime) {
    const ACTIVE: usize = 10_000;
    let engine = Arc::new(Engine::new(waits(Duration::from_secs(1))));
    let before = resident_mb();
    let resident = runtime.block_on(async {
        let mut runs = JoinSet::new();
        for _ in 0..ACTIVE {
            let engine = Arc::clone(&engine);
            runs.spawn(async move { engine.run(&()).await.unwrap().status });
        }
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        assert_eq!(runs.try_join_next().map(|it| it.is_ok()), None, "a run ended too early");
        let resident = resident_mb();
        assert!(runs.join_all().await.into_iter().all(|it| it == Status::Done));
        resident
    });
    let name = "memory: MB more with 10,000 active runs";
    println!("{name:<48} {:>10.1} {:>30}", resident - before, "150");
}

fn many_runs(runtime: &Runtime, table: &Table) {
    let engine = Arc::new(Engine::new(waits(WAIT)));
    let cpu = cpu_time();
    let mut threads = 0.0_f64;
    let mut peak = 0.0_f64;
    let row = Row { name: "1,000 runs × 5 nodes × 10 ms, ms", units: 1_000, at_most: "80" };
    let ran = table.measure(row, || {
        let ours = timed(|| {
            runtime.block_on(async {
                let mut runs = JoinSet::new();
                for _ in 0..RUNS {
                    let engine = Arc::clone(&engine);
                    runs.spawn(async move { engine.run(&()).await.unwrap().status });
                }
                tokio::time::sleep(2 * WAIT).await;
                threads = threads.max(figure("Threads:"));
                peak = peak.max(resident_mb());
                assert!(runs.join_all().await.into_iter().all(|it| it == Status::Done));
            });
        });
        let floor = timed(|| {
            runtime.block_on(async {
                let mut runs = JoinSet::new();
                for _ in 0..RUNS {
                    runs.spawn(async {
                        for _ in 0..5 {
                            tokio::time::sleep(WAIT).await;
                        }
                    });
                }
                runs.join_all().await;
            });
        });
        (ours, floor)
    });
    let Some(rounds) = ran else { return };
    let cpu = cpu_time().saturating_sub(cpu) / rounds;
    println!(
        "{:<48} {:>10.0} ms of CPU, {threads:.0} threads, {peak:.0} MB resident",
        "  of both sides together",
        cpu.as_secs_f64() * 1e3
    );
}
