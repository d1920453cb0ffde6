//! The context windows of models: which requests an agent does not send.

use std::{num::NonZeroU32, sync::Arc};

use graphrun::{
    event::{Event, Status},
    models::{ChatReply, ContextWindows, ModelError, TokenUsage},
    nodes::Services,
    registry,
    tool::{ToolContext, ToolError, tool_fn},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{
    Ended,
    agent_tools::{Reply, Scripted, call, calls, says},
    fallback::{self, Models},
    run_with,
};

/// Asks two models, in this order, with a prompt of 60 characters and a result of a tool of 100.
const TEXT: &str = "
graphrun: 1
name: w
state: { text: string, long: string }
input: long
models: { m: [lab/a, lab/b] }
agents: { a: { model: m, tools: fill } }
start: a
nodes:
  a: { agent: a, prompt: { text: '{{ long }}' }, writes: text, then: end }
";

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

fn windows(sizes: [(&str, u64); 2]) -> Arc<ContextWindows> {
    Arc::new(sizes.into_iter().map(|(model, tokens)| (model.to_owned(), tokens)).collect())
}

async fn run(services: Services) -> Ended {
    let fill = tool_fn("fill", "Gives a text.", |_: Nothing, _: ToolContext| async {
        Ok::<_, ToolError>("x".repeat(100))
    });
    run_with(TEXT, json!({"long": "x".repeat(60)}), services, registry().tool(Arc::new(fill))).await
}

async fn run_models(models: Models, sizes: [(&str, u64); 2]) -> (Ended, Vec<&'static str>) {
    let asked = Arc::clone(&models.asked);
    let windows = windows(sizes);
    let ended = run(Services { models: Arc::new(models), windows, ..super::services() }).await;
    let names = asked.lock().unwrap().iter().map(|it| it.0).collect();
    (ended, names)
}

#[tokio::test]
async fn a_request_that_cannot_fit_goes_to_a_larger_window() {
    let both = || {
        let answers = ["lab/a", "lab/b"].map(|it| (it, vec![fallback::says(it)]));
        fallback::models(answers)
    };
    // Sixty characters have at least twelve tokens.
    let (ended, asked) = run_models(both(), [("lab/a", 12), ("lab/b", 13)]).await;
    assert_eq!((ended.state("text"), asked), (&json!("lab/b"), vec!["lab/b"]));
    let (ended, asked) = run_models(both(), [("lab/a", 13), ("lab/b", 13)]).await;
    assert_eq!((ended.state("text"), asked), (&json!("lab/a"), vec!["lab/a"]));

    let (ended, asked) = run_models(both(), [("lab/a", 12), ("lab/b", 12)]).await;
    let reason = "the request is too long for the model: it has at least 12 tokens, and the context of lab/b has 12";
    assert!(ended.reason().ends_with(reason), "{}", ended.reason());
    assert_eq!((ended.end.status, asked.len()), (Status::Failed, 0));
}

/// Runs an agent that cuts its requests; returns its warnings and the requests.
async fn run_cutting(model: &str, replies: Models, window: u64) -> (Ended, Vec<(String, usize)>) {
    let text = TEXT.replace("[lab/a, lab/b]", model).replace("tools: fill", "on_overflow: cut");
    let asked = Arc::clone(&replies.asked);
    let windows = windows([("lab/a", window), ("lab/b", 1_000)]);
    let services = Services { models: Arc::new(replies), windows, ..super::services() };
    let ended = run_with(&text, json!({"long": "x".repeat(4_000)}), services, registry()).await;
    let asked = asked.lock().unwrap();
    let sent = asked.iter().map(|(_, it)| {
        assert_eq!(it.messages.len(), 1);
        let key = it.key.rsplit('/').next().unwrap_or_default();
        (key.to_owned(), it.messages[0].content.matches('x').count())
    });
    let sent = sent.collect();
    (ended, sent)
}

fn too_long() -> Reply {
    let usage = TokenUsage::default();
    Err(ModelError::ContextOverflow { message: "9 > 8".into(), usage })
}

#[tokio::test]
async fn an_agent_cuts_a_request_until_its_model_takes_it() {
    let says = || fallback::says("done");
    // The provider refuses it twice: three quarters are left each time.
    let twice = fallback::models([("lab/a", vec![too_long(), too_long(), says()])]);
    let (ended, sent) = run_cutting("lab/a", twice, 100_000).await;
    assert_eq!(ended.state("text"), &json!("done"), "{}", ended.reason());
    let expected = [("a", 4_000), ("cut-1", 3_000), ("cut-2", 2_250)];
    assert_eq!(sent, expected.map(|(key, count)| (key.to_owned(), count)));
    let warning = "the request is too long for lab/a: 1,750 characters are left out";
    assert!(ended.told().contains(warning), "{}", ended.told());

    // The window is known, so only a request that may fit is sent.
    let once = fallback::models([("lab/a", vec![says()])]);
    let (ended, sent) = run_cutting("lab/a", once, 500).await;
    assert_eq!(ended.state("text"), &json!("done"), "{}", ended.reason());
    assert_eq!(sent, [("cut-2".to_owned(), 2_250)]);
}

#[tokio::test]
async fn a_request_that_cannot_be_cut_further_fails() {
    let never = fallback::models([("lab/a", vec![too_long()])]);
    let (ended, sent) = run_cutting("lab/a", never, 100_000).await;
    let reason = "`a` failed: lab/a: the request is too long for the model: 9 > 8";
    assert_eq!((ended.end.status, ended.reason()), (Status::Failed, reason));
    assert_eq!(sent.last(), Some(&("cut-5".to_owned(), 1_000)), "a start and an end stay");
    assert_eq!(sent.len(), 6);
}

/// The first cut removes the long answer, which suffices for the second one and the third, too.
#[tokio::test]
async fn a_cut_that_changes_nothing_is_skipped() {
    let chat = "chat: { type: [message], merge: messages, default: [{ id: u, role: user, content: Hi. }, { id: a, role: assistant, content: LONG }] }";
    let chat = chat.replace("LONG", &"z".repeat(8_000));
    let text = TEXT.replace("[lab/a, lab/b]", "lab/a").replace("tools: fill", "on_overflow: cut");
    let text = text.replace("state: {", &format!("state: {{ {chat},"));
    let text = text.replace("writes: text", "writes: text, history: chat");
    let replies = vec![too_long(), too_long(), fallback::says("done")];
    let model = fallback::models([("lab/a", replies)]);
    let asked = Arc::clone(&model.asked);
    let services = Services { models: Arc::new(model), ..super::services() };
    let ended = run_with(&text, json!({"long": "x".repeat(4_000)}), services, registry()).await;
    assert_eq!(ended.state("text"), &json!("done"), "{}", ended.reason());
    let asked = asked.lock().unwrap();
    let sent = asked.iter().map(|(_, it)| {
        let key = it.key.rsplit('/').next().unwrap_or_default();
        let count = |letter: char| -> usize {
            it.messages.iter().map(|it| it.content.matches(letter).count()).sum()
        };
        (key, count('z'), count('x'))
    });
    let sent: Vec<(&str, usize, usize)> = sent.collect();
    assert_eq!(sent, [("a", 8_000, 4_000), ("cut-1", 0, 4_000), ("cut-4", 0, 3_795)]);
}

#[tokio::test]
async fn a_later_model_takes_a_long_request_whole() {
    let both =
        fallback::models([("lab/a", vec![too_long()]), ("lab/b", vec![fallback::says("done")])]);
    let (ended, sent) = run_cutting("[lab/a, lab/b]", both, 100_000).await;
    assert_eq!(ended.state("text"), &json!("done"), "{}", ended.reason());
    assert_eq!(sent, [("a".to_owned(), 4_000), ("b".to_owned(), 4_000)]);
}

#[tokio::test]
async fn an_estimate_begins_with_the_tokens_that_were_counted() {
    let counted = |input_tokens: u64, estimated: bool| -> Reply {
        let usage = TokenUsage { input_tokens, calls: 1, estimated, ..TokenUsage::default() };
        Ok(ChatReply { usage, ..calls([call("", "fill", "{}")])? })
    };
    // The result and the arguments of the call add 20 tokens to the counted ones, or to an estimate of 12.
    for (first, window, fits) in [
        (counted(500, false), 521, true),
        (counted(500, false), 520, false),
        (counted(500, true), 33, true),
        (counted(500, true), 32, false),
    ] {
        let model = Scripted::new([first, says("done")]);
        let windows = windows([("lab/a", window), ("lab/b", 1)]);
        let ended = run(Services { windows, ..model.services() }).await;
        assert_eq!(ended.end.status == Status::Done, fits, "{window}: {}", ended.reason());
        assert_eq!(model.asked().len(), if fits { 2 } else { 1 }, "{window}");
    }
}

/// Reads how full the context was after the last call of `a`.
const FULL: &str = "
graphrun: 1
name: w
state: { text: string, used: int, window: int }
models: { m: lab/a }
agents: { a: { model: m, tools: fill } }
start: a
nodes:
  a: { agent: a, prompt: { text: Go. }, writes: text, then: look }
  look:
    set:
      used: 'has(usage(\"a\").context_tokens) ? usage(\"a\").context_tokens : -1'
      window: 'has(usage(\"a\").context_window) ? usage(\"a\").context_window : -1'
    then: end
";

#[tokio::test]
async fn the_last_call_tells_how_full_the_context_is() {
    let used = |input_tokens: u64, estimated: bool| TokenUsage {
        input_tokens,
        output_tokens: 7,
        calls: 1,
        estimated,
        ..TokenUsage::default()
    };
    let known = windows([("lab/a", 9_000), ("lab/b", 1)]);
    for (usage, windows, expected) in [
        (used(500, false), Arc::clone(&known), [507, 9_000]),
        (used(500, false), Arc::default(), [507, -1]),
        (used(500, true), Arc::clone(&known), [-1, 9_000]),
        (used(0, false), Arc::clone(&known), [7, 9_000]),
    ] {
        let first =
            Ok(ChatReply { usage: used(900, false), ..calls([call("", "fill", "{}")]).unwrap() });
        let second = Ok(ChatReply { usage, ..says("done").unwrap() });
        let model = Scripted::new([first, second]);
        let fill = tool_fn("fill", "Gives a text.", |_: Nothing, _: ToolContext| async {
            Ok::<_, ToolError>("x".repeat(100))
        });
        let services = Services { windows, ..model.services() };
        let ended = run_with(FULL, json!({}), services, registry().tool(Arc::new(fill))).await;
        assert_eq!(
            [ended.state("used"), ended.state("window")],
            [&json!(expected[0]), &json!(expected[1])]
        );
        // The event has the same figures.
        let of_task = ended.events.iter().find_map(|event| match &event.event {
            Event::TaskFinished { node, usage, .. } if node.as_str() == "a" => Some(usage.tokens),
            _ => None,
        });
        let of_task = of_task.unwrap();
        let number = |window: Option<NonZeroU32>| window.map_or(-1, |it| i64::from(it.get()));
        assert_eq!([number(of_task.context_tokens), number(of_task.context_window)], expected);
    }
}

#[tokio::test]
async fn what_providers_count_corrects_the_estimate_for_limits() {
    let text = "
graphrun: 1
name: w
state: { text: string, long: string }
input: long
models: { m: lab/a }
agents: { a: { model: m } }
limits: { tokens: 7_000 }
start: a
nodes:
  a: { agent: a, prompt: { text: '{{ long }} {{ visit }}' }, writes: text, max_visits: 5, exhausted: end, then: a }
";
    let counted = || {
        let usage = TokenUsage { input_tokens: 2_000, calls: 1, ..TokenUsage::default() };
        Ok(ChatReply { usage, ..says("done").unwrap() })
    };
    let model = Scripted::new((0..4).map(|_| counted()));
    let input = json!({"long": "x".repeat(4_000)});
    let ended = run_with(text, input, model.services(), registry()).await;
    // Two characters a token: 4,002 characters have 2,001 tokens, not 800.
    let reason =
        "the limit of 7000 tokens is reached: 6000 are used, and the next call needs at least 2000";
    assert_eq!((ended.end.status, ended.reason()), (Status::Limit, reason));
    assert_eq!(model.asked().len(), 3);
}

#[tokio::test]
async fn tokens_of_public_vocabularies_are_counted_exactly() {
    let text = TEXT.replace("lab/a", "openai/gpt-4o").replace(", tools: fill", "");
    let names = ["openai/gpt-4o", "lab/b"];
    let models = fallback::models(names.map(|it| (it, vec![fallback::says(it)])));
    let windows = windows(names.map(|it| (it, 40)));
    let services = Services { models: Arc::new(models), windows, ..super::services() };
    // Each digit is a token, while five letters of prose may be one.
    let input = json!({"long": "1 ".repeat(30)});
    let ended = run_with(&text, input, services, registry()).await;
    let answered = if cfg!(feature = "tiktoken") { "lab/b" } else { "openai/gpt-4o" };
    assert_eq!(ended.state("text"), answered, "{}", ended.reason());
}

#[tokio::test]
async fn a_request_is_cut_as_often_as_it_takes() {
    let text = TEXT.replace("[lab/a, lab/b]", "lab/a").replace("tools: fill", "on_overflow: cut");
    let model = fallback::models([("lab/a", vec![fallback::says("done")])]);
    let asked = Arc::clone(&model.asked);
    let windows = windows([("lab/a", 2_000), ("lab/b", 1)]);
    let services = Services { models: Arc::new(model), windows, ..super::services() };
    let input = json!({"long": "x".repeat(2_000_000)});
    let ended = run_with(&text, input, services, registry()).await;
    assert_eq!(ended.state("text"), &json!("done"), "{}", ended.reason());
    let length = asked.lock().unwrap()[0].1.messages[0].content.len();
    assert!((7_000..10_000).contains(&length), "{length}");
}
