//! `langgraph`, a crate after the Python library. The tasks of a step run one after the other.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use langgraph::{
    channels::{
        Channel, LastValue,
        binop::{BinaryOperatorAggregate, append_reducer},
    },
    checkpoint::BaseCheckpointSaver,
    prelude::{
        CompiledStateGraph, END, JsonValue, RoutingFn, Runnable, RunnableConfig, RunnableError,
        START, StateGraph,
    },
    sqlite::SqliteSaver,
};
use serde_json::json;
use tokio::task::JoinSet;

use crate::measure::{
    CHAIN, CHANNELS, DISPATCH, EDGES, Measure, RUNS, SAVED_STEPS, STEP_IN_MEMORY, STEP_ON_DISK,
    STEPS, STORY, TEAM, TEAM_RUNS, TEAM_SAVED, WAIT, WAITS, WIDE, WIDTH, sum_of_squares, texts,
};

type Channels = HashMap<String, Box<dyn Channel>>;

pub fn measure(measure: &Measure) {
    let counter = counter(last_values(["count"]));
    measure.row(CHAIN, STEPS, || measure.busy(count(&counter, json!({ "count": 0 }))));

    let squares = squares();
    measure.row(EDGES, WIDTH, || measure.busy(spread(&squares)));

    measure.absent(DISPATCH, "its engine runs no `Send`");

    let others: Vec<String> = (1..CHANNELS).map(|it| format!("other_{it:03}")).collect();
    let names = others.iter().map(String::as_str).chain(["count"]);
    let input: JsonValue = names.clone().map(|it| (it.to_owned(), json!(0))).collect();
    let wide = self::counter(last_values(names));
    measure.row(WIDE, STEPS, || measure.busy(count(&wide, input.clone())));

    let in_memory_only = team(None);
    measure.row(TEAM, TEAM_RUNS, || {
        measure.busy(async {
            for _ in 0..TEAM_RUNS {
                run_team(&in_memory_only, &RunnableConfig::new()).await;
            }
        })
    });

    let waits = Arc::new(waits());
    measure.row(WAITS, 1_000, || measure.elapsed(wait_in_many_runs(Arc::clone(&waits))));

    measure.saved_row(&TEAM_SAVED, saver, |saver| async {
        let team = team(Some(saver));
        for run in 0..TEAM_RUNS {
            run_team(&team, &thread(&run.to_string())).await;
        }
    });
    let texts = texts();
    for row in [STEP_IN_MEMORY, STEP_ON_DISK] {
        measure.saved_row(&row, saver, |saver| save_steps(saver, Arc::clone(&texts)));
    }
}

fn last_values<'a>(names: impl IntoIterator<Item = &'a str>) -> Channels {
    let channel = |name: &str| Box::new(LastValue::new(name)) as Box<dyn Channel>;
    names.into_iter().map(|it| (it.to_owned(), channel(it))).collect()
}

async fn run(graph: &CompiledStateGraph, input: JsonValue) -> JsonValue {
    graph.ainvoke(&input, &RunnableConfig::new()).await.unwrap()
}

fn counter(channels: Channels) -> CompiledStateGraph {
    let mut graph = StateGraph::new(channels);
    let increment = |state: JsonValue, _| async move {
        let count = state["count"].as_u64().unwrap_or_default();
        Ok(json!({ "count": count + 1 }))
    };
    graph.add_node("increment", increment).unwrap();
    graph.add_edge(START, "increment").unwrap();
    let route = |update: &JsonValue| {
        let is_last = update["count"] == json!(STEPS);
        if is_last { END } else { "increment" }.to_owned()
    };
    graph.add_conditional_edges("increment", RoutingFn(route), None).unwrap();
    graph.compile_builder().recursion_limit(STEPS + 1).build().unwrap()
}

async fn count(graph: &CompiledStateGraph, input: JsonValue) {
    assert_eq!(run(graph, input).await["count"], json!(STEPS));
}

async fn nothing(_: JsonValue, _: RunnableConfig) -> Result<JsonValue, RunnableError> {
    Ok(json!({}))
}

fn squares() -> CompiledStateGraph {
    let items = BinaryOperatorAggregate::new("items", append_reducer);
    let mut graph =
        StateGraph::new(HashMap::from([("items".to_owned(), Box::new(items) as Box<dyn Channel>)]));
    graph.add_node("begin", nothing).unwrap();
    graph.add_node("merge", nothing).unwrap();
    graph.add_edge(START, "begin").unwrap();
    for item in 0..WIDTH {
        let name = format!("square_{item:03}");
        let square = move |_, _| async move { Ok(json!({ "items": [item * item] })) };
        graph.add_node(&name, square).unwrap();
        graph.add_edge("begin", &name).unwrap();
        graph.add_edge(&name, "merge").unwrap();
    }
    graph.add_edge("merge", END).unwrap();
    graph.compile().unwrap()
}

