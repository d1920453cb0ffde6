//! Every reply of `exchanges/`, over the network; and every reply of a folder of recorded ones.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Response, StatusCode};
use graphrun::llm::{
    ChatModel, ChatReply, ErrorKind, Failure, Finish, ModelError, TokenUsage, read_reply,
};
use serde::Deserialize;
use serde_json::Value;

use crate::models::peer::{KEY, Peer, request};

/// A reply, and what must become of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exchange {
    about: String,
    status: u16,
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
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedError {
    error: String,
    retryable: bool,
    after_ms: Option<u64>,
    tokens: Option<(u64, u64)>,
    /// Words of the message.
    says: Option<String>,
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

        let outcome = peer.client().chat(&request("Which colour?")).await;

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
    assert!(count >= 70, "only {count} exchanges were found");
}

fn check_reply(case: &str, expected: &ExpectedReply, reply: &ChatReply) {
    assert_eq!(reply.text, expected.text, "{case}");
    assert_eq!(reply.reasoning, expected.reasoning, "{case}");
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
    check_tokens(case, expected.tokens, error.usage());
    let message = error.to_string();
    if let Some(words) = &expected.says {
        assert!(message.contains(words), "{case}: {words:?} is not in {message:?}");
    }
    assert!(message.chars().count() < 700, "{case}: {message:?} is too long to read");
}

fn check_tokens(case: &str, expected: Option<(u64, u64)>, usage: TokenUsage) {
    if let Some(tokens) = expected {
        assert_eq!((usage.input_tokens, usage.output_tokens), tokens, "{case}");
    }
}

/// Sweeps the folder named by `GRAPHRUN_CASSETTES`, which holds recorded exchanges of others that are not
/// part of the project; without it, the project's own.
#[test]
fn recorded_replies_are_accepted_and_errors_classified() {
    let own = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/exchanges")).to_owned();
    let folder = std::env::var_os("GRAPHRUN_CASSETTES").map_or(own, PathBuf::from);
    let (mut taken, mut classified) = (0, 0);
    for (file, text) in json_files(&folder) {
        let value: Value = serde_json::from_str(&text).unwrap();
        for (status, body) in recorded_replies(&value) {
            let case = file.display();
            if status != 200 {
                let text = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
                match (Failure { status, after: None, body: &text }).classify() {
                    // The model's own output, handed back inside the error.
                    Ok(reply) => assert!(text.contains("failed_generation"), "{case}: {reply:?}"),
                    Err(error) => assert!(
                        !error.to_string().contains("without a message") || text.is_empty(),
                        "{case}: {error}"
                    ),
                }
                classified += 1;
            } else if body.pointer("/choices/0").is_some_and(Value::is_object) {
                check_taken(&case.to_string(), body);
                taken += 1;
            } else {
                assert!(read_reply(body).is_err(), "{case}: taken, but it is no completion");
                classified += 1;
            }
        }
    }
    println!("{}: {taken} completions taken, {classified} errors classified", folder.display());
    assert!(
        taken >= 20 && classified >= 8,
        "{taken} completions and {classified} errors are too few"
    );
}

/// A completion is taken, unless it says itself that it is none.
fn check_taken(case: &str, body: &Value) {
    let choice = &body["choices"][0];
    match read_reply(body) {
        Ok(reply) => {
            let calls = choice["message"]["tool_calls"].as_array().map_or(0, Vec::len);
            assert!(reply.tool_calls.len() >= calls, "{case}: a call was overlooked");
            let is_empty = reply.text.trim().is_empty() && reply.tool_calls.is_empty();
            assert!(!is_empty, "{case}: an empty answer was taken");
            if let Some(content) =
                choice["message"]["content"].as_str().filter(|text| !text.trim().is_empty())
            {
                assert!(
                    content.contains(&reply.text),
                    "{case}: {:?} is not the answer",
                    reply.text
                );
            }
        }
        Err(error) => {
            let ended = !["stop", "tool_calls"].iter().any(|it| choice["finish_reason"] == *it);
            let said = match error.kind() {
                _ if [choice, body].iter().any(|it| !it["error"].is_null()) => true,
                ErrorKind::Refused => choice["message"].to_string().contains("refusal") || ended,
                ErrorKind::InvalidOutput => ended,
                ErrorKind::Provider => {
                    let content = choice["message"]["content"].as_str().unwrap_or_default().trim();
                    let marks = ["<think>", "<|channel|>analysis"];
                    let only_thoughts =
                        content.is_empty() || marks.iter().any(|it| content.starts_with(it));
                    let calls = !choice["message"].get("tool_calls").is_none_or(Value::is_null);
                    ended || only_thoughts && !calls
                }
                _ => false,
            };
            assert!(said, "{case}: rejected with {error}: {body}");
        }
    }
}

/// Returns status and body of the chat completions in a file, in either of the two formats.
fn recorded_replies(file: &Value) -> Vec<(u16, &Value)> {
    let status = |value: &Value| -> u16 {
        value["status"].as_u64().and_then(|status| status.try_into().ok()).expect("a status")
    };
    let Some(interactions) = file.get("interactions").and_then(Value::as_array) else {
        return vec![(status(file), &file["body"])];
    };
    let is_chat = |exchange: &&Value| {
        let url = exchange.pointer("/request/url").and_then(Value::as_str);
        url.is_none_or(|url| url.contains("/chat/completions"))
    };
    let replies = interactions.iter().filter(is_chat).map(|exchange| &exchange["response"]);
    // Streams are out of scope.
    replies.filter_map(|reply| Some((status(reply), reply.get("body")?))).collect()
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
