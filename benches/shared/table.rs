//! The table that a benchmark prints: each row beside a hand-written floor.

use std::time::{Duration, Instant};

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::{TimeVal, TimeValLike},
};
use serde_json::json;

/// How many rounds a benchmark runs, and which rows.
pub(crate) struct Table {
    rounds: u32,
    /// The words of the command line; a row is measured if its name contains one of them.
    wanted: Vec<String>,
    /// Whether each row is a JSON object, for programs.
    is_json: bool,
}

/// One row of the table.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) name: &'a str,
    /// The units of work in a round; the figures are microseconds for each.
    pub(crate) units: u64,
    /// The figure that is asked for.
    pub(crate) at_most: &'a str,
}

impl Table {
    /// Reads the words of the command line, `GRAPHRUN_BENCH_ROUNDS` and `GRAPHRUN_BENCH_JSON`, and prints the head of the
    /// table.
    pub(crate) fn begin(rounds: u32) -> Self {
        let set = std::env::var("GRAPHRUN_BENCH_ROUNDS").ok().and_then(|it| it.parse().ok());
        // Cargo adds `--bench`.
        let wanted = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
        let is_json = std::env::var_os("GRAPHRUN_BENCH_JSON").is_some();
        if !is_json {
            println!(
                "{:<48} {:>10} {:>10} {:>8} {:>10}",
                "", "graphrun", "by hand", "ratio", "at most"
            );
        }
        Self { rounds: set.unwrap_or(rounds).max(1), wanted, is_json }
    }

    pub(crate) fn is_wanted(&self, name: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|it| name.contains(it.as_str()))
    }

    /// Measures both sides in turns, and prints their medians and the ratio. Returns how often each side
    /// ran, if the row is wanted.
    pub(crate) fn measure(
        &self,
        Row { name, units, at_most }: Row<'_>,
        mut round: impl FnMut() -> (Duration, Duration),
    ) -> Option<u32> {
        if !self.is_wanted(name) {
            return None;
        }
        // The first round finds the caches cold, on both sides.
        round();
        let (ours, floor): (Vec<Duration>, Vec<Duration>) =
            (0..self.rounds).map(|_| round()).unzip();
        let ours = median(ours, units);
        let floor = median(floor, units);
        if self.is_json {
            println!("{}", json!({ "row": name, "graphrun": ours, "by_hand": floor }));
        } else {
            println!("{name:<48} {ours:>10.2} {floor:>10.2} {:>8.2} {at_most:>10}", ours / floor);
        }
        Some(self.rounds + 1)
    }
}

/// Returns the median in microseconds for each unit of work.
#[expect(clippy::cast_precision_loss, reason = "there are at most ten thousand")]
pub(crate) fn median(mut times: Vec<Duration>, units: u64) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6 / units as f64
}

pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let started = Instant::now();
    std::hint::black_box(work());
    started.elapsed()
}

/// Returns the CPU time that all threads of this process spent on some work.
pub(crate) fn busy<T>(work: impl FnOnce() -> T) -> Duration {
    let before = cpu_time();
    std::hint::black_box(work());
    cpu_time().saturating_sub(before)
}

/// Returns the CPU time of all threads of this process.
pub(crate) fn cpu_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    let micros = |it: TimeVal| u64::try_from(it.num_microseconds()).unwrap();
    Duration::from_micros(micros(usage.user_time()) + micros(usage.system_time()))
}
