//! Subworkflows: their tasks are saved, asked and shown like those of the outer workflow.

use serde_json::json;

use super::program::Place;

#[test]
fn a_question_of_a_used_workflow_is_answered_in_another_process() {
    let place = Place::new();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/workflow/used/gate.yaml");
    let asked = place.run(["execute", path, "-i", "text=a poem", "--output", "json"]);
    assert_eq!(asked.code, 3, "{asked}");
    let name = asked.json()["name"].as_str().unwrap().to_owned();
    assert!(asked.stderr.contains("--answer 'inner.ask=\"good\"'"), "{asked}");

    let state = place.run(["runs", "state", &name, "--output", "json"]);
    assert_eq!(state.json()["inner.topic"], "a poem", "{state}");
    let refused = place.run(["resume", &name, "--answer", "inner.ask=perhaps"]);
    assert_eq!(refused.code, 2, "{refused}");
    let done = place.run(["resume", &name, "--answer", "inner.ask=bad", "--output", "json"]);
    assert_eq!((done.code, &done.json()["state"]), (0, &json!({"verdict": "bad"})), "{done}");
    let shown = place.run(["runs", "show", &name]);
    assert!(shown.code == 0 && shown.stdout.contains("inner.ask"), "{shown}");
}

#[test]
fn the_state_of_a_used_workflow_can_be_updated() {
    let place = Place::new();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/workflow/used/gate.yaml");
    let asked = place.run(["execute", path, "-i", "text=a poem", "--output", "json"]);
    let name = asked.json()["name"].as_str().unwrap().to_owned();
    let updated = place.run(["runs", "update", &name, "--set", "inner.topic=\"prose\""]);
    assert_eq!(updated.code, 0, "{updated}");
    let state = place.run(["runs", "state", &name, "--output", "json"]);
    assert_eq!(state.json()["inner.topic"], "prose", "{state}");
}
