//! Tools whose calls a person approves: the models are a recording, and the tool runs in a sandbox.

use std::fs;

use serde_json::{Value, json};

use crate::cli::program::{Ended, Place};

/// An agent that may call `note`, a tool that prints its text in capitals.
fn workflow(tools: &str, approve: &str) -> String {
    format!(
        "graphrun: 1\nname: notes\nstate: {{ brief: string, answer: string, last: {{ type: string, default: none }} }}\n\
         input: brief\noutput: [answer, last]\nsandboxes: {{ box: {{ time: 20s }} }}\n\
         models: {{ m: openai/gpt-5-mini }}\nagents:\n  writer: {{ model: m, tools: {tools} }}\n\
         tools:\n  note:\n    about: Notes a text.\n    \
         run: [python3, -c, 'import json, sys; print(json.dumps(json.load(sys.stdin)[\"text\"].upper()))']\n    \
         in: box\n    input: {{ text: string }}\n    output: string\n{approve}\
         start: write\nnodes:\n  \
         write: {{ agent: writer, prompt: {{ text: 'Write about {{{{ brief }}}}' }}, writes: answer, then: again }}\n  \
         again: {{ tool: note, args: {{ text: brief }}, writes: last, catch: {{ declined: end }}, then: end }}\n"
    )
}

const EACH: &str = "    approve: each\n";
const FIRST: &str = r#"{"v":1,"node":"write","when":{"lacks":["note("]},"reply":{"tool_calls":[{"name":"note","arguments":{"text":"one"}},{"name":"note","arguments":{"text":"two"}}]}}"#;
const LAST: &str =
    r#"{"v":1,"node":"write","when":{"contains":["note("]},"reply":{"text":"done"}}"#;

/// Starts the run `mine`, whose model calls the tool twice.
fn execute(place: &Place, text: &str) -> Ended {
    fs::write(place.path("w.yaml"), text).unwrap();
    fs::write(place.path("r.jsonl"), format!("{FIRST}\n{LAST}\n")).unwrap();
    let ended = place
        .run("execute w.yaml -i brief=x --replay r.jsonl --run-id mine --output json".split(' '));
    // A process that resumes the run knows the last reply only.
    fs::write(place.path("r.jsonl"), format!("{LAST}\n")).unwrap();
    ended
}

/// Answers the only open question, in a process whose recording has no reply with calls.
fn answer(place: &Place, asked: &Ended, answer: &Value) -> Ended {
    let answer = format!("{}={answer}", question(asked)["key"].as_str().unwrap());
    place.run(["resume", "mine", "--answer", &answer, "--output", "json"])
}

fn question(ended: &Ended) -> Value {
    let report = ended.json();
    assert_eq!((ended.code, report["questions"].as_array().unwrap().len()), (3, 1), "{ended}");
    report["questions"][0].clone()
}

/// The calls that were made, in the order in which they ended.
fn inputs(place: &Place) -> Vec<String> {
    let shown = place.run(["runs", "events", "mine", "--output", "jsonl"]).stdout;
    let events = shown.lines().map(|it| serde_json::from_str::<Value>(it).unwrap());
    let calls = events.filter(|it| it["report"]["kind"] == "tool_call");
    let mut inputs: Vec<String> =
        calls.map(|it| it["report"]["input"].as_str().unwrap().to_owned()).collect();
    inputs.sort_unstable();
    inputs
}

/// The results of calls that the run keeps, as the model gets them.
fn results(place: &Place) -> Vec<Value> {
    let exported = place.run(["runs", "export", "mine"]);
    assert_eq!(exported.code, 0, "{exported}");
    let mut results = Vec::new();
    let mut open: Vec<Value> =
        exported.stdout.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    while let Some(value) = open.pop() {
        match value {
            Value::Object(map) => {
                if map.get("outcome") == Some(&json!("memo_saved"))
                    && map["name"].as_str().unwrap().starts_with("tool/")
                {
                    results.push(map["value"].clone());
                }
                open.extend(map.into_iter().map(|it| it.1));
            }
            Value::Array(items) => open.extend(items),
            _ => (),
        }
    }
    results.sort_by_key(Value::to_string);
    results
}

