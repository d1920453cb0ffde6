//! Many concurrent runs for a long time, in processes that are killed, stopped and terminated at
//! any moment: every run must finish once and leave nothing behind.
//!
//! `cargo bench --bench soak -- --minutes 30 --seed 7`. Not a part of CI; without arguments, it
//! takes a minute. Ends with an error at the first run that went wrong, and at the end if memory,
//! descriptors, files or processes have leaked.

mod inside;
mod leaks;
mod slot;

use std::{
    env, fs,
    path::PathBuf,
    sync::{Mutex, atomic::AtomicBool},
    thread,
    time::{Duration, Instant},
};

use leaks::Sample;

/// Concurrent runs.
const SLOTS: u64 = 20;

/// How long a killed or finished process and its children may take to disappear.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// The data that all runs share.
struct Soak {
    folder: PathBuf,
    until: Instant,
    seed: u64,
    /// Part of the arguments and the environment of every started process.
    marker: String,
    seen: Mutex<Seen>,
    /// A run went wrong: no new runs start.
    is_over: AtomicBool,
}

/// Counts of processes and runs.
#[derive(Default)]
struct Seen {
    samples: Vec<Sample>,
    runs: usize,
    lives: usize,
    kills: usize,
    stops: usize,
    terms: usize,
    /// Processes that ended because another one had locked the database.
    locked: usize,
}

fn main() {
    let minutes = argument("--minutes").unwrap_or(1);
    let seed = argument("--seed").unwrap_or_else(rand::random);
    let home = tempfile::tempdir().unwrap();
    for folder in ["tmp", "cache"] {
        fs::create_dir(home.path().join(folder)).unwrap();
    }
    let soak = Soak {
        folder: home.path().to_owned(),
        until: Instant::now() + Duration::from_secs(minutes * 60),
        seed,
        marker: format!("graphrun-soak-{}", std::process::id()),
        seen: Mutex::default(),
        is_over: AtomicBool::new(false),
    };
    slot::prepare(&soak);
    println!("{SLOTS} runs at a time for {minutes} min, seed {seed}");
    let inside = thread::scope(|scope| {
        let inside = scope.spawn(|| inside::run(&soak));
        for slot in 0..SLOTS {
            let soak = &soak;
            scope.spawn(move || slot::run(soak, slot));
        }
        inside.join().unwrap()
    });

    leaks::assert_gone(&soak.marker, GONE_WITHIN);
    let left: Vec<_> = fs::read_dir(home.path().join("tmp")).unwrap().collect();
    assert!(left.is_empty(), "temporary files are left: {left:?}");
    slot::verify(&soak);
    let Seen { samples, runs, lives, kills, stops, terms, locked } =
        soak.seen.into_inner().unwrap();
    println!(
        "{runs} runs in {lives} processes: {kills} killed, {stops} stopped, {terms} asked to end, {locked} locked out"
    );
    leaks::compare("a process of the program", &samples);
    leaks::compare("this process, with runs inside of it", &inside);
    assert!(runs > 0, "no run has come to its end");
}

/// Returns the number after a name on the command line.
fn argument(name: &str) -> Option<u64> {
    let mut arguments = env::args().skip_while(|it| it != name);
    arguments.next()?;
    Some(
        arguments
            .next()
            .and_then(|it| it.parse().ok())
            .unwrap_or_else(|| panic!("{name} wants a number")),
    )
}
