//! Agents whose work is done by a program: permission, secrets, approval, recordings and limits.

use std::fs;

use serde_json::json;

use crate::cli::program::{Ended, Place};

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nodes/programs/fake.py");
const ALLOWED: &[&str] = &["--allow-host", "here"];
const KEY: &str = "canary-of-the-coder-51f0";

/// Writes a workflow of one agent, the fake on a host.
fn write(place: &Place, arguments: &str, host: &str, more: &str) {
    let text = format!(
        "graphrun: 1\nname: w\nstate: {{ answer: {{ colour: string, count: int }} }}\noutput: answer\nhosts: {{ here: {{ allow: \
         [python3], {host} }} }}\nagents:\n  coder: {{ command: [python3, {FAKE}, {arguments}], in: here }}\n{more}start: \
         it\nnodes:\n  it: {{ agent: coder, prompt: {{ text: Mend it. }}, writes: answer, then: end }}\n"
    );
    fs::write(place.path("w.yaml"), text).unwrap();
}

fn execute(place: &Place, more: &[&str]) -> Ended {
    place.run(["execute", "w.yaml", "--output", "json"].iter().chain(more))
}

fn runs(place: &Place) -> usize {
    fs::read_to_string(place.path("runs.txt")).unwrap_or_default().lines().count()
}

fn teal() -> serde_json::Value {
    json!({ "colour": "teal", "count": 2 })
}

#[test]
fn a_program_on_a_host_needs_the_operator() {
    let place = Place::new();
    write(&place, "json", "approve: never", "");
    let ended = execute(&place, &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (5, ""), "{ended}");
    let expected = format!("here: `python3 {FAKE} json …` (never asks)");
    for expected in [&expected, "`--allow-host here`"] {
        assert!(ended.stderr.contains(expected), "{expected}: {ended}");
    }
    let done = execute(&place, ALLOWED);
    assert_eq!((done.code, &done.json()["state"]["answer"]), (0, &teal()), "{done}");
}

#[test]
fn a_secret_reaches_the_program_alone_and_no_output() {
    let place = Place::new();
    let text = format!(
        "graphrun: 1\nname: w\nstate: {{ answer: string, ok: bool }}\noutput: [answer, ok]\nhosts: {{ here: {{ allow: [python3, \
         printenv], approve: never }} }}\nagents:\n  coder: {{ command: [python3, {FAKE}, says, CODER_KEY], in: here, secrets: \
         CODER_KEY }}\nstart: it\nnodes:\n  it: {{ agent: coder, prompt: {{ text: Say it. }}, writes: answer, then: other }}\n  \
         other: {{ run: [printenv, CODER_KEY], in: here, writes: {{ ok: ok }}, then: end }}\n"
    );
    fs::write(place.path("w.yaml"), text).unwrap();
    let unset = execute(&place, ALLOWED);
    assert_eq!(unset.code, 5, "{unset}");
    assert!(unset.stderr.contains("needs the environment variable `CODER_KEY`"), "{unset}");
    let args = ["execute", "w.yaml", "--output", "json", "--run-id", "one", "--allow-host", "here"];
    let done = place.run_with(args, [("CODER_KEY", KEY)]);
    let expected = json!({ "answer": "[redacted]", "ok": false });
    assert_eq!((done.code, &done.json()["state"]), (0, &expected), "{done}");
    let events = place.run(["runs", "events", "one", "--output", "jsonl"]);
    assert!(events.stdout.contains("runs on the host `here`"), "{events}");
    assert!(!format!("{done}{events}").contains(KEY), "{done}{events}");
    for file in fs::read_dir(place.path(".graphrun")).unwrap() {
        let content = fs::read(file.unwrap().path()).unwrap_or_default();
        let found = content.windows(KEY.len()).any(|it| it == KEY.as_bytes());
        assert!(!found, "the database has the key");
    }
}

