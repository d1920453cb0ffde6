//! Subworkflows: their tasks are saved, asked and shown like those of the outer workflow.

use std::fs;

use serde_json::{Value, json};

use super::{
    changed::named,
    program::{Ended, Place},
};

/// A run of it pauses with a question in the nested run of each item.
const OUTER: &str = r#"
graphrun: 1
name: outer
types: { Lost: { item: string, message: string } }
state:
  words: "[string]"
  kept: { type: "[string]", merge: append, default: [] }
  lost: { type: "[Lost]", merge: append, default: [] }
input: words
output: [kept, lost]
start: each
nodes:
  each: { map: { over: words, as: word, do: sub, failed: lost }, then: end }
  sub: { use: { workflow: inner.yaml, in: { word: word }, out: { kept: kept } } }
"#;

const MIDDLE: &str = r"
graphrun: 1
name: middle
state: { word: string, kept: string }
input: word
output: kept
start: deep
nodes:
  deep:
    use: { workflow: inner.yaml, nested: true, in: { word: word }, out: { kept: kept } }
    then: end
";

const INNER: &str = r#"
graphrun: 1
name: inner
state: { word: string, note: string, kept: string, verdict: good | bad }
input: word
output: [kept, note]
limits: { steps: 9 }
start: first
nodes:
  first: { set: { kept: 'word + "!"', note: word }, then: judge }
  judge: { ask: "Is {{ kept }} good?", choices: [good, bad], writes: verdict, then: last }
  last: { set: { kept: 'kept + "?"' }, then: end }
"#;

