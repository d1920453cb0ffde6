//! Files of test cases in an editor: they name the nodes and the fields of their workflow.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Editor, TEAM, edited, number, unmarked, within};

/// Cases for the workflow of the other tests, which is not open.
const CASES: &str = "graphrun_test: 1
workflow: team.yaml
input: { brief: x }
nodes:
  write: { review: { verdict: approved, notes: [{ text: a, level: minor }] } }
cases:
  - name: it is approved
    start: write
    state: { tries: 2 }
    expect:
      route: [write]
      state: { review.verdict: approved }
      unset: []
      prompts: { write: x }
  - name: it is stopped
    until: [write]
    expect: { never: write }
";

/// An editor with a file of cases, and the workflow on disk.
fn editor() -> Editor {
    let mut editor = Editor::start();
    editor.write("team.yaml", TEAM);
    let uri = editor.uri("team.test.yaml");
    editor.open(&uri, CASES);
    assert_eq!(editor.diagnostics(&uri), [Value::Null; 0]);
    editor
}

/// Asks about the place behind a text, or, of several equal texts, behind the last one.
fn asked(editor: &mut Editor, method: &str, text: &str, behind: &str, extra: &Value) -> Value {
    let uri = editor.uri("team.test.yaml");
    let at = text.rfind(behind).unwrap() + behind.len();
    let (text, position) = unmarked(&format!("{}§{}", &text[..at], &text[at..]));
    editor.change(&uri, &text);
    let mut params = json!({"textDocument": {"uri": uri}, "position": position});
    params.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    editor.ask(&format!("textDocument/{method}"), params)["result"].take()
}

#[test]
fn names_in_test_cases_are_described() {
    let mut editor = editor();
    let mut hover = |behind: &str| {
        let hover = asked(&mut editor, "hover", CASES, behind, &json!({}));
        hover["contents"]["value"].as_str().unwrap_or_default().replace('\n', " ")
    };
    assert!(hover("start: wri").starts_with("**write**: agent writer  Writes it."));
    assert!(hover("route: [wri").starts_with("**write**: agent writer"));
    assert!(hover("never: wri").starts_with("**write**: agent writer"));
    assert!(hover("prompts: { wri").starts_with("**write**: agent writer"));
    assert!(hover("state: { tri").starts_with("**tries**: `int`"));
    assert!(hover("input: { bri").contains("What the customer wants."));
    assert_eq!(hover("review.verd"), "**review.verdict**: `approved | rework`");
    assert_eq!(hover("{ verd"), "**verdict**: `approved | rework`");
    assert_eq!(hover("level: min"), "`minor | major`");
    assert!(hover("unti").starts_with("**until**  The node"));
    assert!(hover("name: it is sto").starts_with("**name**  The claim"));
}

#[test]
fn names_in_test_cases_lead_to_their_declarations() {
    let mut editor = editor();
    let mut definition = |behind: &str| {
        let found = asked(&mut editor, "definition", CASES, behind, &json!({}));
        let name = found["uri"].as_str().map_or("none", |it| it.rsplit('/').next().unwrap());
        let range = &found["range"];
        let word = if range["start"] == range["end"] { String::new() } else { within(TEAM, range) };
        format!("{name} {word}")
    };
    assert_eq!(definition("start: wri"), "team.yaml write");
    assert_eq!(definition("until: [wri"), "team.yaml write");
    assert_eq!(definition("{ rev"), "team.yaml review");
    assert_eq!(definition("review.verd"), "team.yaml verdict");
    assert_eq!(definition("write: { review: { verd"), "team.yaml verdict");
    assert_eq!(definition("[{ tex"), "team.yaml text");
    assert_eq!(definition("state: { tri"), "team.yaml tries");
    assert_eq!(definition("workflow: te"), "team.yaml ");
    assert_eq!(definition("name: it is sto"), "none ");
}

