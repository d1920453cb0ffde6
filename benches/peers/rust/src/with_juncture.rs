//! `juncture-core`, the engine of `juncture`.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use juncture_checkpoint::SqliteSaver;
use juncture_core::{
    CheckpointSaver, Command, CompiledGraph, Durability, END, EventEmitter, JunctureError, PathMap,
    RunnableConfig, SendTarget, State, StateGraph, StreamMode,
    node::{NodeFnCommand, NodeFnUpdate},
};
use juncture_derive::State;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;
use sqlx::{
    ConnectOptions, Connection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};
use tokio::{sync::mpsc, task::JoinSet};

use crate::measure::{
    CHAIN, DISPATCH, EDGES, Measure, RUNS, SAVED_STEPS, STEP_IN_MEMORY, STEP_ON_DISK, STEPS, STORY,
    TEAM, TEAM_RUNS, TEAM_SAVED, TEAM_STEPS, WAIT, WAITS, WIDE, WIDTH, sum_of_squares, texts,
};

pub fn measure(measure: &Measure) {
    let counter = counter();
    measure.row(CHAIN, STEPS, || measure.busy(count(&counter)));

    for (row, graph) in [(EDGES, squares_by_edges()), (DISPATCH, squares_by_dispatch())] {
        measure.row(row, WIDTH, || measure.busy(spread(&graph)));
    }

    measure.absent(WIDE, "a state is a struct of at most 64 fields");

    let in_memory_only = team(None);
    measure.row(TEAM, TEAM_RUNS, || {
        measure.busy(async {
            for _ in 0..TEAM_RUNS {
                run_team(&in_memory_only).await;
            }
        })
    });

    let waits = Arc::new(waits());
    measure.row(WAITS, 1_000, || measure.elapsed(wait_in_many_runs(Arc::clone(&waits))));

    measure.saved_row(&TEAM_SAVED, saver, |saver| async {
        let team = team(Some(saver));
        for run in 0..TEAM_RUNS {
            let end = run_saved(&team, Team::default(), &run.to_string()).await;
            assert_eq!(end.code, 4);
        }
    });
    let texts = texts();
    for row in [STEP_IN_MEMORY, STEP_ON_DISK] {
        measure.saved_row(&row, saver, |saver| save_steps(saver, Arc::clone(&texts)));
    }
}

fn config() -> RunnableConfig {
    RunnableConfig::new()
}

#[derive(State, Clone, Debug, Default, Serialize, Deserialize)]
struct Counter {
    count: u64,
}

fn counter() -> CompiledGraph<Counter> {
    fn route(state: &Counter) -> &str {
        if state.count == STEPS { END } else { "increment" }
    }
    let mut graph = StateGraph::<Counter>::new();
    let increment = |state: &Counter| {
        let count = state.count + 1;
        async move { Ok(CounterUpdate { count: Some(count) }) }
    };
    graph.add_node_simple("increment", NodeFnUpdate(increment)).unwrap();
    graph.set_entry_point("increment");
    let ends = PathMap::from(&[("increment", "increment"), (END, END)]);
    graph.add_conditional_edges("increment", Arc::new(route), ends);
    graph.compile().unwrap()
}

async fn count(graph: &CompiledGraph<Counter>) {
    let config = config().with_recursion_limit(STEPS as usize + 1);
    let end = graph.invoke_async(Counter::default(), &config).await.unwrap();
    assert_eq!(end.value.count, STEPS);
}

#[derive(State, Clone, Debug, Default, Serialize, Deserialize)]
struct Items {
    #[reducer(append)]
    items: Vec<u64>,
    /// The input of a dispatched task.
    item: u64,
}

async fn no_items() -> Result<ItemsUpdate, JunctureError> {
    Ok(ItemsUpdate::default())
}

fn square_of(item: u64) -> ItemsUpdate {
    ItemsUpdate { items: Some(vec![item * item]), ..ItemsUpdate::default() }
}

