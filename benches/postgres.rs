//! The cost of many runs in PostgreSQL: to create, to step, to list, to find, to load, and on disk.
//!
//! `cargo bench --bench postgres --features postgres`, on the server in `GRAPHRUN_TEST_POSTGRES`.
//! `GRAPHRUN_BENCH_RUNS` sets the number of runs (100,000), `GRAPHRUN_BENCH_KEEP=1` keeps their
//! schema, and `GRAPHRUN_BENCH_SCHEMA` names a kept one to measure again. Each operation is
//! measured repeatedly while the number of runs grows, which shows its growth.

#[path = "../tests/support/postgres.rs"]
mod server;

use std::{
    env,
    time::{Duration, Instant},
};

use graphrun::{
    checkpoint::{
        Commit, Entry, LeaseRequest, LeaseToken, Outcome, Position, Presence, RunInfo,
        RunJournal as _, RunList as _, RunStatus, TaskRecord,
    },
    event::{Status, Usage},
    id::{ChannelName, NodeName, Step, TaskId},
    state::{Change, ChangeKind, Update},
    storage::PostgresStorage,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const RUNS: usize = 100_000;

/// The steps of a run; with its creation and its end, it has two entries more.
const STEPS: u64 = 2;

/// The bytes that a step writes.
const BYTES: usize = 400;

/// The number of processes, and of concurrent runs in each.
const PROCESSES: usize = 4;
const AT_A_TIME: usize = 4;

/// How often each operation is measured; the median counts.
const LOOKS: usize = 21;

fn main() {
    let number = |name: &str| env::var(name).ok().and_then(|it| it.parse().ok());
    let runs = number("GRAPHRUN_BENCH_RUNS").unwrap_or(RUNS);
    let schema = server::Schema::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    println!(
        "{:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11}",
        "runs",
        "entries/s",
        "accept ms",
        "step ms",
        "list ms",
        "find ms",
        "prefix ms",
        "load ms",
        "bytes/run"
    );
    if let Ok(name) = env::var("GRAPHRUN_BENCH_SCHEMA") {
        let schema = server::Schema { name };
        println!("{:>18} {}", "", runtime.block_on(look(&schema.url())));
        std::mem::forget(schema);
        return;
    }
    let mut done = 0;
    for goal in [runs / 100, runs / 10, runs] {
        let took = runtime.block_on(fill(&schema.url(), goal - done));
        let entries =
            (goal - done) as u128 * u128::from(STEPS + 2) * 1000 / took.as_millis().max(1);
        done = goal;
        server::execute(format!("SET search_path = {}; ANALYZE", schema.name));
        let bytes = size(&schema.name) / done as u64;
        let looks = runtime.block_on(look(&schema.url()));
        println!("{done:>8} {entries:>9} {looks} {bytes:>11}");
    }
    if env::var_os("GRAPHRUN_BENCH_KEEP").is_some() {
        println!("kept in {}", schema.name);
        std::mem::forget(schema);
    }
}

/// Creates runs, like several processes that own several runs each.
async fn fill(url: &str, runs: usize) -> Duration {
    let storages: Vec<_> = (0..PROCESSES).map(|_| PostgresStorage::open(url).unwrap()).collect();
    let began = Instant::now();
    let mut work = JoinSet::new();
    for at in 0..PROCESSES * AT_A_TIME {
        let storage = storages[at % PROCESSES].clone();
        let share =
            runs / (PROCESSES * AT_A_TIME) + usize::from(at < runs % (PROCESSES * AT_A_TIME));
        work.spawn(async move {
            for _ in 0..share {
                whole_run(&storage).await;
            }
        });
    }
    work.join_all().await;
    began.elapsed()
}

async fn whole_run(storage: &PostgresStorage) {
    let (_presence, token) = accept(storage).await;
    for step in 1..=STEPS {
        storage.append(&token, &entry(step)).await.unwrap();
    }
    let end = RunStatus { status: Status::Done, reason: None };
    storage.append(&token, &end.into()).await.unwrap();
}

async fn accept(storage: &PostgresStorage) -> (Presence, LeaseToken) {
    let presence = Presence::new();
    let request = LeaseRequest {
        owner: presence.owner().clone(),
        ttl: Duration::from_secs(15),
        replaces_fence: None,
    };
    let info = RunInfo {
        origin: json!({"v": 1, "workflow": "/home/me/graphs/dev_team.yaml", "out": "/home/me/out"}),
        ..RunInfo::new("dev_team")
    };
    let token = storage.create(&info, &request, &commit(0, Value::Null).into()).await.unwrap();
    (presence, token)
}

/// Returns the current duration of each kind of operation, in milliseconds.
async fn look(url: &str) -> String {
    let storage = PostgresStorage::open(url).unwrap();
    let newest = storage.page(None, 50).await.unwrap();
    let summary = newest.last().unwrap().as_ref().unwrap();
    let name = summary.info.name.clone();
    let id = summary.info.id.clone();
    let mut times: [Vec<Duration>; 6] = Default::default();
    for _ in 0..LOOKS {
        let mut began = Instant::now();
        let mut lap = |of: usize| {
            times[of].push(began.elapsed());
            began = Instant::now();
        };
        let (_presence, token) = accept(&storage).await;
        lap(0);
        storage.append(&token, &entry(1)).await.unwrap();
        lap(1);
        assert!(!storage.page(None, 50).await.unwrap().is_empty());
        lap(2);
        storage.find(&name).await.unwrap();
        lap(3);
        storage.find(&id.as_str()[..25]).await.ok();
        lap(4);
        storage.load(&id).await.unwrap();
        lap(5);
    }
    let medians = times.map(|mut times| {
        times.sort();
        format!("{:>9.2}", times[LOOKS / 2].as_secs_f64() * 1e3)
    });
    medians.join(" ")
}

fn entry(step: u64) -> Entry {
    // Noise, which hardly compresses.
    let mut bytes = vec![0; BYTES];
    blake3::Hasher::new().update(&rand::random::<[u8; 16]>()).finalize_xof().fill(&mut bytes);
    let text: String = bytes.into_iter().map(|it| char::from(b' ' + it % 64)).collect();
    let text = Value::from(text);
    let record = TaskRecord {
        task: TaskId { step: Step(step), index: 0 },
        node: NodeName::parse("write").unwrap(),
        attempt: 1,
        ms: 12,
        usage: Usage::default(),
        outcome: Outcome::Finished {
            update: Update::default().write(channel(), text.clone()),
            transitions: Vec::new(),
        },
    };
    Entry { records: vec![record], commit: Some(commit(step, text)), ..Entry::default() }
}

fn commit(step: u64, text: Value) -> Commit {
    let position = Position { step: Step(step), ..Position::default() };
    Commit {
        position,
        changes: vec![Change { channel: channel(), kind: ChangeKind::Set(text.into()) }],
    }
}

fn channel() -> ChannelName {
    ChannelName::parse("text").unwrap()
}

/// Returns the bytes of all tables and indexes.
fn size(schema: &str) -> u64 {
    let sql = format!(
        "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c
         JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = '{schema}' AND c.relkind = 'r'"
    );
    server::ask(sql).parse().unwrap()
}
