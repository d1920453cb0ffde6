//! `resume --due`: each due run is resumed, also after one that cannot be.

use std::{fs, os::unix::fs::PermissionsExt as _, thread, time::Duration};

use graphrun::{
    checkpoint::{Checkpointer, LeaseRequest, Presence},
    storage::SqliteStorage,
};
use serde_json::{Value, json};

use crate::cli::program::{Place, Running};

/// A question whose deadline passes quickly.
const DEADLINE: &str = r#"graphrun: 1
name: dl
state: { v: string }
start: a
nodes:
  a: { ask: "Now?", writes: v, timeout: 1s, catch: { timeout: end }, then: end }
"#;

/// A question whose deadline passes quickly; then a command.
const SLOW: &str = r#"graphrun: 1
name: slow
state: { v: string }
hosts: { here: { allow: slow, approve: never } }
start: a
nodes:
  a: { ask: "Now?", writes: v, timeout: 1s, catch: { timeout: b }, then: end }
  b: { run: [slow], in: here, then: end }
"#;

/// Creates a folder with paused runs after their deadlines, each with a separate workflow.
fn due(runs: &[&str]) -> Place {
    let place = Place::new();
    for run in runs {
        let file = format!("{run}.yaml");
        fs::write(place.path(&file), DEADLINE).unwrap();
        let asked = place.run(["execute", &file, "--run-id", run]);
        assert_eq!(asked.code, 3, "{asked}");
    }
    thread::sleep(Duration::from_secs(2));
    place
}

fn outcomes(document: &Value) -> Vec<(&str, &str, i64)> {
    let runs = document["runs"].as_array().unwrap().iter();
    runs.map(|run| {
        (
            run["run"].as_str().unwrap(),
            run["outcome"].as_str().unwrap(),
            run["exit"].as_i64().unwrap(),
        )
    })
    .collect()
}

#[test]
fn a_run_that_cannot_be_resumed_does_not_block_others() {
    let place = due(&["first", "second", "third"]);
    fs::remove_file(place.path("first.yaml")).unwrap();
    fs::write(place.path("second.yaml"), "graphrun: 1\n").unwrap();
    let ended = place.run(["resume", "--due", "--output", "json"]);
    assert_eq!(ended.code, 6, "the worst exit code: {ended}");
    let document = ended.json();
    let expected = [("first", "refused", 6), ("second", "refused", 6), ("third", "resumed", 0)];
    assert_eq!(outcomes(&document), expected, "{ended}");
    assert_eq!(document["runs"][2]["report"]["status"], "done");
    for line in &document["runs"].as_array().unwrap()[..2] {
        let name = line["name"].as_str().unwrap();
        assert!(ended.stderr.contains(&format!("run {name} cannot be resumed:")), "{ended}");
        assert!(line["error"].is_string() && line["report"].is_null(), "{line}");
    }
    // A mended one is resumed by the next call.
    fs::write(place.path("first.yaml"), fs::read(place.path("third.yaml")).unwrap()).unwrap();
    let lines = place.run(["resume", "--due", "--output", "jsonl"]);
    let finished = lines.stdout.lines().filter(|it| it.contains("run.finished")).count();
    assert_eq!((lines.code, finished), (6, 1), "{lines}");
}

#[test]
fn without_a_due_run_the_document_is_empty() {
    let place = Place::new();
    for _ in 0..2 {
        let ended = place.run(["resume", "--due", "--output", "json"]);
        assert_eq!((ended.code, ended.json()), (0, json!({"runs": []})), "{ended}");
        place.execute("two_steps");
    }
}

#[test]
fn a_due_run_that_another_process_owns_is_skipped() {
    let place = due(&["first", "second"]);
    let storage: &dyn Checkpointer =
        &SqliteStorage::open_existing(place.path(".graphrun/runs.db")).unwrap();
    let presence = Presence::new();
    let claim = LeaseRequest {
        owner: presence.owner().clone(),
        ttl: Duration::from_secs(600),
        replaces_fence: None,
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let first = storage.find("first").await.unwrap().info.id;
        storage.acquire(&first, &claim).await.unwrap();
    });
    let ended = place.run(["resume", "--due", "--output", "json"]);
    assert_eq!(ended.code, 0, "{ended}");
    let expected = [("first", "skipped", 6), ("second", "resumed", 0)];
    assert_eq!(outcomes(&ended.json()), expected, "{ended}");
    assert!(ended.stderr.contains("is skipped: run `first` is owned by"), "{ended}");
}

/// The second run is due when the command starts, and no longer when its turn comes.
#[test]
fn a_due_run_that_another_process_has_resumed_is_skipped() {
    let place = Place::new();
    let command = "#!/bin/sh\ntouch begun\nuntil test -e go; do sleep 0.05; done\n";
    let programs = place.path("programs");
    fs::create_dir(&programs).unwrap();
    fs::write(programs.join("slow"), command).unwrap();
    fs::set_permissions(programs.join("slow"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let allowed = ["--allow-host", "here"];
    for (run, text, allowed) in [("first", SLOW, &allowed[..]), ("second", DEADLINE, &[])] {
        let file = format!("{run}.yaml");
        fs::write(place.path(&file), text).unwrap();
        let asked = place.run([&["execute", &file, "--run-id", run], allowed].concat());
        assert_eq!(asked.code, 3, "{asked}");
    }
    thread::sleep(Duration::from_secs(2));
    let mut all = place.command(["resume", "--due", "--output", "json", "--allow-host", "here"]);
    all.env("PATH", path);
    let all = Running::of(all);
    let has_begun = || {
        place.path("begun").exists() || {
            thread::sleep(Duration::from_millis(20));
            false
        }
    };
    assert!((0..3_000).any(|_| has_begun()), "the command did not start");
    let second = place.run(["resume", "second"]);
    assert_eq!(second.code, 0, "{second}");
    fs::write(place.path("go"), "").unwrap();
    let ended = all.rest();
    assert_eq!(ended.code, 0, "{ended}");
    let expected = [("first", "resumed", 0), ("second", "skipped", 0)];
    assert_eq!(outcomes(&ended.json()), expected, "{ended}");
    assert!(ended.stderr.contains("another process has resumed it"), "{ended}");
}

#[test]
fn after_its_deadline_a_question_offers_no_answer() {
    let place = due(&["first"]);
    let shown = place.run(["runs", "show", "first"]);
    assert!(shown.stdout.contains("its deadline was "), "{shown}");
    assert!(shown.stdout.contains("the run continues without an answer by: graphrun resume"));
    assert!(!shown.stdout.contains("answer it with") && !shown.stdout.contains("until"), "{shown}");
}
