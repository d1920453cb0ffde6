//! Inspecting the history of runs, and forking from an earlier step.

use std::fs;

use rusqlite::Connection;
use serde_json::json;

use crate::cli::program::{Place, workflow};

/// Changes the database outside of the program.
fn tamper(place: &Place, change: &str) {
    let raw = Connection::open(place.path(".graphrun/runs.db")).unwrap();
    raw.execute_batch(&format!("PRAGMA foreign_keys = off; {change}")).unwrap();
    assert!(raw.total_changes() > 0, "{change}");
}

/// The step that a person makes also takes in the tasks that had ended.
#[test]
fn a_change_by_hand_names_no_node() {
    let place = Place::new();
    let text = "graphrun: 1\nname: h\nstate:\n  x: string\n  c: { type: string, default: none }\n  \
                log: { type: \"[string]\", merge: append, default: [] }\n  a: \"bool?\"\n\
                input: x\noutput: [a, c, log]\nstart: [q, w]\nnodes:\n  \
                q: { ask: \"go {{ x }}?\", writes: a, then: end }\n  \
                w: { set: { log: '\"from w\"' }, then: end }\n";
    fs::write(place.path("h.yaml"), text).unwrap();
    place.run(["execute", "h.yaml", "-i", "x=1", "--run-id", "h1"]);
    let set = ["--set", "log=[\"by a person\"]", "--set", "c=\"p\""];
    let ended = place.run(["runs", "update", "h1"].iter().chain(&set));
    assert_eq!(ended.code, 0, "{ended}");
    let diff = place.run(["runs", "diff", "h1@0", "h1@1"]).stdout;
    let line = |text: &str| diff.lines().find(|it| it.contains(text)).unwrap().to_owned();
    assert!(line("from w").ends_with("w (step 1)"), "{diff}");
    assert!(line("by a person").ends_with("by hand (step 1)"), "{diff}");
    let history = place.run(["runs", "history", "h1"]).stdout;
    assert!(history.contains("w, by hand"), "{history}");
    let steps = place.run(["runs", "history", "h1", "--output", "json"]).json();
    assert_eq!(steps[1]["by_hand"], json!(["c", "log"]));
}

#[test]
fn a_history_is_verified_by_its_hash() {
    let place = Place::new();
    let one = place.execute("two_steps");
    let other = place.execute("two_steps");
    let ended = place.run(["runs", "verify", "--output", "json"]);
    assert_eq!(ended.code, 0, "{ended}");
    let verdicts = ended.json();
    assert_eq!(
        (verdicts[0]["name"].as_str(), verdicts[1]["name"].as_str()),
        (Some(&*other), Some(&*one))
    );
    assert_eq!((&verdicts[1]["intact"], &verdicts[1]["steps"]), (&json!(true), &json!(2)));
    let hash = verdicts[1]["hash"].as_str().unwrap();
    let ended = place.run(["runs", "verify", &one, "--expect", hash]);
    assert!(ended.code == 0 && ended.stdout.contains("has the expected hash"), "{ended}");
    // It is the hash of another run.
    let ended = place.run(["runs", "verify", &other, "--expect", hash]);
    assert!(ended.code == 6 && ended.stdout.contains("the history was changed"), "{ended}");

    tamper(&place, "UPDATE journal SET seq = seq + 1 WHERE run = 1 AND number = 2");
    let ended = place.run(["runs", "verify"]);
    assert_eq!(ended.code, 6, "{ended}");
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(lines[0].starts_with(&other) && lines[0].contains("intact"), "{ended}");
    assert!(lines[1].contains("entry 2 of run") && lines[1].contains("checksum"), "{ended}");
    let ended = place.run(["runs", "verify", "nobody"]);
    assert_eq!(ended.code, 6, "{ended}");
}

#[test]
fn the_steps_of_a_run_list_tasks_and_changes() {
    let place = Place::new();
    let name = place.execute("two_steps");
    let ended = place.run(["runs", "history", &name, "--output", "json"]);
    assert_eq!(ended.code, 0, "{ended}");
    let steps = ended.json();
    let told = |at: usize| {
        let step = &steps[at];
        let ran = step["tasks"].as_array().unwrap().iter().map(|it| it["node"].clone());
        (
            step["step"].clone(),
            ran.collect::<Vec<_>>(),
            step["changes"].clone(),
            step["next"].clone(),
        )
    };
    let set = |field: &str| json!([{"field": field, "kind": "set"}]);
    assert_eq!(told(0), (json!(0), vec![], set("brief"), json!(["first"])));
    assert_eq!(told(1), (json!(1), vec![json!("first")], set("draft"), json!(["second"])));
    assert_eq!(told(2), (json!(2), vec![json!("second")], set("answer"), json!([])));

    let ended = place.run(["runs", "history", &name]);
    let last = ended.stdout.lines().last().unwrap();
    let words: Vec<&str> = last.split_whitespace().collect();
    assert_eq!(words[0], "2", "{ended}");
    assert_eq!(words[2..], ["second", "answer", "the", "end"], "{ended}");
}

