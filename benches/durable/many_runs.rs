//! 1,000 runs of 8 steps of 1 KB in one database, 1, 10, 100 and 1,000 of them at once.
//!
//! The floor inserts the same items, with one transaction for each batch of as many items as runs are active.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use graphrun::{engine::Engine, event::Status, storage::SqliteStorage};
use tokio::task::JoinSet;

use super::{
    content::{Floor, Until, appender, noise},
    shared::table::Table,
};

/// The runs that share a database, and the steps of each.
const RUNS: usize = 1_000;
const STEPS: usize = 8;

#[expect(clippy::cast_precision_loss, reason = "there are 8,000 steps")]
pub(crate) fn measure(table: &Table) {
    for (active, at_least) in [(1, 2_000), (10, 6_000), (100, 15_000), (1_000, 15_000)] {
        let name = format!("1,000 runs, {active} at once, steps a second");
        if !table.is_wanted(&name) {
            continue;
        }
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let rate = |duration: Duration| (RUNS * STEPS) as f64 / duration.as_secs_f64();
        let ours = rate(run_many(&folder.path().join("runs.db"), active));
        let floor = rate(run_many_by_hand(&folder.path().join("floor.db"), active));
        let ratio = ours / floor;
        println!(
            "{name:<48} {ours:>10.0} {floor:>10.0} {ratio:>8.2} {:>10}",
            format!("≥ {at_least}")
        );
    }
}

/// Runs small runs in one database, this many at once.
fn run_many(path: &Path, active: usize) -> Duration {
    let graph = appender(Until::Done(u32::try_from(STEPS).unwrap()));
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
                    assert_eq!((end.status, end.position.step.0), (Status::Done, STEPS as u64));
                }
            });
        }
        workers.join_all().await;
    });
    started.elapsed()
}

/// Inserts the items of the same runs, in a transaction for each batch.
fn run_many_by_hand(path: &Path, active: usize) -> Duration {
    let mut floor = Floor::new(path);
    let items: Vec<String> = (0..STEPS).map(noise).collect();
    let started = Instant::now();
    for _ in 0..RUNS / active {
        for item in &items {
            floor.insert(std::iter::repeat_n(item.as_str(), active));
        }
    }
    started.elapsed()
}
