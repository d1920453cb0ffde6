//! The program under failures: full disks, broken disks, kills and signals.

use std::{
    fs,
    net::TcpListener,
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    cli::{
        program::{Ended, Place, Running, workflow},
        provider::{answer, answer_with, read_request},
    },
    support::{some_of, takes_all},
};

/// Appends a text to a list in each of forty steps.
pub(crate) const GROWS: &str = r"graphrun: 1
name: grows
state: { text: string, pile: { type: [string], merge: append, default: [] } }
input: text
output: pile
start: add
nodes:
  add: { set: { pile: text }, max_visits: 40, exhausted: end, then: add }
";

pub(crate) fn place(workflow: &str) -> Place {
    let place = Place::new();
    fs::write(place.path("w.yaml"), workflow).unwrap();
    place
}

/// Returns pseudo-random bytes, which are the same each time.
pub(crate) fn noise(seed: &str, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(seed.as_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// Runs a script of the shell, in which `$0` is the program and the folder `disk` has a disk of this size.
fn run_on_small_disk(place: &Place, bytes: u64, script: &str) {
    fs::create_dir(place.path("disk")).unwrap();
    let status = Command::new("bwrap")
        .args(["--dev-bind", "/", "/", "--size", &bytes.to_string(), "--tmpfs"])
        .arg(place.path("disk"))
        .args(["sh", "-c", script, env!("CARGO_BIN_EXE_graphrun")])
        .envs(place.own_folders())
        .current_dir(place.path(""))
        .status()
        .unwrap();
    assert!(status.success());
}

/// Returns how often each task of a run finished, according to the saved entries.
pub(crate) fn finished(place: &Place, database: &str) -> Vec<u64> {
    let args = ["runs", "show", "run-1", "--output", "json", "--db", database];
    let shown = place.run(args);
    let trace = shown.json()["trace"].clone();
    let lines = trace.as_array().unwrap().iter().filter(|it| it["outcome"] == "finished");
    lines.map(|it| it["step"].as_u64().unwrap()).collect()
}

#[test]
fn a_full_disk_interrupts_a_run_that_can_be_resumed() {
    let place = place(GROWS);
    // A text that hardly compresses: 80,000 letters of 64.
    let text: String =
        noise("pile", 80_000).iter().map(|it| char::from(b' ' + 1 + it % 64)).collect();
    fs::write(place.path("text"), &text).unwrap();
    let script = r#"
        head -c 8M /dev/zero > disk/ballast
        "$0" execute w.yaml -i text=@text --run-id run-1 --db sqlite:disk/runs.db --output json > full.json 2> full.err
        echo $? > full.code
        "$0" runs list --db sqlite:disk/runs.db --output json > list.json
        rm disk/ballast
        "$0" resume run-1 --db sqlite:disk/runs.db --output json > end.json 2> end.err
        echo $? > end.code
        cp disk/runs.db* .
    "#;
    run_on_small_disk(&place, 11 << 20, script);
    let read = |name: &str| fs::read_to_string(place.path(name)).unwrap();
    let said = read("full.err");
    assert_eq!(read("full.code").trim(), "5", "{said}");
    for part in ["could not save", "full", "free some space", "graphrun resume"] {
        assert!(said.contains(part), "`{part}` is missing in: {said}");
    }
    let left: Value = serde_json::from_str(&read("full.json")).unwrap();
    assert_eq!((&left["run"], &left["status"]), (&"run-1".into(), &"interrupted".into()), "{left}");
    assert!(left["reason"].as_str().unwrap().contains("full"), "{left}");
    assert!(left["resume"].as_str().unwrap().starts_with("graphrun resume "), "{left}");
    let listed: Value = serde_json::from_str(&read("list.json")).unwrap();
    let rested = (&listed[0]["status"], &listed[0]["reason"], &listed[0]["owner"]);
    assert_eq!(rested, (&"interrupted".into(), &"the disk is full".into(), &Value::Null));

    assert_eq!(read("end.code").trim(), "0", "{}", read("end.err"));
    let end: Value = serde_json::from_str(&read("end.json")).unwrap();
    let pile = end["state"]["pile"].as_array().unwrap();
    assert!(pile.len() == 40 && pile.iter().all(|it| *it == text), "{}", pile.len());
    assert_eq!(finished(&place, "sqlite:runs.db"), (1..=40).collect::<Vec<u64>>());
}

#[test]
fn runs_can_be_read_and_removed_on_a_full_disk() {
    let place = place(GROWS);
    let script = r#"
        "$0" execute w.yaml -i text=x --run-id run-1 --db sqlite:disk/runs.db > run.out 2> run.err || exit 1
        head -c 8M /dev/zero > disk/ballast
        for command in "list" "show run-1" "verify"; do
            "$0" runs $command --db sqlite:disk/runs.db >> read.out 2>> read.err && echo $command >> found
        done
        ls disk > left
        "$0" runs rm run-1 --db sqlite:disk/runs.db > rm.out 2> rm.err
        echo $? > rm.code
    "#;
    run_on_small_disk(&place, 4 << 20, script);
    let read = |name: &str| fs::read_to_string(place.path(name)).unwrap();
    assert_eq!(read("found"), "list\nshow run-1\nverify\n", "{}", read("read.err"));
    assert!(read("left").contains("runs.db-reserve\n"), "reading needs no room: {}", read("left"));
    assert_eq!(read("rm.code").trim(), "0", "{}", read("rm.err"));
    assert!(read("rm.out").ends_with("removed 1 run\n"), "{}", read("rm.out"));
}

#[test]
fn a_limit_on_the_size_of_files_is_no_crash() {
    let place = place(GROWS);
    let text: String =
        noise("pile", 80_000).iter().map(|it| char::from(b' ' + 1 + it % 64)).collect();
    fs::write(place.path("text"), &text).unwrap();
    let program = place.command([""; 0]);
    let run = |limit: &str, args: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -f {limit}; exec \"$0\" {args}")]);
        command.arg(program.get_program()).env_clear().current_dir(place.path(""));
        command.envs(program.get_envs().filter_map(|(name, it)| Some((name, it?))));
        Ended::of(&mut command)
    };
    let ended = run("2000", "execute w.yaml -i text=@text --run-id run-1 --output jsonl");
    assert_eq!(ended.code, 5, "{ended}");
    let last: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&last["type"], &last["run"]), (&"run.left".into(), &"run-1".into()), "{last}");
    let ended = run("unlimited", "resume run-1 --output json");
    assert_eq!(ended.code, 0, "{ended}");
}

