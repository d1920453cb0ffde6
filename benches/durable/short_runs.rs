//! Short runs: the shape of the example team, steps that replace or append a kilobyte, and their resumption.
//!
//! The floors insert the same values, one transaction for each step. A floor of the resumption reads the last value, or
//! all of them.

use std::{path::Path, sync::Arc, time::Duration};

use graphrun::{
    checkpoint::RunInfo, compile::CompiledGraph, engine::Engine, event::Status,
    storage::SqliteStorage,
};
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::{
    content::{Floor, JournalFloor, Until, appender, id, noise, replacer, resume},
    shared::{
        table::{Row, Table, busy, timed},
        team,
    },
};

const STEPS: u32 = 1_000;
const TEAM_RUNS: u64 = 100;

/// A folder whose files are in memory.
const MEMORY: &str = "/dev/shm";
const DISK: &str = env!("CARGO_TARGET_TMPDIR");

pub(crate) fn measure(table: &Table) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let row =
        Row { name: "dev-team shape without disk, µs a run", units: TEAM_RUNS, at_most: "250" };
    table.measure(row, || {
        let folder = Folder::new(MEMORY);
        let engine = folder.engine(team::team());
        let ours = busy(|| {
            let run = async move {
                for _ in 0..TEAM_RUNS {
                    team::run(&engine).await;
                }
            };
            runtime.block_on(runtime.spawn(run)).unwrap();
        });
        let mut floor = folder.floor();
        (ours, busy(|| (0..TEAM_RUNS).for_each(|_| save_team(&runtime, &mut floor))))
    });

    let done = Until::Done(STEPS);
    for (name, place, at_most, graph) in [
        ("a step of 1 KB without disk, µs", MEMORY, "40", replacer(done)),
        ("a step of 1 KB on disk, µs", DISK, "1.1 ×", replacer(done)),
        ("growing list of 1,000 × 1 KB on disk, µs a step", DISK, "1.3 ×", appender(done)),
    ] {
        table.measure(Row { name, units: STEPS.into(), at_most }, || {
            let folder = Folder::new(place);
            let engine = folder.engine(graph.clone());
            // A row that waits for a disk is elapsed time.
            let measure: fn(&mut dyn FnMut()) -> Duration =
                if place == DISK { |it| timed(it) } else { |it| busy(it) };
            let ours = measure(&mut || drive(&runtime, &engine, Status::Done));
            let mut floor = folder.floor();
            (ours, measure(&mut || save_items(&mut floor)))
        });
    }

    let name = "three pages by hand, on disk, µs a step";
    table.measure(Row { name, units: STEPS.into(), at_most: "" }, || {
        let folder = Folder::new(DISK);
        let mut journal = JournalFloor::new(&folder.path("runs.db"));
        let append = |step| journal.append(step, &noise(step));
        let three = timed(|| (1..=STEPS as usize).for_each(append));
        let mut floor = folder.floor();
        (three, timed(|| save_items(&mut floor)))
    });

    let limit = Until::Limit(STEPS);
    let twice = Until::Limit(2 * STEPS);
    let one = read_last as fn(&Path) -> usize;
    let all = read_all as fn(&Path) -> usize;
    for (name, at_most, saved, graph, read) in [
        ("resume after 1,000 steps, small state, ms", "0.8", replacer(limit), replacer(twice), one),
        ("resume after 1,000 steps, grown list, ms", "4.5", appender(limit), appender(twice), all),
    ] {
        if !table.is_wanted(name) {
            continue;
        }
        let folder = Folder::new(MEMORY);
        drive(&runtime, &folder.engine(saved), Status::Limit);
        save_items(&mut folder.floor());
        // A thousand microseconds are a unit.
        table.measure(Row { name, units: 1_000, at_most }, || {
            let ours = busy(|| resume(&folder.path("runs.db"), &graph));
            (ours, busy(|| read(&folder.path("floor.db"))))
        });
    }
}

/// The databases of both sides.
struct Folder(TempDir);

impl Folder {
    fn new(place: &str) -> Self {
        Self(tempfile::tempdir_in(place).unwrap())
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn engine(&self, graph: CompiledGraph) -> Engine {
        let storage = SqliteStorage::open(self.path("runs.db")).unwrap().on_the_same_thread();
        Engine::new(graph).with_storage(Arc::new(storage))
    }

    fn floor(&self) -> Floor {
        Floor::new(&self.path("floor.db"))
    }
}

/// Drives a run like the program: on a worker thread of the nodes.
fn drive(runtime: &Runtime, engine: &Engine, status: Status) {
    let run = engine.run(&()).with_info(RunInfo { id: id(), ..RunInfo::new("steps") });
    let end = runtime.block_on(runtime.spawn(async { run.await })).unwrap().unwrap();
    assert_eq!((end.status, end.position.step.0), (status, STEPS.into()));
}

fn save_items(floor: &mut Floor) {
    for step in 1..=STEPS as usize {
        floor.insert([noise(step).as_str()]);
    }
}

/// Saves the begin, each update and the end of a run.
fn save_team(runtime: &Runtime, floor: &mut Floor) {
    let mut save = |value: &Value| floor.insert([value.to_string().as_str()]);
    save(&json!({"workflow": "team", "status": "running"}));
    runtime.block_on(team::run_by_hand(&mut save));
    save(&json!({"status": "done"}));
}

fn read_last(path: &Path) -> usize {
    let connection = Connection::open(path).unwrap();
    let last = "SELECT item FROM items ORDER BY key DESC LIMIT 1";
    let item: String = connection.query_row(last, [], |row| row.get(0)).unwrap();
    assert_eq!(item, noise(STEPS as usize));
    item.len()
}

fn read_all(path: &Path) -> usize {
    let connection = Connection::open(path).unwrap();
    let mut select = connection.prepare("SELECT item FROM items ORDER BY key").unwrap();
    let items = select.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let items: Vec<String> = items.map(Result::unwrap).collect();
    assert_eq!(items.len(), STEPS as usize);
    items.iter().map(String::len).sum()
}
