//! Removing runs.

use std::{fs, net::TcpListener};

use serde_json::{Value, json};

use crate::cli::program::{Ended, Place, Running, keys, workflow};

fn names(place: &Place) -> Vec<String> {
    let runs = place.run(["runs", "list", "--output", "json"]).json();
    let runs = runs.as_array().unwrap().iter();
    runs.map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_export_is_the_whole_journal_with_its_links() {
    let place = Place::new();
    let name = place.execute("two_steps");
    let ended = place.run(["runs", "export", &name]);
    assert_eq!(ended.code, 0, "{ended}");
    let lines: Vec<Value> =
        ended.stdout.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!((&lines[0]["run"]["name"], &lines[0]["entry"]), (&json!(name), &json!(0)));
    assert_eq!(
        keys(&lines[1]),
        ["v", "entry", "hash", "records", "commit", "run_status", "events"]
    );
    assert_eq!(lines[1]["commit"]["changes"][0]["kind"]["set"], "x");
    let verdict = place.run(["runs", "verify", &name, "--output", "json"]).json();
    let last = lines.last().unwrap();
    assert_eq!((&last["hash"], &last["entry"]), (&verdict[0]["hash"], &verdict[0]["entries"]));
    assert_eq!(last["run_status"]["status"], "done");
}

#[test]
fn removed_runs_are_gone_and_others_are_not_touched() {
    let place = Place::new();
    let one = place.execute("two_steps");
    let other = place.execute("two_steps");
    // An unknown run is reported before the first is removed.
    assert_eq!(place.run(["runs", "rm", &one, "nobody"]).code, 6);
    assert_eq!(names(&place), [&*other, &*one]);
    assert_eq!(place.run(["runs", "rm", &one, &one]).code, 0);
    assert_eq!(names(&place), [&*other]);
    assert_eq!(place.run(["runs", "verify"]).code, 0);
}

#[test]
fn pruning_gives_the_space_back() {
    let place = Place::new();
    let mut seed = 1_u64;
    let noise = (0..100_000).map(|_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'a' + (seed >> 59) as u8 % 26)
    });
    let brief: String = noise.collect();
    fs::write(place.path("brief.txt"), brief).unwrap();
    for _ in 0..4 {
        let args = ["execute", &workflow("two_steps"), "-i", "brief=@brief.txt"];
        assert_eq!(place.run(args).code, 0);
    }
    let size = || fs::metadata(place.path(".graphrun/runs.db")).unwrap().len();
    let before = (size(), names(&place));
    let dry = place.run(["runs", "prune", "--older-than", "0", "--keep", "1", "--dry-run"]);
    assert!(dry.code == 0 && dry.stdout.contains("would remove 3 runs"), "{dry}");
    assert_eq!((size(), names(&place)), before);
    let ended = place.run(["runs", "prune", "--older-than", "0", "--keep", "1"]);
    assert!(ended.code == 0 && ended.stdout.contains("removed 3 runs"), "{ended}");
    assert_eq!(names(&place), before.1[..1]);
    assert!(size() * 2 < before.0, "{} of {}", size(), before.0);
    assert_eq!(place.run(["runs", "verify"]).code, 0);
}

#[test]
fn young_runs_and_other_statuses_are_kept() {
    let place = Place::new();
    place.execute("two_steps");
    let paused = place.run(["execute", &workflow("asks"), "-i", "brief=x"]);
    assert_eq!(paused.code, 3);
    let prune = |args: &[&str]| {
        let ended = place.run([&["runs", "prune"], args].concat());
        assert_eq!(ended.code, 0, "{ended}");
        names(&place).len()
    };
    assert_eq!(prune(&["--older-than", "1h"]), 2);
    assert_eq!(prune(&["--older-than", "0"]), 1, "what waits for a person is kept");
    assert_eq!(prune(&["--older-than", "0", "--status", "failed,paused"]), 0);
    assert_eq!(place.run(["runs", "prune", "--older-than", "0", "--status", "running"]).code, 2);
}

#[test]
fn a_run_with_an_owner_is_not_removed() {
    let place = Place::new();
    let provider = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut running = Running::start(&place, &provider);
    running.wait_for("started");
    let name = names(&place).pop().unwrap();
    let ended = place.run(["runs", "rm", &name]);
    assert!(ended.code == 6 && ended.stderr.contains("is owned by"), "{ended}");
    assert_eq!(names(&place), [name]);
}

#[test]
fn programs_read_what_was_removed() {
    let place = Place::new();
    let names = [(); 3].map(|()| place.execute("two_steps"));
    let prune = ["runs", "prune", "--older-than", "0", "--keep", "1", "--output", "json"];
    let dry = place.run([&prune[..], &["--dry-run"]].concat());
    let removed = |ended: &Ended| {
        let runs = ended.json()["removed"].clone();
        assert_eq!(keys(&runs[0]), ["run", "name", "status", "created"]);
        let runs = runs.as_array().unwrap().iter();
        runs.map(|it| it["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        (dry.json()["dry_run"].clone(), removed(&dry)),
        (json!(true), vec![names[1].clone(), names[0].clone()])
    );
    assert_eq!(removed(&place.run(prune)), [&*names[1], &*names[0]]);
    let ended = place.run(["runs", "rm", &names[2], "--output", "json"]);
    assert_eq!(removed(&ended), [&*names[2]]);
}
