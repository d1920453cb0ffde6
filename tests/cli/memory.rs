//! The memory across runs, as the command line shows and changes it.

use std::fs;

use graphrun::memory::EntryId;
use serde_json::{Value, json};

use crate::{
    cli::program::{Ended, Place},
    support::postgres::{Schema, server},
};

const LEARN: &str = "\
graphrun: 1
name: learn
memory: { insights: { keep: 48h, approve: true } }
state: { lessons: [string], known: [string] }
input: lessons
start: keep
nodes:
  keep: { remember: lessons, as: insights, then: look }
  look: { recall: insights, query: '\"parser\"', writes: known, then: keep_known }
  keep_known: { remember: known, as: insights, then: end }
";

const LESSONS: &str = r#"lessons=["the parser is old","tests need Redis"]"#;

fn learn(place: &Place, more: &[&str]) -> Ended {
    fs::write(place.path("learn.yaml"), LEARN).unwrap();
    place.run([&["execute", "learn.yaml", "-i", LESSONS, "--output", "json"], more].concat())
}

fn entries(place: &Place) -> Vec<Value> {
    let listed = place.run(["memory", "list", "--output", "json"]);
    listed.json().as_array().unwrap().clone()
}

fn ids(place: &Place) -> Vec<String> {
    let id = |it: &Value| it["id"].as_str().unwrap().to_owned();
    let mut entries = entries(place);
    entries.sort_by_key(|it| it["text"].to_string());
    entries.iter().map(id).collect()
}

#[test]
fn entries_are_listed_shown_approved_and_removed() {
    let place = Place::new();
    let empty = place.run(["memory", "list"]);
    assert_eq!((empty.code, empty.stdout.as_str()), (0, "no entries\n"), "{empty}");
    assert!(empty.stderr.contains("there is no memory `.graphrun/memory.db` yet"), "{empty}");
    assert!(!place.path(".graphrun").exists());

    let ended = learn(&place, &[]);
    assert_eq!((ended.code, &ended.json()["state"]["known"]), (0, &json!(["the parser is old"])));
    let ids = ids(&place);
    assert_eq!(ids.len(), 2);
    let listed = place.run(["memory", "list", "insights", "--pending"]);
    assert!(
        listed.stdout.contains("pending, until 20") && listed.stdout.contains("tests need Redis")
    );
    let found = place.run(["memory", "search", "insights", "redis"]);
    assert!(found.stdout.contains(&ids[0]) && !found.stdout.contains(&ids[1]), "{found}");

    let approved = place.run(["memory", "approve", &ids[0][..8]]);
    assert_eq!(approved.code, 0, "{approved}");
    let shown = place.run(["memory", "show", &ids[0]]);
    assert!(shown.stdout.contains("approved") && shown.stdout.contains("keep of learn"), "{shown}");
    let json = place.run(["memory", "show", &ids[0], "--output", "json"]).json();
    assert_eq!((&json["approval"], &json["expires"]), (&json!("approved"), &Value::Null));
    let pending = place.run(["memory", "list", "--pending", "--output", "json"]).json();
    assert_eq!(pending.as_array().unwrap().len(), 1);

    let removed = place.run(["memory", "rm", &ids[0], &ids[1]]);
    assert_eq!(removed.code, 0, "{removed}");
    assert!(entries(&place).is_empty());
    let again = place.run(["memory", "rm", &ids[0]]);
    assert_eq!(again.code, 2);
    assert!(again.stderr.contains("there is no entry") && again.stderr.contains("memory list"));
}

#[test]
fn what_people_add_reaches_runs_and_a_list_has_pages() {
    let place = Place::new();
    for number in 0..3 {
        let text = format!("rule {number} about the parser");
        let added = place.run(["memory", "add", "insights", &text]);
        assert_eq!(added.code, 0, "{added}");
    }
    let first = place.run(["memory", "list", "--limit", "2"]);
    assert_eq!(first.stdout.lines().count(), 3, "{first}");
    let (_, after) = first.stderr.rsplit_once("--after ").unwrap();
    let rest = place.run(["memory", "list", "--after", after.trim()]);
    assert_eq!(rest.stdout.lines().count(), 2, "{rest}");
    let ended = learn(&place, &[]);
    assert_eq!(ended.json()["state"]["known"].as_array().unwrap().len(), 4);
}