/// Makes one call fail that writes or flushes a database, like a broken disk.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_hit(int fd, const char *what) {
    static __thread int inside;
    static int count;
    const char *fault = getenv("FAULT");
    if (inside || !fault || strncmp(fault, what, strlen(what))) return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (!strstr(path, "/runs.db") || strstr(path, "-reserve")) return 0;
    if (__sync_add_and_fetch(&count, 1) != atoi(strchr(fault, ':') + 1)) return 0;
    inside = 1;
    int mark = open(getenv("FAULT_MARK"), O_CREAT | O_WRONLY, 0600);
    if (mark >= 0) close(mark);
    inside = 0;
    errno = EIO;
    return 1;
}

#define WRAP(name, what, parameters, arguments) \
    ssize_t name parameters { \
        static ssize_t (*real) parameters; \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        return is_hit(fd, what) ? -1 : real arguments; \
    }
WRAP(write, "write", (int fd, const void *from, size_t size), (fd, from, size))
WRAP(pwrite, "write", (int fd, const void *from, size_t size, off_t at), (fd, from, size, at))
WRAP(pwrite64, "write", (int fd, const void *from, size_t size, off64_t at), (fd, from, size, at))

#define WRAP_SYNC(name) \
    int name(int fd) { \
        static int (*real)(int); \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        return is_hit(fd, "sync") ? -1 : real(fd); \
    }
