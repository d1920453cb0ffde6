//! The program is killed at named points, as with `kill -9`, and another process resumes.

use std::os::unix::process::ExitStatusExt as _;

use nix::sys::signal::Signal;
use serde_json::json;

use crate::cli::program::{Place, workflow};

/// Runs the program with a fault that kills it.
pub(crate) fn killed(place: &Place, args: &[&str], fault: &str) {
    let output = place.command(args).env("GRAPHRUN_FAIL", fault).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(Signal::SIGKILL as i32), "{fault}: {said}");
}

#[test]
fn a_breakpoint_at_the_start_is_kept_whenever_the_program_dies() {
    for fault in
        ["accept.before_commit=abort", "accept.after_commit=abort", "event.publish=abort@1"]
    {
        let place = Place::new();
        let workflow = workflow("three_steps");
        let execute = ["execute", &workflow, "-i", "brief=x", "--run-id", "mine"];
        let execute = [&execute[..], &["--pause-before", "draft", "--pause-before", "publish"]];
        killed(&place, &execute.concat(), fault);
        let shown = place.run(["runs", "show", "mine", "--output", "json"]);
        if fault == "accept.before_commit=abort" {
            assert_eq!(shown.code, 6, "it was not accepted: {shown}");
            continue;
        }
        let report = shown.json();
        assert_eq!(report["status"], "paused", "{fault}: {shown}");
        assert_eq!(report["reason"], "breakpoint before `draft`", "{fault}");
        // Resumed, the run continues to the next kill.
        let resumed = place.run(["resume", "mine", "--output", "json"]);
        assert_eq!(
            (resumed.code, &resumed.json()["state"]["log"]),
            (3, &json!(["draft", "check"]))
        );
    }
}

#[test]
fn a_migration_that_is_killed_has_happened_or_has_not() {
    for (fault, has_happened) in [
        ("acquire.after=abort", false),
        ("barrier.in_tx=abort", false),
        ("barrier.after_commit=abort", true),
    ] {
        let place = Place::new();
        let name = crate::cli::changed::paused(&place);
        let old = std::fs::read_to_string(place.path("board.yaml")).unwrap();
        let new = old.replace("judge", "referee");
        std::fs::write(place.path("new.yaml"), new).unwrap();
        let migrate = ["migrate", &name, "new.yaml", "--map", "judge=referee"];
        killed(&place, &migrate, fault);
        assert_eq!(place.run(["runs", "verify", &name]).code, 0, "{fault}");
        let (key, other) = if has_happened { ("referee", "judge") } else { ("judge", "referee") };
        let wrong = place.run(["resume", &name, "--answer", &format!("{other}=\"good\"")]);
        assert_eq!(wrong.code, 2, "{fault}: {wrong}");
        if !has_happened {
            // The next process need not wait for the lease of the dead one.
            assert_eq!(place.run(migrate).code, 0, "{fault}");
        }
        let key = if has_happened { key } else { "referee" };
        let answer = format!("{key}=\"good\"");
        let done = place.run(["resume", &name, "--answer", &answer, "--output", "json"]);
        assert_eq!((done.code, &done.json()["state"]), (0, &json!({"draft": "x"})), "{done}");
    }
}

#[test]
fn a_run_whose_process_has_died_is_removed_at_once() {
    let place = Place::new();
    let workflow = workflow("three_steps");
    killed(&place, &["execute", &workflow, "-i", "brief=x"], "task.after_commit=abort");
    let list = || place.run(["runs", "list", "--output", "json"]).json();
    let name = list()[0]["name"].as_str().unwrap().to_owned();
    let shown = place.run(["runs", "show", &name]);
    assert!(shown.stdout.starts_with("running: its process is gone; resume it\n"), "{shown}");
    let removed = place.run(["runs", "rm", &name]);
    assert_eq!(removed.code, 0, "{removed}");
    assert_eq!(list(), json!([]));
}

