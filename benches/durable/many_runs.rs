//! 1,000 runs of 8 steps of 1 KB in one database, 1, 10, 100 and 1,000 of them at once: in SQLite, and with the feature
//! `postgres` on the server of `GRAPHRUN_TEST_POSTGRES`.
//!
//! The floor inserts the same items, with one transaction for each batch of as many items as runs are active.

#[cfg(feature = "postgres")]
#[path = "../../tests/support/postgres.rs"]
mod server;

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use graphrun::{checkpoint::Checkpointer, engine::Engine, event::Status, storage::SqliteStorage};
use tokio::{runtime::Runtime, task::JoinSet};

use super::{
    content::{Floor, Until, appender, noise},
    shared::table::Table,
};

/// The runs that share a database, and the steps of each.
const RUNS: usize = 1_000;
const STEPS: usize = 8;

/// How many runs are active at once, and the steps a second that are asked for.
const LOADS: [(usize, u32); 4] = [(1, 2_000), (10, 6_000), (100, 15_000), (1_000, 15_000)];

pub(crate) fn measure(table: &Table) {
    measure_in(table, "SQLite", |runtime, active| {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join("runs.db");
        let ours = run_many(runtime, SqliteStorage::open(path).unwrap(), active);
        (ours, run_many_by_hand(&folder.path().join("floor.db"), active))
    });
    #[cfg(feature = "postgres")]
    measure_in(table, "PostgreSQL", postgres::measure);
}

/// Measures both sides of each load.
#[expect(clippy::cast_precision_loss, reason = "there are 8,000 steps")]
fn measure_in(
    table: &Table,
    database: &str,
    both: impl Fn(&Runtime, usize) -> (Duration, Duration),
) {
    for (active, at_least) in LOADS {
        let name = format!("{database}, 1,000 runs, {active} at once, steps a second");
        if !table.is_wanted(&name) {
            continue;
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let (ours, floor) = both(&runtime, active);
        let rate = |duration: Duration| (RUNS * STEPS) as f64 / duration.as_secs_f64();
        let ours = rate(ours);
        let floor = rate(floor);
        let ratio = ours / floor;
        let at_least = format!("≥ {at_least}");
        println!("{name:<52} {ours:>6.0} {floor:>10.0} {ratio:>8.2} {at_least:>10}");
    }
}

/// Runs small runs in one database, this many at once.
fn run_many(runtime: &Runtime, storage: impl Checkpointer + 'static, active: usize) -> Duration {
    let graph = appender(Until::Done(u32::try_from(STEPS).unwrap()));
    let engine = Arc::new(Engine::new(graph).with_storage(Arc::new(storage)));
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

#[cfg(feature = "postgres")]
mod postgres {
    use graphrun::storage::PostgresStorage;
    use tokio_postgres::NoTls;

    use super::{Duration, Instant, RUNS, Runtime, STEPS, noise, run_many, server};

    pub(super) fn measure(runtime: &Runtime, active: usize) -> (Duration, Duration) {
        let schema = server::Schema::new();
        let ours = run_many(runtime, PostgresStorage::open(&schema.url()).unwrap(), active);
        (ours, runtime.block_on(run_many_by_hand(&schema.name, active)))
    }

    /// Inserts the items of the same runs, in a transaction for each batch.
    async fn run_many_by_hand(schema: &str, active: usize) -> Duration {
        let (client, connection) = tokio_postgres::connect(&server::server(), NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        let table = format!(
            "CREATE TABLE {schema}.items (key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text NOT NULL)"
        );
        client.batch_execute(&table).await.unwrap();
        let insert = format!("INSERT INTO {schema}.items (item) SELECT unnest($1::text[])");
        let insert = client.prepare(&insert).await.unwrap();
        let items: Vec<String> = (0..STEPS).map(noise).collect();
        let started = Instant::now();
        for _ in 0..RUNS / active {
            for item in &items {
                client.execute(&insert, &[&vec![item.as_str(); active]]).await.unwrap();
            }
        }
        let duration = started.elapsed();
        drop(client);
        connection.await.unwrap().unwrap();
        duration
    }
}