fn squares_by_edges() -> CompiledGraph<Items> {
    let mut graph = StateGraph::<Items>::new();
    graph.add_node_simple("begin", NodeFnUpdate(|_: &Items| no_items())).unwrap();
    graph.add_node_simple("merge", NodeFnUpdate(|_: &Items| no_items())).unwrap();
    graph.set_entry_point("begin");
    for item in 0..WIDTH {
        let name = format!("square_{item:03}");
        let square = move |_: &Items| async move { Ok(square_of(item)) };
        graph.add_node_simple(&name, NodeFnUpdate(square)).unwrap();
        graph.add_edge("begin", &name);
        graph.add_edge(&name, "merge");
    }
    graph.set_finish_point("merge");
    graph.compile().unwrap()
}

fn squares_by_dispatch() -> CompiledGraph<Items> {
    let begin = |_: &Items| async {
        let send = |item| SendTarget {
            node: "square".to_owned(),
            state: json!({ "items": [], "item": item }),
            timeout: None,
        };
        Ok(Command::<Items>::send((0..WIDTH).map(send).collect()))
    };
    let square = |state: &Items| {
        let item = state.item;
        async move { Ok(square_of(item)) }
    };
    let mut graph = StateGraph::<Items>::new();
    graph.add_node_simple("begin", NodeFnCommand(begin)).unwrap();
    graph.add_node_simple("square", NodeFnUpdate(square)).unwrap();
    graph.set_entry_point("begin");
    // Without this edge, `compile` finds that nothing leads to the node.
    graph.add_edge("begin", "square");
    graph.set_finish_point("square");
    graph.compile().unwrap()
}

async fn spread(graph: &CompiledGraph<Items>) {
    let end = graph.invoke_async(Items::default(), &config()).await.unwrap();
    assert_eq!(end.value.items.len() as u64, WIDTH);
    assert_eq!(end.value.items.iter().sum::<u64>(), sum_of_squares());
}

fn waits() -> CompiledGraph<Counter> {
    let mut graph = StateGraph::<Counter>::new();
    let names: Vec<String> = (0..5).map(|it| format!("wait_{it}")).collect();
    for name in &names {
        let wait = |_: &Counter| async {
            tokio::time::sleep(WAIT).await;
            Ok(CounterUpdate::default())
        };
        graph.add_node_simple(name, NodeFnUpdate(wait)).unwrap();
    }
    graph.set_entry_point(&names[0]);
    for pair in names.windows(2) {
        graph.add_edge(&pair[0], &pair[1]);
    }
    graph.set_finish_point(&names[4]);
    graph.compile().unwrap()
}

async fn wait_in_many_runs(graph: Arc<CompiledGraph<Counter>>) {
    let mut runs = JoinSet::new();
    for _ in 0..RUNS {
        let graph = Arc::clone(&graph);
        runs.spawn(async move { graph.invoke_async(Counter { count: 7 }, &config()).await });
    }
    let ends = runs.join_all().await;
    assert!(ends.iter().all(|it| it.as_ref().unwrap().metadata.steps == 5));
}

#[derive(State, Clone, Debug, Default, Serialize, Deserialize)]
struct Team {
    story: Option<String>,
    design: Option<String>,
    code: u64,
    passed: bool,
    reviews: u64,
}

