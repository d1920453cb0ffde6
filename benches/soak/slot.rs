//! Consecutive runs, each in as many processes as needed.

use std::{
    fs,
    io::Read as _,
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};

use crate::{Soak, leaks::Sample};

/// How often the two branches and the node before them run.
const ROUNDS: usize = 6;

/// A run must finish within this many processes; those after `DISTURBED_MAX` are not disturbed.
const LIVES_MAX: usize = 60;
const DISTURBED_MAX: usize = 8;

/// How long a process may take.
const PATIENCE: Duration = Duration::from_secs(120);

const LEASE: Duration = Duration::from_secs(3);

/// The messages for a run that another process owns, has finished or never accepted.
const KNOWN_REFUSALS: [&str; 4] =
    ["is owned by", "taken over", "released", "its lease has expired"];

/// The message for a database that another process has locked.
const LOCKED: &str = "has locked";

const TICK: Duration = Duration::from_millis(10);

/// The fate of a process.
#[derive(Clone, Copy, Debug)]
enum Fate {
    None,
    Kill,
    Terminate,
    /// It is stopped this long, while another process claims its run.
    Stop(Duration),
}

/// Writes the workflow of all runs.
pub(crate) fn prepare(soak: &Soak) {
    fs::write(soak.folder.join("soak.yaml"), workflow(&soak.marker)).unwrap();
}

/// Runs until the time is over.
pub(crate) fn run(soak: &Soak, slot: u64) {
    let mut random = StdRng::seed_from_u64(soak.seed ^ slot << 32);
    let _watch = Watch(soak);
    for nth in 0.. {
        if Instant::now() > soak.until || soak.is_over.load(Ordering::Relaxed) {
            return;
        }
        see_through(soak, &format!("soak-{slot}-{nth}"), &mut random);
    }
}

/// Ends everything when its thread panics.
struct Watch<'a>(&'a Soak);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.is_over.fetch_or(thread::panicking(), Ordering::Relaxed);
    }
}

/// Brings one run to its end, and removes it.
fn see_through(soak: &Soak, run: &str, random: &mut StdRng) {
    let execute = ["execute", "soak.yaml", "-i", "text=x", "--run-id", run, "--output", "json"];
    let resume = ["resume", run, "--output", "json"];
    let mut is_there = false;
    for life in 1.. {
        assert!(life <= LIVES_MAX, "{run} never comes to its end");
        let fate = if life <= DISTURBED_MAX { Fate::random(random) } else { Fate::None };
        let arguments = if is_there { &resume[..] } else { &execute[..] };
        let (status, said) = live(soak, arguments, run, fate, random);
        soak.seen.lock().unwrap().lives += 1;
        match (status.code(), status.signal()) {
            (Some(0), _) => break,
            // Another process has finished it meanwhile.
            (Some(6), _) if said.contains("done already") => break,
            (Some(6), _) if KNOWN_REFUSALS.iter().any(|it| said.contains(it)) => (),
            // A process that was stopped in the middle of a transaction keeps the file locked.
            (Some(5), _) if said.contains(LOCKED) => soak.seen.lock().unwrap().locked += 1,
            (Some(143), _) | (None, Some(9 | 15)) => (),
            _ => panic!("{run} ended with {status}, {fate:?}: {said}"),
        }
        is_there = program(soak, &["runs", "show", run]).output().unwrap().status.success();
    }
    let shown = program(soak, &["runs", "show", run, "--output", "json"]).output().unwrap();
    let shown: Value =
        serde_json::from_slice(&shown.stdout).unwrap_or_else(|it| panic!("{it}: {shown:?}"));
    let pile: Vec<&str> = ["x", "r"].repeat(ROUNDS);
    assert_eq!(
        (&shown["status"], &shown["state"]["pile"]),
        (&json!("done"), &json!(pile)),
        "{run}"
    );
    loop {
        let removed = program(soak, &["runs", "rm", run]).output().unwrap();
        let said = String::from_utf8_lossy(&removed.stderr);
        if removed.status.success() {
            break;
        }
        assert!(said.contains(LOCKED) || said.contains("is owned by"), "{removed:?}");
    }
    soak.seen.lock().unwrap().runs += 1;
}

