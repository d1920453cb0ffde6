//! `graphrun render`: what a node makes of its templates, without a model.

use std::fs;

use serde_json::{Value, json};

use crate::cli::program::{Ended, Place};

/// Every kind that renders a template, also for items and within a used workflow. No model is needed to run it.
const WORKFLOW: &str = r#"graphrun: 1
name: all_kinds
types: { Card: { front: string, back: string } }
state:
  topic: string
  words: { type: [string], default: [one, two] }
  note: string
  text: string
  cards: [Card]
  echoed: { type: [string], merge: append, default: [] }
  go: { type: yes | no, default: "yes" }
  chat: { type: [message], merge: messages, default: [{ role: user, content: Hi. }, { role: assistant, content: Hello. }] }
input: topic
models: { m: openai/gpt-5-mini }
agents: { writer: { model: m, system: { text: "You write about {{ topic }}." }, tools: fs.read } }
start: note
nodes:
  note: { render: prompts/note.md, writes: note, max_visits: 2, exhausted: end, then: each }
  each: { map: { over: words, as: word, do: echo }, then: sure }
  echo: { render: { text: "{{ word }} of {{ words | length }}" }, writes: echoed }
  sure: { ask: "Write about {{ topic }}, {{ echoed | join(', ') }}?", choices: ["yes", "no"], writes: go, then: { match: go, to: { yes: inner, no: note } } }
  inner: { use: { workflow: inner.yaml, in: { subject: topic }, out: { text: line } }, then: agent }
  agent: { agent: writer, prompt: { text: "Cards from {{ text }}" }, history: chat, writes: cards, then: deliver }
  deliver: { write_files: { to: output.dir, texts: { notes/note.md: prompts/note.md } }, then: end }
"#;

const INNER: &str = r#"graphrun: 1
name: inner
state: { subject: string, line: string }
input: subject
output: line
start: line
nodes:
  line: { render: { text: "A line on {{ subject }}." }, writes: line, then: end }
"#;

fn place() -> Place {
    let place = Place::new();
    fs::create_dir(place.path("prompts")).unwrap();
    fs::write(place.path("w.yaml"), WORKFLOW).unwrap();
    fs::write(place.path("inner.yaml"), INNER).unwrap();
    let note = "Visit {{ visit }} on {{ topic }}{% if via.node is defined %} from {{ via.node }}{% endif %}.\n";
    fs::write(place.path("prompts/note.md"), note).unwrap();
    place
}

/// Runs the workflow up to its question, answers that with `no`, and stops at the next one: `note` runs twice.
fn run(place: &Place) {
    let key = [("OPENAI_API_KEY", "none")];
    let begun = ["execute", "w.yaml", "-i", "topic=tea", "--run-id", "mine", "--output", "json"];
    assert_eq!(place.run_with(begun, key).json()["status"], "paused");
    let ended = place.run_with(["resume", "mine", "--answer", "sure=no", "--output", "json"], key);
    assert_eq!(ended.json()["status"], "paused", "{ended}");
}

fn render(place: &Place, args: &[&str]) -> Value {
    let ended = place.run([&["render", "w.yaml"], args, &["--output", "json"]].concat());
    assert_eq!(ended.code, 0, "{ended}");
    ended.json()
}

fn refused(place: &Place, args: &[&str]) -> Ended {
    let ended = place.run([&["render", "w.yaml"], args].concat());
    assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{ended}");
    ended
}

/// Some editors write it, and none shows it.
#[test]
fn a_byte_order_mark_is_no_part_of_a_prompt() {
    let place = place();
    fs::write(place.path("prompts/note.md"), "\u{feff}{{ topic }}\n").unwrap();
    assert_eq!(render(&place, &["note", "-i", "topic=tea"]), json!({ "note": "tea" }));
}

#[test]
fn every_template_is_rendered_on_the_start_state() {
    let place = place();
    let on = |node: &str| render(&place, &[node, "-i", "topic=tea"]);
    assert_eq!(on("note"), json!({ "note": "Visit 1 on tea." }));
    assert_eq!(on("echo"), json!({ "echoed": "one of 2" }));
    let second = render(&place, &["echo", "-i", "topic=tea", "--item", "1"]);
    assert_eq!(second, json!({ "echoed": "two of 2" }));
    assert_eq!(on("sure")["question"], "Write about tea, ?");
    assert_eq!(on("sure")["schema"], json!({ "enum": ["yes", "no"] }));
    assert_eq!(on("deliver"), json!({ "notes/note.md": "Visit 1 on tea." }));
}

#[test]
fn a_node_is_rendered_as_it_ran_in_a_run() {
    let place = place();
    run(&place);
    let on = |args: &[&str]| render(&place, &[args, &["--run", "mine"]].concat());
    assert_eq!(on(&["note"]), json!({ "note": "Visit 2 on tea from sure." }), "the last time");
    assert_eq!(on(&["note", "--step", "1"]), json!({ "note": "Visit 1 on tea." }));
    assert_eq!(on(&["echo", "--item", "1"]), json!({ "echoed": "two of 2" }));
    let question = "Write about tea, one of 2, two of 2, one of 2, two of 2?";
    assert_eq!(on(&["sure"])["question"], question, "it is next");
    let before = fs::metadata(place.path(".graphrun/runs.db")).unwrap().len();
    assert_eq!(on(&["sure"])["question"], question);
    assert_eq!(fs::metadata(place.path(".graphrun/runs.db")).unwrap().len(), before);
}