#[test]
fn keys_in_added_and_imported_texts_are_replaced() {
    let place = Place::new();
    let key = format!("ghp_{}", "Zx81kQpLw93MfTbVn27RcHd40JyGsE65uAoX");
    let added = place.run(["memory", "add", "insights", &format!("the token {key} is old")]);
    assert_eq!(added.code, 0, "{added}");
    assert!(added.stderr.contains("seems to contain a key"), "{added}");
    let exported = place.run(["memory", "export"]).stdout;
    assert!(exported.contains("is old") && !exported.contains(&key), "{exported}");

    // A file can come from another program.
    let text = format!("the token {key} is new");
    let id = EntryId::of("insights", None, &text);
    let first = exported.lines().next().unwrap();
    let mut line: Value = serde_json::from_str(first).unwrap();
    (line["entry"]["text"], line["entry"]["id"]) = (json!(text), json!(id));
    fs::write(place.path("more.jsonl"), line.to_string()).unwrap();
    let imported = place.run(["memory", "import", "more.jsonl"]);
    assert_eq!(imported.code, 0, "{imported}");
    assert!(imported.stderr.contains("`line 1` seems to contain a key"), "{imported}");
    let exported = place.run(["memory", "export"]).stdout;
    assert!(exported.contains("is new") && !exported.contains(&key), "{exported}");
    fs::write(place.path("again.jsonl"), &exported).unwrap();
    assert_eq!(place.run(["memory", "import", "again.jsonl"]).code, 0, "its id follows its text");
}

#[test]
fn an_entry_without_a_text_or_a_tier_is_refused() {
    let place = Place::new();
    for (tier, text, says) in [
        ("core", "", "the text of an entry is empty"),
        ("core", "   ", "the text of an entry is empty"),
        ("", "x", "\"\" is not the name of a tier"),
        ("bad tier", "x", "\"bad tier\" is not the name of a tier"),
    ] {
        let refused = place.run(["memory", "add", tier, text]);
        assert_eq!(refused.code, 2, "{refused}");
        assert!(refused.stderr.contains(says), "{says}: {refused}");
    }
    assert!(!place.path(".graphrun/memory.db").exists());
    learn(&place, &[]);
    let exported = place.run(["memory", "export"]).stdout;
    let wrong = exported.replacen("\"approval\"", "\"confidence\":7,\"approval\"", 1);
    assert_ne!(wrong, exported);
    fs::write(place.path("wrong.jsonl"), wrong).unwrap();
    let refused = place.run(["memory", "import", "wrong.jsonl"]);
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.stderr.contains("the confidence is 7, which is not between 0"), "{refused}");
}

#[test]
fn an_export_is_imported_elsewhere_and_wrong_lines_are_named() {
    let place = Place::new();
    let other = Place::new();
    learn(&place, &[]);
    let exported = place.run(["memory", "export"]);
    assert_eq!(exported.stdout.lines().count(), 2, "{exported}");
    fs::write(other.path("all.jsonl"), &exported.stdout).unwrap();
    let imported = other.run(["memory", "import", "all.jsonl"]);
    assert_eq!(imported.code, 0, "{imported}");
    assert_eq!(entries(&other), entries(&place));

    let wrong = exported.stdout.replacen("old", "new", 1) + "{}\nnothing\n";
    fs::write(other.path("wrong.jsonl"), wrong).unwrap();
    let refused = other.run(["memory", "import", "wrong.jsonl"]);
    assert_eq!(refused.code, 2, "{refused}");
    for says in
        ["the id of this text is", "line 3: the version is missing", "line 4: it is not JSON"]
    {
        assert!(refused.stderr.contains(says), "{says}: {refused}");
    }
    assert_eq!(entries(&other), entries(&place));
}

#[test]
fn a_recording_has_what_was_recalled() {
    let place = Place::new();
    let other = Place::new();
    place.run(["memory", "add", "insights", "a parser of old"]);
    let recorded = learn(&place, &["--record", "run.jsonl"]);
    assert_eq!(recorded.code, 0, "{recorded}");
    fs::copy(place.path("run.jsonl"), other.path("run.jsonl")).unwrap();
    let replayed = learn(&other, &["--replay", "run.jsonl"]);
    assert_eq!(replayed.code, 0, "{replayed}");
    assert_eq!(replayed.json()["state"], recorded.json()["state"]);
    assert!(!other.path(".graphrun/memory.db").exists(), "a replay leaves the memory alone");

    fs::write(other.path("other.jsonl"), "").unwrap();
    let refused = learn(&other, &["--replay", "other.jsonl"]);
    assert_eq!(refused.code, 5, "{refused}");
    assert!(refused.stderr.contains("no entry"), "{refused}");
}

