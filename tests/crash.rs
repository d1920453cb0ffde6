//! Kills the program at random moments and lets another process resume the run. Finished work is neither
//! repeated nor lost, and the result equals that of an undisturbed run.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::{
    program::{
        Ended, Home, RUN, StderrLines, in_repository, pid_of,
        processes::{self, Process},
        provider::Provider,
        send, timeless,
    },
    support::{some_of, takes_all},
};
use futures_util::future;
use graphrun::{
    checkpoint::{RunHistory as _, RunJournal as _, RunList as _, TaskRecord},
    event::Status,
    id::RunId,
};
use nix::sys::{
    signal::Signal,
    wait::{Id, WaitPidFlag, WaitStatus, waitid},
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};
use tokio::{
    process::Child,
    sync::{OnceCell, Semaphore},
    time::sleep,
};

/// The maximum number of concurrent programs over all tests of this file.
static PLACES: Semaphore = Semaphore::const_new(3);

/// The behaviour of the shortest recorded run.
static RETRY: OnceCell<Usual> = OnceCell::const_new();

/// How often a new moment is drawn if one hits no run.
const DRAWS_MAX: usize = 20;

#[tokio::test]
async fn a_killed_run_resumes_with_the_same_result() {
    let usual = retry().await;
    let kills = kill("retry", 20, 3, usual).await;
    let in_tests = kills.iter().filter(|it| it.in_sandbox).count();
    assert!(in_tests > 0 || !takes_all(), "no kill hit a sandbox, so that none could have stayed");
}

#[tokio::test]
async fn a_killed_escalated_run_resumes_with_the_same_result() {
    for recording in ["tech_lead", "architect"] {
        let usual = Usual::of(recording).await;
        kill(recording, 3, 3, &usual).await;
    }
}

#[tokio::test]
async fn finished_tasks_of_an_open_step_are_kept() {
    let usual = retry().await;
    for (finished, waiting) in [("qc", "ta"), ("ta", "qc")] {
        let kill = kill_once("retry", Moment::Between { finished, waiting }, usual).await;
        let finished = kill.expect("it waits for its model until it is killed").finished;
        assert_eq!(finished, 2, "BA of the step before, and one of two");
    }
}

#[tokio::test]
async fn a_killed_delivery_is_completed() {
    let usual = retry().await;
    let moments = (0..6).map(|ms| Moment::After("publish started", Duration::from_millis(8 * ms)));
    let kills = moments.map(|moment| kill_once("retry", moment, usual));
    let kills = future::join_all(kills).await;
    assert!(kills.iter().any(Option::is_some), "no kill came before the end of the run");
}

/// The behaviour of an undisturbed run.
struct Usual {
    outcome: Outcome,
    /// The keys of all requests to models.
    asked: Vec<String>,
    /// Its duration, from the start of the program to its end.
    length: Duration,
}

#[tokio::test]
async fn endless_code_dies_with_the_program() {
    let _place = PLACES.acquire().await.unwrap();
    let home = Home::new();
    let workflow = in_repository("tests/crash/endless.yaml");
    let input = format!("@{}", in_repository("tests/crash/endless.json"));
    let execute = ["execute", &workflow, "-i", &input, "--run-id", RUN];
    let mut program = home.program(&execute).spawn().unwrap();
    processes::until_code_runs_below(&program).await;
    let below = kill_and_list(&mut program).await.expect("its child never ends");
    processes::assert_gone(below).await;
}

async fn retry() -> &'static Usual {
    RETRY.get_or_init(|| Usual::of("retry")).await
}

/// The saved data of a run, without its times.
#[derive(Debug, PartialEq)]
struct Outcome {
    result: Value,
    usage: Value,
    trace: Vec<Value>,
    state: Value,
    delivered: BTreeMap<PathBuf, String>,
}

/// The moment of the kill.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// This long after the start.
    At(Duration),
    /// This long after this output.
    After(&'static str, Duration),
    /// When one node has finished while another still waits for its model.
    Between { finished: &'static str, waiting: &'static str },
}

/// A kill that hit a run, with the state of the run at that moment.
#[derive(Debug)]
struct Kill {
    finished: usize,
    in_sandbox: bool,
}

impl Usual {
    /// Runs three at a time, like the disturbed runs, so that the times are comparable.
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
        let home = Home::new();
        let provider = Provider::start(recording).await;
        let started = Instant::now();
        let ended = Ended::of(home.execute(&provider.base_url)).await;
        let length = started.elapsed();
        let outcome = Outcome::of(&home, &ended).await;
        Self { outcome, asked: provider.asked(), length }
    }
}