#[test]
fn keys_and_values_of_test_cases_are_completed() {
    let mut editor = editor();
    let mut completions = |text: &str, behind: &str| -> Vec<String> {
        let items = asked(&mut editor, "completion", text, behind, &json!({}));
        let label = |it: &Value| it["label"].as_str().unwrap().to_owned();
        items.as_array().unwrap().iter().map(label).collect()
    };
    let with = |from: &str, to: &str| {
        assert!(CASES.contains(from), "{from}");
        CASES.replacen(from, to, 1)
    };
    let nodes = completions(&with("start: write", "start: "), "start: ");
    assert_eq!(nodes, ["count", "judge", "write"]);
    assert!(completions(&with("route: [write]", "route: ["), "route: [").contains(&"write".into()));
    let answer = completions(&with("  write: { review", "  write: { \n#"), "  write: { ");
    assert_eq!(answer, ["review", "fail", "message", "transient", "answer", "calls"]);
    assert_eq!(completions(&with("input: { brief: x }", "input: { "), "input: { "), ["brief"]);
    let record = completions(&with("{ verdict: approved, notes", "{ \n#"), "review: { ");
    assert_eq!(record, ["verdict", "notes"]);
    let values = completions(&with("verdict: approved, notes", "verdict: \n#"), "{ verdict: ");
    assert_eq!(values, ["approved", "rework"]);
    let levels = completions(&with("level: minor", "level: "), "level: ");
    assert_eq!(levels, ["minor", "major"]);
    let keys = completions(&with("    until: [write]", "    unt"), "    unt");
    assert!(keys.contains(&"until".to_owned()) && !keys.contains(&"expect".to_owned()), "{keys:?}");
    let keys = completions(&with("expect: { never: write }", "expect: { "), "expect: { ");
    assert_eq!(keys.len(), 9, "{keys:?}");
    let status = completions(&with("never: write", "status: "), "status: ");
    assert_eq!(status, ["done", "failed", "paused", "limit"]);
}

/// A node and a field are renamed in the workflow and in the test cases beside it, from either file.
#[test]
fn names_are_renamed_in_the_workflow_and_in_its_test_cases() {
    let mut editor = editor();
    let workflow = editor.uri("team.yaml");
    let cases = editor.uri("team.test.yaml");
    let found = asked(
        &mut editor,
        "references",
        CASES,
        "start: wri",
        &json!({"context": {"includeDeclaration": true}}),
    );
    let found = found.as_array().unwrap();
    let in_cases = found.iter().filter(|it| it["uri"] == cases);
    assert_eq!(in_cases.count(), CASES.matches("write").count());
    assert_eq!(found.iter().filter(|it| it["uri"] == workflow).count(), 4);
    let mut texts = |behind: &str, new: &str| -> BTreeMap<String, String> {
        let renamed = asked(&mut editor, "rename", CASES, behind, &json!({"newName": new}));
        let changes = renamed["changes"].as_object().unwrap().clone();
        let text = |uri: &String| if *uri == workflow { TEAM } else { CASES };
        changes.iter().map(|(uri, edits)| (uri.clone(), edited(text(uri), edits))).collect()
    };
    let changed = texts("until: [wri", "draft");
    assert_eq!(changed[&cases], CASES.replace("write", "draft"));
    assert!(changed[&workflow].contains("start: draft"), "{}", changed[&workflow]);
    let changed = texts("state: { rev", "report");
    assert_eq!(changed[&cases], CASES.replace("review", "report"));
    let changed = texts("review.verd", "outcome");
    assert_eq!(changed[&cases], CASES.replace("verdict", "outcome"));
    assert_eq!(changed[&workflow], TEAM.replace("verdict", "outcome"));
    let changed = texts("[{ tex", "body");
    assert_eq!(changed[&cases], CASES.replace("text", "body"));
    // From the workflow, also while the test cases are closed.
    editor.close(&cases);
    editor.write("team.test.yaml", CASES);
    editor.open(&workflow, TEAM);
    let line = TEAM.lines().position(|it| it == "start: write").unwrap();
    let params = json!({"textDocument": {"uri": workflow}, "position": {"line": line, "character": 9}, "newName": "draft"});
    let renamed = editor.ask("textDocument/rename", params)["result"].take();
    let edits = &renamed["changes"][&cases];
    assert_eq!(edited(CASES, edits), CASES.replace("write", "draft"));
    assert_eq!(number(&edits[0]["range"]["start"]["line"]), 4);
}

#[test]
fn the_symbols_of_test_cases_are_their_names() {
    let mut editor = editor();
    let uri = editor.uri("team.test.yaml");
    let symbols = editor.ask("textDocument/documentSymbol", json!({"textDocument": {"uri": uri}}));
    let names = symbols["result"].as_array().unwrap().iter().map(|it| it["name"].clone());
    assert_eq!(names.collect::<Vec<_>>(), ["it is approved", "it is stopped"]);
}
