//! One line of a recording: its format, its reading and its writing.
//!
//! The types mirror the file; [`Entry`] is what they mean. Version 1:
//!
//! ```json
//! {"v":1,"node":"qa","request":{"messages":[…],"schema":"FailureReport"},"key":"…","reply":{"text":"…"}}
//! {"v":1,"node":"qa","when":{"contains":["3 failed"],"lacks":["attempt 2"]},"reply":{"json":{…}}}
//! ```

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::normalise::normalise;
use crate::llm::{ChatReply, ChatRequest, Finish, Message, ModelError, Phase, Usage, scrub};

/// The version that is written, and the only one there is.
const VERSION: u64 = 1;

/// Says what is wrong with a recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be read or written.
    #[error("cannot open the recording {}", .file.display())]
    Open {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Lines that are no entries, every one of them.
    #[error("{} has lines that are no entries:{}", .file.display(), listed(.lines))]
    Lines {
        /// The file.
        file: PathBuf,
        /// What is wrong, line by line.
        lines: Vec<BadLine>,
    },
}

/// One line of a recording that is no entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

/// The entry is one line, so only the column says something.
fn in_line(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

fn listed(lines: &[BadLine]) -> String {
    let lines: Vec<String> =
        lines.iter().map(|bad| format!("\n  line {}: {}", bad.line, bad.what)).collect();
    lines.concat()
}

/// An exchange, or the rule of one.
#[derive(Debug)]
pub(super) struct Entry {
    /// Where it is in the file, from 1.
    pub(super) line: usize,
    pub(super) node: String,
    pub(super) about: Option<String>,
    pub(super) matcher: Matcher,
    reply: ReplyLine,
}

/// Which requests an entry answers.
#[derive(Debug)]
pub(super) enum Matcher {
    /// The one that was recorded.
    Exact {
        key: String,
        /// The request's normalised text, to say what differs; missing where only the key was kept.
        text: Option<String>,
    },
    /// Those whose normalised text has all of the first and none of the second.
    Content { contains: Vec<String>, lacks: Vec<String> },
}

impl Entry {
    /// Reads a line.
    pub(super) fn parse(text: &str, line: usize) -> Result<Self, String> {
        // The version first: the rest of a newer line would only confuse.
        let value: Value = serde_json::from_str(text).map_err(|error| in_line(&error))?;
        match value.get("v").and_then(Value::as_u64) {
            Some(VERSION) => {}
            Some(newer) => {
                return Err(format!("version {newer} is not known; this program reads 1"));
            }
            None => return Err("the version is missing: begin with {\"v\":1, …}".to_owned()),
        }
        let entry: EntryLine = serde_json::from_str(text).map_err(|error| in_line(&error))?;
        let matcher = match (entry.request, entry.key, entry.when) {
            (Some(request), _, None) => Matcher::Exact {
                // Not the stored key: a request that was edited by hand keeps matching what it says.
                key: key_of(&entry.node, &request.messages, request.schema.as_deref()),
                text: Some(joined(&request.messages)),
            },
            (None, Some(key), None) => Matcher::Exact { key, text: None },
            (None, None, Some(when)) => Matcher::Content {
                contains: when.contains.iter().map(|text| normalise(text)).collect(),
                lacks: when.lacks.iter().map(|text| normalise(text)).collect(),
            },
            (None, None, None) => return Err("either `request` or `when` is needed".to_owned()),
            (_, _, Some(_)) => {
                return Err("`when` stands alone, without `request` and `key`".to_owned());
            }
        };
        entry.reply.validate()?;
        Ok(Self { line, node: entry.node, about: entry.about, matcher, reply: entry.reply })
    }

    /// Answers as the recorded model did.
    pub(super) fn answer(&self, request: &ChatRequest) -> Result<ChatReply, ModelError> {
        let reply = &self.reply;
        let text = match (&reply.text, &reply.json) {
            (Some(text), _) => text.clone(),
            (None, Some(json)) => json.to_string(),
            (None, None) => String::new(),
        };
        let asked = request.messages.iter().map(|message| message.content.chars().count()).sum();
        let estimate = || Usage::estimate(asked, text.chars().count());
        let usage =
            reply.usage.map_or_else(estimate, |usage| Usage { calls: usage.calls.max(1), ..usage });
        match &reply.error {
            Some(error) => Err(error.to_error(text, usage)),
            None => Ok(ChatReply {
                text,
                reasoning: reply.reasoning.clone(),
                usage,
                finish: reply.finish.clone().unwrap_or_default(),
                model: reply.model.clone().unwrap_or_else(|| "recorded".to_owned()),
            }),
        }
    }
}

/// Returns the line of an exchange, its end included. Keys are removed from all of its texts.
pub(super) fn write_line(
    request: &ChatRequest,
    outcome: &Result<ChatReply, ModelError>,
    scrub: &dyn Fn(&str) -> String,
) -> String {
    let messages: Vec<Message> = request
        .messages
        .iter()
        .map(|message| Message { role: message.role, content: scrub(&message.content) })
        .collect();
    let schema = request.output.as_ref().map(|output| output.name.clone());
    let line = EntryLine {
        v: VERSION,
        node: request.caller.clone(),
        about: None,
        key: Some(key_of(&request.caller, &messages, schema.as_deref())),
        request: Some(RequestLine { messages, schema }),
        when: None,
        reply: ReplyLine::of(outcome, scrub),
    };
    let mut line = serde_json::to_string(&line).expect("texts and numbers can always be written");
    line.push('\n');
    line
}

/// Returns what a request is found by: the hash of node, messages and schema, each normalised.
pub(super) fn request_key(request: &ChatRequest) -> String {
    let schema = request.output.as_ref().map(|output| output.name.as_str());
    key_of(&request.caller, &request.messages, schema)
}

fn key_of(node: &str, messages: &[Message], schema: Option<&str>) -> String {
    let mut hash = blake3::Hasher::new();
    let mut add = |text: &str| {
        // With its length, so that no two lists of texts are the same when joined.
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    add(node);
    add(schema.unwrap_or_default());
    for message in messages {
        add(message.role.as_str());
        add(&normalise(&message.content));
    }
    hash.finalize().to_hex().to_string()
}

/// Returns the normalised text of a conversation, in which hand-written entries look for theirs.
pub(super) fn joined(messages: &[Message]) -> String {
    let contents: Vec<String> =
        messages.iter().map(|message| normalise(&message.content)).collect();
    contents.join("\n")
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryLine {
    v: u64,
    node: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    about: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request: Option<RequestLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    when: Option<WhenLine>,
    reply: ReplyLine,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestLine {
    messages: Vec<Message>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schema: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WhenLine {
    #[serde(default)]
    contains: Vec<String>,
    #[serde(default)]
    lacks: Vec<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ReplyLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    json: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finish: Option<Finish>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
}

impl ReplyLine {
    fn validate(&self) -> Result<(), String> {
        match (&self.text, &self.json, &self.error) {
            (Some(_), None, None) | (None, Some(_), None) | (_, None, Some(_)) => Ok(()),
            _ => Err("`reply` needs exactly one of `text`, `json` and `error`".to_owned()),
        }
    }

    fn of(outcome: &Result<ChatReply, ModelError>, scrub: &dyn Fn(&str) -> String) -> Self {
        match outcome {
            Ok(reply) => Self {
                // Always as text, even where it is JSON: a replay gives the same reply to the letter.
                text: Some(scrub(&reply.text)),
                reasoning: reply.reasoning.as_deref().map(scrub),
                finish: Some(reply.finish.clone()).filter(|finish| *finish != Finish::Stop),
                usage: Some(reply.usage),
                model: Some(reply.model.clone()),
                ..Self::default()
            },
            Err(error) => Self {
                text: match error {
                    ModelError::Refused { text, .. } | ModelError::Truncated { text, .. } => {
                        Some(scrub(text))
                    }
                    _ => None,
                },
                usage: Some(error.usage()),
                error: Some(ErrorLine::of(error)),
                ..Self::default()
            },
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorLine {
    kind: ErrorWord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    message: String,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ErrorWord {
    RateLimited,
    Overloaded,
    Transient,
    Timeout,
    Auth,
    Quota,
    ContextOverflow,
    BadRequest,
    Refused,
    Truncated,
    EmptyResponse,
}

impl ErrorLine {
    fn to_error(&self, text: String, usage: Usage) -> ModelError {
        let message =
            if self.message.is_empty() { "as recorded".to_owned() } else { self.message.clone() };
        let after = self.after_ms.map(Duration::from_millis);
        match self.kind {
            ErrorWord::RateLimited => ModelError::RateLimited { after, message },
            ErrorWord::Overloaded => ModelError::Overloaded { after, message },
            ErrorWord::Transient => ModelError::Transient { message },
            ErrorWord::Timeout => {
                ModelError::Timeout { phase: Phase::Response, after: after.unwrap_or_default() }
            }
            ErrorWord::Auth => ModelError::Auth { message },
            ErrorWord::Quota => ModelError::Quota { message },
            ErrorWord::ContextOverflow => ModelError::ContextOverflow { message },
            ErrorWord::BadRequest => {
                ModelError::BadRequest { status: self.status.unwrap_or(400), message }
            }
            ErrorWord::Refused => {
                ModelError::Refused { text: if text.is_empty() { message } else { text }, usage }
            }
            ErrorWord::Truncated => ModelError::Truncated { text, usage },
            ErrorWord::EmptyResponse => ModelError::EmptyResponse { usage },
        }
    }

    fn of(error: &ModelError) -> Self {
        let kind = match error {
            ModelError::RateLimited { .. } => ErrorWord::RateLimited,
            ModelError::Overloaded { .. } => ErrorWord::Overloaded,
            ModelError::Timeout { .. } => ErrorWord::Timeout,
            ModelError::Auth { .. } => ErrorWord::Auth,
            ModelError::Quota { .. } => ErrorWord::Quota,
            ModelError::ContextOverflow { .. } => ErrorWord::ContextOverflow,
            ModelError::Refused { .. } => ErrorWord::Refused,
            ModelError::Truncated { .. } => ErrorWord::Truncated,
            ModelError::EmptyResponse { .. } => ErrorWord::EmptyResponse,
            ModelError::Transient { .. } => ErrorWord::Transient,
            ModelError::BadRequest { .. }
            | ModelError::ReplyTooLarge { .. }
            | ModelError::NoRecording { .. }
            | ModelError::NotRecorded { .. } => ErrorWord::BadRequest,
        };
        let (after, message) = match error {
            ModelError::RateLimited { after, message }
            | ModelError::Overloaded { after, message } => (*after, message.clone()),
            ModelError::Timeout { after, .. } => (Some(*after), String::new()),
            ModelError::Transient { message }
            | ModelError::Auth { message }
            | ModelError::Quota { message }
            | ModelError::ContextOverflow { message }
            | ModelError::BadRequest { message, .. } => (None, message.clone()),
            ModelError::ReplyTooLarge { .. } => (None, error.to_string()),
            _ => (None, String::new()),
        };
        let after_ms = after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        let status = match error {
            ModelError::BadRequest { status, .. } => Some(*status),
            _ => None,
        };
        Self { kind, status, after_ms, message: scrub(&message).into_owned() }
    }
}