#[test]
fn each_call_waits_for_a_person_and_is_requested_once() {
    let place = Place::new();
    let asked = execute(&place, &workflow("[note]", EACH));
    let first = question(&asked);
    assert_eq!(first["show"], json!({"tool": "note", "input": {"text": "one"}}));
    assert_eq!(
        first["schema"]["properties"]["decision"],
        json!({"enum": ["approve", "approve_for_run", "reject"]})
    );
    let asked = answer(&place, &asked, &json!({"decision": "approve"}));
    assert_eq!(question(&asked)["show"]["input"], json!({"text": "two"}));
    assert_eq!(inputs(&place), [""; 0], "no call is made before all of them are decided");
    let asked = answer(&place, &asked, &json!({"decision": "approve", "input": {"text": "three"}}));
    // The node `tool` asks, too.
    assert_eq!(question(&asked)["node"], "again");
    assert_eq!(inputs(&place), [r#"{"text":"one"}"#, r#"{"text":"three"}"#]);
    let told = "(a person changed the arguments of this call to {\"text\":\"three\"})\nTHREE";
    assert_eq!(results(&place), [json!(told), json!("ONE")]);
    let done = answer(&place, &asked, &json!({"decision": "approve", "input": {"text": "own"}}));
    assert_eq!(done.json()["state"], json!({"answer": "done", "last": "OWN"}), "{done}");
}

/// The tool would print `THREE`.
#[test]
fn a_replay_has_the_result_of_a_call_that_a_person_has_changed() {
    let place = Place::new();
    fs::write(place.path("w.yaml"), workflow("[note]", EACH)).unwrap();
    let called = FIRST.replace(r#","arguments":{"text":"one"}},{"name":"note""#, "");
    let told = "(a person changed the arguments of this call to {\"text\":\"three\"})\nRECORDED";
    let call = json!({"id": "call00001", "name": "note", "arguments": r#"{"text":"two"}"#});
    let messages = json!([
        {"role": "user", "content": "Write about another"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": told, "tool_call_id": "call00001"},
    ]);
    let recorded =
        json!({"v": 1, "node": "write", "request": {"messages": messages}, "reply": {"text": "x"}});
    fs::write(place.path("r.jsonl"), format!("{called}\n{LAST}\n{recorded}\n")).unwrap();
    let args = "execute w.yaml -i brief=x --replay r.jsonl --run-id mine --output json";
    let asked = place.run(args.split(' '));
    assert_eq!(question(&asked)["show"]["input"], json!({"text": "two"}));
    let asked = answer(&place, &asked, &json!({"decision": "approve", "input": {"text": "three"}}));
    assert_eq!(question(&asked)["node"], "again");
    assert_eq!(results(&place), [json!(told)]);
}

#[test]
fn a_call_whose_arguments_do_not_fit_is_no_question() {
    let place = Place::new();
    fs::write(place.path("w.yaml"), workflow("[note]", EACH)).unwrap();
    let wrong = FIRST.replace(r#""text":"one""#, r#""words":"one""#);
    fs::write(place.path("r.jsonl"), format!("{wrong}\n{LAST}\n")).unwrap();
    let args = "execute w.yaml -i brief=x --replay r.jsonl --run-id mine --output json";
    let asked = place.run(args.split(' '));
    assert_eq!(question(&asked)["show"]["input"], json!({"text": "two"}));
    fs::write(place.path("r.jsonl"), format!("{LAST}\n")).unwrap();
    let asked = answer(&place, &asked, &json!({"decision": "approve"}));
    // The node `tool` asks next.
    assert_eq!(question(&asked)["node"], "again");
    let results = results(&place);
    let error = results[1].as_str().unwrap();
    assert!(error.starts_with("error: the input does not fit its schema: "), "{results:?}");
}

#[test]
fn a_person_sees_arguments_before_and_with_the_answer() {
    let place = Place::new();
    let asked = execute(&place, &workflow("[note]", EACH));
    let key = question(&asked)["key"].as_str().unwrap().to_owned();
    let call = |begin: &str, text: &str| {
        format!(
            "{begin}: Call `note` with this input?\n  {{\n    \"tool\": \"note\",\n    \"input\": {{\n      \
             \"text\": \"{text}\"\n    }}\n  }}\n"
        )
    };
    assert!(asked.stderr.contains(&call("? write asks", "one")), "{asked}");
    let shown = place.run(["runs", "show", "mine"]);
    assert!(shown.stdout.contains(&call("? write asks", "one")), "{shown}");
    let resumed = place.run(["resume", "mine"]);
    assert_eq!(resumed.code, 3, "{resumed}");
    assert!(resumed.stderr.contains(&call("? write asks", "one")), "{resumed}");

    let approved = place.run(["approve", "mine", &key]);
    let answered = call("! write asked", "one") + "  your answer: {\"decision\":\"approve\"}\n";
    assert!(approved.stderr.contains(&answered), "{approved}");
    assert!(approved.stderr.contains(&call("? write asks", "two")), "{approved}");
    let rejected = place.run(["reject", "mine", "--comment", "no"]);
    let answered = call("! write asked", "two")
        + "  your answer: {\"decision\":\"reject\",\"comment\":\"no\"}\n";
    assert!(rejected.stderr.contains(&answered), "{rejected}");
}

#[test]
fn the_model_is_told_that_a_call_was_rejected() {
    let place = Place::new();
    let asked = execute(&place, &workflow("[{ tool: note, approve: each }]", ""));
    let asked = answer(&place, &asked, &json!({"decision": "reject", "comment": "too loud"}));
    fs::write(
        place.path("r.jsonl"),
        LAST.replace("note(", "error: a person rejected this call: too loud"),
    )
    .unwrap();
    let done = answer(&place, &asked, &json!({"decision": "approve"}));
    // The declaration of the tool itself asks for no approval, so the node `tool` calls it.
    assert_eq!(done.json()["state"], json!({"answer": "done", "last": "X"}), "{done}");
    assert_eq!(inputs(&place), [r#"{"text":"two"}"#]);
}

#[test]
fn a_declined_call_of_a_node_is_a_failure_that_can_be_caught() {
    let place = Place::new();
    let text = workflow("note", EACH).replace("start: write", "start: again");
    let [agent, write] = ["models:", "  write:"].map(|it| text.find(it).unwrap());
    let tools = text.find("tools:\n").unwrap();
    let again = text.find("  again:").unwrap();
    let text = [&text[..agent], &text[tools..write], &text[again..]].concat();
    let text = text.replace("answer: string, ", "").replace("[answer, last]", "last");
    let asked = execute(&place, &text);
    let key = question(&asked)["key"].clone();
    let done =
        place.run(["reject", "mine", key.as_str().unwrap(), "--comment", "no", "--output", "json"]);
    assert_eq!(done.json()["state"]["last"], "none", "{done}");
}

/// An approval for a run holds in other processes and for other nodes of the run, and not for its forks.
#[test]
fn an_approval_for_the_run_is_kept_with_the_run() {
    for (approve, decision) in [("each", "approve_for_run"), ("once", "approve")] {
        let place = Place::new();
        let asked = execute(&place, &workflow("[note]", &format!("    approve: {approve}\n")));
        let key = question(&asked)["key"].as_str().unwrap().to_owned();
        let answer = format!("{key}={{\"decision\": \"{decision}\"}}");
        let replay = ["--output", "json"];
        let args = ["resume", "mine", "--answer", &answer, "--pause-before", "again"];
        let paused = place.run(args.iter().chain(&replay));
        assert_eq!(
            (paused.code, &paused.json()["questions"]),
            (3, &json!([])),
            "{approve}: {paused}"
        );
        assert_eq!(inputs(&place), [r#"{"text":"one"}"#, r#"{"text":"two"}"#]);
        let forked = place.run(["fork", "mine", "--run-id", "other"].iter().chain(&replay));
        assert_eq!(question(&forked)["node"], "again");
        let done = place.run(["resume", "mine"].iter().chain(&replay));
        assert_eq!(
            done.json()["state"],
            json!({"answer": "done", "last": "X"}),
            "{approve}: {done}"
        );
    }
}

/// The answer is given in an item of a map, a nested run.
#[test]
fn an_approval_in_a_nested_run_holds_for_the_whole_run() {
    let place = Place::new();
    fs::write(
        place.path("inner.yaml"),
        "graphrun: 1\nname: inner\nstate: { text: string, out: string }\ninput: text\noutput: out\n\
         hosts: { here: { allow: [printf], approve: once } }\nstart: say\nnodes:\n  \
         say: { run: [printf, x], in: here, writes: { out: stdout }, then: end }\n",
    )
    .unwrap();
    let text = "graphrun: 1\nname: outer\nstate:\n  texts: '[string]'\n  \
                outs: { type: '[string]', merge: append, default: [] }\n  last: string\n\
                input: texts\noutput: last\n\
                hosts: { here: { allow: [printf], approve: once } }\nstart: each\nnodes:\n  \
                each: { map: { over: texts, as: text, do: inner }, then: last }\n  \
                inner: { use: { workflow: inner.yaml, in: { text: text }, out: { outs: out } } }\n  \
                last: { run: [printf, y], in: here, writes: { last: stdout }, then: end }\n";
    fs::write(place.path("w.yaml"), text).unwrap();
    let allowed = ["--allow-host", "here", "--output", "json"];
    let args = ["execute", "w.yaml", "-i", "texts=[\"a\"]", "--run-id", "mine"];
    let asked = place.run(args.iter().chain(&allowed));
    assert_eq!(question(&asked)["node"], "inner.say", "{asked}");
    let done = place.run(["approve", "mine"].iter().chain(&allowed));
    assert_eq!((done.code, &done.json()["state"]), (0, &json!({"last": "y"})), "{done}");
}
