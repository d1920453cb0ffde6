//! An answer whose form differs from a lenient type.

use graphrun::registry;
use serde_json::json;

use super::{
    agent_tools::{Scripted, says},
    run_with,
};

#[tokio::test]
async fn each_deviation_of_an_answer_is_told_once() {
    let text = "graphrun: 1\nname: w\ntypes:\n  Report: { lenient: true, verdict: pass | fail, score: int }\n\
                state: { report: Report }\nstart: a\nagents: { judge: { model: openai/x } }\n\
                nodes: { a: { agent: judge, prompt: { text: Judge. }, writes: report, then: end } }\n";
    let model = Scripted::new([says(r#"{"verdict": "Pass ", "score": "3", "mood": "good"}"#)]);
    let ended = run_with(text, json!({}), model.services(), registry()).await;
    assert_eq!(ended.state("report"), &json!({"verdict": "pass", "score": 3}), "{}", ended.told());
    let warnings = [
        "openai/x: verdict: \"Pass \" was read as pass",
        "openai/x: score: the text \"3\" was read as a number",
        "openai/x: ignored unrequested fields: mood",
    ];
    assert_eq!(ended.warnings(), warnings);
}