async fn spread(graph: &CompiledStateGraph) {
    let end = run(graph, json!({ "items": [] })).await;
    let items = end["items"].as_array().unwrap();
    assert_eq!(items.iter().filter_map(JsonValue::as_u64).sum::<u64>(), sum_of_squares());
}

fn waits() -> CompiledStateGraph {
    let mut graph = StateGraph::new(last_values(["count"]));
    let names: Vec<String> = (0..5).map(|it| format!("wait_{it}")).collect();
    for name in &names {
        let wait = |_, _| async {
            tokio::time::sleep(WAIT).await;
            Ok(json!({}))
        };
        graph.add_node(name, wait).unwrap();
    }
    graph.add_edge(START, &names[0]).unwrap();
    for pair in names.windows(2) {
        graph.add_edge(&pair[0], &pair[1]).unwrap();
    }
    graph.add_edge(&names[4], END).unwrap();
    graph.compile().unwrap()
}

async fn wait_in_many_runs(graph: Arc<CompiledStateGraph>) {
    let mut runs = JoinSet::new();
    for _ in 0..RUNS {
        let graph = Arc::clone(&graph);
        runs.spawn(async move { run(&graph, json!({ "count": 7 })).await });
    }
    assert!(runs.join_all().await.iter().all(|it| it["count"] == json!(7)));
}

fn team(saver: Option<Arc<dyn BaseCheckpointSaver>>) -> CompiledStateGraph {
    let number = |state: &JsonValue, name: &str| state[name].as_u64().unwrap_or_default();
    let mut graph = StateGraph::new(last_values(["story", "design", "code", "passed", "reviews"]));
    graph.add_node("ba", |_, _| async { Ok(json!({ "story": STORY })) }).unwrap();
    graph
        .add_node("architect", |state: JsonValue, _| async move {
            Ok(json!({ "design": state["story"] }))
        })
        .unwrap();
    graph
        .add_node("sse", move |state: JsonValue, _| async move {
            Ok(json!({ "code": number(&state, "code") + 1 }))
        })
        .unwrap();
    graph
        .add_node("tests", move |state: JsonValue, _| async move {
            Ok(json!({ "passed": number(&state, "code") > 2 }))
        })
        .unwrap();
    graph
        .add_node("qa", move |state: JsonValue, _| async move {
            Ok(json!({ "reviews": number(&state, "reviews") + 1 }))
        })
        .unwrap();
    graph.add_node("deliver", nothing).unwrap();
    for (from, to) in [
        (START, "ba"),
        ("ba", "architect"),
        ("architect", "sse"),
        ("sse", "tests"),
        ("deliver", END),
    ] {
        graph.add_edge(from, to).unwrap();
    }
    let tested = |it: &JsonValue| if it["passed"] == json!(true) { "qa" } else { "sse" }.to_owned();
    let reviewed = |it: &JsonValue| {
        if it["reviews"].as_u64() > Some(1) { "deliver" } else { "sse" }.to_owned()
    };
    graph.add_conditional_edges("tests", RoutingFn(tested), None).unwrap();
    graph.add_conditional_edges("qa", RoutingFn(reviewed), None).unwrap();
    match saver {
        Some(saver) => graph.compile_builder().checkpointer(saver).build().unwrap(),
        None => graph.compile().unwrap(),
    }
}

async fn run_team(graph: &CompiledStateGraph, config: &RunnableConfig) {
    let input = json!({ "code": 0, "passed": false, "reviews": 0 });
    let end = graph.ainvoke(&input, config).await.unwrap();
    assert_eq!(end["code"], json!(4));
}

async fn saver(path: PathBuf) -> Arc<dyn BaseCheckpointSaver> {
    let saver = SqliteSaver::from_conn_string(&format!("sqlite:{}", path.display())).await.unwrap();
    saver.setup().await.unwrap();
    Arc::new(saver)
}

fn thread(name: &str) -> RunnableConfig {
    HashMap::from([("configurable".to_owned(), json!({ "thread_id": name }))])
}

/// Saves each text in a step.
async fn save_steps(saver: Arc<dyn BaseCheckpointSaver>, texts: Arc<[String]>) {
    let mut graph = StateGraph::new(last_values(["text"]));
    let step = Arc::new(AtomicUsize::new(0));
    let last = texts[SAVED_STEPS - 1].clone();
    let work = move |_, _| {
        let text = texts[step.fetch_add(1, Ordering::Relaxed)].clone();
        async move { Ok(json!({ "text": text })) }
    };
    graph.add_node("work", work).unwrap();
    graph.add_edge(START, "work").unwrap();
    let end = last.clone();
    let route = move |update: &JsonValue| {
        if update["text"] == json!(end) { END } else { "work" }.to_owned()
    };
    graph.add_conditional_edges("work", RoutingFn(route), None).unwrap();
    let graph = graph
        .compile_builder()
        .checkpointer(saver)
        .recursion_limit(SAVED_STEPS as u64 + 1)
        .build()
        .unwrap();
    let end = graph.ainvoke(&json!({}), &thread("steps")).await.unwrap();
    assert_eq!(end["text"], json!(last));
}
