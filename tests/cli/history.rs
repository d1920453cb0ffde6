//! Looking at the history of runs, and going another way from an earlier point.

use rusqlite::Connection;
use serde_json::json;

use crate::program::{Place, workflow};

/// Changes the database behind the program's back.
fn tamper(place: &Place, change: &str) {
    let raw = Connection::open(place.path(".graphrun/runs.db")).unwrap();
    raw.execute_batch(&format!("PRAGMA foreign_keys = off; {change}")).unwrap();
    assert!(raw.total_changes() > 0, "{change}");
}

#[test]
fn g8_a_history_is_verified_by_its_link_and_a_damaged_one_is_named() {
    let place = Place::new();
    let (one, other) = (place.execute("two_steps"), place.execute("two_steps"));
    let ended = place.run(["runs", "verify", "--output", "json"]);
    assert_eq!(ended.code, 0, "{ended}");
    let verdicts = ended.json();
    assert_eq!(
        (verdicts[0]["name"].as_str(), verdicts[1]["name"].as_str()),
        (Some(&*other), Some(&*one))
    );
    assert_eq!((&verdicts[1]["intact"], &verdicts[1]["steps"]), (&json!(true), &json!(2)));
    let link = verdicts[1]["link"].as_str().unwrap();
    let ended = place.run(["runs", "verify", &one, "--expect", link]);
    assert!(ended.code == 0 && ended.stdout.contains("has the link that is expected"), "{ended}");
    // It is the link of another run.
    let ended = place.run(["runs", "verify", &other, "--expect", link]);
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
fn the_steps_of_a_run_say_what_ran_and_what_it_changed() {
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
            step["changed"].clone(),
            step["next"].clone(),
        )
    };
    let set = |field: &str| json!([{"field": field, "how": "set"}]);
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
fn a_diff_says_what_changed_from_what_to_what_and_who_wrote_it() {
    let place = Place::new();
    let name = place.execute("two_steps");
    let ended = place.run(["runs", "diff", &format!("{name}@0"), &format!("{name}@2")]);
    assert_eq!(ended.code, 0, "{ended}");
    let lines: Vec<Vec<&str>> =
        ended.stdout.lines().skip(1).map(|it| it.split_whitespace().collect()).collect();
    assert_eq!(lines[1], ["answer", "—", "\"x\"", "second", "(step", "2)"], "{ended}");
    assert_eq!(lines[2], ["draft", "—", "\"x\"", "first", "(step", "1)"], "{ended}");
    assert_eq!(lines.len(), 3, "{ended}");

    // Without a second step it is compared with the last one; nothing is between equal ones.
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
