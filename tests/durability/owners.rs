//! Several processes want one run: only one owns it at a time (G6), and a slow owner is not a dead one (G7).

use std::{
    fs,
    io::Read as _,
    process::{Child, Command, ExitStatus, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use graphrun::event::Status;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::durability::{
    child::{Order, RUN},
    place::{Backend, Database, Place},
};

/// The number of processes that want the same run at the same time.
const PROCESSES: usize = 8;

/// The number of rounds.
const ROUNDS: usize = 100;

/// The time after which a wait of these tests counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);

const LEASE: Duration = Duration::from_millis(1200);

const TICK: Duration = Duration::from_millis(5);

#[test]
fn an_accepted_run_exists_and_is_accepted_once() {
    let path = workflow("plain");
    let execute = ["execute", &path, "--run-id", RUN];
    for backend in [Backend::Sqlite, Backend::Postgres] {
        for (point, is_accepted) in [("accept.before_commit", false), ("accept.after_commit", true)]
        {
            let place = Place::new(backend);
            let mut killed = program(&place, &execute, &format!("{point}=abort")).spawn().unwrap();
            assert_eq!(wait(&mut killed).code(), None, "{point}: {}", said(&mut killed));
            assert_eq!(place.left().is_some(), is_accepted, "{point}");
            // The caller cannot know whether the run was accepted, and tries again.
            let mut again = program(&place, &execute, "").spawn().unwrap();
            let code = wait(&mut again).code();
            let told = said(&mut again);
            if is_accepted {
                assert_eq!(code, Some(2), "{told}");
                assert!(told.contains(&format!("there is a run `{RUN}` already")), "{told}");
                let mut resumed = program(&place, &["resume", RUN], "").spawn().unwrap();
                assert_eq!(wait(&mut resumed).code(), Some(0), "{}", said(&mut resumed));
            } else {
                assert_eq!(code, Some(0), "{point}: {told}");
            }
            assert_eq!(place.left().unwrap().status, Status::Done);
        }
    }
}

#[test]
fn one_of_eight_resuming_processes_wins() {
    one_wins(&Place::new(Backend::Sqlite), ROUNDS);
}

#[test]
fn one_of_eight_resuming_processes_wins_in_postgres() {
    one_wins(&Place::new(Backend::Postgres), ROUNDS / 5);
}

/// Lets several processes resume a run whose owner was killed, round by round.
fn one_wins(place: &Place, rounds: usize) {
    let path = workflow("plain");
    let execute = ["execute", &path, "--run-id", RUN];
    let mut first = program(place, &execute, "task.before_run=abort@2").spawn().unwrap();
    assert_eq!(wait(&mut first).code(), None, "it is killed: {}", said(&mut first));
    for round in 1..=rounds {
        let resume = || program(place, &["resume", RUN], "acquire.after=pause").spawn().unwrap();
        let mut all: Vec<Child> = (0..PROCESSES).map(|_| resume()).collect();
        let started = Instant::now();
        let mut refused = Vec::new();
        while refused.len() < PROCESSES - 1 {
            assert!(started.elapsed() < PATIENCE, "round {round}: {} were refused", refused.len());
            all.retain_mut(|program| match program.try_wait().unwrap() {
                Some(status) => {
                    refused.push((status.code(), said(program)));
                    false
                }
                None => true,
            });
            sleep(TICK);
        }
        let [winner] = &mut all[..] else { panic!("round {round}: {} are left", all.len()) };
        assert!(winner.try_wait().unwrap().is_none(), "round {round}: no process owns it");
        let owner = format!("is owned by process {} on ", winner.id());
        for (code, stderr) in refused {
            assert_eq!(code, Some(6), "round {round}: {stderr}");
            assert!(stderr.contains(&owner), "round {round}, {owner}: {stderr}");
        }
        winner.kill().unwrap();
        winner.wait().unwrap();
    }
    let mut last = program(place, &["resume", RUN], "").spawn().unwrap();
    assert_eq!(wait(&mut last).code(), Some(0), "{}", said(&mut last));
}

#[test]
fn an_owner_that_lost_its_lease_writes_nothing() {
    for backend in [Backend::Sqlite, Backend::Postgres] {
        let (place, mut owner) = stopped_with_its_lease(backend);

        until("the lease is over", || {
            let output = place.order("linear").run();
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(matches!(output.status.code(), Some(0 | 6)), "{stderr}");
            output.status.success()
        });
        let left = place.left();
        let ledger = place.ledger();

        signal(&owner, Signal::SIGCONT);
        assert_eq!(wait(&mut owner).code(), Some(6), "{}", said(&mut owner));
        assert_eq!(place.left(), left, "it changed the saved run");
        assert_eq!(place.ledger().begun(), ledger.begun(), "it began something");
    }
}

/// A process that is stopped at its second node; another process was refused while its lease lasted.
fn stopped_with_its_lease(backend: Backend) -> (Place, Child) {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        let place = Place::new(backend);
        let order = Order { takes: LEASE, lease: LEASE, ..place.order("linear") };
        let mut owner = order.command().spawn().unwrap();
        until("its second node is at work", || place.ledger().begun().len() == 2);
        let stopped = Instant::now();
        signal(&owner, Signal::SIGSTOP);
        let early = place.order("linear").run();
        let took = stopped.elapsed();
        let stderr = String::from_utf8_lossy(&early.stderr);
        if early.status.success() {
            // The owner renews after each third of its lease, so two thirds were left. A slower machine
            // proves nothing.
            assert!(took > LEASE * 2 / 3, "another process took the run after {took:?}: {stderr}");
            owner.kill().unwrap();
            owner.wait().unwrap();
            continue;
        }
        if early.status.code() == Some(5) && stderr.contains("has locked") {
            // The owner was stopped inside a transaction, so its file stays locked: try again.
            owner.kill().unwrap();
            owner.wait().unwrap();
            continue;
        }
        assert_eq!(early.status.code(), Some(6), "{stderr}");
        assert!(stderr.contains(&format!("owned by process {} on ", owner.id())), "{stderr}");
        return (place, owner);
    }
    panic!("the machine is too slow: no second process came in time for the lease of the first");
}

#[test]
fn a_program_that_lost_its_lease_exits_with_6() {
    let place = Place::new(Backend::Sqlite);
    let path = workflow("plain");
    let execute = ["execute", &path, "--run-id", RUN];
    let mut owner = program(&place, &execute, "task.before_run=sleep(4000)@2").spawn().unwrap();
    until("its first step is saved", || place.left().is_some_and(|it| it.finished.len() == 1));
    signal(&owner, Signal::SIGSTOP);
    sleep(LEASE * 2);
    let mut other = program(&place, &["resume", RUN], "").spawn().unwrap();
    assert_eq!(wait(&mut other).code(), Some(0), "{}", said(&mut other));
    let left = place.left();
    signal(&owner, Signal::SIGCONT);
    assert_eq!(wait(&mut owner).code(), Some(6));
    let stderr = said(&mut owner);
    assert!(stderr.contains("error: could not "), "{stderr}");
    assert_eq!(place.left(), left, "it changed the saved run");
}

#[test]
fn an_owner_that_cannot_renew_its_lease_stops() {
    let place = Place::new(Backend::Sqlite);
    let order = Order { takes: LEASE * 4, lease: LEASE, ..place.order("linear") };
    let lost = Order { faults: Some("lease.renew=err".to_owned()), ..order }.run();
    assert_eq!(lost.status.code(), Some(6), "{}", String::from_utf8_lossy(&lost.stderr));
    assert_eq!(place.ledger().begun().len(), 1, "it began nothing more");
    assert_eq!(place.order("linear").run().status.code(), Some(0));
}

#[test]
fn a_node_that_blocks_all_threads_keeps_its_lease() {
    for (backend, one_thread) in
        [(Backend::Sqlite, true), (Backend::Sqlite, false), (Backend::Postgres, true)]
    {
        let place = Place::new(backend);
        let order = Order { takes: LEASE * 3, lease: LEASE, one_thread, ..place.order("blocking") };
        let mut owner = order.command().spawn().unwrap();
        until("a node blocks", || !place.ledger().begun().is_empty());
        let began = Instant::now();
        let mut refused_late = 0;
        while began.elapsed() < LEASE * 2 {
            refused_late += usize::from(began.elapsed() > LEASE);
            let output = place.order("blocking").run();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(6), "{stderr}");
            assert!(stderr.contains(&format!("owned by process {} on ", owner.id())), "{stderr}");
            sleep(LEASE / 8);
        }
        assert!(refused_late > 0, "no process tried after a lease had expired");
        assert_eq!(wait(&mut owner).code(), Some(0), "{}", said(&mut owner));
        assert!(place.ledger().begun().values().all(|&it| it == 1), "{:?}", place.ledger());
    }
}

