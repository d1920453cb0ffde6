//! Four agents that work on a repository in iterations: `graphs/cycle.yaml`. The models are a recording; git, the
//! worktree, the sandbox and pytest are real.

use std::{collections::BTreeSet, fs};

use serde_json::{Value, json};

use crate::{
    cli::{
        greeting::{execute, repository},
        program::Place,
    },
    support::git::git,
};

/// Returns the nodes that finished in each step.
fn steps(report: &Value) -> Vec<Vec<String>> {
    let tasks = report["trace"].as_array().unwrap();
    let steps = tasks.chunk_by(|a, b| a["step"] == b["step"]);
    let nodes = |step: &[Value]| {
        let finished = step.iter().filter(|it| it["outcome"] == "finished");
        let nodes: BTreeSet<String> =
            finished.map(|it| it["node"].as_str().unwrap().to_owned()).collect();
        nodes.into_iter().collect()
    };
    steps.map(nodes).collect()
}

#[test]
fn feedback_goes_to_those_who_can_use_it_until_nothing_is_left() {
    let place = Place::new();
    repository(&place);
    let ended = execute(&place, "cycle", "one", &[]);
    let report = ended.json();
    assert_eq!((ended.code, &report["status"]), (0, &json!("done")), "{ended}");
    let state = &report["state"];
    assert_eq!((&state["iteration"], &state["issues"]), (&json!(2), &json!([])), "{ended}");
    let first = &state["iterations"][0];
    let blocker = "What does farewell return without a name?";
    assert_eq!(first["feedback"], json!({"cd": ["2 of 4 tests fail"], "ra": [blocker]}));
    assert_eq!(state["ra"]["values"]["open_questions"], "none");
    let ran: Vec<u64> = ["ra", "ep", "cd", "vas"]
        .iter()
        .map(|it| state[it]["iteration"].as_u64().unwrap())
        .collect();
    assert_eq!(ran, [2, 1, 2, 2], "only agents with feedback run again, and VAS");
    let at = |it: &str| state[it]["at"].as_str().unwrap().to_owned();
    assert!(at("ep") < at("vas"), "{} {}", at("ep"), at("vas"));

    let steps = steps(&report);
    assert_eq!(steps[0], ["baseline"]);
    assert_eq!(steps[2], ["cd", "ep", "ra", "vas"]);
    assert!(steps[3..].contains(&vec!["cd".to_owned(), "ra".to_owned()]), "{steps:?}");

    let repo = place.path("repo");
    let changed = git(&repo, &["diff", "--name-status", "main", "cycle/one"]);
    assert_eq!(changed, "M\tgreet.py");
    let id = git(&repo, &["rev-parse", "cycle/one"]);
    assert_eq!(state["commit_id"], id);
    assert_eq!(git(&repo, &["status", "--porcelain", "--branch"]), "## main");
}

#[test]
fn at_the_maximum_the_run_is_done_and_its_issues_are_documented() {
    let place = Place::new();
    repository(&place);
    let ended = execute(&place, "cycle", "two", &["-i", "max_iterations=1", "--out", "out"]);
    let report = ended.json();
    assert_eq!((ended.code, &report["status"]), (0, &json!("done")), "{ended}");
    let issues =
        json!(["2 of 4 tests fail", "CD is blocked: What does farewell return without a name?"]);
    assert_eq!(report["state"]["issues"], issues);
    let text = fs::read_to_string(place.path("out/report.md")).unwrap();
    assert!(text.contains("Stopped after 1 of 1 iterations"), "{text}");
    assert!(text.contains("- CD is blocked: What does farewell return"), "{text}");
}
