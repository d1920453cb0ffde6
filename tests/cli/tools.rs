//! Agents with tools: the models are a recording, and so are the results of tools that it has.

use std::{collections::BTreeSet, fs};

use serde_json::{Value, json};

use crate::{
    cli::program::{Ended, Place},
    support::some_of,
};

const QUESTION: &str = "question=Under which licence is it?";

/// Returns the arguments to execute `graphs/codebase_qa.yaml`.
fn execute() -> Vec<String> {
    let at = |path: &str| format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    let (graph, replay) =
        (at("graphs/codebase_qa.yaml"), at("tests/recordings/codebase_qa/licence.jsonl"));
    let args = ["execute", &graph, "-i", QUESTION, "--replay", &replay, "--run-id", "mine"];
    args.map(str::to_owned).to_vec()
}

/// Returns the saved events of the run.
fn events(place: &Place) -> Vec<Value> {
    let shown = place.run(["runs", "events", "mine", "--output", "jsonl"]);
    assert_eq!(shown.code, 0, "{shown}");
    shown.stdout.lines().map(|it| serde_json::from_str(it).unwrap()).collect()
}

/// Returns the memos of each task: models and tools, by their requests.
fn noted(events: &[Value]) -> Vec<String> {
    let noted = events.iter().filter(|it| it["type"] == "memo.saved");
    noted.map(|it| format!("{} {}", it["task"], it["name"])).collect()
}

fn check_answer(ended: &Ended) {
    assert_eq!(ended.code, 0, "{ended}");
    let result = ended.json();
    assert_eq!(result["state"]["check"], json!({"verdict": "supported", "problems": []}));
    assert_eq!(result["state"]["answer"]["sources"][1]["path"], "LICENSE-APACHE");
}

#[test]
fn a_replay_has_the_results_of_tools_and_names_unknown_nodes() {
    let place = Place::new();
    let at = |file: &str| format!("{}/tests/cases/{file}", env!("CARGO_MANIFEST_DIR"));
    let recorded = fs::read_to_string(at("looked_up.jsonl")).unwrap();
    let unknown = r#"{"v": 1, "node": "reprot", "when": {}, "reply": {"text": "x"}}"#;
    fs::write(place.path("r.jsonl"), format!("{}\n{unknown}\n", recorded.trim_end())).unwrap();
    let workflow = at("looked_up.yaml");
    let args = ["execute", &workflow, "-i", "question=Bonn?", "--replay", "r.jsonl"];
    let ended = place.run(args.into_iter().chain(["--output", "json"]));
    // The host of the tool is neither allowed nor there.
    assert_eq!((ended.code, &ended.json()["state"]["answer"]), (0, &"7 degrees.".into()));
    let message = "line 3 of `r.jsonl` names `reprot`, which is no node";
    assert!(ended.stderr.contains(message), "{ended}");
    assert!(ended.stderr.contains("did you mean `report`?"), "{ended}");
}

/// The host of the tool is neither allowed nor there.
#[test]
fn equal_calls_of_a_replay_have_their_own_results() {
    let place = Place::new();
    let at = |file: &str| format!("{}/tests/cases/{file}", env!("CARGO_MANIFEST_DIR"));
    let call = |number: usize| {
        let id = format!("call{number:05}");
        json!({"id": id, "name": "weather", "arguments": {"town": "Bonn"}})
    };
    let mut messages = vec![json!({"role": "user", "content": "Bonn?"})];
    let mut lines = Vec::new();
    for (number, degrees) in [7, 9].into_iter().enumerate() {
        let request = json!({"messages": messages, "tools": ["weather"]});
        let reply = json!({"tool_calls": [call(number)]});
        lines.push(json!({"v": 1, "node": "report", "request": request, "reply": reply}));
        let mut call = call(number);
        call["arguments"] = call["arguments"].to_string().into();
        messages.push(json!({"role": "assistant", "content": "", "tool_calls": [call]}));
        let result = json!({"degrees": degrees}).to_string();
        let id = format!("call{number:05}");
        messages.push(json!({"role": "tool", "content": result, "tool_call_id": id}));
    }
    let request = json!({"messages": messages, "tools": ["weather"]});
    let reply = json!({"text": "First 7, then 9."});
    lines.push(json!({"v": 1, "node": "report", "request": request, "reply": reply}));
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    fs::write(place.path("r.jsonl"), lines.join("\n")).unwrap();
    let workflow = at("looked_up.yaml");
    let args = ["execute", &workflow, "-i", "question=Bonn?", "--replay", "r.jsonl"];
    let ended = place.run(args.into_iter().chain(["--output", "json"]));
    assert_eq!((ended.code, &ended.json()["state"]["answer"]), (0, &"First 7, then 9.".into()));
}