/// Returns the program in the folder of a place, with its database and a short lease.
fn program(place: &Place, arguments: &[&str], faults: &str) -> Command {
    let database = match &place.database {
        Database::Sqlite(path) => format!("sqlite:{}", path.display()),
        Database::Postgres(url) => url.clone(),
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_graphrun"));
    command
        .args(arguments)
        .current_dir(place.folder.path())
        .env_clear()
        .envs(std::env::var_os("PATH").map(|it| ("PATH", it)))
        .env("GRAPHRUN_DB", database)
        .env("GRAPHRUN_LEASE", format!("{}ms", LEASE.as_millis()))
        .env("GRAPHRUN_FAIL", faults)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

fn workflow(shape: &str) -> String {
    let path = format!("{}/tests/durability/shapes/{shape}.yaml", env!("CARGO_MANIFEST_DIR"));
    assert!(fs::exists(&path).unwrap(), "{path}");
    path
}

fn signal(process: &Child, signal: Signal) {
    kill(Pid::from_raw(process.id().try_into().unwrap()), signal).unwrap();
}

/// Waits until a condition holds.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "it took too long until {what}");
        sleep(TICK);
    }
}

/// Waits for the end of a process that should end.
fn wait(process: &mut Child) -> ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(status) = process.try_wait().unwrap() {
            return status;
        }
        if started.elapsed() > PATIENCE {
            process.kill().unwrap();
            panic!("it never ended: {}", said(process));
        }
        sleep(TICK);
    }
}

/// Returns the stderr of a process that has ended.
fn said(process: &mut Child) -> String {
    let mut text = String::new();
    if let Some(stderr) = &mut process.stderr {
        stderr.read_to_string(&mut text).unwrap();
    }
    text
}
