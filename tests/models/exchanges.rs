//! Every reply of `exchanges/`, over the network. `examples/sweep_exchanges.rs` reads any folder of recorded ones.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use axum::{
    body::Body,
    http::{Response, StatusCode},
};
use graphrun::models::{
    ChatModel, ChatReply, ChatRequest, Finish, ModelError, Protocol, TokenUsage, ToolSpec,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::models::peer::{KEY, Peer, request};

/// A reply, and what must become of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exchange {
    about: String,
    status: u16,
    /// Chat completions by default.
    protocol: Option<String>,
    /// The tools that the model may call.
    #[serde(default)]
    tools: Vec<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// JSON, or the body's text; `{{key}}` in it becomes the client's key.
    body: Value,
    expect: Expected,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, untagged)]
enum Expected {
    Reply(ExpectedReply),
    Error(ExpectedError),
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedReply {
    text: String,
    reasoning: Option<String>,
    finish: Option<String>,
    model: Option<String>,
    /// Of the request and of the reply.
    tokens: Option<(u64, u64)>,
    /// Of the request from a cache, and of the reply for reasoning.
    details: Option<(u64, u64)>,
    cost_usd: Option<f64>,
    #[serde(default)]
    estimated: bool,
    /// The names and arguments of the calls.
    #[serde(default)]
    calls: Vec<(String, String)>,
    /// The number of the provider's own records of reasoning.
    #[serde(default)]
    thinking: usize,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedError {
    error: String,
    /// The variant of [`ModelError`].
    class: String,
    retryable: bool,
    after_ms: Option<u64>,
    /// Of the request and of the reply. A failure before the answer costs none.
    tokens: (u64, u64),
    #[serde(default)]
    estimated: bool,
    /// Words of the message.
    says: String,
}

impl Exchange {
    fn body(&self) -> String {
        self.body
            .as_str()
            .map_or_else(|| self.body.to_string(), str::to_owned)
            .replace("{{key}}", KEY)
    }
}

#[tokio::test]
async fn every_reply_is_accepted_or_classified_without_the_key() {
    let mut count = 0;
    for (file, text) in
        json_files(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/exchanges")))
    {
        let exchange: Exchange = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let case = format!("{} ({})", file.file_stem().unwrap().display(), exchange.about);
        let served = exchange.clone();
        let peer = Peer::start(move |_| {
            let mut reply =
                Response::builder().status(StatusCode::from_u16(served.status).unwrap());
            for (name, value) in &served.headers {
                reply = reply.header(name, value);
            }
            reply.body(Body::from(served.body())).unwrap()
        })
        .await;

        let name = exchange.protocol.as_deref().unwrap_or("chat");
        let protocol = Protocol::parse(name).expect("the name of a protocol");
        let tool = |name: &String| ToolSpec {
            name: name.clone(),
            description: "…".into(),
            schema: json!({"type": "object"}),
        };
        let tools = exchange.tools.iter().map(tool).collect();
        let request = ChatRequest { tools, ..request("Which colour?") };
        let outcome = peer.client_with(protocol).chat(&request).await;

        assert_eq!(peer.seen().len(), 1, "{case}: exactly one request");
        let shown = match &outcome {
            Ok(reply) => format!("{reply:?}"),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!shown.contains(KEY), "{case}: the key is in {shown}");
        match (&exchange.expect, outcome) {
            (Expected::Reply(expected), Ok(reply)) => check_reply(&case, expected, &reply),
            (Expected::Error(expected), Err(error)) => check_error(&case, expected, &error),
            (expected, outcome) => panic!("{case}: expected {expected:?}, got {outcome:?}"),
        }
        count += 1;
    }
    assert!(count >= 180, "only {count} exchanges were found");
}

fn check_reply(case: &str, expected: &ExpectedReply, reply: &ChatReply) {
    assert_eq!(reply.text, expected.text, "{case}");
    assert_eq!(reply.reasoning, expected.reasoning, "{case}");
    let calls = reply.tool_calls.iter().map(|it| (it.name.clone(), it.arguments.clone()));
    assert_eq!(calls.collect::<Vec<_>>(), expected.calls, "{case}");
    assert_eq!(reply.thinking.len(), expected.thinking, "{case}");
    let finish = match expected.finish.as_deref() {
        None => Finish::Stop,
        Some("tool_calls") => Finish::ToolCalls,
        Some(other) => Finish::Other(other.to_owned()),
    };
    assert_eq!(reply.finish, finish, "{case}");
    if let Some(model) = &expected.model {
        assert_eq!(&reply.model, model, "{case}");
    }
    assert_eq!(reply.usage.estimated, expected.estimated, "{case}");
    check_tokens(case, expected.tokens, reply.usage);
    if let Some(details) = expected.details {
        let TokenUsage { cached_input_tokens, reasoning_output_tokens, .. } = reply.usage;
        assert_eq!((cached_input_tokens, reasoning_output_tokens), details, "{case}");
    }
    assert_eq!(reply.cost_usd, expected.cost_usd, "{case}");
    assert_eq!(reply.usage.calls, 1, "{case}");
    assert!(reply.usage.total_tokens() > 0, "{case}: a call costs something");
}

fn check_error(case: &str, expected: &ExpectedError, error: &ModelError) {
    assert_eq!(error.kind().as_str(), expected.error, "{case}: {error}");
    assert_eq!(error.is_retryable(), expected.retryable, "{case}: {error}");
    assert_eq!(error.retry_after(), expected.after_ms.map(Duration::from_millis), "{case}");
    assert_eq!(class_of(error), expected.class, "{case}: {error}");
    check_tokens(case, Some(expected.tokens), error.usage());
    assert_eq!(error.usage().estimated, expected.estimated, "{case}");
    let message = error.to_string();
    let words = &expected.says;
    assert!(message.contains(words), "{case}: {words:?} is not in {message:?}");
    assert!(message.chars().count() < 700, "{case}: {message:?} is too long to read");
}

/// Returns the name of the variant of an error, without its charge.
fn class_of(error: &ModelError) -> String {
    let error = serde_json::to_value(error.reason()).unwrap();
    error.as_object().unwrap().keys().next().unwrap().clone()
}

fn check_tokens(case: &str, expected: Option<(u64, u64)>, usage: TokenUsage) {
    if let Some(tokens) = expected {
        assert_eq!((usage.input_tokens, usage.output_tokens), tokens, "{case}");
    }
}

fn json_files(folder: &Path) -> Vec<(PathBuf, String)> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.expect("a readable folder").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files
        .into_iter()
        .map(|file| (file.clone(), fs::read_to_string(&file).expect("a readable file")))
        .collect()
}

#[test]
fn tokens_written_to_a_cache_are_counted_by_each_name() {
    for details in [
        json!({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 4}}),
        json!({"input_tokens": 9, "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 4}}),
        json!({"prompt_tokens": 9, "prompt_cache_hit_tokens": 2, "cache_creation_input_tokens": 4}),
    ] {
        let body = json!({"choices": [{"message": {"content": "a"}}], "usage": details});
        let usage = graphrun::models::read_reply(&body).unwrap().usage;
        let counts =
            (usage.input_tokens, usage.cached_input_tokens, usage.cache_write_input_tokens);
        assert_eq!(counts, (9, 2, 4), "{body}");
    }
}

#[test]
fn counts_that_cannot_be_right_are_ignored_and_a_sum_counts() {
    for (usage, expected, is_ignored) in [
        (json!({"total_tokens": 120}), (120, 0, 0), false),
        (json!({"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 99}), (9, 3, 0), false),
        // Reasoning beside the answer, which the sum shows, and which cannot be a part of it.
        (
            json!({"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 19,
                   "completion_tokens_details": {"reasoning_tokens": 7}}),
            (9, 10, 0),
            false,
        ),
        (
            json!({"prompt_tokens": 9, "completion_tokens": 8, "total_tokens": 24, "reasoning_tokens": 7}),
            (9, 15, 0),
            false,
        ),
        (
            json!({"prompt_tokens": 9, "completion_tokens": 8, "total_tokens": 17, "reasoning_tokens": 7}),
            (9, 8, 0),
            false,
        ),
        (
            json!({"prompt_tokens": 9, "completion_tokens": 3, "reasoning_tokens": 7}),
            (9, 10, 0),
            false,
        ),
        (json!({"prompt_tokens": 1e30, "completion_tokens": 3}), (0, 0, 0), true),
        (json!({"prompt_tokens": u64::MAX, "completion_tokens": 3}), (0, 0, 0), true),
        (json!({"prompt_tokens": 9, "completion_tokens": -3}), (0, 0, 0), true),
        (
            json!({"prompt_tokens": 9, "completion_tokens": 3, "prompt_cache_hit_tokens": 10}),
            (9, 3, 0),
            true,
        ),
    ] {
        let body = json!({"choices": [{"message": {"content": "a"}}], "usage": usage});
        let reply = graphrun::models::read_reply(&body).unwrap();
        let TokenUsage { input_tokens, output_tokens, cached_input_tokens, .. } = reply.usage;
        assert_eq!((input_tokens, output_tokens, cached_input_tokens), expected, "{body}");
        assert_eq!(reply.stated.warning("m").is_some(), is_ignored, "{body}");
    }
}
