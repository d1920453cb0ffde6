//! Runs whose workflow changed after the start.

use std::fs;

use serde_json::{Value, json};

use crate::cli::program::{Ended, Place};

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
limits: { steps: 90 }
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

/// A text of the workflow, and its replacement.
type Replaced = (&'static str, &'static str);

/// Replacements in the workflow of the run, with the exit code of `resume` and its message.
const MUTATIONS: &[(&[Replaced], i32, &str)] = &[
    (
        &[("judge]", "referee]"), ("judge:", "referee:")],
        6,
        "the node `judge` is gone; it waits for an answer; if `referee` is this node, `--map judge=referee`; else `--drop judge`",
    ),
    (
        &[("[left", "[lint"), ("left:", "lint:")],
        6,
        "the node `left` is gone; it has finished in an incomplete step; if `lint` is this node, \
         `--map left=lint`; else `--drop left`",
    ),
    (
        &[("then: done", "then: finish"), ("done:", "finish:")],
        6,
        "the node `done` is gone; it is waiting: `left` arrived there; if `finish` is this node, `--map done=finish`; else `--drop done`",
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
        "the node `plan` is gone; it has run 1 of 3 times, and the count would be forgotten; if \
         `planer` is this node, `--map plan=planer`; else `--drop plan`",
    ),
    (
        &[
            ("left, judge]", "left, judge, right]"),
            ("  done:", "  right: { set: { notes: '[\"right\"]' } }\n  done:"),
        ],
        6,
        "`done` waits for `judge`, `left`, `right`, and waited for `judge`, `left` before; it is \
         waiting: `left` arrived there; `--drop right` continues without",
    ),
    (
        &[("count: int", "count: string"), ("count: '1'", "count: brief")],
        6,
        "`count` was int and is string; its value does not fit (1 is not of type \"string\"); \
         `--set count=JSON` replaces it, `--drop count` discards it",
    ),
    (
        &[("count: int", "count: float"), ("count: '1'", "count: '1.5'")],
        3,
        "`count` was int and is float",
    ),
    (
        &[("  count: int\n", ""), (", count: '1'", "")],
        6,
        "the field `count` (int) is gone; it holds a value; `--map count=FIELD` names the new \
         field, `--drop count` discards the value",
    ),
    (
        &[("  count: int\n", "  counts: int\n"), (", count: ", ", counts: ")],
        6,
        "the field `count` (int) is gone; it holds a value; if `counts` is this field, `--map count=counts`; else `--drop count`",
    ),
    (
        &[("merge: append", "merge: union")],
        6,
        "the reducer of `notes` was append and is union; the old reducer made its value; `--map \
         notes=notes` keeps the value, `--set notes=JSON` replaces it",
    ),
    (
        &[("  verdict:", "  extra: { type: int, default: 3 }\n  verdict:")],
        6,
        "the field `extra` (int) is new; the run has no value for it; a migration sets its default",
    ),
    (
        &[("Is it good?", "Is it fine?")],
        6,
        "`judge` (ask) does something else; it waits for the answer to its old question; \
         `--again judge` asks again, `--map judge=judge` keeps the question",
    ),
    (&[("  verdict:", "  extra: int?\n  verdict:")], 3, "the field `extra` (int?) is new"),
    (&[("set: { draft: brief }", "set: { draft: draft }")], 3, "`done` (set) does something else"),
    (&[("rework: plan", "rework: end")], 3, "`done` leads to"),
    (&[("max_visits: 3", "max_visits: 5")], 3, "the policies of `plan` have changed"),
    (&[("steps: 90", "steps: 50")], 3, "the limits have changed"),
    (&[("name: board", "about: The same, with a comment.\nname: board")], 3, ""),
];