#[test]
fn rendered_texts_are_delivered_as_files() {
    let place = place();
    let workflow = "graphrun: 1
name: delivers
state: { topic: string, note: string }
input: topic
start: note
nodes:
  note: { render: prompts/note.md, writes: note, then: deliver }
  deliver: { write_files: { to: output.dir, texts: { notes/note.md: { text: \"On {{ topic }}: {{ note }}\" } } }, then: end }
";
    fs::write(place.path("delivers.yaml"), workflow).unwrap();
    let ended = place.run(["execute", "delivers.yaml", "-i", "topic=tea", "--out", "out"]);
    assert_eq!(ended.code, 0, "{ended}");
    let delivered = fs::read_to_string(place.path("out/notes/note.md")).unwrap();
    assert_eq!(delivered.trim_end(), "On tea: Visit 1 on tea.");
}

#[test]
fn a_model_would_be_sent_what_is_printed() {
    let place = place();
    run(&place);
    let key = [("OPENAI_API_KEY", "none")];
    let args = ["resume", "mine", "--answer", "sure@8.0=yes", "--pause-before", "agent"];
    let ended = place.run_with(args, key);
    assert!(ended.stderr.contains("before `agent`"), "{ended}");
    let asked = render(&place, &["agent", "--run", "mine"]);
    assert_eq!(asked["system"], "You write about tea.");
    assert_eq!(asked["prompt"], "Cards from A line on tea.");
    assert_eq!(asked["tools"][0]["name"], "fs.read");
    let said = |role: &str, content: &str| json!({ "role": role, "content": content });
    assert_eq!(asked["history"], json!([said("user", "Hi."), said("assistant", "Hello.")]));
    let cards = &asked["schema"]["properties"]["cards"]["items"];
    assert_eq!(cards["required"], json!(["front", "back"]), "{asked}");
    let inner = render(&place, &["inner.line", "--run", "mine"]);
    assert_eq!(inner, json!({ "line": "A line on tea." }));
    let text = place.run(["render", "w.yaml", "agent", "--run", "mine"]).stdout;
    assert!(
        text.starts_with("--- system ---\nYou write about tea.\n\n--- history ---\n["),
        "{text}"
    );
    assert!(
        text.contains("\n\n--- prompt ---\nCards from A line on tea.\n\n--- schema ---\n{"),
        "{text}"
    );
}

#[test]
fn a_state_in_which_the_node_does_not_run_is_refused() {
    let place = place();
    run(&place);
    let ended = refused(&place, &["nots", "-i", "topic=tea"]);
    assert!(ended.stderr.contains("did you mean `note`?"), "{ended}");
    let ended = refused(&place, &["agent", "-i", "topic=tea"]);
    assert!(ended.stderr.contains("`agent` cannot be rendered in this state"), "{ended}");
    let ended = refused(&place, &["agent", "--run", "mine"]);
    assert!(ended.stderr.contains("`agent` has not run in"), "{ended}");
    let ended = refused(&place, &["note", "--run", "mine", "--step", "2"]);
    assert!(ended.stderr.contains("does not run in step 2"), "{ended}");
    assert!(ended.stderr.contains("in this step: each"), "{ended}");
    let ended = refused(&place, &["each", "--run", "mine"]);
    assert!(ended.stderr.contains("`each` is `map` and has no template"), "{ended}");
    let ended = refused(&place, &["echo", "-i", "topic=tea", "--item", "2"]);
    assert!(ended.stderr.contains("`echo` has 2 items there"), "{ended}");
    let ended = refused(&place, &["note"]);
    assert!(ended.stderr.contains("`topic` is missing"), "{ended}");
}

#[test]
fn a_node_that_is_skipped_is_not_rendered() {
    let place = Place::new();
    let workflow = "graphrun: 1
name: maybe
state: { go: bool, text: string? }
input: go
output: text
start: page
nodes:
  page: { render: { text: 'Hello.' }, writes: text, when: go, then: end }
";
    fs::write(place.path("maybe.yaml"), workflow).unwrap();
    let shown = place.run(["render", "maybe.yaml", "page", "-i", "go=true"]);
    assert!(shown.code == 0 && shown.stdout.contains("Hello."), "{shown}");
    let skipped = place.run(["render", "maybe.yaml", "page", "-i", "go=false"]);
    assert!(skipped.code == 2 && skipped.stderr.contains("`page` is skipped there"), "{skipped}");
    let turn =
        |args: &[&str]| place.run([&["execute", "maybe.yaml", "--run-id", "mine"], args].concat());
    assert_eq!(turn(&["-i", "go=false"]).code, 0);
    let skipped = place.run(["render", "maybe.yaml", "page", "--run", "mine"]);
    assert_eq!(skipped.code, 2, "{skipped}");
}