/// Runs one process with its fate.
fn live(
    soak: &Soak,
    arguments: &[&str],
    run: &str,
    fate: Fate,
    random: &mut StdRng,
) -> (ExitStatus, String) {
    let mut process =
        program(soak, arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_millis(random.random_range(0..2_500)));
    let sample = Sample::of(process.id());
    let mut seen = soak.seen.lock().unwrap();
    seen.samples.extend(sample);
    match fate {
        Fate::None => (),
        Fate::Kill => seen.kills += 1,
        Fate::Terminate => seen.terms += 1,
        Fate::Stop(_) => seen.stops += 1,
    }
    drop(seen);
    match fate {
        Fate::None => (),
        Fate::Kill => send(&process, Signal::SIGKILL),
        Fate::Terminate => send(&process, Signal::SIGTERM),
        Fate::Stop(time) => {
            send(&process, Signal::SIGSTOP);
            thread::sleep(time);
            let other = program(soak, &["resume", run]).output().unwrap();
            let is_locked = String::from_utf8_lossy(&other.stderr).contains(LOCKED);
            assert!(matches!(other.status.code(), Some(0 | 6)) || is_locked, "{other:?}");
            send(&process, Signal::SIGCONT);
        }
    }
    wait(&mut process)
}

impl Fate {
    fn random(random: &mut StdRng) -> Self {
        let time = Duration::from_millis(random.random_range(100..5_000));
        match random.random_range(0..4) {
            0 => Self::None,
            1 => Self::Kill,
            2 => Self::Terminate,
            _ => Self::Stop(time),
        }
    }
}

/// Verifies every remaining history and the database file.
pub(crate) fn verify(soak: &Soak) {
    let verified = program(soak, &["runs", "verify"]).output().unwrap();
    assert!(verified.status.success(), "{verified:?}");
}

/// Returns the program, isolated from this machine except for its tools.
fn program(soak: &Soak, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_graphrun"));
    command
        .args(arguments)
        .current_dir(&soak.folder)
        .stdin(Stdio::null())
        .env_clear()
        .envs(std::env::var_os("PATH").map(|it| ("PATH", it)))
        .env("HOME", &soak.folder)
        .env("XDG_CACHE_HOME", soak.folder.join("cache"))
        .env("TMPDIR", soak.folder.join("tmp"))
        .env("GRAPHRUN_LEASE", format!("{}s", LEASE.as_secs()))
        .env("GRAPHRUN_SOAK", &soak.marker);
    command
}

fn send(process: &Child, signal: Signal) {
    // It may have ended already; a zombie accepts every signal.
    kill(Pid::from_raw(process.id().try_into().unwrap()), signal).unwrap();
}

/// Waits for the end of a process, and returns its stderr.
fn wait(process: &mut Child) -> (ExitStatus, String) {
    let mut stderr = process.stderr.take().unwrap();
    let said = thread::spawn(move || {
        let mut said = String::new();
        stderr.read_to_string(&mut said).map(|_| said)
    });
    let started = Instant::now();
    let status = loop {
        if let Some(status) = process.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > PATIENCE {
            process.kill().unwrap();
            process.wait().unwrap();
            panic!("it never ended: {:?}", said.join());
        }
        thread::sleep(TICK);
    };
    (status, said.join().unwrap().unwrap())
}

/// Returns a loop of a node and two branches, one of which is a program in a sandbox.
fn workflow(marker: &str) -> String {
    format!(
        "graphrun: 1
name: soak
state: {{ text: string, pile: {{ type: [string], merge: append, default: [] }}, ok: bool }}
input: text
output: pile
sandboxes: {{ box: {{ time: 30s }} }}
start: add
nodes:
  add: {{ set: {{ pile: text }}, max_visits: {ROUNDS}, exhausted: end, then: both }}
  both: {{ parallel: [left, right], then: add }}
  left: {{ run: [sh, -c, 'sleep 0.02 # {marker}'], in: box, writes: {{ ok: ok }} }}
  right: {{ set: {{ pile: '\"r\"' }} }}
"
    )
}