/// Starts a run of this workflow, and returns its name.
fn paused(place: &Place, outer: &str) -> String {
    fs::write(place.path("outer.yaml"), outer).unwrap();
    fs::write(place.path("middle.yaml"), MIDDLE).unwrap();
    change_inner(place, &[]);
    let ended = place.run(["execute", "outer.yaml", "-i", r#"words=["a"]"#, "--output", "json"]);
    assert_eq!(ended.code, 3, "{ended}");
    ended.json()["name"].as_str().unwrap().to_owned()
}

/// Writes the inner workflow with other texts.
fn change_inner(place: &Place, replaced: &[(&str, &str)]) {
    let mut text = INNER.to_owned();
    for (old, new) in replaced {
        assert!(text.contains(old), "{old}");
        text = text.replace(old, new);
    }
    fs::write(place.path("inner.yaml"), text).unwrap();
}

/// Resumes the run with an answer to its only question.
fn answer(place: &Place, name: &str) -> Ended {
    let shown = place.run(["runs", "show", name, "--output", "json"]).json();
    let key = shown["questions"][0]["key"].as_str().unwrap().to_owned();
    place.run(["resume", name, "--answer", &format!("{key}=\"good\""), "--output", "json"])
}

fn in_one_line(ended: &Ended) -> String {
    ended.stderr.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn hash(place: &Place, name: &str) -> Value {
    place.run(["runs", "verify", name, "--output", "json"]).json()[0]["hash"].clone()
}

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

#[test]
fn a_change_that_breaks_a_nested_run_is_refused() {
    let place = Place::new();
    let deeper = OUTER.replace("inner.yaml", "middle.yaml");
    for (outer, replaced, said) in [
        (
            OUTER,
            &[("judge", "referee")][..],
            "in `sub`: the node `judge` is gone; in a nested run that has begun, it waits for an answer",
        ),
        (
            deeper.as_str(),
            &[("judge", "referee")][..],
            "in `sub`: in `deep`: the node `judge` is gone; in a nested run that has begun, it waits for an \
             answer",
        ),
        (
            OUTER,
            &[("Is {{ kept }} good?", "Is it good?")][..],
            "in `sub`: `judge` (ask) does something else; in a nested run that has begun, it waits for the answer \
             to its old question",
        ),
        (
            OUTER,
            &[("note: string", "note: int"), ("note: word", "note: '1'")][..],
            "in `sub`: `note` was string and is int; in a nested run that has begun, its value does not fit",
        ),
    ] {
        let name = paused(&place, outer);
        change_inner(&place, replaced);
        let before = hash(&place, &name);
        let refused = answer(&place, &name);
        assert_eq!(refused.code, 6, "{refused}");
        let text = in_one_line(&refused);
        let hint = "`--again sub` starts the tasks of `sub` from the beginning";
        assert!(text.contains(said) && text.contains(hint), "{said}: {refused}");
        let plain = place.run(["migrate", &name, "outer.yaml"]);
        assert_eq!((plain.code, hash(&place, &name)), (6, before), "{plain}");

        let within = place.run(["migrate", &name, "outer.yaml", "--map", "sub.judge=sub.referee"]);
        assert_eq!(within.code, 2, "{within}");
        let hint = "a migration renames nothing within nested runs: `--again sub`";
        assert!(in_one_line(&within).contains(hint), "{within}");

        let command = named(&refused);
        assert_eq!(command, ["migrate", &*name, "outer.yaml", "--again", "sub"]);
        let migrated = place.run(&command);
        assert_eq!(migrated.code, 0, "{migrated}");
        let again = place.run(["resume", &name, "--output", "json"]);
        assert_eq!(again.code, 3, "{again}");
        assert!(!again.stderr.contains("has changed"), "{again}");
        let done = answer(&place, &name);
        let state = json!({"kept": ["a!?"], "lost": []});
        assert_eq!((done.code, &done.json()["state"]), (0, &state), "{done}");

        let name = paused(&place, outer);
        change_inner(&place, replaced);
        assert_eq!(answer(&place, &name).code, 6);
        change_inner(&place, &[]);
        let done = answer(&place, &name);
        assert_eq!((done.code, &done.json()["state"]), (0, &state), "{done}");
    }
}

#[test]
fn a_run_that_was_nested_is_not_lost_in_silence() {
    let place = Place::new();
    let outer =
        MIDDLE.replace("input: word", "input: words").replace("word: string", "words: '[string]'");
    let outer = outer.replace("in: { word: word }", "in: { word: '\"a\"' }");
    let name = paused(&place, &outer);
    fs::write(place.path("outer.yaml"), outer.replace("nested: true", "nested: false")).unwrap();
    let refused = answer(&place, &name);
    assert_eq!(refused.code, 6, "{refused}");
    let said = "the tasks of `deep` are no longer nested runs; a nested run has begun";
    assert!(in_one_line(&refused).contains(said), "{refused}");
    assert_eq!(named(&refused)[3..], ["--again", "deep"], "{refused}");
}

#[test]
fn changes_of_nested_workflows_are_reported() {
    let place = Place::new();
    let deeper = OUTER.replace("inner.yaml", "middle.yaml");
    for (outer, within) in [(OUTER, "in `sub`: "), (deeper.as_str(), "in `sub`: in `deep`: ")] {
        let name = paused(&place, outer);
        change_inner(&place, &[("steps: 9", "steps: 8"), ("kept + \"?\"", "\"?\" + kept")]);
        let done = answer(&place, &name);
        let state = json!({"kept": ["?a!"], "lost": []});
        assert_eq!((done.code, &done.json()["state"]), (0, &state), "{done}");
        let events = place.run(["runs", "events", &name, "--output", "jsonl"]).stdout;
        let changed = events.lines().find(|it| it.contains("workflow.changed")).unwrap();
        let changed: Value = serde_json::from_str(changed).unwrap();
        let all = [
            format!("{within}`last` (set) does something else"),
            format!("{within}the limits have changed"),
        ];
        assert_eq!(changed["changes"], json!(all));
    }

    let name = paused(&place, OUTER);
    let outer = OUTER.replace("in: { word: word }", "in: { word: 'word + word' }");
    fs::write(place.path("outer.yaml"), outer).unwrap();
    let done = answer(&place, &name);
    assert!(in_one_line(&done).contains("`sub` (use) does something else"), "{done}");
    assert_eq!((done.code, &done.json()["state"]["kept"]), (0, &json!(["a!?"])), "{done}");
}