#[test]
fn another_memory_is_named_by_flag_variable_or_file() {
    let place = Place::new();
    let ended = learn(&place, &["--memory", "sqlite:own.db", "--pause-before", "look"]);
    assert_eq!(ended.code, 3, "{ended}");
    let resume = ended.json()["resume"].as_str().unwrap().to_owned();
    assert!(resume.ends_with(" --memory sqlite:own.db"), "{resume}");
    assert!(place.path("own.db").exists() && !place.path(".graphrun/memory.db").exists());
    let listed = place.run_with(["memory", "list"], [("GRAPHRUN_MEMORY", "sqlite:own.db")]);
    assert!(listed.stdout.contains("tests need Redis"), "{listed}");
    fs::write(place.path("graphrun.toml"), "memory = \"sqlite:own.db\"\n").unwrap();
    assert!(place.run(["memory", "list"]).stdout.contains("tests need Redis"));
    let nothing = place.run(["memory", "list", "--memory", "memory:"]);
    assert_eq!(nothing.stdout, "no entries\n", "{nothing}");
    let wrong = place.run(["memory", "list", "--memory", "file"]);
    assert_eq!(wrong.code, 2);
    assert!(
        wrong.stderr.contains("--memory is `file`, which is not the URL of a database"),
        "{wrong}"
    );
}

#[test]
fn a_memory_that_came_with_a_folder_needs_trust() {
    let place = Place::new();
    let other = Place::new();
    learn(&place, &[]);
    fs::create_dir(other.path(".graphrun")).unwrap();
    fs::copy(place.path(".graphrun/memory.db"), other.path(".graphrun/memory.db")).unwrap();
    let refused = learn(&other, &[]);
    assert_eq!(refused.code, 5, "{refused}");
    for says in [
        "`.graphrun/memory.db` is not a database that graphrun made for you",
        "its entries become a part of prompts",
        "--memory sqlite:",
    ] {
        assert!(refused.stderr.contains(says), "{says}: {refused}");
    }
    assert_eq!(other.run(["trust", "--yes"]).code, 0);
    assert_eq!(learn(&other, &[]).code, 0);
    // The database of runs is no memory.
    let wrong = place.run(["memory", "list", "--memory", "sqlite:.graphrun/runs.db"]);
    assert_eq!(wrong.code, 5);
    assert!(wrong.stderr.contains("it is a database of another program"), "{wrong}");
}

/// Kills the program at every point of a step and of a write, each time it gets there, and resumes.
#[cfg(feature = "failpoints")]
#[test]
fn a_kill_neither_doubles_nor_loses_an_entry() {
    use std::collections::BTreeSet;

    use graphrun::fault::Point;

    let points = [
        Point::TaskBeforeRun,
        Point::TaskAfterRun,
        Point::TaskInTransaction,
        Point::TaskAfterCommit,
        Point::BarrierInTransaction,
        Point::BarrierAfterCommit,
    ];
    let mut killed = BTreeSet::new();
    for point in points.into_iter().chain(Point::REMEMBERING) {
        for nth in 1..=3 {
            let place = Place::new();
            fs::write(place.path("learn.yaml"), LEARN).unwrap();
            let execute = ["execute", "learn.yaml", "-i", LESSONS, "--run-id", "mine"];
            let fault = format!("{}=abort@{nth}", point.name());
            let output = place.command(execute).env("GRAPHRUN_FAIL", &fault).output().unwrap();
            if output.status.success() {
                continue;
            }
            killed.insert(point.name());
            let ended = place.run(["resume", "mine", "--output", "json"]);
            assert_eq!(ended.code, 0, "{fault}: {ended}");
            assert_eq!(ended.json()["state"]["known"], json!(["the parser is old"]), "{fault}");
            let entries = entries(&place);
            assert_eq!(entries.len(), 2, "{fault}: {entries:?}");
            // What `keep` wrote was written once; `keep_known` updated the entry that `look` found.
            let is_once = |it: &Value| it["created"] == it["updated"];
            assert_eq!(entries.iter().filter(|it| is_once(it)).count(), 1, "{fault}: {entries:?}");
            let again = place.run(["runs", "verify", "mine"]);
            assert_eq!(again.code, 0, "{fault}: {again}");
        }
    }
    assert_eq!(killed.len(), points.len() + Point::REMEMBERING.len(), "{killed:?}");
}

/// Between the kill and the next process, the memory changes.
#[cfg(feature = "failpoints")]
#[test]
fn a_removed_entry_does_not_return_and_a_recall_stays_as_it_was() {
    // The write is durable, and its task is not.
    let place = Place::new();
    fs::write(place.path("learn.yaml"), LEARN).unwrap();
    let execute = ["execute", "learn.yaml", "-i", LESSONS, "--run-id", "mine"];
    crate::cli::killed::killed(&place, &execute, "memory.after_commit=abort");
    let ids = ids(&place);
    assert_eq!(place.run(["memory", "rm", &ids[0]]).code, 0);
    assert_eq!(place.run(["resume", "mine"]).code, 0);
    assert_eq!(self::ids(&place), &ids[1..]);

    // The recall is durable, and the next node has not begun.
    let place = Place::new();
    fs::write(place.path("learn.yaml"), LEARN).unwrap();
    crate::cli::killed::killed(&place, &execute, "task.before_run=abort@3");
    place.run(["memory", "add", "insights", "another parser"]);
    let ended = place.run(["resume", "mine", "--output", "json"]);
    assert_eq!(ended.json()["state"]["known"], json!(["the parser is old"]), "{ended}");
    let forked = place.run(["fork", "mine@2", "--output", "json"]);
    assert_eq!(forked.json()["state"]["known"], json!(["the parser is old"]), "{forked}");
}