WRAP_SYNC(fsync)
WRAP_SYNC(fdatasync)
"#;

/// Compiles the shim. There is a C compiler wherever SQLite was compiled.
fn shim(place: &Place) -> PathBuf {
    let source = place.path("shim.c");
    let library = place.path("shim.so");
    fs::write(&source, SHIM).unwrap();
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-O1", "-w", "-o"]).arg(&library).arg(&source).arg("-ldl");
    assert!(command.status().unwrap().success());
    library
}

/// Finishes a run on a disk with one failing call; returns whether the call was reached.
fn on_a_broken_disk(shim: &str, fault: &str, expected: &Value) -> bool {
    let place = place(&GROWS.replace("40", "6"));
    let mark = place.path("mark");
    let args = ["execute", "w.yaml", "-i", "text=x", "--run-id", "run-1", "--output", "json"];
    let faults = [("LD_PRELOAD", shim), ("FAULT", fault), ("FAULT_MARK", mark.to_str().unwrap())];
    let ended = place.run_with(args, faults);
    let is_hit = mark.exists();
    let told = ended.stderr.contains("add finished");
    let end = match ended.code {
        // Cleanup may fail silently: the next process does it again.
        0 => ended,
        5 => {
            assert!(is_hit, "{fault}: {ended}");
            let resumed = place.run(["resume", "run-1", "--output", "json"]);
            let is_there = !["there is no run", "the file is empty"]
                .iter()
                .any(|it| resumed.stderr.contains(it));
            assert!(is_there || !told, "{fault}: {ended}{resumed}");
            // The run was not accepted, and the program did not report it as accepted.
            if is_there { resumed } else { place.run(args) }
        }
        _ => panic!("{fault}: {ended}"),
    };
    assert_eq!((end.code, &end.json()["state"]), (0, expected), "{fault}: {end}");
    let steps = finished(&place, "sqlite:.graphrun/runs.db");
    assert_eq!(steps, (1..=6).collect::<Vec<u64>>(), "{fault}");
    is_hit
}

#[test]
fn a_run_survives_the_failure_of_any_write_and_any_flush() {
    let tools = Place::new();
    let shim = shim(&tools);
    let shim = shim.to_str().unwrap();
    let expected = serde_json::json!({ "pile": vec!["x"; 6] });
    for what in ["sync", "write"] {
        // In the short form, each third call fails.
        let mut at = some_of(3, [1, 2, 3])[0];
        while on_a_broken_disk(shim, &format!("{what}:{at}"), &expected) {
            at += if takes_all() { 1 } else { 3 };
        }
        assert!(at > 8, "only {at} calls of {what}: the shim is not at work");
    }
}

#[test]
fn a_wait_continues_after_a_kill_with_its_count() {
    use std::io::Write as _;

    // Little of it is left when the run is resumed, so a busy machine has time enough.
    const PATIENCE: Duration = Duration::from_secs(8);
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", provider.local_addr().unwrap());
    let agent = fs::read_to_string(workflow("agent")).unwrap();
    let place = place(&agent.replace("writes: answer", "writes: answer\n    retry: 3"));
    let args = ["execute", "w.yaml", "-i", "brief=x", "--run-id", "run-1", "--output", "json"];
    let mut command = place.command(args);
    command.env("OPENAI_BASE_URL", &url);
    let mut run = Running::of(command);
    let (mut call, _) = provider.accept().unwrap();
    read_request(&mut call);
    let refused = Instant::now();
    let patience = PATIENCE.as_secs();
    let head = format!("HTTP/1.1 429 Too Many Requests\r\nretry-after: {patience}\r\n");
    write!(call, "{head}content-length: 2\r\nconnection: close\r\n\r\n{{}}").unwrap();
    drop(call);
    run.wait_for("retries in");
    run.signal(Signal::SIGKILL);
    drop(run);

    thread::sleep(Duration::from_secs(6));
    let listening = provider.try_clone().unwrap();
    let asked = thread::spawn(move || {
        let (mut call, _) = listening.accept().unwrap();
        answer(&mut call);
        Instant::now()
    });
    let begun = Instant::now();
    let ended =
        place.run_with(["resume", "run-1", "--output", "json"], [("OPENAI_BASE_URL", &url)]);
    assert_eq!(ended.code, 0, "{ended}");
    assert_eq!(ended.json()["trace"][0]["attempt"], 2);
    let at = asked.join().unwrap();
    let tolerance = Duration::from_millis(100);
    assert!(at - refused + tolerance >= PATIENCE, "too early: {:?}", at - refused);
    assert!(at - begun < PATIENCE, "it waited from the start: {:?}", at - begun);
    provider.set_nonblocking(true).unwrap();
    assert!(provider.accept().is_err(), "it asked twice");
}

