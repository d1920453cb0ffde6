//! Rounds, medians and the sizes of the workloads.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};
use serde_json::json;
use sqlx::{ConnectOptions, sqlite::SqliteConnectOptions};
use tokio::runtime::Runtime;

pub const CHAIN: &str = "chain, µs a step";
pub const EDGES: &str = "fan-out of 1,000 by edges, µs a task";
pub const DISPATCH: &str = "fan-out of 1,000 by dispatch, µs a task";
pub const WIDE: &str = "1,000 channels, one changes, µs a step";
pub const TEAM: &str = "dev-team shape, instant nodes, µs a run";
pub const WAITS: &str = "1,000 runs × 5 nodes × 10 ms, ms";

/// A row whose runs are saved in a new database.
pub struct SavedRow {
    pub name: &'static str,
    units: usize,
    clock: Clock,
    folder: &'static str,
    /// The least checkpoints that are in the database afterwards.
    checkpoints: usize,
}

/// In `/dev/shm`, a sync takes no time.
pub const TEAM_SAVED: SavedRow = SavedRow {
    name: "dev-team shape without disk, µs a run",
    units: TEAM_RUNS as usize,
    clock: Clock::Cpu,
    folder: "/dev/shm",
    checkpoints: TEAM_RUNS as usize * TEAM_STEPS,
};
pub const STEP_IN_MEMORY: SavedRow = SavedRow {
    name: "a step of 1 KB without disk, µs",
    units: SAVED_STEPS,
    clock: Clock::Cpu,
    folder: "/dev/shm",
    checkpoints: SAVED_STEPS,
};
pub const STEP_ON_DISK: SavedRow = SavedRow {
    name: "a step of 1 KB on disk, µs",
    units: SAVED_STEPS,
    clock: Clock::Elapsed,
    folder: ".",
    checkpoints: SAVED_STEPS,
};

pub const STEPS: u64 = 10_000;
pub const WIDTH: u64 = 1_000;
pub const CHANNELS: usize = 1_000;
pub const RUNS: usize = 1_000;
pub const TEAM_RUNS: u64 = 100;
pub const TEAM_STEPS: usize = 13;
pub const SAVED_STEPS: usize = 1_000;
pub const WAIT: Duration = Duration::from_millis(10);

pub const STORY: &str = "As a user, I want to add two numbers.";

/// The rounds of a row, less the first, which finds the caches cold.
const ROUNDS: usize = 5;

#[derive(Clone, Copy)]
pub enum Clock {
    /// The time of all threads.
    Cpu,
    Elapsed,
}

pub struct Measure {
    rounds: usize,
    /// All rows are wanted if this is empty.
    wanted: Vec<String>,
    pub runtime: Runtime,
}

impl Measure {
    pub fn new(wanted: Vec<String>) -> Self {
        let rounds = std::env::var("GRAPHRUN_BENCH_ROUNDS").ok().and_then(|it| it.parse().ok());
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        Self { rounds: rounds.unwrap_or(ROUNDS).max(1), wanted, runtime }
    }

    /// Prints the median of the rounds, in microseconds for each unit of work.
    pub fn row(&self, name: &str, units: u64, mut round: impl FnMut() -> Duration) {
        if !self.is_wanted(name) {
            return;
        }
        round();
        let mut times: Vec<Duration> = (0..self.rounds).map(|_| round()).collect();
        times.sort();
        let figure = times[times.len() / 2].as_secs_f64() * 1e6 / units as f64;
        println!("{}", json!({ "row": name, "figure": figure }));
    }

    /// Prints why the crate cannot express a row.
    pub fn absent(&self, name: &str, reason: &str) {
        if self.is_wanted(name) {
            println!("{}", json!({ "row": name, "reason": reason }));
        }
    }

    fn is_wanted(&self, name: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|it| it == name)
    }

    /// Returns the CPU time of some work.
    pub fn busy<T>(&self, work: impl Future<Output = T>) -> Duration {
        self.time(Clock::Cpu, work)
    }

    pub fn elapsed<T>(&self, work: impl Future<Output = T>) -> Duration {
        self.time(Clock::Elapsed, work)
    }

    fn time<T>(&self, clock: Clock, work: impl Future<Output = T>) -> Duration {
        let cpu = cpu_time();
        let started = Instant::now();
        std::hint::black_box(self.runtime.block_on(work));
        match clock {
            Clock::Cpu => cpu_time() - cpu,
            Clock::Elapsed => started.elapsed(),
        }
    }

    /// Measures work on a new database, and checks that all its steps are saved.
    pub fn saved_row<Saver, Opening: Future<Output = Saver>, Work: Future>(
        &self,
        row: &SavedRow,
        open: impl Fn(PathBuf) -> Opening,
        work: impl Fn(Saver) -> Work,
    ) {
        self.row(row.name, row.units as u64, || {
            let folder = tempfile::tempdir_in(row.folder).unwrap();
            let path = folder.path().join("runs.db");
            let saver = self.runtime.block_on(open(path.clone()));
            let duration = self.time(row.clock, work(saver));
            let saved = self.runtime.block_on(checkpoints(path));
            assert!(saved >= row.checkpoints as i64, "{saved} of {} steps saved", row.checkpoints);
            duration
        });
    }
}

/// Returns the number of checkpoints; the table has this name in all crates.
async fn checkpoints(path: PathBuf) -> i64 {
    let options = SqliteConnectOptions::new().filename(path);
    let mut connection = options.connect().await.unwrap();
    let count = sqlx::query_scalar("SELECT count(*) FROM checkpoints");
    count.fetch_one(&mut connection).await.unwrap()
}

pub fn sum_of_squares() -> u64 {
    (0..WIDTH).map(|it| it * it).sum()
}

/// Returns what the durable steps save.
pub fn texts() -> Arc<[String]> {
    (1..=SAVED_STEPS).map(noise).collect()
}

/// Returns a kilobyte that differs from every other and hardly compresses.
fn noise(seed: usize) -> String {
    let mut state = seed as u64;
    let mut next = || {
        // Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    // Characters that JSON need not escape.
    (0..1_000).map(|_| char::from(b'#' + (next() % 57) as u8)).collect()
}

fn cpu_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(micros as u64)
}
