//! The cost of saving a long run, beside a hand-written loop that saves the same bytes.
//!
//! `cargo bench --bench durable`. A run of 10,000 steps appends an item of 1 KB per step to a list,
//! in a SQLite database on the disk of the target folder; the items are noise that does not
//! compress. The floor inserts the same items with the same durability: one transaction per step in
//! a database with a write-ahead log and `synchronous=FULL`. Both sides alternate, 500 steps each,
//! so that a slow phase of the disk affects both. `GRAPHRUN_BENCH_STEPS` sets the steps.
//!
//! Then 1,000 runs of 8 steps of 1 KB share one database, 1, 10, 100 and 1,000 of them at once. Their floor inserts the same
//! items, with one transaction for each batch of as many items as runs are active.

use std::{
    fs,
    path::Path,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use graphrun::{
    checkpoint::{Checkpoint, RunInfo, RunJournal as _},
    compile::CompiledGraph,
    engine::{Engine, superstep::Machine},
    event::{EventSink, Status},
    graph::{
        GraphBuilder, IntoNode, Limits, NodeContext, NodeError, Policies, START, Target, node_fn,
    },
    id::RunId,
    state::Update,
    storage::SqliteStorage,
};
use rusqlite::Connection;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const STEPS: usize = 10_000;
const ITEM: usize = 1_000;
/// The small runs that share a database, and the steps of each.
const RUNS: usize = 1_000;
const STEPS_OF_RUN: usize = 8;
/// The steps of each side in its turn.
const TURN: usize = 500;
/// The number of steps that are compared at the beginning and the end.
const ENDS: usize = 100;

#[expect(clippy::cast_precision_loss, reason = "there are far fewer bytes than 2⁵²")]
fn main() {
    let steps = std::env::var("GRAPHRUN_BENCH_STEPS").ok().and_then(|it| it.parse().ok());
    let steps = steps.unwrap_or(STEPS);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (ours, floor) = in_turns(folder.path(), steps);
    let (first, last) = (median(&ours[..ENDS]), median(&ours[steps - ENDS..]));
    println!("{:<44} {:>12} {:>12} {:>8}", "", "graphrun", "by hand", "ratio");
    let (whole, by_hand) = (median(&ours), median(&floor));
    println!("{:<44} {whole:>12.1} {by_hand:>12.1} {:>8.2}", "a step, µs, median", whole / by_hand);
    println!(
        "{:<44} {last:>12.1} {first:>12.1} {:>8.2}",
        format!("the last {ENDS} steps, the first {ENDS}"),
        last / first
    );
    let content = (steps * ITEM) as f64;
    for (name, path) in [("graphrun", "runs.db"), ("by hand", "floor.db")] {
        let stored = stored(&folder.path().join(path)) as f64;
        println!("{:<44} {:>8.2} times the content", format!("on disk, {name}"), stored / content);
    }
    let opened = (0..7).map(|_| reopen(folder.path(), steps)).collect::<Vec<_>>();
    println!("{:<44} {:>8.1} ms", "open it and be ready for the next step", median(&opened) / 1e3);
    println!("{:<44} {:>12} {:>12} {:>8}", "", "graphrun", "by hand", "ratio");
    for (active, at_least) in [(1, 2_000), (10, 6_000), (100, 15_000), (1_000, 15_000)] {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let steps = (RUNS * STEPS_OF_RUN) as f64;
        let ours = steps / many_runs(&folder.path().join("runs.db"), active).as_secs_f64();
        let floor =
            steps / many_runs_by_hand(&folder.path().join("floor.db"), active).as_secs_f64();
        let what = format!("1,000 runs, {active} at once, steps a second");
        let ratio = ours / floor;
        println!("{what:<44} {ours:>12.0} {floor:>12.0} {ratio:>8.2}  at least {at_least}");
    }
}

/// Runs small runs in one database, this many at once.
fn many_runs(path: &Path, active: usize) -> Duration {
    let append = node_fn(|_: Nothing, ctx: NodeContext| async move {
        let seed = usize::try_from(ctx.task.step.0).unwrap();
        Ok::<_, NodeError>(Items { items: vec![noise(seed)] })
    });
    let bound = Policies {
        max_visits: Some(u32::try_from(STEPS_OF_RUN).unwrap()),
        exhausted: Some(Target::End),
        ..Policies::default()
    };
    let graph = GraphBuilder::new::<Items>("appender")
        .node("append", append.with_policies(bound))
        .edge(START, "append")
        .edge("append", "append");
    let graph = graph.compile().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let storage = Arc::new(SqliteStorage::open(path).unwrap());
    let engine = Arc::new(Engine::new(graph).with_storage(storage));
    let started = Instant::now();
    runtime.block_on(async {
        let mut workers = JoinSet::new();
        for _ in 0..active {
            let engine = Arc::clone(&engine);
            workers.spawn(async move {
                for _ in 0..RUNS / active {
                    let end = engine.run(&()).await.unwrap();
                    assert_eq!(
                        (end.status, end.position.step.0),
                        (Status::Done, STEPS_OF_RUN as u64)
                    );
                }
            });
        }
        workers.join_all().await;
    });
    started.elapsed()
}

/// Inserts the items of the same runs, in a transaction for each batch.
fn many_runs_by_hand(path: &Path, active: usize) -> Duration {
    let mut floor = Floor::new(path);
    let items: Vec<String> = (0..STEPS_OF_RUN).map(noise).collect();
    let started = Instant::now();
    for _ in 0..RUNS / active {
        for item in &items {
            let transaction = floor.0.transaction().unwrap();
            for _ in 0..active {
                let mut insert =
                    transaction.prepare_cached("INSERT INTO items (item) VALUES (?)").unwrap();
                insert.execute([item]).unwrap();
            }
            transaction.commit().unwrap();
        }
    }
    started.elapsed()
}

/// Returns the duration of every step of both sides.
fn in_turns(folder: &Path, steps: usize) -> (Vec<Duration>, Vec<Duration>) {
    let (go, wait) = sync_channel(0);
    let (done, turned) = sync_channel(0);
    let times = Arc::new(Mutex::new(Vec::with_capacity(steps)));
    let graph = appender(steps, Pace { wait: Mutex::new(wait), done, times: Arc::clone(&times) });
    let path = folder.join("runs.db");
    let run = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        // Like the program: on a worker thread of the nodes.
        let run = runtime.spawn(async {
            let storage = Arc::new(SqliteStorage::open(path).unwrap().on_the_same_thread());
            let engine = Engine::new(graph).with_storage(storage);
            let info = RunInfo { id: id(), ..RunInfo::new("appender") };
            let sink = EventSink::default();
            let end =
                engine.run(Update::default()).with_info(info).with_events(sink).await.unwrap();
            assert_eq!(end.status, Status::Limit, "it can be resumed");
        });
        runtime.block_on(run).unwrap();
    });
    let mut floor = Floor::new(&folder.join("floor.db"));
    let mut by_hand = Vec::with_capacity(steps);
    for turn in 0..steps / TURN {
        go.send(()).unwrap();
        turned.recv().unwrap();
        for step in 0..TURN {
            by_hand.push(floor.step(turn * TURN + step));
        }
    }
    go.send(()).unwrap();
    run.join().unwrap();
    let times = std::mem::take(&mut *times.lock().unwrap());
    (times, by_hand)
}