impl Outcome {
    /// Returns the saved data of a run that the program must have finished.
    async fn of(home: &Home, ended: &Ended) -> Self {
        let report = ended.done();
        let trace = report["trace"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| json!([line["step"], line["node"], line["attempt"], line["outcome"]]));
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

/// Kills this many runs, at moments spread over their whole duration; only one of `of` runs, if the test is not whole.
async fn kill(recording: &str, count: u32, of: u64, usual: &Usual) -> Vec<Kill> {
    let seed: u64 = rand::random();
    println!("{recording} takes {:?}; the seed of {count} kills is {seed}", usual.length);
    let kills = some_of(of, 0..count).into_iter().map(async |nth| {
        let mut random = StdRng::seed_from_u64(seed ^ u64::from(nth));
        let mut part = f64::from(nth) / f64::from(count)..f64::from(nth + 1) / f64::from(count);
        for _ in 0..DRAWS_MAX {
            let moment = Moment::At(usual.length.mul_f64(random.random_range(part)));
            if let Some(kill) = kill_once(recording, moment, usual).await {
                println!("{recording}, {moment:?}: {kill:?}");
                return kill;
            }
            // The run had not started, or had ended: this part may contain no other moment.
            part = 0.0..1.0;
        }
        panic!("none of {DRAWS_MAX} kills hit the run")
    });
    future::join_all(kills).await
}

/// Kills a run, lets another process resume it, and compares. Returns `None` if the kill hit no run.
async fn kill_once(recording: &str, moment: Moment, usual: &Usual) -> Option<Kill> {
    let _place = PLACES.acquire().await.unwrap();
    let home = Home::new();
    let remains = kill_program(&home, recording, moment).await?;
    // A separate provider, so that a late request of the killed process does not count for the next one.
    let provider = Provider::start(recording).await;
    let before = match saved(&home).await {
        Some((Status::Running, records)) => records,
        Some(_) => return None,
        None => {
            // The run was not accepted; remains of it must not block the next process.
            let again = Ended::of(home.execute(&provider.base_url)).await;
            assert_eq!(Outcome::of(&home, &again).await, usual.outcome);
            return None;
        }
    };
    let resumed = Ended::of(home.resume(&provider.base_url)).await;

    assert_eq!(Outcome::of(&home, &resumed).await, usual.outcome);
    let (_, after) = saved(&home).await.unwrap();
    assert_eq!(after[..before.len()], before, "the saved entries come first, unchanged");
    let finished: Vec<String> =
        before.iter().filter(|it| it.outcome.is_final()).map(key_of).collect();
    // The name of the model follows the key of the task.
    let is_finished = |key: &str| {
        finished
            .iter()
            .any(|name| key.strip_prefix(name.as_str()).is_some_and(|it| it.starts_with('/')))
    };
    let left = usual.asked.iter().filter(|key| !is_finished(key));
    assert_eq!(
        provider.asked(),
        left.cloned().collect::<Vec<_>>(),
        "the remaining calls, once \
        each"
    );
    let events = home.storage().unwrap().events(&run(), 0).await.unwrap();
    assert!(events.iter().map(|it| it.seq).eq(1..=events.len() as u64), "{events:?}");

    let in_sandbox = remains.iter().any(|it| it.name == "bwrap");
    processes::assert_gone(remains).await;
    Some(Kill { finished: finished.len(), in_sandbox })
}

/// Starts a run and kills the program at a moment. Returns its descendant processes, or `None` if it had
/// ended.
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

/// Kills a program. Returns its descendant processes, or `None` if it had ended.
async fn kill_and_list(program: &mut Child) -> Option<Vec<Process>> {
    // Stops it first: the list of descendants is stable only while it can neither start nor lose a process.
    send(program, Signal::SIGSTOP);
    let states = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    if !matches!(waitid(Id::Pid(pid_of(program)), states).unwrap(), WaitStatus::Stopped(..)) {
        return None;
    }
    let below = processes::below(program);
    program.kill().await.unwrap();
    Some(below)
}

/// Returns the status and the records of the run; `None` if there is no run yet.
async fn saved(home: &Home) -> Option<(Status, Vec<TaskRecord>)> {
    let storage = home.storage().ok()?;
    let status = storage.find(RUN).await.ok()?.status;
    Some((status, storage.records(&run()).await.unwrap()))
}

/// Returns the request key of a task.
fn key_of(record: &TaskRecord) -> String {
    format!("{RUN}/{}/{}/{}", record.task.step, record.node, record.task.index)
}

fn run() -> RunId {
    RunId::parse(RUN).unwrap()
}