#[test]
fn a_saved_answer_is_not_requested_again_after_a_kill() {
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", provider.local_addr().unwrap());
    let agent = fs::read_to_string(workflow("agent")).unwrap();
    let place = place(&agent.replace("answer: string", "answer: { sum: int }"));
    let args = ["execute", "w.yaml", "-i", "brief=x", "--run-id", "run-1", "--output", "json"];
    let mut command = place.command(args);
    command.env("OPENAI_BASE_URL", &url);
    let run = Running::of(command);
    // The first answer is invalid, and the program dies while it waits for a better one.
    let (mut call, _) = provider.accept().unwrap();
    let first = answer_with(&mut call, "I would say forty-two.");
    assert!(!first.contains("cannot be used"), "{first}");
    let (mut call, _) = provider.accept().unwrap();
    let repair = read_request(&mut call);
    assert!(repair.contains("cannot be used"), "{repair}");
    run.signal(Signal::SIGKILL);
    drop((run, call));

    let asked = thread::spawn(move || {
        let (mut call, _) = provider.accept().unwrap();
        let request = answer_with(&mut call, r#"{"sum": 42}"#);
        provider.set_nonblocking(true).unwrap();
        (request, provider)
    });
    let resume = ["resume", "run-1", "--output", "json"];
    let ended = place.run_with(resume, [("OPENAI_BASE_URL", &url)]);
    assert_eq!((ended.code, &ended.json()["state"]["answer"]["sum"]), (0, &42.into()), "{ended}");
    let (request, provider) = asked.join().unwrap();
    assert_eq!(request, repair, "the very call that was under way is made again");
    assert!(provider.accept().is_err(), "and no other");
    let calls = ended.json()["usage"]["calls"].clone();
    assert_eq!(calls, 2, "the answer that was paid for before the kill is counted");
}

#[test]
fn a_timeout_ends_a_run_and_a_longer_one_resumes_it() {
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", provider.local_addr().unwrap());
    let place = Place::new();
    let agent = workflow("agent");
    let args = ["execute", &agent, "-i", "brief=x", "--run-id", "run-1", "--output", "json"];
    let variables = [("OPENAI_BASE_URL", &*url)];
    let cut = place.run_with(args.into_iter().chain(["--timeout", "5s"]), variables);
    assert_eq!((cut.code, &cut.json()["status"]), (4, &"limit".into()), "{cut}");
    // The task starts shortly after its run, so its duration may be slightly less.
    assert!(cut.stderr.contains("was aborted after "), "{cut}");
    let resume = ["resume", "run-1", "--output", "json"];
    let again = place.run_with(resume.into_iter().chain(["--timeout", "5s"]), variables);
    assert_eq!(again.code, 4, "{again}");
    provider.set_nonblocking(true).unwrap();
    let asked = provider.incoming().take_while(Result::is_ok).count();
    assert_eq!(asked, 1, "nothing begins when the time is over");

    provider.set_nonblocking(false).unwrap();
    let answered = thread::spawn(move || answer(&mut provider.accept().unwrap().0));
    let done = place.run_with(resume.into_iter().chain(["--timeout", "1m"]), variables);
    assert_eq!((done.code, &done.json()["trace"][0]["attempt"]), (0, &1.into()), "{done}");
    answered.join().unwrap();
}
