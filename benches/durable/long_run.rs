//! A run of 10,000 steps that appends a kilobyte of noise per step to a list, on a disk.
//!
//! The floor inserts the same items with the same durability: one transaction per step in a database with a write-ahead
//! log and `synchronous=FULL`. Both sides alternate, 500 steps each, so that a slow phase of the disk affects both.
//! `GRAPHRUN_BENCH_STEPS` sets the steps.

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
    checkpoint::RunInfo,
    compile::CompiledGraph,
    engine::Engine,
    event::{EventSink, Status},
    graph::{GraphBuilder, NodeContext, NodeError, node_fn},
    state::Update,
    storage::SqliteStorage,
};
use serde_json::json;

use super::{
    content::{Floor, ITEM, Items, Nothing, Until, chain, id, noise, resume},
    shared::table::{Table, median, timed},
};

const STEPS: usize = 10_000;
/// The steps of each side in its turn.
const TURN: usize = 500;
/// The number of steps that are compared at the beginning and the end.
const ENDS: usize = 100;

#[expect(clippy::cast_precision_loss, reason = "there are far fewer bytes than 2⁵²")]
pub(crate) fn measure(table: &Table) {
    if !table.is_wanted("10,000 steps") {
        return;
    }
    let steps = std::env::var("GRAPHRUN_BENCH_STEPS").ok().and_then(|it| it.parse().ok());
    let steps = steps.unwrap_or(STEPS);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (ours, floor) = in_turns(folder.path(), steps);
    let of = |times: &[Duration]| median(times.to_vec(), 1);
    let print = |name: &str, ours: f64, floor: f64| {
        println!("{name:<48} {ours:>10.2} {floor:>10.2} {:>8.2}", ours / floor);
    };
    print("10,000 steps: a step, µs, median", of(&ours), of(&floor));
    let first = of(&ours[..ENDS]);
    let last = of(&ours[steps - ENDS..]);
    print("  the last 100 steps, by the first 100", last, first);
    let times = |path: &str| stored(&folder.path().join(path)) as f64 / (steps * ITEM) as f64;
    print("  on disk, times the content", times("runs.db"), times("floor.db"));
    let opened = (0..7).map(|_| reopen(folder.path(), steps)).collect::<Vec<_>>();
    println!("{:<48} {:>10.2}", "  open it and be ready for the next step, ms", of(&opened) / 1e3);
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
            by_hand.push(timed(|| floor.insert([noise(turn * TURN + step + 1).as_str()])));
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

fn appender(steps: usize, pace: Pace) -> CompiledGraph {
    let pace = Arc::new(pace);
    let last = Arc::new(Mutex::new((0_usize, Instant::now())));
    let append = node_fn(move |_: Nothing, _: NodeContext| {
        let pace = Arc::clone(&pace);
        let last = Arc::clone(&last);
        async move {
            let mut last = last.lock().unwrap();
            if last.0 > 0 {
                pace.times.lock().unwrap().push(last.1.elapsed());
            }
            if last.0.is_multiple_of(TURN) {
                if last.0 > 0 {
                    pace.done.send(()).unwrap();
                }
                pace.wait.lock().unwrap().recv().unwrap();
            }
            *last = (last.0 + 1, Instant::now());
            Ok::<_, NodeError>(Items { items: vec![noise(last.0)] })
        }
    });
    // One more than measured, so that the duration of the last one is known.
    let until = Until::Limit(u32::try_from(steps).unwrap() + 1);
    chain(GraphBuilder::new::<Items>("appender"), append, until)
}

/// Opens the database and resumes the run, up to its next task.
fn reopen(folder: &Path, steps: usize) -> Duration {
    let (_, wait) = sync_channel(0);
    let (done, _) = sync_channel(0);
    let pace = Pace { wait: Mutex::new(wait), done, times: Arc::default() };
    let graph = appender(2 * steps, pace);
    let started = Instant::now();
    let machine = resume(&folder.join("runs.db"), &graph);
    let duration = started.elapsed();
    let items = machine.state().get("items").and_then(serde_json::Value::as_array).unwrap();
    assert_eq!((items.len(), &items[0]), (steps + 1, &json!(noise(1))));
    duration
}

/// Returns the bytes of a database and of the files beside it.
fn stored(path: &Path) -> u64 {
    let beside = ["", "-wal", "-shm"].map(|it| format!("{}{it}", path.display()));
    beside.iter().filter_map(|it| fs::metadata(it).ok()).map(|it| it.len()).sum()
}
