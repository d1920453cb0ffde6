//! Random graphs, run by the engine and by a naive interpreter. Both agree about every task, with its step, its visit and
//! the sum that it reads, and about the end. The graphs have dispatches, maps, joins of some nodes, clears, bounds, caught
//! failures, routes that fail and nested runs; each runs as a thread of several turns.
//!
//! Each seed is one graph. `GRAPHRUN_SEED=17` tries one seed, `GRAPHRUN_SEEDS=50000` more than usual.

mod interpreter;

mod plan;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use graphrun::{
    engine::NestedGraph,
    graph::{Contract, ItemPolicy, NodeDescription, Policies, Schedule},
    id::ChannelName,
    prelude::*,
};
use rand::{SeedableRng as _, rngs::StdRng};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::runtime;

use self::{
    interpreter::{Interpreter, State},
    plan::{Fails, NodePlan, Plan, Way},
};

/// The default number of seeds.
const SEEDS: u64 = 300;

/// The turns of a thread.
const TURNS: usize = 3;

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Channels {
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    log: Vec<String>,
    #[serde(default)]
    #[schemars(extend("x-merge" = "sum"))]
    sum: u64,
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    lost: Vec<Value>,
}

/// What a route reads.
#[derive(Deserialize, JsonSchema)]
struct Own {
    sum: u64,
    log: Vec<String>,
}

/// A node of a plan.
struct Planned {
    at: usize,
    fails: Fails,
    inner: Option<NestedGraph>,
}

#[async_trait]
impl Node for Planned {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let item = ctx.input.item().and_then(Value::as_u64);
        let fails = match self.fails {
            Fails::Never => false,
            Fails::FirstVisit => ctx.visit() == 1,
            Fails::OddItems => item.is_some_and(|it| it % 2 == 1),
        };
        if fails {
            return Err(NodeError::permanent("planned"));
        }
        let sum = ctx.state.get("sum").and_then(Value::as_u64).unwrap();
        let task = ctx.task;
        let visit = ctx.visit();
        let of_item = item.map(|it| format!(" item {it}")).unwrap_or_default();
        let mut log = vec![format!("{task} n{} visit {visit} sum {sum}{of_item}", self.at)];
        if let Some(inner) = &self.inner {
            let input = Update::of(&json!({"sum": item.unwrap_or(sum)}))?;
            let end = inner.run(&ctx, input).await?.read::<Channels>()?;
            log.extend(end.log.iter().map(|it| format!("> {it}")));
        }
        Ok(Update::of(&json!({"log": log, "sum": 1}))?.into())
    }

    fn describe(&self) -> NodeDescription {
        let writes = ["log", "sum"].map(|it| ChannelName::parse(it).unwrap());
        let contract = Contract { reads: Some(Vec::new()), writes: Some(writes.into()) };
        NodeDescription { contract, ..NodeDescription::default() }
    }
}

fn name(at: usize) -> String {
    format!("n{at}")
}

fn named(way: Way) -> String {
    match way {
        Way::Node(at) => name(at),
        Way::End => END.to_owned(),
        Way::Fail => FAIL.to_owned(),
    }
}

/// The tasks whose route was asked before; their log lines name them.
type Asked = Arc<Mutex<BTreeSet<String>>>;

/// Returns the graph of a plan, unless its checks refuse it.
fn compiled(plan: &Plan, asked: &Asked) -> Option<CompiledGraph> {
    let mut graph = GraphBuilder::new::<Channels>("planned").edge(START, "n0");
    for (at, node) in plan.nodes.iter().enumerate() {
        let inner = match &node.inner {
            Some(inner) => Some(NestedGraph::new(compiled(inner, asked)?)),
            None => None,
        };
        let from = &*name(at);
        let planned = Planned { at, fails: node.fails, inner };
        graph = graph.node(from, planned.with_policies(policies(node)));
        if let Some(to) = node.catch {
            graph = graph.catch(from, None, &named(to));
        }
        if let Some((bound, exhausted)) = node.bound {
            graph = graph.max_visits(from, bound, &named(exhausted));
        }
        if !node.resets.is_empty() {
            let resets: Vec<String> = node.resets.iter().map(|it| name(*it)).collect();
            graph = graph.resets(from, &resets);
        }
        if node.clears {
            graph = graph.clears(from, ["sum"]);
        }
        if !node.join.is_empty() {
            let join: Vec<String> = node.join.iter().map(|it| name(*it)).collect();
            graph = graph.edge_of(node.join_count, &join, from);
        }
        graph = with_ways(graph, at, node, asked);
    }
    let limits = Limits { steps: 5_000, ..Limits::default() };
    graph.limits(limits).compile().ok()
}

fn policies(node: &NodePlan) -> Policies {
    let failed = node.is_collecting.then(|| ChannelName::parse("lost").unwrap());
    let items = node.is_map.then(|| ItemPolicy { failed, order: None });
    Policies::from(Schedule { items, ..Schedule::default() })
}

