//! Kills the program at random moments and lets another process go on: what had finished is neither done again nor
//! lost, and the run ends as if nothing had happened.

mod program;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use futures_util::future;
use graphrun::{
    checkpoint::{Checkpointer as _, TaskRecord},
    event::Status,
    id::RunId,
};
use nix::sys::{
    signal::Signal,
    wait::{Id, WaitPidFlag, WaitStatus, waitid},
};
use program::{
    Ended, Home, RUN, StderrLines, in_repository, pid_of,
    processes::{self, Process},
    provider::Provider,
    send, timeless,
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};
use tokio::{
    process::Child,
    sync::{OnceCell, Semaphore},
    time::sleep,
};

/// How many programs run at a time, over all tests of this file.
static PLACES: Semaphore = Semaphore::const_new(3);

/// What the shortest of the recorded runs does.
static RETRY: OnceCell<Usual> = OnceCell::const_new();

/// How often a moment is drawn again when it hits no run.
const DRAWS_MAX: usize = 20;

#[tokio::test]
async fn a_killed_run_goes_on_as_if_nothing_had_happened() {
    let usual = retry().await;
    let kills = kill("retry", 20, usual).await;
    let in_tests = kills.iter().filter(|it| it.in_sandbox).count();
    assert!(in_tests > 0, "no kill hit a sandbox, so that none could have stayed");
}

#[tokio::test]
async fn a_run_that_was_escalated_goes_on_as_if_nothing_had_happened() {
    for recording in ["tech_lead", "architect"] {
        let usual = Usual::of(recording).await;
        kill(recording, 3, &usual).await;
    }
}

#[tokio::test]
async fn what_has_finished_in_a_step_half_done_is_kept() {
    let usual = retry().await;
    for (finished, waiting) in [("qc", "ta"), ("ta", "qc")] {
        let kill = kill_once("retry", Moment::Between { finished, waiting }, usual).await;
        let finished = kill.expect("it waits for its model until it is killed").finished;
        assert_eq!(finished, 2, "BA of the step before, and one of two");
    }
}

#[tokio::test]
async fn a_delivery_that_was_killed_is_made_whole() {
    let usual = retry().await;
    let moments = (0..6).map(|ms| Moment::After("publish started", Duration::from_millis(8 * ms)));
    let kills = moments.map(|moment| kill_once("retry", moment, usual));
    let kills = future::join_all(kills).await;
    assert!(kills.iter().any(Option::is_some), "no kill came before the end of the run");
}

/// What a run does that nobody disturbs.
struct Usual {
    outcome: Outcome,
    /// The keys of all requests to models.
    asked: Vec<String>,
    /// How long it takes, from the start of the program to its end.
    length: Duration,
}

#[tokio::test]
async fn code_that_never_ends_dies_with_the_program() {
    let _place = PLACES.acquire().await.unwrap();
    let home = Home::new();
    let workflow = in_repository("tests/crash/endless.yaml");
    let input = format!("@{}", in_repository("tests/crash/endless.json"));
    let execute = ["execute", &workflow, "-i", &input, "--run-id", RUN];
    let mut program = home.program(&execute).spawn().unwrap();
    processes::until_code_runs_below(&program).await;
    let below = kill_and_list(&mut program).await.expect("what it runs never ends");
    processes::assert_gone(below).await;
}

async fn retry() -> &'static Usual {
    RETRY.get_or_init(|| Usual::of("retry")).await
}

/// What a run leaves behind, without the times it took.
#[derive(Debug, PartialEq)]
struct Outcome {
    result: Value,
    usage: Value,
    trace: Vec<Value>,
    state: Value,
    delivered: BTreeMap<PathBuf, String>,
}

/// When the program is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// That long after its start.
    At(Duration),
    /// That long after it has said something.
    After(&'static str, Duration),
    /// When one node has finished while another still waits for its model.
    Between { finished: &'static str, waiting: &'static str },
}

/// A kill that hit a run, and what was so then.
#[derive(Debug)]
struct Kill {
    finished: usize,
    in_sandbox: bool,
}

impl Usual {
    /// Runs three at a time, as the disturbed ones will be, so that their times can be compared.
    async fn of(recording: &str) -> Self {
        let runs: Vec<Self> = future::join_all((0..3).map(|_| Self::once(recording))).await;
        let length = runs.iter().map(|it| it.length).sum::<Duration>() / 3;
        let [first, second, third] = runs.try_into().ok().expect("three were started");
        for other in [second, third] {
            assert_eq!((&first.outcome, &first.asked), (&other.outcome, &other.asked));
        }
        Self { length, ..first }
    }

    async fn once(recording: &str) -> Self {
        let _place = PLACES.acquire().await.unwrap();
        let (home, provider) = (Home::new(), Provider::start(recording).await);
        let started = Instant::now();
        let ended = Ended::of(home.execute(&provider.base_url)).await;
        let length = started.elapsed();
        let outcome = Outcome::of(&home, &ended).await;
        Self { outcome, asked: provider.asked(), length }
    }
}

