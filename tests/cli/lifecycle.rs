//! A change from its implementation through its tests and reviews: `graphs/lifecycle.yaml`. The models are a
//! recording; git, the worktree, the sandbox and pytest are real.

use std::fs;

use serde_json::json;

use crate::{
    cli::{
        greeting::{SOLVED, execute, performed, record, repository},
        program::Place,
    },
    support::git::git,
};

/// The nodes that decide or work.
const WORK: [&str; 5] = ["implement", "gate", "review", "deliver", "stop"];

#[test]
fn a_change_goes_back_until_its_tests_pass_and_nothing_blocks() {
    let place = Place::new();
    repository(&place);
    let ended = execute(&place, "lifecycle", "one", &["--out", "out"]);
    let report = ended.json();
    assert_eq!((ended.code, &report["status"]), (0, &json!("done")), "{ended}");
    let state = &report["state"];
    let counts = (&state["stage"], &state["gate_attempt"], &state["review_attempt"]);
    assert_eq!(counts, (&json!("succeeded"), &json!(2), &json!(3)), "{ended}");
    assert_eq!(state["later"][0]["title"], "greet and farewell could share their words");
    assert_eq!(state["blocking"], json!([]));
    let work = "implement gate implement gate review implement gate review review deliver";
    assert_eq!(performed(&report, &WORK), work, "an unreadable review is repeated alone");

    let repo = place.path("repo");
    let log = git(&repo, &["log", "--format=%s", "main..lifecycle/one"]);
    let commits = "Build the words of farewell without eval\nTrim the name in farewell\nAdd farewell to greet.py";
    assert_eq!(log, commits);
    assert_eq!(state["commit"], git(&repo, &["rev-parse", "lifecycle/one"]));
    assert_eq!(git(&repo, &["status", "--porcelain", "--branch"]), "## main");
    let text = fs::read_to_string(place.path("out/report.md")).unwrap();
    assert!(text.contains("2 of 3 gate attempts, 3 of 3 reviews"), "{text}");
    assert!(text.contains("- P3 greet.py:9: greet and farewell"), "{text}");
}

/// A copy has at most 64 MiB.
#[test]
fn the_tests_of_a_large_repository_run_without_a_copy() {
    let place = Place::new();
    repository(&place);
    let repo = place.path("repo");
    fs::File::create(repo.join("large")).unwrap().set_len(80 << 20).unwrap();
    git(&repo, &["add", "--all"]);
    git(&repo, &["commit", "--quiet", "--message", "large"]);
    let ended = execute(&place, "lifecycle", "one", &["--out", "out"]);
    assert_eq!((ended.code, &ended.json()["status"]), (0, &json!("done")), "{ended}");
}

#[test]
fn a_change_that_reaches_its_last_gate_fails_with_the_reason() {
    let place = Place::new();
    repository(&place);
    let ended = execute(&place, "lifecycle", "two", &["-i", "max_gate_attempts=1"]);
    let report = ended.json();
    assert_eq!((ended.code, &report["status"]), (1, &json!("failed")), "{ended}");
    let reason = report["reason"].as_str().unwrap();
    assert!(reason.contains("the gate failed, and the last of 1 attempts"), "{ended}");
    assert_eq!(performed(&report, &WORK), "implement gate stop");
    let log = git(&place.path("repo"), &["log", "--format=%s", "main..lifecycle/two"]);
    assert_eq!(log, "Add farewell to greet.py", "the work is kept on its branch");
}

/// Records a coder that solves the task at once.
fn record_solution(place: &Place) {
    let write =
        json!({ "name": "fs.write", "arguments": { "path": "greet.py", "content": SOLVED } });
    let work = json!({ "summary": "Add farewell", "resolution": "changed" });
    record(
        place,
        &[
            ("implement", &[], &["fs.write("], json!({ "tool_calls": [write] })),
            ("implement", &["fs.write("], &[], json!({ "json": work })),
        ],
    );
}

fn execute_recorded(place: &Place, more: &[&str]) -> crate::cli::program::Ended {
    let graph = format!("{}/graphs/lifecycle.yaml", env!("CARGO_MANIFEST_DIR"));
    let args = ["execute", &graph, "-i", "repo_path=repo", "-i", "task=Add farewell"];
    let rest = ["-i", "reviews=false", "--replay", "replay.jsonl", "--run-id", "one"];
    place.run([&args[..], &rest, &["--output", "json"], more].concat())
}

/// A gate with the tests of the repository, by its own settings.
#[test]
fn a_repository_with_skipped_tests_and_settings_passes_its_gate() {
    let place = Place::new();
    repository(&place);
    let repo = place.path("repo");
    fs::rename(repo.join("tests"), repo.join("checks")).unwrap();
    fs::rename(repo.join("checks/test_greet.py"), repo.join("checks/check_greet.py")).unwrap();
    let settings =
        "[tool.pytest.ini_options]\ntestpaths = [\"checks\"]\npython_files = [\"check_*.py\"]\n";
    fs::write(repo.join("pyproject.toml"), settings).unwrap();
    let skipped = "import pytest\n\n\n@pytest.mark.skip\ndef test_later():\n    pass\n\n\n\
        @pytest.mark.xfail\ndef test_known():\n    assert False\n";
    fs::write(repo.join("checks/check_more.py"), skipped).unwrap();
    git(&repo, &["add", "--all"]);
    git(&repo, &["commit", "--quiet", "--message", "settings"]);
    record_solution(&place);
    let ended = execute_recorded(&place, &[]);
    let report = ended.json();
    assert_eq!((ended.code, &report["status"]), (0, &json!("done")), "{ended}");
    assert_eq!(report["state"]["gate_attempt"], 1, "{ended}");
}

#[test]
fn an_event_from_outside_fails_the_change() {
    let place = Place::new();
    repository(&place);
    record_solution(&place);
    let paused = execute_recorded(&place, &["--pause-before", "gate"]);
    assert_eq!(paused.code, 3, "{paused}");
    let event = r#"{"event": "timeout", "cause": "the day is over"}"#;
    let sent = place.run(["message", "one", event]);
    assert_eq!(sent.code, 0, "{sent}");
    let ended = place.run(["resume", "one", "--output", "json"]);
    let report = ended.json();
    assert_eq!((ended.code, &report["status"]), (1, &json!("failed")), "{ended}");
    let reason = report["reason"].as_str().unwrap();
    assert!(reason.contains("a timeout while gating: the day is over"), "{ended}");
}