/// Lets the run continue for a turn, and records the duration of its steps.
struct Pace {
    wait: Mutex<Receiver<()>>,
    done: SyncSender<()>,
    times: Arc<Mutex<Vec<Duration>>>,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Items {
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    items: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

fn appender(steps: usize, pace: Pace) -> CompiledGraph {
    let (pace, last) = (Arc::new(pace), Arc::new(Mutex::new((0, Instant::now()))));
    let append = node_fn(move |_: Nothing, _: NodeContext| {
        let (pace, last) = (Arc::clone(&pace), Arc::clone(&last));
        async move {
            let mut last = last.lock().unwrap();
            if last.0 > 0 {
                pace.times.lock().unwrap().push(last.1.elapsed());
            }
            if last.0 % TURN == 0 {
                if last.0 > 0 {
                    pace.done.send(()).unwrap();
                }
                pace.wait.lock().unwrap().recv().unwrap();
            }
            *last = (last.0 + 1, Instant::now());
            Ok::<_, NodeError>(Items { items: vec![noise(last.0)] })
        }
    });
    let bound = Policies {
        max_visits: Some(u32::MAX),
        exhausted: Some(Target::End),
        ..Policies::default()
    };
    // One more than measured, so that the duration of the last one is known.
    let limits = Limits { steps: steps as u64 + 1, ..Limits::default() };
    let graph = GraphBuilder::new::<Items>("appender")
        .node("append", append.with_policies(bound))
        .edge(START, "append")
        .edge("append", "append")
        .limits(limits);
    graph.compile().unwrap()
}

/// Returns a kilobyte that differs from every other and hardly compresses.
fn noise(seed: usize) -> String {
    let mut bytes = vec![0; ITEM];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    // All characters that JSON need not escape.
    let characters: Vec<char> = (' '..='~').filter(|it| !['"', '\\'].contains(it)).collect();
    bytes.into_iter().map(|it| characters[usize::from(it) % characters.len()]).collect()
}

/// The same items in a table, one transaction each.
struct Floor(Connection);

impl Floor {
    fn new(path: &Path) -> Self {
        let connection = Connection::open(path).unwrap();
        connection
            .execute_batch(
                "PRAGMA page_size = 8192; PRAGMA journal_mode = wal; PRAGMA synchronous = full;
                 CREATE TABLE items (key INTEGER PRIMARY KEY, item TEXT NOT NULL) STRICT",
            )
            .unwrap();
        Self(connection)
    }

    fn step(&mut self, step: usize) -> Duration {
        let started = Instant::now();
        let transaction = self.0.transaction().unwrap();
        let mut insert = transaction.prepare_cached("INSERT INTO items (item) VALUES (?)").unwrap();
        insert.execute([noise(step + 1)]).unwrap();
        drop(insert);
        transaction.commit().unwrap();
        started.elapsed()
    }
}

/// Opens the database and resumes the run, up to its next task.
fn reopen(folder: &Path, steps: usize) -> Duration {
    let (_, wait) = sync_channel(0);
    let (done, _) = sync_channel(0);
    let pace = Pace { wait: Mutex::new(wait), done, times: Arc::default() };
    let graph = appender(2 * steps, pace);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let started = Instant::now();
    let storage = SqliteStorage::open_existing(folder.join("runs.db")).unwrap();
    let saved = runtime.block_on(storage.load(&id())).unwrap();
    let state = graph.schema().restore(saved.values).unwrap();
    let checkpoint = Checkpoint { position: saved.position, state };
    let limits = graph.graph().limits.clone();
    let restored = Machine::restore(graph, limits, id(), checkpoint, saved.records);
    let (machine, actions) = restored.unwrap();
    let took = started.elapsed();
    assert_eq!(actions.len(), 1, "{actions:?}");
    let items = machine.state().get("items").and_then(Value::as_array).unwrap();
    assert_eq!((items.len(), &items[0]), (steps + 1, &json!(noise(1))));
    took
}

/// Returns the bytes of a database and of the files beside it.
fn stored(path: &Path) -> u64 {
    let beside = ["", "-wal", "-shm"].map(|it| format!("{}{it}", path.display()));
    beside.iter().filter_map(|it| fs::metadata(it).ok()).map(|it| it.len()).sum()
}

fn id() -> RunId {
    RunId::parse("BENCH").unwrap()
}

/// Returns the median in microseconds.
fn median(times: &[Duration]) -> f64 {
    let mut times = times.to_vec();
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}
