//! The result of a run: the documented object, the streams, exit codes, leftovers.

use std::fs;

use serde_json::{Value, json};

use crate::cli::program::{Place, keys, workflow};

#[test]
fn stdout_contains_only_the_documented_result() {
    let place = Place::new();
    let ended =
        place.run(["execute", &workflow("two_steps"), "-i", "brief=Hello", "--output", "json"]);
    assert_eq!(ended.code, 0, "{ended}");
    let object = ended.json();
    let expected = [
        "run",
        "name",
        "workflow",
        "status",
        "reason",
        "steps",
        "state",
        "usage",
        "trace",
        "questions",
        "artifacts",
        "resume",
    ];
    assert_eq!(keys(&object), expected);
    assert_eq!(keys(&object["usage"]), ["input_tokens", "output_tokens", "calls", "cost_usd"]);
    assert_eq!(keys(&object["trace"][0]), ["step", "node", "attempt", "outcome", "ms"]);
    assert_eq!(object["status"], "done");
    assert_eq!(object["state"], json!({"answer": "Hello"}));
    let name = object["name"].as_str().unwrap();
    assert_eq!(object["resume"], Value::Null, "nothing is left to continue");
    // The first line of the log contains the command to resume the run.
    let first = ended.stderr.lines().next().unwrap();
    for part in [name, object["run"].as_str().unwrap(), &format!("graphrun resume {name}")] {
        assert!(first.contains(part), "{part} is missing in: {first}");
    }
    let shown = place.run(["runs", "show", name, "--output", "json"]);
    assert_eq!(shown.json(), object);
}

#[test]
fn a_stream_has_every_event_and_ends_with_the_end_of_the_run() {
    let place = Place::new();
    let ended =
        place.run(["execute", &workflow("two_steps"), "-i", "brief=x", "--output", "jsonl"]);
    let events: Vec<Value> =
        ended.stdout.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    for (event, seq) in events.iter().zip(1u64..) {
        assert_eq!((&event["v"], &event["seq"]), (&json!(1), &json!(seq)));
    }
    assert_eq!(events.first().unwrap()["type"], "run.started");
    assert_eq!(events.last().unwrap()["type"], "run.finished");
    let run = events[0]["run"].as_str().unwrap();
    let saved = place.run(["runs", "events", run, "--output", "jsonl"]);
    assert_eq!(saved.stdout, ended.stdout);
}

