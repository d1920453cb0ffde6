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

#[tokio::test]
async fn several_values_in_an_answer_are_a_warning() {
    let text = "graphrun: 1\nname: w\ntypes:\n  Report: { verdict: pass | needs_work }\n\
                state: { report: Report }\nstart: a\nagents: { judge: { model: openai/x } }\n\
                nodes: { a: { agent: judge, prompt: { text: Judge. }, writes: report, then: end } }\n";
    let warning =
        "openai/x: the answer contains several JSON values that differ; only the first is used";
    for (answer, warnings) in [
        (r#"{"verdict":"pass"}{"verdict":"needs_work"}"#, &[warning][..]),
        (
            "```json\n{\"verdict\":\"pass\"}\n```\n```json\n{\"verdict\":\"needs_work\"}\n```",
            &[warning],
        ),
        ("{\"verdict\":\"pass\"}\n\n{\"verdict\": \"pass\"}", &[]),
    ] {
        let model = Scripted::new([says(answer)]);
        let ended = run_with(text, json!({}), model.services(), registry()).await;
        assert_eq!(ended.state("report"), &json!({"verdict": "pass"}), "{}", ended.told());
        assert_eq!(ended.warnings(), warnings, "{answer}");
    }
}
