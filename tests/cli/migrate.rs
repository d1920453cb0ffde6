//! Migrating runs to changed workflows, from the command line.

use std::{fs, net::TcpListener};

use serde_json::{Value, json};

use crate::cli::program::{Ended, Place, Running, workflow};

/// Three nested workflows; the innermost asks, after a sibling node has finished.
const OUTER: &str = "
graphrun: 1
name: outer
state: { brief: string, verdict: good | poor }
input: [brief]
output: [verdict]
start: review
nodes:
  review:
    use: { workflow: middle.yaml, in: { text: brief }, out: { verdict: verdict } }
    then: end
";

const MIDDLE: &str = "
graphrun: 1
name: middle
state: { text: string, verdict: good | poor }
input: [text]
output: [verdict]
start: look
nodes:
  look: { use: { workflow: inner.yaml, in: { text: text }, out: { verdict: verdict } }, then: end }
";

const INNER: &str = "
graphrun: 1
name: inner
state: { text: string, length: int, verdict: good | poor }
input: [text]
output: [verdict]
start: both
nodes:
  both:  { parallel: [count, ask], then: done }
  count: { set: { length: text.size() } }
  ask:   { ask: Is it good?, choices: [good, poor], writes: verdict }
  done:  { set: { length: length + 1 }, then: end }
";

fn write(place: &Place, files: &[(&str, String)]) {
    for (name, text) in files {
        fs::write(place.path(name), text).unwrap();
    }
}

fn name(report: &Value) -> String {
    report["name"].as_str().unwrap().to_owned()
}

/// Returns flags that map names of a run to names in the changed workflow.
fn maps<'a>(names: &[&'a str]) -> Vec<&'a str> {
    names.iter().flat_map(|&it| ["--map", it]).collect()
}

fn migrate(place: &Place, run: &str, workflow: &str, flags: &[&str]) -> Ended {
    place.run([&["migrate", run, workflow], flags].concat())
}

fn show(place: &Place, run: &str) -> Value {
    place.run(["runs", "show", run, "--output", "json"]).json()
}