#[test]
fn a_diff_shows_old_and_new_values_and_their_writers() {
    let place = Place::new();
    let name = place.execute("two_steps");
    let ended = place.run(["runs", "diff", &format!("{name}@0"), &format!("{name}@2")]);
    assert_eq!(ended.code, 0, "{ended}");
    let lines: Vec<Vec<&str>> =
        ended.stdout.lines().skip(1).map(|it| it.split_whitespace().collect()).collect();
    assert_eq!(lines[1], ["answer", "—", "\"x\"", "second", "(step", "2)"], "{ended}");
    assert_eq!(lines[2], ["draft", "—", "\"x\"", "first", "(step", "1)"], "{ended}");
    assert_eq!(lines.len(), 3, "{ended}");

    // Without a second step, it is compared with the last one; equal steps have no differences.
    let short = place.run(["runs", "diff", &format!("{name}@1"), "--output", "json"]).json();
    let id = short["from"]["run"].clone();
    let writer = json!({"run": id, "step": 2, "node": "second", "task": {"step": 2, "index": 0}});
    let change = json!({"field": "answer", "path": "answer", "new": "x", "writers": [writer]});
    assert_eq!(short["changes"], json!([change]));
    let none = place.run(["runs", "diff", &format!("{name}@2"), &name]);
    assert!(none.stdout.ends_with("no difference\n"), "{none}");
    assert_eq!(place.run(["runs", "diff", &format!("{name}@3")]).code, 2);
}

#[test]
fn two_runs_are_compared_with_the_last_writers_of_each() {
    let place = Place::new();
    let one = place.execute("two_steps");
    let args = ["execute", &workflow("two_steps"), "-i", "brief=y", "--output", "json"];
    let other = place.run(args).json()["name"].as_str().unwrap().to_owned();
    let diff = place.run(["runs", "diff", &one, &other]);
    let line = diff.stdout.lines().find(|it| it.starts_with("answer")).unwrap();
    for part in
        ["\"x\"", "\"y\"", &format!("{one}: second (step 2)"), &format!("{other}: second (step 2)")]
    {
        assert!(line.contains(part), "{part}: {diff}");
    }
    let line = diff.stdout.lines().find(|it| it.starts_with("brief")).unwrap();
    assert!(line.contains(&format!("{one}: the beginning")), "{diff}");
}

#[test]
fn a_fork_runs_from_an_old_step_with_a_changed_state() {
    let place = Place::new();
    let name = place.execute("two_steps");
    let show = || place.run(["runs", "show", &name, "--output", "json"]).json();
    let before = show();
    let fork = ["fork", &format!("{name}@1"), "--set", "draft=\"z\"", "--output", "json"];
    let ended = place.run(fork);
    assert_eq!(ended.code, 0, "{ended}");
    let report = ended.json();
    assert_eq!((&report["status"], &report["steps"]), (&json!("done"), &json!(1)));
    assert_eq!(report["state"], json!({"answer": "z"}));
    assert_eq!(show(), before);
    let other = report["name"].as_str().unwrap();
    let events = place.run(["runs", "events", other]);
    assert!(events.stdout.contains("after step 1, with another draft"), "{events}");

    let ended = place.run(["fork", &format!("{name}@1"), "--no-run", "--output", "json"]);
    assert_eq!((ended.code, &ended.json()["status"]), (0, &json!("interrupted")), "{ended}");
    let ended = place.run(["resume", ended.json()["name"].as_str().unwrap(), "--output", "json"]);
    assert_eq!((ended.code, &ended.json()["state"]), (0, &json!({"answer": "x"})), "{ended}");
    let verified = place.run(["runs", "verify"]);
    assert_eq!(verified.code, 0, "{verified}");
}