#[test]
fn a_private_field_is_not_in_the_result() {
    let place = Place::new();
    let ended = place.run(["execute", &workflow("private"), "-i", "brief=x", "--output", "json"]);
    assert_eq!(ended.code, 0, "{ended}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["state"], json!({"brief": "x", "answer": "x!"}));
}

#[test]
fn a_recording_answers_without_a_key() {
    let place = Place::new();
    let entry = json!({"v": 1, "node": "write", "when": {"contains": ["Answer this: x"]},
        "reply": {"text": "42", "usage": {"input_tokens": 3, "output_tokens": 4}}});
    fs::write(place.path("run.jsonl"), format!("{entry}\n")).unwrap();
    let args = ["execute", &workflow("agent"), "-i", "brief=x", "--replay", "run.jsonl"];
    let ended = place.run([&args[..], &["--output", "json"]].concat());
    assert_eq!((ended.code, &ended.json()["state"]), (0, &json!({"answer": "42"})), "{ended}");
    // A list price is known: 0.25 and 2 dollars for a million tokens.
    let usage =
        json!({"input_tokens": 3, "output_tokens": 4, "calls": 1, "cost_usd": 0.000_008_75});
    assert_eq!(ended.json()["usage"], usage);
}

#[test]
fn a_question_without_a_terminal_is_exit_3_with_a_command() {
    let place = Place::new();
    let asked = place.run(["execute", &workflow("asks"), "-i", "brief=x", "--output", "json"]);
    assert_eq!(asked.code, 3, "{asked}");
    let object = asked.json();
    let name = object["name"].as_str().unwrap();
    let question = &object["questions"][0];
    assert_eq!(keys(question)[..4], ["key", "node", "prompt", "schema"]);
    let key = question["key"].as_str().unwrap();
    let command = format!("graphrun resume {name} --answer '{key}=\"go_on\"'");
    assert!(asked.stderr.contains(&command), "{asked}");

    let refused = place.run(["resume", name, "--answer", &format!("{key}=perhaps")]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{refused}");
    let unknown = place.run(["resume", name, "--answer", "nobody=stop"]);
    assert!(unknown.code == 2 && unknown.stderr.contains("no open question `nobody`"), "{unknown}");
    let again = place.run(["resume", name]);
    assert_eq!(again.code, 3, "{again}");

    let done = place.run(["resume", name, "--answer", &format!("{key}=stop"), "--output", "json"]);
    assert_eq!((done.code, &done.json()["state"]["answer"]), (0, &json!("stop")), "{done}");
    assert_eq!(place.run(["resume", name]).code, 0, "a run that is done stays done");
}

#[test]
fn a_limit_is_exit_4_and_a_higher_one_lets_the_run_continue() {
    let place = Place::new();
    let args = ["execute", &workflow("two_steps"), "-i", "brief=x", "--max-steps", "1"];
    let stopped = place.run([&args[..], &["--output", "json"]].concat());
    assert_eq!((stopped.code, &stopped.json()["status"]), (4, &json!("limit")), "{stopped}");
    let name = stopped.json()["name"].as_str().unwrap().to_owned();
    assert_eq!(place.run(["resume", &name]).code, 4);
    // The remedy of an impossible retry is a command to copy.
    let retried = place.run(["retry", &name]);
    let remedy = format!("as in `graphrun resume {name} --max-steps N`");
    assert!(retried.code == 6 && retried.stderr.contains(&remedy), "{retried}");
    let done = place.run(["resume", &name, "--max-steps", "5", "--output", "json"]);
    assert!(!done.stderr.contains("changed"), "a limit of the operator is no change: {done}");
    assert_eq!((done.code, &done.json()["steps"]), (0, &json!(2)), "{done}");
    let trace = done.json()["trace"].as_array().unwrap().len();
    assert_eq!(trace, 2, "finished work was done again");
}

#[test]
fn a_result_that_cannot_be_written_is_not_a_failed_run() {
    let place = Place::new();
    let full = |args: &[&str]| {
        let mut command = place.command(args);
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command.stdout(full).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for (form, command) in [
        ("json", "runs show NAME --output json"),
        ("jsonl", "runs events NAME --output jsonl"),
        ("text", "runs show NAME"),
    ] {
        let workflow = workflow("two_steps");
        let args = ["execute", &workflow, "-i", "brief=x", "--output", form];
        let (code, stderr) = full(&args);
        assert_eq!(code, Some(5), "{stderr}");
        let listed = place.run(["runs", "list", "--output", "json"]).json();
        let name = listed[0]["name"].as_str().unwrap();
        assert_eq!(listed[0]["status"], "done");
        let help = format!("help: to print it: graphrun {}\n", command.replace("NAME", name));
        for part in [&format!("run {name} is done, but its result cannot be written"), &help] {
            assert!(stderr.contains(part), "`{part}` is missing in: {stderr}");
        }
    }
    for args in [&["--help"][..], &["--version"], &["runs", "list"]] {
        let (code, stderr) = full(args);
        assert!(code == Some(5) && stderr.contains("cannot write the result"), "{stderr}");
    }
}

#[test]
fn a_failed_run_is_exit_1() {
    let ended = Place::new().run(["execute", &workflow("fails"), "-i", "brief=x"]);
    assert_eq!(ended.code, 1, "{ended}");
    assert!(ended.stdout.starts_with("failed"), "{ended}");
}

#[test]
fn a_run_that_a_limit_leads_to_its_end_is_exit_0_and_names_the_limit() {
    let place = Place::new();
    let workflow = "graphrun: 1
name: limited
state: { n: { type: int, default: 0 } }
output: [n]
start: count
limits: { steps: 5, exhausted: last }
nodes:
  count: { set: { n: n + 1 }, max_visits: 50, exhausted: fail, then: count }
  last: { set: { n: n * 10 }, then: end }
";
    fs::write(place.path("limited.yaml"), workflow).unwrap();
    let ended = place.run(["execute", "limited.yaml", "--output", "json"]);
    let report = ended.json();
    assert_eq!(
        (ended.code, &report["status"], &report["state"]["n"]),
        (0, &json!("done"), &json!(50))
    );
    assert_eq!(report["reason"], "the limit of 5 steps is reached");
}

#[test]
fn a_delivery_replaces_only_files_of_earlier_deliveries() {
    let place = Place::new();
    let execute = |brief: &str, more: &[&str]| {
        let brief = format!("brief={brief}");
        let args = ["execute", &workflow("delivers"), "-i", &brief, "--out", "out"];
        place.run([&args[..], more, &["--output", "json"]].concat())
    };
    let file = place.path("out/brief.json");
    for brief in ["one", "two"] {
        let ended = execute(brief, &[]);
        assert_eq!(ended.code, 0, "{ended}");
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("\"{brief}\"\n"));
    }
    fs::write(&file, "mended by hand").unwrap();
    let refused = execute("three", &[]);
    let report = refused.json();
    assert_eq!((refused.code, &report["status"]), (5, &json!("failed")), "{refused}");
    for part in ["changed since: `brief.json`; nothing was written", "`resume --force`"] {
        assert!(report["reason"].as_str().unwrap().contains(part), "{refused}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "mended by hand");
    let name = report["name"].as_str().unwrap();
    let forced = place.run(["resume", name, "--force", "--output", "json"]);
    assert_eq!(forced.code, 0, "{forced}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "\"three\"\n");
    assert_eq!(execute("four", &["--force"]).code, 0);
}

#[test]
fn a_run_in_memory_leaves_nothing_and_promises_nothing() {
    let place = Place::new();
    let args = ["--db", "memory:", "execute", &workflow("two_steps"), "-i", "brief=x"];
    let ended = place.run([&args[..], &["--output", "json"]].concat());
    assert_eq!((ended.code, &ended.json()["resume"]), (0, &Value::Null), "{ended}");
    assert!(place.is_empty());
}

#[test]
fn looking_at_runs_makes_no_database() {
    let place = Place::new();
    let ended = place.run(["runs", "list"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "no runs yet\n"));
    // The runs may be those of another folder, or of another database.
    assert_eq!(ended.stderr, "there is no database `.graphrun/runs.db`\n");
    let named = place.run(["runs", "list", "--db", "sqlite:run.db"]);
    assert_eq!((named.code, named.stdout.as_str()), (0, "no runs yet\n"));
    assert_eq!(named.stderr, "there is no database `run.db`\n");
    assert!(place.is_empty());
}

#[test]
fn the_state_can_be_seen_after_each_step() {
    let place = Place::new();
    let name = place.execute("two_steps");
    let state = |at: &str| place.run(["runs", "state", &format!("{name}{at}")]).json();
    assert_eq!(state("@0"), json!({"brief": "x"}));
    assert_eq!(state("@1"), json!({"brief": "x", "draft": "x"}));
    assert_eq!(state(""), json!({"brief": "x", "draft": "x", "answer": "x"}));
    assert_eq!(place.run(["runs", "state", &format!("{name}@9")]).code, 2);
}