#[test]
fn a_nested_subworkflow_is_migrated_by_its_node_name() {
    let place = Place::new();
    let files = [("outer.yaml", OUTER), ("middle.yaml", MIDDLE), ("inner.yaml", INNER)];
    write(&place, &files.map(|(name, text)| (name, text.to_owned())));
    let paused = place.run(["execute", "outer.yaml", "-i", "brief=abc", "--output", "json"]);
    assert_eq!(paused.code, 3, "{paused}");
    let run = name(&paused.json());
    assert_eq!(paused.json()["questions"][0]["key"], "review.look.ask");

    // Another name on each level, in separate files.
    let outer = OUTER.replace("start: review", "start: check").replace("  review:", "  check:");
    let middle = MIDDLE.replace("start: look", "start: read").replace("  look:", "  read:");
    let inner = INNER.replace("length", "characters").replace("count", "measure");
    let files = [
        ("new.yaml", outer.replace("middle.yaml", "new_middle.yaml")),
        ("new_middle.yaml", middle.replace("inner.yaml", "new_inner.yaml")),
        ("new_inner.yaml", inner),
    ];
    write(&place, &files);
    let refused = migrate(&place, &run, "new.yaml", &[]);
    assert_eq!(refused.code, 6, "{refused}");
    let flags = maps(&[
        "review=check",
        "review.look=check.read",
        "review.look.count=check.read.measure",
        "review.look.length=check.read.characters",
    ]);
    let migrated = migrate(&place, &run, "new.yaml", &flags);
    assert_eq!(migrated.code, 0, "{migrated}");
    let ended = place.run(["resume", &run, "--output", "json"]);
    assert_eq!(ended.json()["questions"][0]["key"], "check.read.ask", "{ended}");
    let ended = place.run(["approve", &run, "check.read.ask", "--output", "json"]);
    assert_eq!(ended.code, 2, "neither yes nor no: {ended}");
    let answer = ["resume", &run, "--answer", "check.read.ask=good", "--output", "json"];
    let ended = place.run(answer);
    assert_eq!((ended.code, &ended.json()["state"]), (0, &json!({"verdict": "good"})), "{ended}");
    let ran: Vec<String> = ended.json()["trace"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["node"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ran.iter().filter(|it| it.ends_with("count") || it.ends_with("measure")).count(), 1);
}

#[test]
fn a_run_is_looked_at_across_its_migration() {
    let place = Place::new();
    let board = crate::cli::changed::paused(&place);
    let text = fs::read_to_string(place.path("board.yaml")).unwrap();
    let text = text.replace("judge", "referee").replace("count", "rounds");
    let text = text.replace("name: board", "name: table");
    fs::write(place.path("table.yaml"), text).unwrap();
    let flags = [maps(&["judge=referee", "count=rounds"]), vec!["--output", "json"]].concat();
    let migrated = migrate(&place, &board, "table.yaml", &flags);
    assert_eq!(migrated.code, 0, "{migrated}");
    let report = migrated.json();
    assert_eq!((&report["step"], &report["next"]), (&json!(2), &json!(["left", "referee"])));
    assert_eq!((&report["finished"], &report["dry_run"]), (&json!(["left"]), &json!(false)));
    assert_eq!(report["questions"][0]["key"], "referee");

    let shown = show(&place, &board);
    assert_eq!((&shown["workflow"], &shown["status"]), (&json!("table"), &json!("paused")));
    assert_eq!(shown["reason"], "waiting for an answer to referee");
    let history = place.run(["runs", "history", &board, "--output", "json"]).json();
    assert_eq!((&history[2]["migrated_to"], &history[2]["tasks"]), (&json!("table"), &json!([])));
    let text = place.run(["runs", "history", &board]);
    assert!(text.stdout.contains("migrated to table"), "{text}");
    let state = |step: &str| place.run(["runs", "state", &format!("{board}@{step}")]).json();
    assert_eq!((&state("1")["count"], &state("1")["rounds"]), (&json!(1), &Value::Null));
    assert_eq!((&state("2")["count"], &state("2")["rounds"]), (&Value::Null, &json!(1)));
    let diff = place.run(["runs", "diff", &format!("{board}@1"), &format!("{board}@2")]);
    assert!(diff.stdout.contains("the migration (step 2)"), "{diff}");
    let events = place.run(["runs", "events", &board]);
    assert!(
        events.stdout.contains("migrated to table; judge → referee, count → rounds"),
        "{events}"
    );
    let export = place.run(["runs", "export", &board]).stdout;
    let last: Value = serde_json::from_str(export.lines().last().unwrap()).unwrap();
    let migration = &last["migration"];
    assert_eq!(
        (&migration["from"]["workflow"], &migration["to"]["workflow"]),
        (&json!("board"), &json!("table"))
    );
    assert!(migration["to"]["graph"]["nodes"]["referee"].is_object(), "{last}");

    // The old name no longer works.
    let stale = place.run(["resume", &board, "--answer", "judge=\"good\""]);
    assert_eq!(stale.code, 2, "{stale}");
    let done = place.run(["resume", &board, "--answer", "referee=\"good\"", "--output", "json"]);
    assert_eq!((done.code, &done.json()["state"]), (0, &json!({"draft": "x"})), "{done}");
    let writers = place.run(["runs", "diff", &format!("{board}@2"), "--output", "json"]).json();
    let notes = writers["changes"].as_array().unwrap().iter().find(|it| it["field"] == "notes");
    assert_eq!(notes.unwrap()["writers"][0]["node"], "left", "{writers}");
    assert_eq!(place.run(["graph", "table.yaml", "--run", &board]).code, 0);

    // Forks from before and after the migration use the new workflow.
    for step in ["1", "2"] {
        let fork = place.run(["fork", &format!("{board}@{step}"), "--output", "json"]);
        assert_eq!(fork.code, 3, "{step}: {fork}");
        assert_eq!(fork.json()["questions"][0]["key"], "referee", "{step}");
        let fork = name(&fork.json());
        let done = place.run(["resume", &fork, "--answer", "referee=\"good\"", "--output", "json"]);
        assert_eq!((done.code, &done.json()["state"]), (0, &json!({"draft": "x"})), "{done}");
    }
}

#[test]
fn flags_that_name_nothing_are_exit_2_all_at_once() {
    let place = Place::new();
    let run = crate::cli::changed::paused(&place);
    let flags = maps(&["judg=referee", "judge=refere", "judge=count"]);
    let flags = [flags, vec!["--drop", "nowhere"]].concat();
    let refused = migrate(&place, &run, "board.yaml", &flags);
    assert_eq!(refused.code, 2, "{refused}");
    for part in [
        "--map judg=referee: the run has no node or field `judg`; did you mean `judge`?",
        "--map judge=refere: the workflow has no node or field `refere`",
        "--map judge=count: one is a node and the other a field",
        "--drop nowhere: the run has no node or field `nowhere`",
    ] {
        assert!(refused.stderr.contains(part), "{part}: {refused}");
    }
    let unset = migrate(&place, &run, "board.yaml", &["--set", "count=\"x\""]);
    assert!(unset.code == 2 && unset.stderr.contains("`count`"), "{unset}");
    let missing = migrate(&place, &run, "nowhere.yaml", &[]);
    assert_eq!(missing.code, 2, "{missing}");
    assert_eq!(migrate(&place, "nobody", "board.yaml", &[]).code, 6);
}

#[test]
fn a_run_at_work_is_not_migrated_and_its_owner_is_named() {
    let place = Place::new();
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let running = Running::start(&place, &provider);
    let _call = provider.accept().unwrap();
    let list = place.run(["runs", "list", "--output", "json"]).json();
    let refused = migrate(&place, &name(&list[0]), &workflow("agent"), &[]);
    assert_eq!(refused.code, 6, "{refused}");
    assert!(
        refused.stderr.contains(&format!("owned by process {} on ", running.id())),
        "{refused}"
    );
}

#[test]
fn breakpoints_and_the_inbox_are_migrated() {
    let place = Place::new();
    let text = fs::read_to_string(workflow("steered")).unwrap();
    fs::write(place.path("old.yaml"), &text).unwrap();
    let execute = ["execute", "old.yaml", "-i", "brief=x", "--output", "json"];
    let pauses = ["--pause-before", "second", "--pause-after", "second"];
    let run = name(&place.run(execute.iter().chain(&pauses)).json());
    assert_eq!(place.run(["message", &run, "be brief"]).code, 0);
    let text = text.replace("guidance", "advice").replace("second", "last");
    fs::write(place.path("new.yaml"), text).unwrap();
    // A breakpoint at a renamed node does not shorten the refusal.
    fs::copy(place.path("new.yaml"), place.path("old.yaml")).unwrap();
    let refused = place.run(["resume", &run]);
    assert_eq!(refused.code, 6, "{refused}");
    assert!(refused.stderr.contains("--map guidance=advice --map second=last"), "{refused}");
    let migrated = migrate(&place, &run, "new.yaml", &maps(&["guidance=advice", "second=last"]));
    assert_eq!(migrated.code, 0, "{migrated}");
    assert!(!migrated.stdout.contains("leads to"), "a name alone is no other way: {migrated}");
    assert_eq!(show(&place, &run)["reason"], "breakpoint before `last`");
    let said = place.run(["message", &run, "and clear"]);
    assert_eq!(said.code, 0, "{said}");
    let paused = place.run(["resume", &run, "--output", "json"]);
    assert_eq!((paused.code, &paused.json()["reason"]), (0, &Value::Null), "{paused}");
    let state = json!({"advice": ["be brief", "and clear"], "scores": [], "log": [0, 2]});
    assert_eq!(paused.json()["state"], state);
    let fork = place.run(["fork", &format!("{run}@1"), "--no-run", "--output", "json"]);
    let fork = name(&fork.json());
    assert_eq!(
        place.run(["message", &fork, "hello"]).code,
        0,
        "a fork has the lists of its workflow"
    );
}

#[test]
fn a_run_in_postgres_is_migrated_and_resumed() {
    let place = Place::new();
    let schema = crate::support::postgres::Schema::new();
    let url = schema.url();
    let run = |args: &[&str]| place.run([args, &["--db", &url]].concat());
    fs::write(place.path("again.yaml"), fs::read_to_string(workflow("again")).unwrap()).unwrap();
    let paused = run(&["execute", "again.yaml", "-i", "brief=x", "--output", "json"]);
    let name = name(&paused.json());
    assert_eq!(run(&["reject", &name]).code, 3);
    let text = fs::read_to_string(place.path("again.yaml")).unwrap();
    let text = text.replace("help", "boss").replace("log", "answers");
    fs::write(place.path("again.yaml"), text).unwrap();
    let refused = run(&["resume", &name]);
    assert_eq!(refused.code, 6, "{refused}");
    let flags = maps(&["help=boss", "log=answers"]);
    let migrated = run(&[&["migrate", &name, "again.yaml"], &flags[..]].concat());
    assert_eq!(migrated.code, 0, "{migrated}");
    let key =
        run(&["runs", "show", &name, "--output", "json"]).json()["questions"][0]["key"].clone();
    let answer = format!("{}=true", key.as_str().unwrap());
    let done = run(&["resume", &name, "--answer", &answer, "--output", "json"]);
    let state = json!({"answers": [false, true]});
    assert_eq!((done.code, &done.json()["state"]), (0, &state), "{done}");
    assert_eq!(run(&["runs", "verify", &name]).code, 0);
}
