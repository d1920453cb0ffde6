//! G11: a signal at any moment, and resuming afterwards.

use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{
    failure::{GROWS, finished, noise, place},
    program::{Ended, Place, Running},
};

/// The number of moments to try.
const ROUNDS: usize = 50;

/// A loop with a command in a sandbox, twelve times.
const IN_SANDBOXES: &str = r#"graphrun: 1
name: sandboxed
state: { pile: { type: [string], merge: append, default: [] }, said: string? }
output: pile
sandboxes: { box: { time: 20s } }
start: note
nodes:
  note: { set: { pile: '"x"' }, max_visits: 12, exhausted: end, then: work }
  work: { run: [sh, -c, 'sleep 0.02; echo done # MARKER'], in: box, writes: { said: stdout }, then: note }
"#;

/// Sends a signal after a line appears, at a moment that depends on the round. Returns none if the
/// run had finished.
fn interrupted(place: &Place, args: &[&str], line: &str, round: usize) -> Option<Value> {
    let signal = if round.is_multiple_of(2) { Signal::SIGINT } else { Signal::SIGTERM };
    let mut run = Running::of(place.command(args));
    run.wait_for(line);
    let wait = u64::from(noise("signals", ROUNDS)[round]);
    thread::sleep(Duration::from_millis(wait / 2));
    run.signal(signal);
    let (code, report) = run.end();
    if code == Some(0) {
        return None;
    }
    let expected = if signal == Signal::SIGINT { 130 } else { 143 };
    assert_eq!((code, &report["status"]), (Some(expected), &"interrupted".into()));
    Some(report)
}

#[test]
fn a_signal_at_any_time_leaves_a_resumable_run() {
    let mut hit = 0;
    for round in 0..ROUNDS {
        let place = place(GROWS);
        let args = ["execute", "w.yaml", "-i", "text=x", "--run-id", "run-1", "--output", "json"];
        if interrupted(&place, &args, "add 1/40 started", round).is_none() {
            continue;
        }
        hit += 1;
        // A simulated second machine: it cannot see that the process has ended.
        let elsewhere = ["--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc"];
        let output = Command::new("bwrap")
            .args(elsewhere)
            .args(["--unshare-uts", "--hostname", "elsewhere"])
            .arg(env!("CARGO_BIN_EXE_graphrun"))
            .args(["resume", "run-1", "--output", "json"])
            .envs(place.own_folders())
            .current_dir(place.path(""))
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap_or_else(|| output.status.signal().unwrap() + 128);
        let end = Ended { code, stdout: text(output.stdout), stderr: text(output.stderr) };
        assert_eq!(end.code, 0, "{end}");
        assert_eq!(end.json()["state"]["pile"].as_array().unwrap().len(), 40);
        assert_eq!(finished(&place, "sqlite:.graphrun/runs.db"), (1..=40).collect::<Vec<u64>>());
    }
    assert!(hit >= ROUNDS / 6, "only {hit} of {ROUNDS} came in time");
}

#[test]
fn a_signal_at_any_time_leaves_no_sandbox_and_no_lease() {
    let mut hit = 0;
    for round in 0..ROUNDS {
        let marker = format!("graphrun-g11-{}-{round}", std::process::id());
        let place = place(&IN_SANDBOXES.replace("MARKER", &marker));
        let args = ["execute", "w.yaml", "--run-id", "run-1", "--output", "json"];
        let Some(stopped) = interrupted(&place, &args, "work started", round) else { continue };
        hit += 1;
        assert_eq!(processes(&marker), [""; 0], "round {round}");
        let shown = place.run(["runs", "list", "--output", "json"]).json();
        assert_eq!(shown[0]["owner"], Value::Null, "the run has no owner");
        let steps = stopped["steps"].as_u64().unwrap();
        assert_eq!(finished(&place, "sqlite:.graphrun/runs.db").len() as u64, steps, "all is kept");
        if round.is_multiple_of(5) {
            let begun = Instant::now();
            let done = place.run(["resume", "run-1", "--output", "json"]);
            assert_eq!(
                (done.code, &done.json()["state"]["pile"]),
                (0, &json!(vec!["x"; 12])),
                "{done}"
            );
            assert!(begun.elapsed() < Duration::from_secs(14), "that is as long as a lease");
            assert_eq!(
                finished(&place, "sqlite:.graphrun/runs.db"),
                (1..=24).collect::<Vec<u64>>()
            );
        }
    }
    assert!(hit >= ROUNDS / 6, "only {hit} of {ROUNDS} came in time");
}

/// Returns the processes with a marker among their arguments.
fn processes(marker: &str) -> Vec<String> {
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").unwrap().map(Result::unwrap) {
        let arguments = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        if arguments.contains(marker) {
            found.push(arguments);
        }
    }
    found
}

/// Runs a program at a new terminal, and closes the terminal at a text.
const CLOSED_TERMINAL: &str = r#"
import os, pty, signal, sys
child, terminal = pty.fork()
if child == 0:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.execv(sys.argv[2], sys.argv[2:])
shown = b""
while sys.argv[1].encode() not in shown:
    shown += os.read(terminal, 65536)
os.close(terminal)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"#;

#[test]
fn a_closed_terminal_stops_the_run_as_sigterm_does() {
    for (progress, output, shown) in [
        ("tty", "text", "note 1/12"),
        ("plain", "text", "note 1/12 started"),
        ("plain", "json", "note 1/12 started"),
        ("none", "jsonl", "task.started"),
    ] {
        // Half a second each, so that the run still works when its terminal is closed.
        let place = place(&IN_SANDBOXES.replace("sleep 0.02", "sleep 0.5"));
        let program = place.command([
            "execute",
            "w.yaml",
            "--run-id",
            "run-1",
            "--progress",
            progress,
            "--output",
            output,
        ]);
        let mut command = Command::new("python3");
        command.args(["-c", CLOSED_TERMINAL, shown]);
        command.arg(program.get_program()).args(program.get_args()).env_clear();
        command.envs(program.get_envs().filter_map(|(name, it)| Some((name, it?))));
        command.env("TERM", "xterm").current_dir(place.path(""));
        let ended = Ended::of(&mut command);
        assert_eq!(ended.stdout.trim(), "143", "{progress}, {output}: {ended}");
        let shown = place.run(["runs", "show", "run-1", "--output", "json"]).json();
        assert_eq!(shown["status"], "interrupted", "{progress}, {output}");
    }
}
