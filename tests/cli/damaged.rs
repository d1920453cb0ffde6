//! Damage to one run is reported; the other runs stay usable.

use std::{fs, path::Path};

use rusqlite::Connection;
use serde_json::Value;

use crate::cli::program::Place;

/// Creates two finished runs, the first of which is damaged.
fn place(harm: &str) -> (Place, [String; 2]) {
    let place = Place::new();
    let names = [place.execute("two_steps"), place.execute("two_steps")];
    sql(&place.path(".graphrun/runs.db"), harm);
    (place, names)
}

fn sql(path: &Path, change: &str) {
    let raw = Connection::open(path).unwrap();
    raw.execute_batch(&format!("PRAGMA foreign_keys = off; {change}")).unwrap();
    assert!(raw.total_changes() > 0, "{change}");
}

#[test]
fn a_damaged_run_is_listed_as_that_and_the_others_as_ever() {
    for harm in [
        "UPDATE heads SET seq = seq + 1 WHERE run = 1",
        "UPDATE runs SET info = x'00' WHERE key = 1",
        "DELETE FROM heads WHERE run = 1",
    ] {
        let (place, [_, sound]) = place(harm);
        let listed = place.run(["runs", "list", "--output", "json"]);
        assert_eq!(listed.code, 6, "{harm}: {listed}");
        assert!(listed.stderr.starts_with("error: 1 run is damaged\n"), "{listed}");
        let lines = listed.json();
        let [first, second] = lines.as_array().unwrap().as_slice() else { panic!("{lines}") };
        assert_eq!((&first["name"], &first["status"]), (&sound.as_str().into(), &"done".into()));
        assert_eq!((&second["name"], &second["status"]), (&Value::Null, &"damaged".into()));
        let id = second["run"].as_str().unwrap().to_owned();
        let reason = second["reason"].as_str().unwrap();
        assert!(reason.contains(&format!("of run `{id}` is damaged: ")), "{reason}");

        // `--before` accepts a damaged run.
        let first_page = place.run(["runs", "list", "--limit", "1"]);
        assert_eq!(first_page.code, 0, "{first_page}");
        let rest = place.run(["runs", "list", "--before", &id]);
        assert_eq!((rest.code, rest.stdout.as_str()), (0, "no runs yet\n"), "{rest}");
        for args in [&["runs", "show", &sound][..], &["runs", "verify", &sound]] {
            let ended = place.run(args);
            assert_eq!(ended.code, 0, "{harm}: {ended}");
        }
    }
}

#[test]
fn the_list_of_a_damaged_run_is_a_table_like_others() {
    let (place, [_, sound]) = place("UPDATE heads SET seq = seq + 1 WHERE run = 1");
    let listed = place.run(["runs", "list"]);
    let lines: Vec<&str> = listed.stdout.lines().collect();
    assert!(lines[1].starts_with(&sound) && lines[1].contains("  done  "), "{listed}");
    assert!(lines[2].trim_start().starts_with("damaged  "), "{listed}");
    assert!(lines[2].ends_with("is damaged: its checksum does not match"), "{listed}");
    let help = "help: the other runs are intact; restore a backup of the database";
    assert!(listed.stderr.contains(help), "{listed}");
}

#[test]
fn pruning_keeps_a_damaged_run_and_reports_it() {
    let (place, [_, sound]) = place("UPDATE heads SET seq = seq + 1 WHERE run = 1");
    let pruned = place.run(["runs", "prune", "--older-than", "0"]);
    assert_eq!(pruned.code, 6, "{pruned}");
    assert!(pruned.stdout.contains(&format!("removed {sound} ")), "{pruned}");
    assert!(pruned.stdout.ends_with("removed 1 run\n"), "{pruned}");
    assert!(pruned.stderr.contains("error: 1 run is damaged\n"), "{pruned}");
    let left = place.run(["runs", "list", "--output", "json"]).json();
    assert_eq!((left.as_array().unwrap().len(), &left[0]["status"]), (1, &"damaged".into()));
}

#[test]
fn a_kept_result_that_is_damaged_is_not_used() {
    let place = Place::new();
    fs::copy(crate::cli::program::workflow("cached"), place.path("cached.yaml")).unwrap();
    let time = || {
        let ended = place.run(["execute", "cached.yaml", "-i", "brief=x", "--output", "json"]);
        assert_eq!(ended.code, 0, "{ended}");
        ended.json()["state"]["time"].clone()
    };
    let first = time();
    assert_eq!(time(), first);
    for harm in [
        "UPDATE results SET payload = replace(payload, '1', '2')",
        "UPDATE results SET saved_at = saved_at + 1",
        "UPDATE results SET checksum = zeroblob(32)",
    ] {
        let before = time();
        sql(&place.path(".graphrun/runs.db"), harm);
        let after = time();
        assert_ne!(after, before, "{harm}");
        assert_eq!(time(), after, "{harm}");
    }
}