/// Starts a run that pauses, and returns its name.
pub(crate) fn paused(place: &Place) -> String {
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
fn only_changes_that_break_the_run_are_refused() {
    let place = Place::new();
    for (replaced, code, said) in MUTATIONS {
        let name = paused(&place);
        change(&place, replaced);
        let ended = place.run(["resume", &name]);
        assert_eq!(ended.code, *code, "{replaced:?}: {ended}");
        assert!(told(&ended).contains(said), "{replaced:?}: {ended}");
        assert_eq!(ended.stderr.contains("has changed"), !said.is_empty(), "{replaced:?}: {ended}");
        // A refused run can be resumed with the original workflow.
        fs::write(place.path("board.yaml"), WORKFLOW).unwrap();
        let ended = place.run(["resume", &name, "--answer", "judge=\"good\"", "--output", "json"]);
        assert_eq!((ended.code, &ended.json()["state"]), (0, &json!({"draft": "x"})), "{ended}");
    }
}

/// Returns the command in the refusal, without `graphrun`; placeholders get a value.
pub(crate) fn named(refused: &Ended) -> Vec<String> {
    let said = "help: to migrate it: graphrun ";
    let line = refused.stderr.lines().find_map(|it| it.strip_prefix(said));
    let line = line.unwrap_or_else(|| panic!("no command is named: {refused}"));
    line.split(' ').map(|it| it.replace("count=JSON", "count=\"7\"")).collect()
}

#[test]
fn every_refusal_names_a_migration_that_works() {
    let place = Place::new();
    let refused = MUTATIONS.iter().filter(|it| it.1 == 6);
    assert!(refused.clone().count() >= 10 && MUTATIONS.len() >= 15);
    for (replaced, ..) in refused {
        let name = paused(&place);
        change(&place, replaced);
        let command = named(&place.run(["resume", &name]));
        assert_eq!(command[..3], ["migrate", &*name, "board.yaml"], "{replaced:?}");
        // A dry run changes nothing.
        let tried = place.run(command.iter().map(String::as_str).chain(["--dry-run"]));
        assert_eq!(tried.code, 0, "{replaced:?}: {tried}");
        assert!(tried.stdout.contains("nothing was changed"), "{tried}");
        assert_eq!(place.run(["resume", &name]).code, 6, "{replaced:?}");

        let migrated = place.run(&command);
        assert_eq!(migrated.code, 0, "{replaced:?}: {migrated}");
        let ended = place.run(["resume", &name, "--output", "json"]);
        assert_eq!(ended.code, 3, "{replaced:?}: {ended}");
        assert!(!ended.stderr.contains("has changed"), "{replaced:?}: {ended}");
        let key = ended.json()["questions"][0]["key"].as_str().unwrap().to_owned();
        let answer = format!("{key}=\"good\"");
        let ended = place.run(["resume", &name, "--answer", &answer, "--output", "json"]);
        let state = &ended.json()["state"];
        assert_eq!((ended.code, state), (0, &json!({"draft": "x"})), "{replaced:?}: {ended}");
        let all = place.run(["runs", "state", &name]).json();
        assert_eq!(all["notes"], json!(["x", "left"]), "{replaced:?}: finished tasks are kept");
        let verdict = place.run(["runs", "verify", &name]);
        assert_eq!(verdict.code, 0, "{replaced:?}: {verdict}");
    }
}

#[test]
fn a_refused_run_is_not_touched() {
    let place = Place::new();
    let name = paused(&place);
    let hash =
        || place.run(["runs", "verify", &name, "--output", "json"]).json()[0]["hash"].clone();
    let before = hash();
    change(&place, &[("merge: append", "merge: union")]);
    assert_eq!(place.run(["resume", &name, "--answer", "judge=\"good\""]).code, 6);
    assert_eq!(hash(), before);
}

#[test]
fn a_fork_continues_with_a_changed_workflow() {
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

/// A run of it pauses at `ask1`, which leads to `fin`.
const PAUSES: &str = r#"
graphrun: 1
name: chg
state:
  t: string
  a: string?
  log: { type: "[string]", merge: append, default: [] }
  ok: approved | rejected
input: [t, a]
output: [ok, log]
start: pre
nodes:
  pre:  { set: { log: '["pre"]' }, then: ask1 }
  ask1: { ask: "Publish {{ t }}?", writes: ok, then: fin }
  fin:  { set: { log: '["fin"]' }, then: end }
"#;

/// Starts a run of it, and changes the workflow. The answer to its question is `approved`.
fn pauses_and_changes(place: &Place, replaced: &[Replaced]) -> String {
    fs::write(place.path("board.yaml"), PAUSES).unwrap();
    let ended = place.run(["execute", "board.yaml", "-i", "t=x", "--output", "json"]);
    assert_eq!(ended.code, 3, "{ended}");
    let mut text = PAUSES.to_owned();
    for (old, new) in replaced {
        assert!(text.contains(old), "{old}");
        text = text.replace(old, new);
    }
    fs::write(place.path("board.yaml"), text).unwrap();
    ended.json()["name"].as_str().unwrap().to_owned()
}

#[test]
fn a_new_field_that_a_later_node_reads_is_refused() {
    const NEW: &[Replaced] =
        &[("  t: string", "  t: string\n  z: string"), ("[t, a]", "[t, a, z]")];
    let fin = r#"log: '["fin"]'"#;
    let place = Place::new();
    for (what, more, says) in [
        ("a later `set`", &[(fin, "log: '[z]'")][..], "`fin` reads it"),
        ("a later prompt", &[(r#"set: { log: '["fin"]' }"#, "ask: '{{ z }}'")], "`fin` reads it"),
        (
            "a route",
            &[
                ("then: end", "then: [{ when: 'z == \"\"', to: pre }, { to: end }]"),
                ("pre:  {", "pre:  { max_visits: 3, exhausted: end,"),
            ],
            "`fin` reads it",
        ),
        (
            "a route of the open node",
            &[("then: fin", "then: [{ when: 'z == \"\"', to: end }, { to: fin }]")],
            "`ask1` reads it",
        ),
        ("a condition", &[("fin:  {", "fin:  { when: 'z == \"\"',")], "`fin` reads it"),
        ("the question itself", &[("Publish {{ t }}?", "{{ z }}")], "`ask1` reads it"),
        (
            "the result",
            &[("[ok, log]", "[ok, log, z]"), ("'[\"pre\"]'", "'[z]'")],
            "it is an output",
        ),
    ] {
        let name = pauses_and_changes(&place, &[NEW, more].concat());
        let ended = place.run(["resume", &name]);
        let told = told(&ended);
        assert!(ended.code == 6 && told.contains(says), "{what}: {ended}");
        assert!(told.contains("the field `z` (string) is new"), "{what}: {ended}");
        assert!(told.contains("--set z=JSON"), "{what}: {ended}");
        let dry = ["migrate", &name, "board.yaml", "--dry-run", "--again", "ask1"];
        assert_eq!(place.run(dry).code, 6, "{what}");
        let migrated = place.run([&dry[..3], &["--again", "ask1", "--set", "z=\"z\""]].concat());
        assert_eq!(migrated.code, 0, "{what}: {migrated}");
    }
}

#[test]
fn a_new_field_that_is_written_before_it_is_read_is_no_break() {
    const NEW: Replaced = ("  t: string", "  t: string\n  z: string");
    let place = Place::new();
    for (what, replaced) in [
        (
            "a node after the question writes it",
            &[
                NEW,
                ("then: fin", "then: mid"),
                ("  fin:", "  mid:  { set: { z: t }, then: fin }\n  fin:"),
                (r#"log: '["fin"]'"#, "log: '[z]'"),
            ][..],
        ),
        (
            "only a node that has run reads it",
            &[NEW, ("[t, a]", "[t, a, z]"), ("'[\"pre\"]'", "'[z]'")],
        ),
        ("a field keeps its type", &[("'[\"pre\"]'", "'[t]'")]),
    ] {
        let name = pauses_and_changes(&place, replaced);
        let ended = place.run(["resume", &name, "--answer", "ask1=approved"]);
        assert_eq!(ended.code, 0, "{what}: {ended}");
    }
    // An earlier node writes it in the changed workflow; this run is past that node.
    let replaced =
        [NEW, (r#"{ log: '["pre"]' }"#, "{ z: t }"), (r#"log: '["fin"]'"#, "log: '[z]'")];
    let name = pauses_and_changes(&place, &replaced);
    assert_eq!(place.run(["resume", &name]).code, 6);
}

#[test]
fn a_field_that_is_no_longer_optional_needs_a_value() {
    let place = Place::new();
    let replaced = [("a: string?", "a: string"), (r#"log: '["fin"]'"#, "log: '[a]'")];
    let name = pauses_and_changes(&place, &replaced);
    let ended = place.run(["resume", &name]);
    assert!(ended.code == 6 && told(&ended).contains("`a` was string? and is string"), "{ended}");
}

#[test]
fn an_open_question_follows_the_type_of_its_field() {
    let place = Place::new();
    let name = pauses_and_changes(&place, &[("approved | rejected", "yes | no")]);
    let ended = place.run(["resume", &name, "--answer", "ask1=approved"]);
    let says = "`ask1` asks for another type of answer; its open question accepts answers that do not fit `ok`; \
                `--again ask1` asks again";
    assert!(ended.code == 6 && told(&ended).contains(says), "{ended}");
    let command = named(&ended);
    assert_eq!(place.run(&command).code, 0, "{command:?}");
    // The question is asked when the run continues.
    let early = place.run(["approve", &name]);
    assert!(
        early.code == 6 && early.stderr.contains(&format!("graphrun resume {name}")),
        "{early}"
    );
    let asked = place.run(["resume", &name, "--output", "json"]);
    let key = asked.json()["questions"][0]["key"].as_str().unwrap().to_owned();
    let answer = format!("{key}=yes");
    let ended = place.run(["resume", &name, "--answer", &answer, "--output", "json"]);
    assert_eq!((ended.code, &ended.json()["state"]["ok"]), (0, &json!("yes")), "{ended}");

    let name =
        pauses_and_changes(&place, &[("approved | rejected", "approved | rejected | later")]);
    let ended = place.run(["resume", &name, "--answer", "ask1=approved"]);
    assert_eq!(ended.code, 0, "all answers fit: {ended}");
}

/// A workflow that asks before it works, with settings of each kind.
const SETTINGS: &str = r#"graphrun: 1
name: settings
state: { brief: string, go: string?, answer: string?, listing: string? }
input: [brief]
output: [answer]
models: { small: openai/gpt-5-mini }
agents: { writer: { model: small, system: { text: "Be kind." } } }
hosts: { here: { allow: echo, approve: each } }
sandboxes: { box: { time: 10s } }
limits: { time: 20m }
start: ask
nodes:
  ask: { ask: "Continue?", writes: go, then: write }
  write: { agent: writer, prompt: { text: "Write {{ brief }}" }, writes: answer, timeout: 1m, retry: 3, repair: 1, then: greet }
  greet: { run: [echo, hi], in: here, writes: { listing: stdout }, then: list }
  list: { run: [ls], in: box, writes: { listing: stdout }, then: end }
"#;

/// Changes of settings, each with what the event names; an empty text where no event follows.
const SETTING_CHANGES: [(&str, &str, &str); 13] = [
    ("Be kind.", "Be brief.", "`write` (agent) does something else"),
    ("Write {{", "Compose {{", "`write` (agent) does something else"),
    ("gpt-5-mini", "gpt-5", "`write` (agent) does something else"),
    ("[echo, hi]", "[echo, hello]", "`greet` (run) does something else"),
    ("time: 10s", "time: 11s", "`list` (run) does something else"),
    ("timeout: 1m", "timeout: 2m", "the policies of `write` have changed"),
    ("retry: 3", "retry: 4", "the policies of `write` have changed"),
    ("then: greet", "max_visits: 2, then: greet", "the policies of `write` have changed"),
    ("time: 20m", "time: 30m", "the limits have changed"),
    ("repair: 1", "repair: 2", ""),
    ("allow: echo, approve: each", "allow: [echo, ls], approve: never", ""),
    ("output: [answer]", "output: [answer, listing]", ""),
    ("name: settings", "name: others", ""),
];

/// `docs/durability.md` lists the settings that are compared.
#[test]
fn changed_settings_are_named_or_documented_as_not_compared() {
    let place = Place::new();
    for (old, new, what) in SETTING_CHANGES {
        fs::write(place.path("w.yaml"), SETTINGS).unwrap();
        let key = [("OPENAI_API_KEY", "sk-test")];
        let begin = ["execute", "w.yaml", "-i", "brief=x", "--allow-host", "here", "--run-id", "r"];
        let begun = place.run_with(begin, key);
        assert_eq!(begun.code, 3, "{begun}");
        assert!(SETTINGS.contains(old), "{old}");
        fs::write(place.path("w.yaml"), SETTINGS.replace(old, new)).unwrap();
        let resumed = place.run_with(["resume", "r", "--allow-host", "here"], key);
        let events = place.run(["runs", "events", "r", "--output", "jsonl"]).stdout;
        let events = events.lines().map(|it| serde_json::from_str::<Value>(it).unwrap());
        let changes: Vec<_> = events.filter(|it| it["type"] == "workflow.changed").collect();
        if what.is_empty() {
            assert!(changes.is_empty(), "{old}: {changes:?}");
            assert!(!resumed.stderr.contains("has changed"), "{old}: {resumed}");
        } else {
            assert_eq!(changes[0]["changes"], json!([what]), "{old}: {resumed}");
            assert!(told(&resumed).contains(what), "{old}: {resumed}");
        }
        assert_eq!(place.run(["runs", "rm", "r"]).code, 0);
    }
}

/// Nothing reads the input, which is a warning.
const WITH_WARNING: &str = r#"graphrun: 1
name: warned
state: { brief: string, go: string }
input: [brief]
output: [go]
start: ask
nodes:
  ask: { ask: "Continue?", writes: go, then: end }
"#;

/// The command that starts a run prints the warnings of the checks before the first event. `resume` prints them for another
/// version of the workflow.
#[test]
fn warnings_are_printed_once_for_each_version() {
    let place = Place::new();
    fs::write(place.path("w.yaml"), WITH_WARNING).unwrap();
    let begin = ["execute", "w.yaml", "-i", "brief=x", "--run-id", "r", "--output", "jsonl"];
    let begun = place.run(begin);
    assert_eq!(begun.code, 3, "{begun}");
    assert_eq!(begun.stderr.matches("GR018\n").count(), 1, "{begun}");
    let (before, _) = begun.stderr.split_once(" run ").unwrap();
    assert!(before.contains("GR018"), "before the first event: {begun}");
    assert!(!begun.stdout.contains("GR018"), "{begun}");
    let again = place.run(["resume", "r"]);
    assert!(again.code == 3 && !again.stderr.contains("GR018"), "{again}");
    fs::write(place.path("w.yaml"), WITH_WARNING.replace("start:", "limits: { steps: 9 }\nstart:"))
        .unwrap();
    let changed = place.run(["resume", "r"]);
    assert!(changed.code == 3 && changed.stderr.contains("the limits have changed"), "{changed}");
    assert_eq!(changed.stderr.matches("GR018\n").count(), 1, "{changed}");
}