/// The first answer has to be mended. The run stops between the two calls, for an approval.
#[test]
fn a_resumed_run_repeats_no_finished_program() {
    let place = Place::new();
    write(&place, "mend", "approve: each", "");
    let asked = execute(&place, &[&["--run-id", "one"], ALLOWED].concat());
    let question = &asked.json()["questions"][0];
    assert_eq!((asked.code, runs(&place)), (3, 0), "{asked}");
    let shown = question["show"]["stdin"].as_str().unwrap();
    assert!(
        shown.starts_with("Mend it.\n\nWhen the work is done: Answer with one JSON"),
        "{shown}"
    );
    let approve = |_: &str| place.run(["approve", "one", "--output", "json"].iter().chain(ALLOWED));
    let again = approve("the first call");
    assert_eq!((again.code, runs(&place)), (3, 1), "{again}");
    let shown = again.json()["questions"][0]["show"]["stdin"].as_str().unwrap().to_owned();
    assert!(shown.contains("You answered:\n{\"colour\": \"te"), "{shown}");
    let done = approve("the repair");
    assert_eq!((done.code, &done.json()["state"]["answer"]), (0, &teal()), "{done}");
    assert_eq!(runs(&place), 2, "the first call was made again");
}

#[test]
fn a_declined_program_does_not_run() {
    let place = Place::new();
    write(&place, "mend", "approve: each", "");
    execute(&place, &[&["--run-id", "one"], ALLOWED].concat());
    let ended = place.run(["reject", "one", "--output", "json"].iter().chain(ALLOWED));
    assert_eq!((ended.code, runs(&place)), (1, 0), "{ended}");
    assert!(ended.stdout.contains("a person declined `python3"), "{ended}");
}

#[test]
fn a_replay_runs_no_program_and_needs_no_permission() {
    let place = Place::new();
    write(&place, "mend", "approve: never", "");
    let done = execute(&place, &[&["--record", "it.jsonl"], ALLOWED].concat());
    assert_eq!((done.code, runs(&place)), (0, 2), "{done}");
    let replayed = execute(&place, &["--replay", "it.jsonl"]);
    assert_eq!((replayed.code, &replayed.json()["state"]["answer"]), (0, &teal()), "{replayed}");
    assert_eq!(runs(&place), 2, "the replay ran the program");
}

#[test]
fn a_recorded_failure_of_a_program_fails_the_same_way() {
    let place = Place::new();
    write(&place, "fail", "approve: never", "");
    let failed = execute(&place, &[&["--record", "it.jsonl"], ALLOWED].concat());
    let replayed = execute(&place, &["--replay", "it.jsonl"]);
    let reason = |it: &Ended| it.json()["reason"].as_str().unwrap_or_default().to_owned();
    assert!(reason(&failed).contains("ended with 3: no such branch"), "{failed}");
    assert_eq!((reason(&replayed), replayed.code), (reason(&failed), failed.code), "{replayed}");
}

#[test]
fn a_cost_limit_needs_a_cost_of_the_program() {
    let place = Place::new();
    let limits = "limits: { usd: 5 }\n";
    write(&place, "codex", "approve: never", limits);
    let protocol = |name: &str| {
        let text = fs::read_to_string(place.path("w.yaml")).unwrap();
        let text = text.replace(", in: here", &format!(", in: here, protocol: {name}"));
        fs::write(place.path("w.yaml"), text).unwrap();
    };
    protocol("codex");
    let refused = execute(&place, ALLOWED);
    assert_eq!(refused.code, 5, "{refused}");
    assert!(refused.stderr.contains("[prices.\"codex/coder\"]"), "{refused}");
    write(&place, "claude", "approve: never", limits);
    protocol("claude");
    let done = execute(&place, ALLOWED);
    assert_eq!((done.code, &done.json()["usage"]["cost_usd"]), (0, &json!(0.25)), "{done}");
}

#[test]
fn a_plan_counts_the_calls_of_a_program() {
    let place = Place::new();
    write(&place, "json", "approve: never", "");
    let plan = place.run(["plan", "w.yaml", "--output", "json"]).json();
    // Each of the six attempts may run it three times: two answers may be sent back.
    assert_eq!((&plan["calls_max"], &plan["tokens_max"]), (&json!(18), &json!(null)), "{plan}");
}
