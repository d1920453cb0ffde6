//! A history that is compacted, by a process that dies.

use std::fs;

use serde_json::{Value, json};

use crate::cli::{killed::killed, program::Place};

const TALK: &str = r#"
graphrun: 1
name: talk
state:
  line: string
  reply: string
  chat: { type: [message], merge: messages }
input: [line, chat]
output: reply
models: { main: openai/tiny }
agents: { helper: { model: main } }
start: answer
nodes:
  answer:
    agent: helper
    prompt: { text: "{{ line }}" }
    history: { field: chat, compact: { to: 200, keep: 1 } }
    writes: reply
    then: end
"#;

#[test]
fn a_resumed_run_asks_for_no_second_summary() {
    let place = Place::new();
    let entry = |part: &str, text: &str| {
        let entry = json!({"v": 1, "node": "answer", "when": {"contains": [part]}, "reply": {"text": text}});
        format!("{entry}\n")
    };
    let answer = entry("Next?", "Soon.");
    let both = entry("Summarise the", "They met.") + &answer;
    fs::write(place.path("replies.jsonl"), both).unwrap();
    fs::write(place.path("talk.yaml"), TALK).unwrap();
    let message = |(at, role): (usize, &str)| json!({"id": format!("k{at}"), "role": role, "content": "x".repeat(700)});
    let chat: Value =
        ["user", "assistant", "user", "assistant"].into_iter().enumerate().map(message).collect();
    let chat = format!("chat={chat}");
    let args = ["execute", "talk.yaml", "-i", "line=Next?", "-i", &chat, "--run-id", "mine"];
    killed(&place, &[&args[..], &["--replay", "replies.jsonl"]].concat(), "task.after_run=abort");
    // The recording of the second process has no summary.
    fs::write(place.path("replies.jsonl"), answer).unwrap();
    let done = place.run(["resume", "mine", "--output", "json"]);
    assert_eq!((done.code, &done.json()["state"]), (0, &json!({"reply": "Soon."})), "{done}");
    let state = place.run(["runs", "state", "mine", "--output", "json"]);
    let chat = state.json()["chat"].clone();
    assert_eq!(chat.as_array().map(Vec::len), Some(5), "{state}");
    assert_eq!(chat[0]["content"], "Summary of 2 earlier messages:\n\nThey met.");
}