/// Runs of several folders share a memory, and it moves to a server and back.
#[test]
fn a_server_keeps_the_memory_of_several_folders() {
    let place = Place::new();
    let other = Place::new();
    let schema = Schema::new();
    let url = schema.url();
    let memory = ["--memory", url.as_str()];
    let empty = place.run([&["memory", "list"][..], &memory].concat());
    assert_eq!((empty.code, empty.stdout.as_str()), (0, "no entries\n"), "{empty}");
    assert!(empty.stderr.contains("contains no memory yet"), "{empty}");
    let ended = learn(&place, &memory);
    assert_eq!((ended.code, &ended.json()["state"]["known"]), (0, &json!(["the parser is old"])));
    assert!(!place.path(".graphrun/memory.db").exists());

    let variable = [("GRAPHRUN_MEMORY", url.as_str())];
    let added = other.run_with(["memory", "add", "insights", "a parser has tabs"], variable);
    assert_eq!(added.code, 0, "{added}");
    let known = learn(&other, &memory).json()["state"]["known"].clone();
    assert_eq!(known.as_array().map(Vec::len), Some(2), "{known}");
    let exported = other.run_with(["memory", "export"], variable);
    fs::write(other.path("all.jsonl"), &exported.stdout).unwrap();
    assert_eq!(other.run(["memory", "import", "all.jsonl"]).code, 0);
    assert_eq!(other.run(["memory", "export"]).stdout, exported.stdout);
    let id = ids(&other).remove(0);
    assert_eq!(other.run_with(["memory", "approve", &id], variable).code, 0);
    assert_eq!(place.run_with(["memory", "rm", &id[..8]], variable).code, 0);
    let listed = place.run_with(["memory", "list", "--output", "json"], variable).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
}

#[test]
fn a_memory_server_that_does_not_answer_ends_with_exit_5() {
    let place = Place::new();
    let memory = ["--memory", "postgres://me:hunter2@127.0.0.1:1/app"];
    for ended in [place.run([&["memory", "list"][..], &memory].concat()), learn(&place, &memory)] {
        assert_eq!((ended.code, ended.stdout.as_str()), (5, ""), "{ended}");
        let says = "postgres://me@127.0.0.1:1/app cannot be used: no server answers there";
        assert!(ended.stderr.contains(says) && !ended.stderr.contains("hunter2"), "{ended}");
    }
    // A command that a message names does not repeat the password.
    let server = server().replacen("postgres@", "postgres:hunter2@", 1);
    let url = Schema::new().url_at(&server);
    let ended = learn(&place, &["--memory", &url, "--pause-before", "look"]);
    assert_eq!(ended.code, 3, "{ended}");
    assert!(
        ended.stdout.contains(" --memory 'postgres://") && ended.stdout.contains(":…@"),
        "{ended}"
    );
    assert!(!format!("{ended}").contains("hunter2"), "{ended}");
}

/// A kill in a write to a server, and after it.
#[cfg(feature = "failpoints")]
#[test]
fn a_kill_neither_doubles_nor_loses_an_entry_of_a_server() {
    use graphrun::fault::Point;

    for point in Point::REMEMBERING {
        for nth in 1..=2 {
            let place = Place::new();
            let schema = Schema::new();
            fs::write(place.path("learn.yaml"), LEARN).unwrap();
            let url = schema.url();
            let fault = format!("{}=abort@{nth}", point.name());
            let execute =
                ["execute", "learn.yaml", "-i", LESSONS, "--run-id", "mine", "--memory", &url];
            crate::cli::killed::killed(&place, &execute, &fault);
            let ended = place.run(["resume", "mine", "--output", "json", "--memory", &url]);
            assert_eq!(ended.json()["state"]["known"], json!(["the parser is old"]), "{fault}");
            let listed = place.run(["memory", "list", "--output", "json", "--memory", &url]).json();
            let entries = listed.as_array().unwrap();
            assert_eq!(entries.len(), 2, "{fault}: {entries:?}");
            let is_once = |it: &&Value| it["created"] == it["updated"];
            assert_eq!(entries.iter().filter(is_once).count(), 1, "{fault}: {entries:?}");
        }
    }
}
