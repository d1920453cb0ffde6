//! The agent that a value chooses, the models of a used workflow, and calls of a tool that the workflow declares.

use std::{path::Path, sync::Arc};

use graphrun::{
    models::{ChatReply, Role, ToolCall},
    nodes::Services,
    registry,
};
use serde_json::{Value, json};

use super::{
    fallback::{models, says},
    run_in, services,
};

/// Runs a workflow below `tests/corpus`, and returns the models that were asked, each with its system prompt.
async fn asked(text: &str, input: Value) -> Vec<(&'static str, Option<String>)> {
    let each = ["lab/a", "lab/b", "lab/c", "openai/gpt-5-nano"];
    let models = models(each.map(|it| (it, vec![says("x")])));
    let asked = Arc::clone(&models.asked);
    let services = Services { models: Arc::new(models), ..services() };
    let ended = run_in(Path::new("tests/corpus"), text, input, services, registry()).await;
    assert_eq!(ended.end.reason, None);
    let system = |request: &graphrun::models::ChatRequest| {
        let first = request.messages.iter().find(|it| it.role == Role::System);
        first.map(|it| it.content.clone())
    };
    asked.lock().unwrap().iter().map(|(name, it)| (*name, system(it))).collect()
}

const CHOSEN: &str = "graphrun: 1\nname: w\nstate: { kind: bug | feature, text: string }\ninput: kind\n\
    agents:\n  fixer: { model: lab/a, system: { text: Fix. } }\n  builder: { model: [lab/b, lab/c] }\n\
    start: a\nnodes:\n  a: { agent: { match: kind, to: { bug: fixer, feature: builder } }, prompt: { text: What? }, \
    writes: text, then: end }\n";

#[tokio::test]
async fn a_value_chooses_the_agent_with_its_model_and_system_prompt() {
    let text = CHOSEN.replace("[lab/b, lab/c]", "lab/b");
    let fixer = asked(&text, json!({ "kind": "bug" })).await;
    assert_eq!(fixer, [("lab/a", Some("Fix.".to_owned()))]);
    assert_eq!(asked(&text, json!({ "kind": "feature" })).await, [("lab/b", None)]);
}

#[tokio::test]
async fn the_user_of_a_workflow_chooses_its_models() {
    for (more, expected) in [
        ("", "openai/gpt-5-nano"),
        (", model: lab/a", "lab/a"),
        (", model: m", "lab/b"),
        (", model: m, nested: true", "lab/b"),
    ] {
        let text = format!(
            "graphrun: 1\nname: w\nstate: {{ draft: string, text: string }}\ninput: draft\n\
             models: {{ m: lab/b }}\nagents: {{ other: {{ model: m }} }}\nstart: a\nnodes:\n  \
             a: {{ use: {{ workflow: used_reply.yaml, in: {{ draft: draft }}, out: {{ text: text }}{more} }}, \
             then: b }}\n  b: {{ agent: other, prompt: {{ text: x }}, writes: text, then: end }}\n"
        );
        let names = asked(&text, json!({ "draft": "d" })).await;
        assert_eq!(names.iter().map(|it| it.0).collect::<Vec<_>>(), [expected, "lab/b"], "{more}");
    }
}

#[tokio::test]
async fn a_model_calls_a_tool_that_the_workflow_declares() {
    let text = "graphrun: 1\nname: w\nstate: { text: string }\nsandboxes: { box: { time: 10s } }\n\
        tools:\n  count:\n    about: Counts words.\n    \
        run: [python3, -c, \"import json, sys; print(len(json.load(sys.stdin)['text'].split()))\"]\n    \
        in: box\n    input: { text: string }\n    output: int\n\
        agents: { a: { model: lab/a, tools: count } }\nstart: a\nnodes:\n  \
        a: { agent: a, prompt: { text: What? }, writes: text, then: end }\n";
    let call = |arguments: &str| {
        let id = "call00001".into();
        let name = "count".into();
        let arguments = arguments.into();
        Ok(ChatReply {
            tool_calls: vec![ToolCall { id, name, arguments, extra: None }],
            ..ChatReply::default()
        })
    };
    let replies =
        vec![call("{\"text\": \"one two three\"}"), call("{\"texts\": 1}"), says("three")];
    let models = models([("lab/a", replies)]);
    let asked = Arc::clone(&models.asked);
    let services = Services { models: Arc::new(models), ..services() };
    let ended = run_in(Path::new("tests/corpus"), text, json!({}), services, registry()).await;
    assert_eq!(ended.state("text"), &json!("three"), "{}", ended.reason());
    let asked = asked.lock().unwrap();
    let last = &asked.last().unwrap().1;
    let results = last.messages.iter().filter(|it| it.role == Role::Tool);
    let results: Vec<&str> = results.map(|it| it.content.as_str()).collect();
    assert_eq!(results[0], "3");
    assert!(results[1].starts_with("error: the input does not fit its schema"), "{results:?}");
    assert_eq!(asked[0].1.tools[0].description, "Counts words.");
}
