//! Agents with a conversation that they continue.

use std::{path::Path, sync::Arc};

use graphrun::{
    diagnostic::SourceFile,
    models::{ChatRequest, Role},
    nodes::Services,
    registry,
    workflow::parse,
};
use serde_json::{Value, json};

use super::{
    Ended,
    fallback::{models, says},
    run_with, services,
};

fn workflow(state: &str, history: &str) -> String {
    format!(
        "graphrun: 1\nname: w\ntypes:\n  Plan: {{ steps: [string], done: bool }}\nstate:\n  question: string\n  \
         plan: Plan\n  {state}\ninput: question\nmodels: {{ m: lab/a }}\nagents: {{ a: {{ model: m }} }}\n\
         start: a\nnodes:\n  a:\n    agent: a\n    prompt: {{ first: first.md, again: again.md }}\n    \
         history: {history}\n    writes: plan\n    max_visits: 3\n    exhausted: end\n    then:\n      - \
         {{ when: plan.done, to: end }}\n      - {{ to: a }}\n"
    )
    .replace("{ first: first.md, again: again.md }", "{ text: \"{{ question }} ({{ visit }})\" }")
}

const CHAT: &str = "chat: { type: [message], merge: messages }";

fn plan(done: bool) -> String {
    json!({"steps": [], "done": done}).to_string()
}

/// Returns the run, and the messages of its last request without those of the system.
async fn talked(history: &str) -> (Ended, Vec<(Role, String)>) {
    let models =
        models([("lab/a", vec![says(&plan(false)), says(&plan(false)), says(&plan(true))])]);
    let asked = Arc::clone(&models.asked);
    let services = Services { models: Arc::new(models), ..services() };
    let input = json!({"question": "How?"});
    let ended = run_with(&workflow(CHAT, history), input, services, registry()).await;
    let last: ChatRequest = asked.lock().unwrap().last().unwrap().1.clone();
    let messages = last.messages.into_iter().filter(|it| it.role != Role::System);
    (ended, messages.map(|it| (it.role, it.content)).collect())
}

#[tokio::test]
async fn an_agent_continues_its_conversation() {
    let (ended, last) = talked("chat").await;
    let said = [
        (Role::User, "How? (1)".to_owned()),
        (Role::Assistant, plan(false)),
        (Role::User, "How? (2)".to_owned()),
        (Role::Assistant, plan(false)),
        (Role::User, "How? (3)".to_owned()),
    ];
    assert_eq!(last, said);
    let chat = ended.state("chat").as_array().unwrap();
    let ids: Vec<&Value> = chat.iter().map(|it| &it["id"]).collect();
    assert_eq!(ids, ["m1", "m2", "m3", "m4", "m5", "m6"], "{chat:?}");
    assert_eq!((&chat[5]["role"], &chat[5]["content"]), (&json!("assistant"), &json!(plan(true))));
}

#[tokio::test]
async fn only_the_last_messages_are_sent_from_one_of_the_user_on() {
    let (_, last) = talked("{ field: chat, last: 3 }").await;
    let texts: Vec<&str> = last.iter().map(|it| it.1.as_str()).collect();
    assert_eq!(texts, ["How? (2)", &plan(false), "How? (3)"]);
}

#[test]
fn a_field_that_cannot_hold_a_conversation_is_refused() {
    let diagnostics = |state: &str, history: &str| {
        let file = SourceFile { name: "w.yaml".into(), text: workflow(state, history) };
        parse(Arc::new(file), Path::new("tests/nodes"), &registry()).unwrap_err().to_string()
    };
    for state in [
        "chat: { type: [message], merge: union }",
        "chat: { type: [string], merge: append }",
        "chat: { type: [{ role: string, content: string }], merge: append }",
        "chat: { type: [{ role: user | assistant | tool, content: string }], merge: append }",
        "chat: { type: [{ role: user | assistant, content: string, at: date }], merge: append }",
        "chat: message",
    ] {
        let found = diagnostics(state, "chat");
        assert!(found.contains("`chat` cannot hold the messages of a conversation"), "{found}");
        assert!(
            found.contains("declare it as `chat: { type: [message], merge: messages }`"),
            "{found}"
        );
    }
    let own = "chat: { type: [{ role: user | assistant, content: string }], merge: append }";
    let file = SourceFile { name: "w.yaml".into(), text: workflow(own, "chat") };
    let parsed = parse(Arc::new(file), Path::new("tests/nodes"), &registry());
    parsed.unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    assert!(diagnostics(CHAT, "plan").contains("also in `writes`"));
    assert!(diagnostics(CHAT, "{ field: chat, last: 0 }").contains("`last`"));
    assert!(diagnostics(CHAT, "{ last: 2 }").contains("field"));
    assert!(diagnostics(CHAT, "chatt").contains("did you mean `chat`"));
    let without_ids =
        "chat: { type: [{ role: user | assistant, content: string }], merge: messages }";
    assert!(diagnostics(without_ids, "chat").contains("a list of records with a text `id`"));
}
