//! A task in parts, with an escalation: `graphs/escalation.yaml`. The models are a recording; git, the worktree, the
//! sandbox and pytest are real.

use std::{fs, path::Path};

use serde_json::json;

use crate::{
    cli::{
        greeting::{SOLVED, execute, performed, record, repository},
        program::Place,
    },
    schema::read,
    support::git::git,
};

/// The nodes that decide or work.
const WORK: [&str; 7] = ["architect", "developer", "qa", "publish", "deliver", "flush", "leave"];

#[test]
fn parts_are_published_after_a_retry_and_an_escalation() {
    let place = Place::new();
    repository(&place);
    let ended = execute(&place, "escalation", "one", &["--out", "out"]);
    let report = ended.json();
    assert_eq!((ended.code, &report["status"]), (0, &json!("done")), "{ended}");
    let first = "architect developer qa developer qa architect developer qa publish";
    let second = "architect developer qa publish deliver";
    assert_eq!(performed(&report, &WORK), format!("{first} {second}"));
    assert!(ended.stderr.contains("escalated"), "{ended}");

    let repo = place.path("repo");
    let log = git(&repo, &["log", "--format=%s", "main..escalation/one"]);
    let commits = "Describe greet and farewell\nAdd farewell for guests with and without a name";
    assert_eq!(log, commits, "each part is one commit");
    let published = &report["state"]["published"];
    assert_eq!((&published[0]["task_id"], &published[1]["task_id"]), (&json!("T1"), &json!("T2")));
    assert_eq!(published[1]["commit"], git(&repo, &["rev-parse", "escalation/one"]));
    assert_eq!(git(&repo, &["status", "--porcelain", "--branch"]), "## main");
    let repository = fs::canonicalize(&repo).unwrap();
    let branch = json!({ "folder": "repo", "repository": repository, "branch": "escalation/one" });
    assert_eq!(report["branches"], json!([branch]));
    let written = report["artifacts"].as_array().unwrap().iter().map(|it| it.as_str().unwrap());
    assert!(written.clone().all(|it| it.ends_with("out/report.md")), "{}", report["artifacts"]);
    let shown = place.run(["runs", "show", "one"]).stdout;
    assert!(shown.contains(&format!("escalation/one in {}", repository.display())), "{shown}");
    let text = fs::read_to_string(place.path("out/report.md")).unwrap();
    assert!(text.contains("Done.") && text.contains("- T2 Describe the module"), "{text}");
}

#[test]
fn a_part_whose_retries_are_used_up_fails_the_run() {
    let place = Place::new();
    repository(&place);
    let ended = execute(&place, "escalation", "two", &["-i", "max_retries=1", "--out", "out"]);
    let report = ended.json();
    assert_eq!((ended.code, &report["status"]), (1, &json!("failed")), "{ended}");
    assert_eq!(performed(&report, &WORK), "architect developer qa developer qa flush leave");
    let reason = report["reason"].as_str().unwrap();
    assert!(
        reason.contains("the retries of `Add farewell` are used up: `farewell` cannot"),
        "{ended}"
    );
    let text = fs::read_to_string(place.path("out/report.md")).unwrap();
    assert!(text.contains("- T2 Describe the module in a README: not begun"), "{text}");
}

#[test]
fn rules_and_lessons_of_the_memory_reach_the_architect() {
    let place = Place::new();
    repository(&place);
    let add = ["memory", "add", "core", "Every function has a docstring; tests stay as they are."];
    assert_eq!(place.run(add).code, 0);
    let graph = format!("{}/graphs/escalation.yaml", env!("CARGO_MANIFEST_DIR"));
    // The run stops behind the recalls, before it asks a model.
    let args = ["execute", &graph, "-i", "repo_path=repo", "-i", "task=Add tests for a function"];
    let ended = place.run(
        [&args[..], &["--run-id", "one", "--pause-before", "split", "--model", "ollama/none"]]
            .concat(),
    );
    assert_eq!(ended.code, 3, "{ended}");
    let state = place.run(["runs", "state", "one", "--output", "json"]);
    assert!(state.stdout.contains("Every function has a docstring"), "{state}");
}

/// The first developer has a key in its answer, and the second one none.
#[test]
fn a_file_with_a_removed_key_is_not_committed() {
    let place = Place::new();
    repository(&place);
    let blueprint = json!({
        "task_id": "T1", "target_files": ["greet.py"], "instructions": "Add it.",
        "constraints": [], "acceptance_criteria": ["it is there"],
    });
    let file = |path: &str, content: &str| json!({ "path": path, "content": content });
    let key = file("fixture.py", concat!("KEY = \"AKIA", "IOSFODNN7EXAMPLE\"\n"));
    let first = json!({ "summary": "One", "files": [file("greet.py", SOLVED), key] });
    let second = json!({ "summary": "Two", "files": [file("greet.py", SOLVED)] });
    let passed = json!({ "verdict": "passed", "errors": [], "recommendation": "" });
    record(
        &place,
        &[
            ("rules", &[], &[], json!({ "json": [] })),
            ("hints", &[], &[], json!({ "json": [] })),
            ("split", &[], &[], json!({ "json": { "subtasks": [] } })),
            ("architect", &[], &[], json!({ "json": blueprint })),
            ("developer", &[], &["# QA sent"], json!({ "json": first })),
            ("developer", &["# QA sent", "without the key"], &[], json!({ "json": second })),
            ("qa", &[], &[], json!({ "json": passed })),
        ],
    );
    let graph = format!("{}/graphs/escalation.yaml", env!("CARGO_MANIFEST_DIR"));
    let args = ["execute", &graph, "-i", "repo_path=repo", "-i", "task=Add farewell"];
    let rest = ["--replay", "replay.jsonl", "--run-id", "one", "--output", "json"];
    let ended = place.run([&args[..], &rest].concat());
    let report = ended.json();
    assert_eq!((ended.code, &report["status"]), (0, &json!("done")), "{ended}");
    assert!(ended.stderr.contains("a key in the answer of openai/gpt-5 was removed"), "{ended}");
    let work = ["developer", "publish", "leaked", "remove", "deliver"];
    assert_eq!(
        performed(&report, &work),
        "developer publish leaked remove developer publish deliver"
    );
    let files = git(&place.path("repo"), &["show", "--format=", "--name-only", "escalation/one"]);
    assert_eq!(files, "greet.py");
}

#[test]
fn each_agent_has_the_tools_of_its_role() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/graphs/escalation.yaml");
    let agents = read(Path::new(path))["agents"].clone();
    let tools = |agent: &str| agents[agent]["tools"].clone();
    let reading = json!(["fs.context", "fs.list", "fs.grep", "fs.read", "memory.search"]);
    assert_eq!(tools("architect"), reading);
    assert_eq!(tools("developer"), json!(["fs.grep", "fs.read"]));
    for agent in ["planner", "qa"] {
        assert!(agents[agent].is_object() && tools(agent).is_null(), "{agent}");
    }
}