fn with_ways(graph: GraphBuilder, at: usize, node: &NodePlan, asked: &Asked) -> GraphBuilder {
    let from = &*name(at);
    if let ([only], None, false) = (&*node.ways, node.dispatches, node.has_broken_route) {
        return only.iter().fold(graph, |graph, way| graph.edge(from, &*named(*way)));
    }
    let mut targets: BTreeSet<String> = node.ways.iter().flatten().map(|it| named(*it)).collect();
    targets.extend(node.dispatches.map(|it| name(it.0)));
    let asked = Arc::clone(asked);
    let node = node.clone();
    graph.route(from, &targets.into_iter().collect::<Vec<_>>(), move |own: &Own| {
        // A text that no target has: the route fails.
        let mut lines = own.log.iter().rev();
        let task = lines.find(|it| !it.starts_with("> ")).cloned().unwrap_or_default();
        if node.has_broken_route && asked.lock().unwrap().insert(task) {
            return vec![Next::To("nowhere".to_owned())];
        }
        let mut next = Vec::new();
        if let Some((to, items)) = node.dispatches {
            next.extend((0..items).map(|it| Next::from(dispatch(&name(to), &it))));
        }
        let choice = usize::try_from(own.sum).unwrap() % node.ways.len();
        next.extend(node.ways[choice].iter().map(|it| Next::To(named(*it))));
        next
    })
}

/// Runs the turns of a thread on the graph, and compares each with the reference. Returns what happened.
async fn check(plan: &Plan, seed: u64) -> Option<BTreeSet<&'static str>> {
    let asked = Asked::default();
    let graph = compiled(plan, &asked)?;
    let engine = match seed % 2 {
        0 => Engine::new(graph),
        _ => Engine::new(graph).with_storage(Arc::new(InMemoryStorage::default())),
    };
    let mut seen = BTreeSet::from(["fine"]);
    let mut reference = Interpreter::new(plan);
    let mut expected = State::default();
    for turn in 0..TURNS {
        let line = format!("turn {turn}");
        let input = Update::of(&json!({ "log": [line.clone()] })).unwrap();
        expected.log.push(line);
        let ended = reference.turn(&mut expected);
        if reference.is_out_of_scope {
            return None;
        }
        let mut end = engine.turn("thread", input).await.unwrap();
        let mut stops = 0;
        while end.reason.as_ref().is_some_and(|it| it.contains("its route failed")) {
            assert_eq!(end.status, Status::Failed);
            stops += 1;
            end = engine.retry(&end.run).await.unwrap();
        }
        let Channels { log, sum, lost } = end.state.read().unwrap();
        let lost = lost.iter().map(|it| it["item"].as_u64().unwrap()).collect();
        assert_eq!(State { log, sum, lost }, expected, "turn {turn} of {plan:?}: {:?}", end.reason);
        let is_done = end.status == Status::Done;
        assert_eq!(
            (is_done, stops),
            (ended.is_done, ended.stops),
            "turn {turn} of {plan:?}: {:?}",
            end.reason
        );
        seen.extend((stops > 0).then_some("routes that failed"));
        seen.extend((!is_done).then_some("failed turns"));
    }
    seen.extend(features(plan, &expected));
    Some(seen)
}

/// Returns the features of a plan of which the log shows the effect.
fn features(plan: &Plan, end: &State) -> Vec<&'static str> {
    let ran = |at: usize| end.log.iter().any(|it| it.contains(&format!(" n{at} ")));
    let nodes = || plan.nodes.iter().enumerate().filter(|(at, _)| ran(*at)).map(|(_, it)| it);
    let has_items = end.log.iter().any(|it| it.contains(" item "));
    let features = [
        ("joins", nodes().any(|it| it.join.len() > 1 && it.join_count == it.join.len())),
        ("joins of some nodes", nodes().any(|it| it.join_count < it.join.len())),
        ("clears", nodes().any(|it| it.clears)),
        ("dispatches", has_items),
        ("collected items", !end.lost.is_empty()),
        ("maps", has_items && nodes().any(|it| it.is_map && it.catch.is_some())),
        ("loops", end.log.iter().any(|it| it.contains(" visit 2 "))),
        ("resets", nodes().any(|it| !it.resets.is_empty())),
        ("nested runs", end.log.iter().any(|it| it.starts_with("> "))),
        ("maps of nested runs", {
            let mut lines = end.log.windows(2);
            lines.any(|it| it[0].contains(" item ") && it[1].starts_with("> "))
        }),
    ];
    features.into_iter().filter(|it| it.1).map(|it| it.0).collect()
}

#[test]
fn the_engine_agrees_with_a_naive_interpreter() {
    let number = |name| env::var(name).ok().map(|it: String| it.parse().expect("it is a number"));
    let seeds = match number("GRAPHRUN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("GRAPHRUN_SEEDS").unwrap_or(SEEDS),
    };
    let tried = seeds.end - seeds.start;
    let runtime = runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.unwrap();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in seeds {
        let plan = Plan::random(&mut StdRng::seed_from_u64(seed), true);
        println!("GRAPHRUN_SEED={seed} tries this graph alone");
        for feature in runtime.block_on(check(&plan, seed)).into_iter().flatten() {
            *counts.entry(feature).or_default() += 1;
        }
    }
    println!("{tried} graphs: {counts:?}");
    let all = [
        "joins",
        "joins of some nodes",
        "clears",
        "dispatches",
        "collected items",
        "maps",
        "loops",
        "resets",
        "routes that failed",
        "nested runs",
        "maps of nested runs",
        "failed turns",
    ];
    let rare: Vec<&str> =
        all.into_iter().filter(|task| counts.get(task).is_none_or(|it| *it < 2)).collect();
    assert!(tried < SEEDS || rare.is_empty(), "too few graphs have {rare:?}: {counts:?}");
}