fn team(saver: Option<Arc<dyn CheckpointSaver>>) -> CompiledGraph<Team> {
    fn tested(state: &Team) -> &str {
        if state.passed { "qa" } else { "sse" }
    }
    fn reviewed(state: &Team) -> &str {
        if state.reviews > 1 { "deliver" } else { "sse" }
    }
    let ba = |_: &Team| async {
        Ok(TeamUpdate { story: Some(Some(STORY.to_owned())), ..TeamUpdate::default() })
    };
    let architect = |state: &Team| {
        let design = Some(state.story.clone());
        async move { Ok(TeamUpdate { design, ..TeamUpdate::default() }) }
    };
    let sse = |state: &Team| {
        let code = Some(state.code + 1);
        async move { Ok(TeamUpdate { code, ..TeamUpdate::default() }) }
    };
    let tests = |state: &Team| {
        let passed = Some(state.code > 2);
        async move { Ok(TeamUpdate { passed, ..TeamUpdate::default() }) }
    };
    let qa = |state: &Team| {
        let reviews = Some(state.reviews + 1);
        async move { Ok(TeamUpdate { reviews, ..TeamUpdate::default() }) }
    };
    let deliver = |_: &Team| async { Ok(TeamUpdate::default()) };
    let mut graph = StateGraph::<Team>::new();
    graph.add_node_simple("ba", NodeFnUpdate(ba)).unwrap();
    graph.add_node_simple("architect", NodeFnUpdate(architect)).unwrap();
    graph.add_node_simple("sse", NodeFnUpdate(sse)).unwrap();
    graph.add_node_simple("tests", NodeFnUpdate(tests)).unwrap();
    graph.add_node_simple("qa", NodeFnUpdate(qa)).unwrap();
    graph.add_node_simple("deliver", NodeFnUpdate(deliver)).unwrap();
    graph.set_entry_point("ba");
    graph.add_edge("ba", "architect");
    graph.add_edge("architect", "sse");
    graph.add_edge("sse", "tests");
    let ends = PathMap::from(&[("qa", "qa"), ("sse", "sse")]);
    graph.add_conditional_edges("tests", Arc::new(tested), ends);
    let ends = PathMap::from(&[("deliver", "deliver"), ("sse", "sse")]);
    graph.add_conditional_edges("qa", Arc::new(reviewed), ends);
    graph.set_finish_point("deliver");
    graph.compile_with_checkpointer(saver).unwrap()
}

async fn run_team(graph: &CompiledGraph<Team>) {
    let end = graph.invoke_async(Team::default(), &config()).await.unwrap();
    assert_eq!((end.value.code, end.metadata.steps), (4, TEAM_STEPS));
}

/// Opens a database with a write-ahead log, which the crate does not set.
async fn saver(path: PathBuf) -> Arc<dyn CheckpointSaver> {
    let options = SqliteConnectOptions::new().filename(&path).create_if_missing(true);
    let connection = options.journal_mode(SqliteJournalMode::Wal).connect().await.unwrap();
    connection.close().await.unwrap();
    Arc::new(SqliteSaver::new(path).await.unwrap())
}

/// Runs a graph that saves each step before the next one begins.
///
/// `invoke_async` saves nothing; this does, with events that no reader waits for.
async fn run_saved<S>(graph: &CompiledGraph<S>, start: S, thread: &str) -> S
where
    S: State<Update: Serialize> + Clone + Serialize + DeserializeOwned,
{
    let (events, _unread) = mpsc::channel(1);
    let events = EventEmitter::new(events, StreamMode::Custom);
    // The database refuses the first step of a run without the id of a checkpoint before it.
    let config = config().with_thread_id(thread).with_checkpoint_id("begin");
    let config = config.with_recursion_limit(SAVED_STEPS + 1);
    let config = RunnableConfig { durability: Some(Durability::Sync), ..config };
    graph.execute_with_emitter(start, &config, events).await.unwrap()
}

#[derive(State, Clone, Debug, Default, Serialize, Deserialize)]
struct Text {
    text: Option<String>,
    is_last: bool,
}

/// Saves each text in a step.
async fn save_steps(saver: Arc<dyn CheckpointSaver>, texts: Arc<[String]>) {
    fn route(state: &Text) -> &str {
        if state.is_last { END } else { "work" }
    }
    let mut graph = StateGraph::<Text>::new();
    let last = texts[SAVED_STEPS - 1].clone();
    let step = AtomicUsize::new(0);
    let work = move |_: &Text| {
        let step = step.fetch_add(1, Ordering::Relaxed);
        let text = texts[step].clone();
        let is_last = step + 1 == SAVED_STEPS;
        async move { Ok(TextUpdate { text: Some(Some(text)), is_last: Some(is_last) }) }
    };
    graph.add_node_simple("work", NodeFnUpdate(work)).unwrap();
    graph.set_entry_point("work");
    graph.add_conditional_edges(
        "work",
        Arc::new(route),
        PathMap::from(&[("work", "work"), (END, END)]),
    );
    let graph = graph.compile_with_checkpointer(Some(saver)).unwrap();
    let end = run_saved(&graph, Text::default(), "steps").await;
    assert_eq!(end.text, Some(last));
}