impl Outcome {
    /// What a program left behind that must have brought its run to the end.
    async fn of(home: &Home, ended: &Ended) -> Self {
        let report = ended.done();
        let trace = report["trace"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| json!([it["step"], it["node"], it["attempt"], it["outcome"]]));
        let saved = home.storage().unwrap().load(&run()).await.unwrap();
        Self {
            trace: trace.collect(),
            result: timeless(report["state"].clone()),
            usage: report["usage"].clone(),
            state: timeless(serde_json::to_value(saved.values).unwrap()),
            delivered: home.delivered(),
        }
    }
}

/// Kills as many runs as asked for, at moments spread over their whole length.
async fn kill(recording: &str, count: u32, usual: &Usual) -> Vec<Kill> {
    let seed: u64 = rand::random();
    println!("{recording} takes {:?}; the seed of {count} kills is {seed}", usual.length);
    let kills = (0..count).map(async |nth| {
        let mut random = StdRng::seed_from_u64(seed ^ u64::from(nth));
        let mut part = f64::from(nth) / f64::from(count)..f64::from(nth + 1) / f64::from(count);
        for _ in 0..DRAWS_MAX {
            let moment = Moment::At(usual.length.mul_f64(random.random_range(part)));
            if let Some(kill) = kill_once(recording, moment, usual).await {
                println!("{recording}, {moment:?}: {kill:?}");
                return kill;
            }
            // Before the run was there, or after its end: that part may hold no other moment.
            part = 0.0..1.0;
        }
        panic!("none of {DRAWS_MAX} kills hit the run")
    });
    future::join_all(kills).await
}

/// Kills a run, lets another process go on with it, and compares. Gives nothing back if there was no run to hit.
async fn kill_once(recording: &str, moment: Moment, usual: &Usual) -> Option<Kill> {
    let _place = PLACES.acquire().await.unwrap();
    let home = Home::new();
    let remains = kill_program(&home, recording, moment).await?;
    // A provider of its own, so that a late request of the killed process cannot be taken for one of the next.
    let provider = Provider::start(recording).await;
    let before = match saved(&home).await {
        Some((Status::Running, records)) => records,
        Some(_) => return None,
        None => {
            // Whatever there was of it, it is in nobody's way.
            let again = Ended::of(home.execute(&provider.base_url)).await;
            assert_eq!(Outcome::of(&home, &again).await, usual.outcome);
            return None;
        }
    };
    let resumed = Ended::of(home.resume(&provider.base_url)).await;

    assert_eq!(Outcome::of(&home, &resumed).await, usual.outcome);
    let (_, after) = saved(&home).await.unwrap();
    assert_eq!(after[..before.len()], before, "what was saved is still there, and first");
    let finished: Vec<String> =
        before.iter().filter(|it| it.outcome.is_final()).map(key_of).collect();
    let left = usual.asked.iter().filter(|key| !finished.contains(key));
    assert_eq!(provider.asked(), left.cloned().collect::<Vec<_>>(), "what was left, once each");
    let events = home.storage().unwrap().events(&run(), 0).await.unwrap();
    assert!(events.iter().map(|it| it.seq).eq(1..=events.len() as u64), "{events:?}");

    let in_sandbox = remains.iter().any(|it| it.name == "bwrap");
    processes::assert_gone(remains).await;
    Some(Kill { finished: finished.len(), in_sandbox })
}

/// Starts a run and kills the program at a moment. Gives back the processes below it, or nothing if it had ended.
async fn kill_program(home: &Home, recording: &str, moment: Moment) -> Option<Vec<Process>> {
    let provider = match moment {
        Moment::Between { waiting, .. } => Provider::holding(recording, waiting).await,
        Moment::At(_) | Moment::After(..) => Provider::start(recording).await,
    };
    let mut program = home.execute(&provider.base_url).spawn().unwrap();
    let mut said = StderrLines::by(&mut program);
    match moment {
        Moment::At(wait) => sleep(wait).await,
        Moment::After(words, wait) => {
            said.until(words).await;
            sleep(wait).await;
        }
        Moment::Between { finished, .. } => {
            said.until(&format!("{finished} finished")).await;
            provider.until_held().await;
        }
    }
    kill_and_list(&mut program).await
}

/// Kills a program. Gives back the processes that were below it, or nothing if it had ended.
async fn kill_and_list(program: &mut Child) -> Option<Vec<Process>> {
    // Stopped first: what is below it is known only while it can neither start a process nor lose one.
    send(program, Signal::SIGSTOP);
    let states = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    if !matches!(waitid(Id::Pid(pid_of(program)), states).unwrap(), WaitStatus::Stopped(..)) {
        return None;
    }
    let below = processes::below(program);
    program.kill().await.unwrap();
    Some(below)
}

/// How the run stands and what is recorded of it; none if there is no run yet.
async fn saved(home: &Home) -> Option<(Status, Vec<TaskRecord>)> {
    let storage = home.storage().ok()?;
    let status = storage.find(RUN).await.ok()?.status;
    Some((status, storage.records(&run()).await.unwrap()))
}

/// The key that the requests of a task had.
fn key_of(record: &TaskRecord) -> String {
    format!("{RUN}/{}/{}/{}", record.task.step, record.node, record.task.index)
}

fn run() -> RunId {
    RunId::parse(RUN).unwrap()
}
