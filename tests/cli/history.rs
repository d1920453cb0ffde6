//! Looking at the history of runs, and going another way from an earlier point.

use rusqlite::Connection;
use serde_json::json;

use crate::program::Place;

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