#[test]
fn a_question_about_files_is_answered_from_their_content() {
    let place = Place::new();
    let mut args = execute();
    args.extend(["--output", "json"].map(str::to_owned));
    check_answer(&place.run(args));
    let events = events(&place);
    let saved = noted(&events);
    let kinds = saved[..4].iter().map(|it| it.contains("\"model/")).collect::<Vec<_>>();
    assert_eq!(
        kinds,
        [true, false, false, true],
        "calls are saved before they are made: {saved:?}"
    );
    let called = events.iter().filter(|it| it["report"]["kind"] == "tool_call");
    let called: Vec<&Value> = called.map(|it| &it["report"]).collect();
    let tools: Vec<&str> = called.iter().map(|it| it["tool"].as_str().unwrap()).collect();
    // The first two calls run in parallel, and each is reported when it ends.
    let mut first = tools[..2].to_vec();
    first.sort_unstable();
    assert_eq!(first, ["fs.grep", "fs.list"]);
    assert_eq!(tools[2..], ["fs.read"; 6]);
    let failed: Vec<&Value> =
        called.iter().map(|it| &it["error"]).filter(|it| !it.is_null()).collect();
    assert_eq!(failed, ["there is no `LICENCE`"]);
}

#[test]
fn results_of_tools_survive_a_death_at_any_time() {
    let whole = Place::new();
    assert_eq!(whole.run(execute()).code, 0);
    let expected: BTreeSet<String> = noted(&events(&whole)).into_iter().collect();
    assert!(expected.len() >= 10, "{expected:?}");
    for point in ["task.in_tx", "task.after_commit"] {
        for number in some_of(3, [1, 2, 3, 5, 7]) {
            let place = Place::new();
            let args = execute();
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            crate::cli::killed::killed(&place, &args, &format!("{point}=abort@{number}"));
            let resumed = place.run(["resume", "mine", "--output", "json"]);
            check_answer(&resumed);
            let noted = noted(&events(&place));
            let distinct: BTreeSet<String> = noted.iter().cloned().collect();
            assert_eq!(distinct.len(), noted.len(), "{point}@{number}: {noted:?}");
            assert_eq!(distinct, expected, "{point}@{number}");
        }
    }
}

/// A tool may give more than a workflow declares, also in a later version of it.
#[test]
fn a_field_gets_of_an_output_what_its_type_declares() {
    let place = Place::new();
    std::fs::create_dir(place.path("files")).unwrap();
    std::fs::write(place.path("files/a.txt"), "a").unwrap();
    let workflow = place.path("list.yaml");
    let text = r#"
graphrun: 1
name: list
types: { Entry: { kind: string } }
state:
  entries: [{ path: string }]
  whole: { entries: "[Entry]" }
  first: { type: [{ path: string }], merge: append, default: [] }
tools: { fs: { root: ./files } }
start: entries
nodes:
  entries: { tool: fs.list, args: { path: '"."' }, writes: { entries: entries, first: entries }, then: whole }
  whole: { tool: fs.list, args: { path: '"."' }, writes: whole, then: end }
"#;
    std::fs::write(&workflow, text).unwrap();
    let ended = place.run(["execute", workflow.to_str().unwrap(), "--output", "json"]);
    assert_eq!(ended.code, 0, "{ended}");
    let state = &ended.json()["state"];
    assert_eq!(state["entries"], json!([{"path": "a.txt"}]));
    assert_eq!(state["first"], state["entries"]);
    assert_eq!(state["whole"], json!({"entries": [{"kind": "file"}]}));
}
