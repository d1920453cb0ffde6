//! No process of a run is left, however and whenever the run ends.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::process::ExitStatusExt as _,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use graphrun::sandbox::{
    Channel, Job, JobResult, JobStreams, Limits, ProgramEnd, Sandbox, SandboxError, SourceFile,
};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use crate::sandbox::host::leftovers;

use crate::support::child_test;

/// A program that starts a daemon, says so, and sleeps.
const SLEEPER: &str = "import os, time
if os.fork() == 0:
    os.setsid()
print('asleep', flush=True)
time.sleep(600)
";

fn sleeper(marker: &str) -> Job {
    Job {
        argv: ["python3", "main.py", marker].map(str::to_owned).into(),
        files: vec![SourceFile { path: "main.py".to_owned(), content: SLEEPER.to_owned() }],
        ..Job::default()
    }
}

fn shell(script: &str) -> Job {
    Job { argv: ["bash", "-c", script].map(str::to_owned).into(), ..Job::default() }
}

async fn run(job: &Job) -> Result<JobResult, SandboxError> {
    Sandbox::probe().unwrap().run(job, &CancellationToken::new()).await
}

fn marker(name: &str) -> String {
    format!("graphrun-{name}-{}", std::process::id())
}

/// Polls for a condition that must hold soon.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Processes inside carry the marker as the last of their arguments; the program itself is one of two.
fn is_asleep(marker: &str) -> bool {
    leftovers(marker).iter().filter(|process| process.contains("(python3)")).count() == 2
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_ends_every_process_before_it_returns() {
    let marker = marker("cancel");
    let sandbox = Sandbox::probe().unwrap();
    let cancel = CancellationToken::new();
    let job = sleeper(&marker);
    let token = cancel.clone();
    let running = tokio::spawn(async move { sandbox.run(&job, &token).await });
    tokio::task::block_in_place(|| eventually("the program starts", || is_asleep(&marker)));
    cancel.cancel();
    let cancelled = Instant::now();
    let result = running.await.unwrap();
    assert!(cancelled.elapsed() < Duration::from_secs(2), "took {:?}", cancelled.elapsed());
    assert!(matches!(result, Err(SandboxError::Cancelled)), "{result:?}");
    assert_eq!(leftovers(&marker), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_typed_at_the_terminal_interrupt_no_process() {
    let marker = marker("group");
    let sandbox = Sandbox::probe().unwrap();
    let cancel = CancellationToken::new();
    let job = sleeper(&marker);
    let token = cancel.clone();
    let running = tokio::spawn(async move { sandbox.run(&job, &token).await });
    tokio::task::block_in_place(|| eventually("the program starts", || is_asleep(&marker)));
    // Ctrl-C goes to the process group in the foreground, which is ours.
    let ours = nix::unistd::getpgrp();
    let in_our_group: Vec<String> = leftovers(&marker)
        .into_iter()
        .filter(|process| {
            let id = process.split(' ').next().unwrap().parse().unwrap();
            nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(id))) == Ok(ours)
        })
        .collect();
    cancel.cancel();
    assert!(matches!(running.await.unwrap(), Err(SandboxError::Cancelled)));
    assert_eq!(in_our_group, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn out_of_memory_kills_the_sandbox_before_its_server() {
    let marker = marker("score");
    let sandbox = Sandbox::probe().unwrap();
    let cancel = CancellationToken::new();
    let job = sleeper(&marker);
    let token = cancel.clone();
    let running = tokio::spawn(async move { sandbox.run(&job, &token).await });
    tokio::task::block_in_place(|| eventually("the program starts", || is_asleep(&marker)));
    let score = |process: &str| -> i32 {
        let path = format!("/proc/{process}/oom_score_adj");
        std::fs::read_to_string(path).unwrap().trim().parse().unwrap()
    };
    let asleep = leftovers(&marker).into_iter().filter(|it| it.contains("(python3)"));
    let scores: Vec<i32> = asleep.map(|it| score(it.split(' ').next().unwrap())).collect();
    cancel.cancel();
    assert!(matches!(running.await.unwrap(), Err(SandboxError::Cancelled)));
    assert_eq!(scores, [(score("self") + 500).min(1_000); 2]);
}

/// Two fifths of a limit in each of four processes: no one is beyond it, and all together are.
#[tokio::test(flavor = "multi_thread")]
async fn programs_that_exceed_memory_together_are_killed_alone() {
    let eats = "import os, time\nfor _ in range(2): os.fork()\nblock = bytearray(b'x') * (100 << 20)\ntime.sleep(60)";
    let limits = Limits { memory_bytes: 256 << 20, ..Limits::default() };
    let job =
        Job { limits, argv: ["python3", "-c", eats].map(str::to_owned).into(), ..Job::default() };
    let beside = sleeper(&marker("beside"));
    let sandbox = Sandbox::probe().unwrap();
    let token = CancellationToken::new();
    let other = {
        let sandbox = sandbox.clone();
        let token = token.clone();
        tokio::spawn(async move { sandbox.run(&beside, &token).await })
    };
    let ended = sandbox.run(&job, &CancellationToken::new()).await.unwrap();
    assert_eq!(ended.end, ProgramEnd::OutOfMemory, "{}", ended.output);
    assert!(!other.is_finished(), "one sandbox is nothing to another");
    token.cancel();
    assert!(matches!(other.await.unwrap(), Err(SandboxError::Cancelled)));
}

#[tokio::test]
async fn a_run_that_is_cancelled_before_it_starts_leaves_nothing() {
    let marker = marker("cancelled");
    let cancel = CancellationToken::new();
    cancel.cancel();
    let result = Sandbox::probe().unwrap().run(&sleeper(&marker), &cancel).await;
    assert!(matches!(result, Err(SandboxError::Cancelled)), "{result:?}");
    assert_eq!(leftovers(&marker), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_run_ends_every_process() {
    let marker = marker("drop");
    let sandbox = Sandbox::probe().unwrap();
    let job = sleeper(&marker);
    let running =
        tokio::spawn(async move { sandbox.run(&job, &CancellationToken::new()).await.map(drop) });
    tokio::task::block_in_place(|| {
        eventually("the program starts", || is_asleep(&marker));
        running.abort();
        eventually("everything ends", || leftovers(&marker).is_empty());
    });
}

/// Tells a test process that it is the one to be killed, and the marker to use.
const TO_BE_KILLED: &str = "GRAPHRUN_TEST_TO_BE_KILLED";

/// The part of the next two tests that dies; run as a test, it does nothing.
#[tokio::test]
async fn a_process_that_will_be_killed() {
    if let Ok(marker) = std::env::var(TO_BE_KILLED) {
        let sandbox = Sandbox::probe().unwrap();
        // Not a macro, whose output the test harness would keep.
        std::io::stdout().write_all(b"\nstarting\n").unwrap();
        sandbox.run(&sleeper(&marker), &CancellationToken::new()).await.unwrap();
    }
}

/// Starts that process and returns when it is about to start a sandbox.
fn start_doomed(marker: &str) -> Child {
    let mut doomed = child_test(module_path!(), "a_process_that_will_be_killed")
        .env(TO_BE_KILLED, marker)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(doomed.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "starting"), "no sandbox was started");
    doomed
}

#[test]
fn the_death_of_this_process_ends_every_process() {
    let marker = marker("death");
    let mut doomed = start_doomed(&marker);
    eventually("the program starts", || is_asleep(&marker));
    doomed.kill().unwrap();
    assert_eq!(doomed.wait().unwrap().signal(), Some(9));
    eventually("everything ends", || leftovers(&marker).is_empty());
}

/// Bubblewrap asks the kernel to die with its parent only some time after it was started. Until then it is the pipes that
/// end it: no process reads its report or sends the signal to start.
#[test]
fn a_death_at_any_moment_of_a_start_leaves_no_process() {
    let marker = marker("early-death");
    for step in 0..100 {
        let mut doomed = start_doomed(&marker);
        let born = Instant::now();
        while born.elapsed() < Duration::from_micros(100 * step) {
            std::hint::spin_loop();
        }
        doomed.kill().unwrap();
        doomed.wait().unwrap();
        eventually("everything ends", || leftovers(&marker).is_empty());
    }
}

/// The program answers each line, so neither side can have collected the lines of the other.
#[tokio::test]
async fn a_caller_talks_with_a_program_while_it_works() {
    let (streams, mut to, from) = JobStreams::new().unwrap();
    let script = "while read -r line; do echo \"got $line\" >&3; done; echo ended";
    let job = Job { channel: Channel::Streams(streams), ..shell(script) };
    let talk = async {
        let mut lines = tokio::io::BufReader::new(from).lines();
        for word in ["one", "two"] {
            to.write_all(format!("{word}\n").as_bytes()).await.unwrap();
            assert_eq!(lines.next_line().await.unwrap(), Some(format!("got {word}")));
        }
        drop(to);
        lines
    };
    let (finished, mut lines) = tokio::join!(run(&job), talk);
    assert_eq!(finished.unwrap().output, "ended\n");
    drop(job);
    assert_eq!(lines.next_line().await.unwrap(), None);
}

#[tokio::test]
async fn the_exit_code_is_the_programs_own() {
    for (script, end) in [
        ("exit 0", ProgramEnd::Exited(0)),
        ("exit 3", ProgramEnd::Exited(3)),
        ("exit 125", ProgramEnd::Exited(125)),
        ("kill -SEGV $$", ProgramEnd::Signaled(11)),
    ] {
        assert_eq!(run(&shell(script)).await.unwrap().end, end, "{script}");
    }
}

#[tokio::test]
async fn both_outputs_come_in_the_order_of_writing_and_nothing_else() {
    let finished = run(&shell("echo one; echo two >&2; echo three; kill -KILL $$")).await.unwrap();
    assert_eq!(finished.output, "one\ntwo\nthree\n");
}

#[tokio::test]
async fn declared_files_come_out_and_others_do_not() {
    let mut job = shell("mkdir out; echo a > out/a; echo b > b; head -c 3000000 /dev/zero > zeros");
    job.collect.work = ["out/a", "missing", "zeros"].map(str::to_owned).into();
    let finished = run(&job).await.unwrap();
    let sizes: Vec<_> =
        finished.collected.iter().map(|(path, content)| (path.as_str(), content.len())).collect();
    assert_eq!(sizes, [("out/a", 2), ("zeros", 3_000_000)], "{}", finished.output);
}

#[tokio::test]
async fn files_below_a_folder_come_out_by_their_names() {
    let mut job = shell(
        "mkdir out; echo one > out/one; ln out/one out/two; echo x > out/a:b; echo x > 'out/\u{fc}'; ln -s one out/l:nk; \
         printf x > $'out/\\377'",
    );
    job.collect.below = vec!["out".to_owned()];
    let finished = run(&job).await.unwrap();
    let came: Vec<_> = finished.collected.keys().map(String::as_str).collect();
    assert_eq!(
        came,
        ["out/one", "out/two", "out/\u{fc}"],
        "both names of one file: {}",
        finished.output
    );
    let refused = finished.refused.keys().map(|it| it.to_string_lossy());
    assert_eq!(refused.collect::<Vec<_>>(), ["out/a:b", "out/\u{fffd}"]);
}

#[tokio::test]
async fn too_much_is_not_brought_out() {
    let mut job = shell("head -c 9000000 /dev/zero > zeros");
    job.collect.work = vec!["zeros".to_owned()];
    let finished = run(&job).await.unwrap();
    assert_eq!(finished.end, ProgramEnd::Exited(0));
    assert!(finished.collected.is_empty() && finished.is_too_large);
}

#[tokio::test]
async fn large_sets_of_files_arrive_whole() {
    let mut job = shell("cat f*/* | md5sum; ls f* | wc -l");
    let content = |index: usize| format!("{index}\n").repeat(5_000);
    job.files = (0..200)
        .map(|index| SourceFile {
            path: format!("f{}/{index:03}", index % 7),
            content: content(index),
        })
        .collect();
    let finished = run(&job).await.unwrap();
    assert_eq!(finished.end, ProgramEnd::Exited(0));
    let sum: usize = (0..200).map(|index| content(index).len()).sum();
    let mut count = job.clone();
    count.argv = ["bash", "-c", "cat f*/* | wc -c"].map(str::to_owned).into();
    assert_eq!(run(&count).await.unwrap().output.trim(), sum.to_string());
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_no_failure_of_the_code() {
    let job = Job { argv: vec!["no-such-program".to_owned()], ..Job::default() };
    let error = run(&job).await.unwrap_err();
    assert!(
        matches!(&error, SandboxError::ProgramNotFound { program } if program == "no-such-program"),
        "{error:?}"
    );
}

#[tokio::test]
async fn python_is_there_under_both_names() {
    for name in ["python", "python3"] {
        let argv = [name, "-c", "import sys; print(sys.version_info[0])"];
        let job = Job { argv: argv.map(str::to_owned).into(), ..Job::default() };
        assert_eq!(run(&job).await.unwrap().output.trim(), "3", "{name}");
    }
}

#[tokio::test]
async fn a_setup_that_fails_is_no_failure_of_the_code() {
    let missing = tempfile::tempdir().unwrap().path().join("missing");
    let mount = graphrun::sandbox::Mount { host: missing.clone(), inside: "/env".into() };
    let error = run(&Job { read_only: vec![mount], ..shell("true") }).await.unwrap_err();
    let SandboxError::Setup { detail } = &error else { panic!("{error:?}") };
    assert!(detail.contains(missing.to_str().unwrap()), "{detail}");
}

#[tokio::test]
async fn the_time_is_the_programs_alone() {
    let mut job = shell("sleep 0.3");
    job.limits = Limits { wall: Duration::from_secs(5), ..Limits::default() };
    let wall = run(&job).await.unwrap().wall;
    assert!((Duration::from_millis(300)..Duration::from_secs(2)).contains(&wall), "{wall:?}");
}
