//! Runs whose workflow was changed after they were started.

use std::fs;

use serde_json::json;

use crate::program::{Ended, Place};

/// A run of it pauses at `judge`; by then `left` has finished in the same step.
const WORKFLOW: &str = r#"
graphrun: 1
name: board
state:
  brief: string
  draft: string
  count: int
  notes: { type: '[string]', merge: append }
  verdict: good | rework
input: [brief]
output: [draft]
start: plan
nodes:
  plan:
    set: { draft: brief, notes: '[brief]', count: '1' }
    max_visits: 3
    exhausted: end
    then: both
  both:  { parallel: [left, judge], then: done }
  left:  { set: { notes: '["left"]' } }
  judge: { ask: Is it good?, choices: [good, rework], writes: verdict }
  done:  { set: { draft: brief }, then: { match: verdict, to: { good: end, rework: plan } } }
"#;

/// A text of the workflow, and what is put in its place.
type Replaced = (&'static str, &'static str);

/// What becomes of the run when these texts of its workflow are replaced: the exit code of
/// `resume`, and what it says.
const MUTATIONS: &[(&[Replaced], i32, &str)] = &[
    (
        &[("judge]", "referee]"), ("judge:", "referee:")],
        6,
        "the node `judge` is gone; it waits for an answer; if `referee` is this node, give it its old name back",
    ),
    (
        &[("[left", "[lint"), ("left:", "lint:")],
        6,
        "the node `left` is gone; it has finished in a step that is not complete; if `lint` is this node",
    ),
    (
        &[("then: done", "then: finish"), ("done:", "finish:")],
        6,
        "the node `done` is gone; it has begun to wait: `left` arrived there; if `finish` is this node",
    ),
    (
        &[
            ("start: plan", "start: planner"),
            ("  plan:", "  planner:"),
            ("rework: plan", "rework: planner"),
            ("count: '1'", "count: '2'"),
        ],
        3,
        "the node `plan` is gone",
    ),
    (
        &[
            ("start: plan", "start: planer"),
            ("  plan:", "  planer:"),
            ("rework: plan", "rework: planer"),
        ],
        6,
        "the node `plan` is gone; it has run 1 of 3 times, which would be forgotten; if `planer` is this node",
    ),
    (
        &[
            ("left, judge]", "left, judge, right]"),
            ("  done:", "  right: { set: { notes: '[\"right\"]' } }\n  done:"),
        ],
        6,
        "`done` waits for `judge`, `left`, `right` now, and for `judge`, `left` before; it has begun to wait: `left` arrived there",
    ),
    (
        &[("count: int", "count: string"), ("count: '1'", "count: brief")],
        6,
        "`count` was int and is string; its value does not fit",
    ),
    (
        &[("count: int", "count: float"), ("count: '1'", "count: '1.5'")],
        3,
        "`count` was int and is float",
    ),
    (
        &[("  count: int\n", ""), (", count: '1'", "")],
        6,
        "the field `count` (int) is gone; it holds a value; bring it back",
    ),
    (
        &[("  count: int\n", "  counts: int\n"), (", count: ", ", counts: ")],
        6,
        "the field `count` (int) is gone; it holds a value; if `counts` is this field, give it its old name back",
    ),
    (
        &[("merge: append", "merge: union")],
        6,
        "`notes` was merged by append and is by union; it holds a value that was made the old way",
    ),
    (
        &[("  verdict:", "  extra: { type: int, default: 3 }\n  verdict:")],
        6,
        "the field `extra` (int) is new; the run does not hold what it is to begin with; a fork of the run begins with it",
    ),
    (
        &[("Is it good?", "Is it fine?")],
        6,
        "what `judge` (ask) does has changed; it waits for the answer to what it asked before; a fork of the run asks anew",
    ),
    (&[("  verdict:", "  extra: int?\n  verdict:")], 3, "the field `extra` (int?) is new"),
    (
        &[("set: { draft: brief }", "set: { draft: draft }")],
        3,
        "what `done` (set) does has changed",
    ),
    (&[("rework: plan", "rework: end")], 3, "`done` leads to"),
    (
        &[("max_visits: 3", "max_visits: 5")],
        3,
        "the conditions under which `plan` runs have changed",
    ),
    (&[("start: plan", "limits: { steps: 50 }\nstart: plan")], 3, "the limits have changed"),
    (&[("name: board", "about: The same, with a comment.\nname: board")], 3, ""),
];

/// Starts a run that pauses, and gives its name.
fn paused(place: &Place) -> String {
    fs::write(place.path("board.yaml"), WORKFLOW).unwrap();
    let ended = place.run(["execute", "board.yaml", "-i", "brief=x", "--output", "json"]);
    assert_eq!(ended.code, 3, "{ended}");
    ended.json()["name"].as_str().unwrap().to_owned()
}

fn change(place: &Place, replaced: &[(&str, &str)]) {
    let mut text = WORKFLOW.to_owned();
    for (old, new) in replaced {
        assert!(text.contains(old), "{old}");
        text = text.replace(old, new);
    }
    fs::write(place.path("board.yaml"), text).unwrap();
}

fn told(ended: &Ended) -> String {
    ended.stderr.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn g17_a_changed_workflow_is_refused_where_the_change_breaks_the_run_and_told_where_not() {
    let place = Place::new();
    for (replaced, code, said) in MUTATIONS {
        let name = paused(&place);
        change(&place, replaced);
        let ended = place.run(["resume", &name]);
        assert_eq!(ended.code, *code, "{replaced:?}: {ended}");
        assert!(told(&ended).contains(said), "{replaced:?}: {ended}");
        assert_eq!(ended.stderr.contains("has changed"), !said.is_empty(), "{replaced:?}: {ended}");
        // Whatever was refused goes on with the workflow as it was.
        fs::write(place.path("board.yaml"), WORKFLOW).unwrap();
        let ended = place.run(["resume", &name, "--answer", "judge=\"good\"", "--output", "json"]);
        assert_eq!((ended.code, &ended.json()["state"]), (0, &json!({"draft": "x"})), "{ended}");
    }
}

#[test]
fn g17_a_refused_run_is_not_touched() {
    let place = Place::new();
    let name = paused(&place);
    let link =
        || place.run(["runs", "verify", &name, "--output", "json"]).json()[0]["link"].clone();
    let before = link();
    change(&place, &[("merge: append", "merge: union")]);
    assert_eq!(place.run(["resume", &name, "--answer", "judge=\"good\""]).code, 6);
    assert_eq!(link(), before);
}

#[test]
fn g17_a_fork_goes_on_with_a_changed_workflow_on_purpose() {
    let place = Place::new();
    let name = paused(&place);
    change(
        &place,
        &[
            ("Is it good?", "Is it fine?"),
            ("merge: append", "merge: union"),
            ("  verdict:", "  extra: { type: int, default: 3 }\n  verdict:"),
        ],
    );
    let ended = place.run(["fork", &name, "--output", "json"]);
    assert_eq!(ended.code, 3, "{ended}");
    let fork = ended.json();
    assert_eq!(fork["questions"][0]["prompt"], "Is it fine?");
    let fork = fork["name"].as_str().unwrap();
    let state = place.run(["runs", "state", fork]).json();
    assert_eq!((&state["extra"], &state["notes"]), (&json!(3), &json!(["x"])));
    let ended = place.run(["resume", fork, "--answer", "judge=\"good\"", "--output", "json"]);
    assert_eq!((ended.code, &ended.json()["state"]), (0, &json!({"draft": "x"})), "{ended}");
}