#[test]
fn runs_whose_process_has_died_are_listed_and_pruned_as_such() {
    let place = Place::new();
    let done = place.execute("two_steps");
    let workflow = workflow("three_steps");
    killed(&place, &["execute", &workflow, "-i", "brief=x"], "task.after_commit=abort");
    let gone = || {
        let runs = place.run(["runs", "list", "--output", "json"]).json();
        runs.as_array().unwrap().iter().map(|it| it["process_gone"] == true).collect::<Vec<_>>()
    };
    assert_eq!(gone(), [true, false]);
    let prune = ["runs", "prune", "--older-than", "0", "--status"];
    assert_eq!(place.run([&prune[..], &["process-gone"]].concat()).code, 0);
    assert_eq!(gone(), [false], "{done} is kept");
}

#[test]
fn an_answer_of_a_dying_process_counts_once_or_never() {
    for (fault, was_given) in
        [("approval.in_tx=abort", false), ("approval.after_commit=abort", true)]
    {
        let place = Place::new();
        let workflow = workflow("again");
        let execute = ["execute", &workflow, "-i", "brief=x", "--run-id", "mine"];
        assert_eq!(place.run(execute).code, 3);
        let answer = ["resume", "mine", "--answer", "help=false"];
        killed(&place, &answer, fault);
        let again = place.run([&answer[..], &["--output", "json"]].concat());
        let report = if was_given {
            assert_eq!(again.code, 6, "{fault}: {again}");
            assert!(again.stderr.contains("no longer accepts an answer"), "{again}");
            place.run(["resume", "mine", "--output", "json"]).json()
        } else {
            assert_eq!(again.code, 3, "{fault}: {again}");
            again.json()
        };
        assert_eq!(report["state"]["log"], json!([false]), "{fault}");
        assert_eq!(report["answers"].as_array().unwrap().len(), 1, "{fault}");
        assert_eq!(report["questions"][0]["key"], "help@3.0", "{fault}");
    }
}

#[test]
fn a_deadline_that_passed_before_a_crash_stays_passed() {
    let place = Place::new();
    let workflow = workflow("late");
    let execute = ["execute", &workflow, "-i", "brief=x", "--run-id", "mine"];
    killed(&place, &execute, "task.after_commit=abort@1");
    let late = place.run(["resume", "mine", "--answer", "help=go_on"]);
    assert_eq!(late.code, 6, "{late}");
    assert!(late.stderr.contains("its deadline passed at "), "{late}");
    let done = place.run(["resume", "mine", "--output", "json"]);
    let state = json!({"note": "no answer"});
    assert_eq!((done.code, &done.json()["state"]), (0, &state), "{done}");
}

#[test]
fn a_killed_creation_of_the_database_can_be_repeated() {
    for (fault, is_there) in [
        ("create.begun=abort", false),
        ("create.filled=abort", false),
        ("create.named=abort", true),
    ] {
        let place = Place::new();
        let workflow = workflow("three_steps");
        let execute = ["execute", &workflow, "-i", "brief=x", "--db", "sqlite:runs.db"];
        killed(&place, &execute, fault);
        assert_eq!(place.path("runs.db").exists(), is_there, "{fault}");
        let listed = place.run(["runs", "list", "--db", "sqlite:runs.db"]);
        assert_eq!(listed.code, 0, "{fault}: {listed}");
        let is_missed = listed.stderr.contains("there is no database `runs.db`");
        assert_eq!(is_missed, !is_there, "{fault}: {listed}");
        let ended = place.run(execute);
        assert_eq!(ended.code, 0, "{fault}: {ended}");
        let names = std::fs::read_dir(place.path("")).unwrap();
        let names = names.map(|it| it.unwrap().file_name().into_string().unwrap());
        let drafts: Vec<String> = names.filter(|it| it.contains("graphrun-new")).collect();
        assert_eq!(drafts, [""; 0], "{fault}");
    }
}