#[test]
fn a_fork_pauses_at_breakpoints_and_uses_the_configured_lease() {
    let place = Place::new();
    let name = place.execute("three_steps");
    let from = format!("{name}@0");
    let first = place.run(["runs", "history", &name, "--output", "json"]).json();
    let node =
        first[1]["tasks"][0]["node"].as_str().unwrap_or_else(|| panic!("{first}")).to_owned();
    let ended = place.run(["fork", &from, "--pause-after", &node, "--output", "json"]);
    assert_eq!((ended.code, &ended.json()["steps"]), (3, &json!(1)), "{ended}");
    let ended = place.run([
        "resume",
        ended.json()["name"].as_str().unwrap(),
        "--no-pause",
        "--output",
        "json",
    ]);
    assert_eq!((ended.code, &ended.json()["status"]), (0, &json!("done")), "{ended}");

    let wrong = place.run(["fork", &from, "--pause-after", "nobody"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("no such node"), "{wrong}");
    let wrong = place.run_with(["fork", &from], [("GRAPHRUN_LEASE", "soon")]);
    assert!(wrong.code == 5 && wrong.stderr.contains("GRAPHRUN_LEASE is `soon`"), "{wrong}");
}

#[test]
fn an_impossible_fork_is_refused_with_a_remedy() {
    let place = Place::new();
    let name = place.execute("two_steps");
    let ended = place.run(["fork", &name]);
    assert!(
        ended.code == 2 && ended.stderr.contains(&format!("`graphrun fork {name}@1`")),
        "{ended}"
    );
    let ended = place.run(["fork", &format!("{name}@1"), "--set", "drft=1", "--set", "draft=z"]);
    assert_eq!(ended.code, 2, "{ended}");
    for part in ["did you mean `draft`?", "`draft`: expected JSON", "nothing was changed"] {
        assert!(ended.stderr.contains(part), "{part}: {ended}");
    }
    assert_eq!(place.run(["fork", "nobody@1"]).code, 6);
    assert_eq!(place.run(["runs", "list", "--output", "json"]).json().as_array().unwrap().len(), 1);
}

#[test]
fn a_fork_can_be_replayed_from_a_recording() {
    let place = Place::new();
    let entry = |prompt: &str, text: &str| {
        json!({"v": 1, "node": "write", "when": {"contains": [format!("Answer this: {prompt}")]},
            "reply": {"text": text, "usage": {"input_tokens": 3, "output_tokens": 4}}})
    };
    let lines = format!("{}\n{}\n", entry("x", "42"), entry("y", "43"));
    std::fs::write(place.path("run.jsonl"), lines).unwrap();
    let args = ["execute", &workflow("agent"), "-i", "brief=x", "--replay", "run.jsonl"];
    let ended = place.run([&args[..], &["--output", "json"]].concat());
    let name = ended.json()["name"].as_str().unwrap().to_owned();
    let fork = ["fork", &format!("{name}@0"), "--set", "brief=\"y\"", "--output", "json"];
    let ended = place.run(fork);
    assert_eq!((ended.code, &ended.json()["state"]), (0, &json!({"answer": "43"})), "{ended}");
}

#[test]
fn an_update_answers_in_the_place_of_a_person() {
    let place = Place::new();
    let ended = place.run(["execute", &workflow("asks"), "-i", "brief=x", "--output", "json"]);
    assert_eq!(ended.code, 3, "{ended}");
    let name = ended.json()["name"].as_str().unwrap().to_owned();
    let wrong = place.run(["runs", "update", &name, "--set", "answer=\"maybe\"", "--as", "help"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("`answer`"), "{wrong}");
    assert_eq!(place.run(["runs", "update", &name]).code, 2);
    let ended = place.run(["runs", "update", &name, "--set", "answer=\"stop\"", "--as", "help"]);
    assert!(ended.code == 0 && ended.stdout.contains("nothing is left to run"), "{ended}");
    let report = place.run(["runs", "show", &name, "--output", "json"]).json();
    assert_eq!((&report["status"], &report["state"]["answer"]), (&json!("done"), &json!("stop")));
    let diff = place.run(["runs", "diff", &format!("{name}@0"), &name]);
    assert!(diff.stdout.contains("help (step 1)"), "{diff}");
}

#[test]
fn each_item_of_a_list_has_its_own_writer() {
    const PILES: &str = r#"graphrun: 1
name: piles
state: { log: { type: [string], merge: append, default: [] } }
output: log
start: both
nodes:
  both: { parallel: [left, right], then: last }
  left: { set: { log: '"l"' } }
  right: { set: { log: '["r", "s"]' } }
  last: { set: { log: '"l"' }, then: end }
"#;
    let place = Place::new();
    fs::write(place.path("w.yaml"), PILES).unwrap();
    let ended = place.run(["execute", "w.yaml", "--run-id", "one"]);
    assert_eq!(ended.code, 0, "{ended}");
    let diff = place.run(["runs", "diff", "one@0", "one", "--output", "json"]).json();
    let changes = diff["changes"].as_array().unwrap().iter();
    let writers = changes.map(|change| {
        let writers = change["writers"].as_array().unwrap().iter();
        let nodes: Vec<_> = writers.map(|it| it["node"].as_str().unwrap()).collect();
        format!("{} {}", change["path"].as_str().unwrap(), nodes.join(" "))
    });
    let writers: Vec<String> = writers.collect();
    assert_eq!(writers, ["log[0] left", "log[1] right", "log[2] right", "log[3] last"]);
}
