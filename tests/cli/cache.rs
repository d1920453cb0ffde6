//! The cache of results in the database, and the flags that bypass it.

use std::fs;

use serde_json::{Value, json};

use super::program::{Place, workflow};

/// Runs the workflow and returns the output of its command.
fn time(place: &Place, brief: &str, flags: &[&str]) -> Value {
    let cached = workflow("cached");
    let brief = format!("brief={brief}");
    let args = ["execute", &cached, "-i", &brief, "--output", "json"];
    let ended = place.run([&args[..], flags].concat());
    assert_eq!(ended.code, 0, "{ended}");
    ended.json()["state"]["time"].clone()
}

#[test]
fn a_later_process_uses_a_result_unless_a_flag_forbids_it() {
    let place = Place::new();
    let first = time(&place, "x", &[]);
    assert_eq!(time(&place, "x", &[]), first);
    assert_ne!(time(&place, "y", &[]), first);
    let renewed = time(&place, "x", &["--no-cache"]);
    assert_ne!(renewed, first);
    assert_eq!(time(&place, "x", &[]), renewed);
    // A recording must contain every reply.
    let recorded = time(&place, "x", &["--record", "run.jsonl"]);
    assert_ne!(recorded, renewed);
    assert_eq!(time(&place, "x", &[]), recorded);
    assert_ne!(time(&place, "x", &["--db", "sqlite:other.db"]), recorded);
    assert_ne!(time(&place, "x", &["--db", "memory:"]), recorded);
}

#[test]
fn a_view_reports_a_cached_result() {
    let place = Place::new();
    time(&place, "x", &[]);
    let ended = place.run(["execute", &workflow("cached"), "-i", "brief=x", "--progress", "plain"]);
    assert!(ended.stderr.contains("tell uses the cached result of 20"), "{ended}");
    let ended = place.run(["execute", &workflow("cached"), "-i", "brief=x", "--output", "jsonl"]);
    let reused =
        ended.stdout.lines().filter(|it| it.contains(r#""kind":"cache_hit","computed_at":"20"#));
    assert_eq!(reused.count(), 1, "{ended}");
}

#[test]
fn replayed_results_are_not_cached() {
    let place = Place::new();
    let agent = fs::read_to_string(workflow("agent")).unwrap();
    let cached = agent.replace("writes: answer", "writes: answer\n    cache: true");
    fs::write(place.path("cached.yaml"), cached).unwrap();
    for text in ["one", "two"] {
        let entry = json!({"v": 1, "node": "write", "when": {"contains": ["Answer this: x"]},
            "reply": {"text": text, "usage": {"input_tokens": 3, "output_tokens": 4}}});
        fs::write(place.path("run.jsonl"), format!("{entry}\n")).unwrap();
        let args = ["execute", "cached.yaml", "-i", "brief=x", "--replay", "run.jsonl"];
        let ended = place.run([&args[..], &["--output", "json"]].concat());
        assert_eq!((ended.code, &ended.json()["state"]), (0, &json!({"answer": text})), "{ended}");
    }
}
