//! One line of a recording: how it is read, written and matched. Version 1:
//!
//! ```json
//! {"v":1,"node":"qa","request":{"messages":[…],"schema":"FailureReport"},"key":"…","reply":{"text":"…"}}
//! {"v":1,"node":"qa","when":{"contains":["3 failed"],"lacks":["attempt 2"]},"reply":{"json":{…}}}
//! {"v":1,"node":"sse","when":{…},"reply":{"tool_calls":[{"name":"fs.read","arguments":{"path":"a.py"}}]}}
//! ```

use std::path::PathBuf;

use graphrun_guard::redact::redact_value;
use serde_json::Value;

use super::{
    lines::{CallLine, EntryLine, ReplyLine, RequestLine},
    normalise::normalise,
    replay::Replay,
    results::ToolResult,
};
use crate::{ChatReply, ChatRequest, Message, ModelError, StatedUsage, TokenUsage};

/// The version that is written, and the only one so far.
const VERSION: u64 = 1;

/// Why a recording cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be read or written.
    #[error("cannot open the recording {}", .file.display())]
    Open {
        /// The file.
        file: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// All lines that are no entries.
    #[error("{} has lines that are not entries:{}", .file.display(), listed(.lines))]
    Lines {
        /// The file.
        file: PathBuf,
        /// The invalid lines.
        lines: Vec<BadLine>,
    },
}

/// One line of a recording that is no entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, from 1.
    pub line: usize,
    /// The problem with the line.
    pub what: String,
}

/// The entry is one line, so only the column is useful.
fn in_line(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

fn listed(lines: &[BadLine]) -> String {
    let lines: Vec<String> =
        lines.iter().map(|bad| format!("\n  line {}: {}", bad.line, bad.what)).collect();
    lines.concat()
}

/// A recorded exchange, or a hand-written rule.
#[derive(Debug)]
pub(super) struct Entry {
    /// Where it is in the file, from 1.
    pub(super) line: usize,
    pub(super) node: String,
    pub(super) about: Option<String>,
    pub(super) matcher: Matcher,
    reply: ReplyLine,
    /// The results of tools in the recorded request.
    pub(super) results: Vec<ToolResult>,
}

/// The requests that an entry answers.
#[derive(Debug)]
pub(super) enum Matcher {
    /// The recorded request.
    Exact {
        key: String,
        /// The request's normalised text, to show differences; missing if only the key was kept.
        text: Option<String>,
    },
    /// Requests whose normalised text contains all of the first and none of the second.
    Content { contains: Vec<String>, lacks: Vec<String> },
}

impl Entry {
    /// Reads a line.
    pub(super) fn parse(text: &str, line: usize) -> Result<Self, String> {
        // The version comes first: the errors of a newer line would only confuse.
        let value: Value = serde_json::from_str(text).map_err(|error| in_line(&error))?;
        match value.get("v").and_then(Value::as_u64) {
            Some(VERSION) => {}
            Some(newer) => {
                return Err(format!("version {newer} is not known; this program reads 1"));
            }
            None => return Err("the version is missing: begin with {\"v\":1, …}".to_owned()),
        }
        let entry: EntryLine = serde_json::from_str(text).map_err(|error| in_line(&error))?;
        let asked = entry.request.as_ref().map(|it| it.messages.as_slice());
        let results = ToolResult::all_in(asked.unwrap_or_default());
        let matcher = match (entry.request, entry.key, entry.when) {
            (Some(request), _, None) => Matcher::Exact {
                // Computed anew, not the stored key: a request that was edited by hand matches its
                // new text.
                key: key_of(&entry.node, &request),
                text: Some(joined(&request.messages)),
            },
            (None, Some(key), None) => Matcher::Exact { key, text: None },
            (None, None, Some(when)) => Matcher::Content {
                contains: when.contains.iter().map(|text| normalise(text)).collect(),
                lacks: when.lacks.iter().map(|text| normalise(text)).collect(),
            },
            (None, None, None) => return Err("either `request` or `when` is needed".to_owned()),
            (_, _, Some(_)) => {
                return Err("`when` excludes `request` and `key`".to_owned());
            }
        };
        entry.reply.validate()?;
        let EntryLine { node, about, reply, .. } = entry;
        Ok(Self { line, node, about, matcher, reply, results })
    }

    /// Returns whether the request was not answered.
    pub(super) fn is_failure(&self) -> bool {
        self.reply.error.is_some()
    }

    /// Returns the answer of the recorded model.
    pub(super) fn answer(&self, request: &ChatRequest) -> Result<ChatReply, ModelError> {
        let reply = &self.reply;
        let text = match (&reply.text, &reply.json) {
            (Some(text), _) => text.clone(),
            (None, Some(json)) => json.to_string(),
            (None, None) => String::new(),
        };
        let asked = request.messages.iter().map(|message| message.content.chars().count()).sum();
        let estimate = || TokenUsage::estimate(asked, text.chars().count());
        let usage = reply
            .usage
            .map_or_else(estimate, |usage| TokenUsage { calls: usage.calls.max(1), ..usage });
        match &reply.error {
            Some(error) => {
                let error = error.to_error(text, usage);
                // Most failures cost nothing.
                let is_charged = reply.usage.is_some_and(|it| it.total_tokens() > 0);
                Err(if is_charged { error.charged(usage, None) } else { error })
            }
            None => Ok(ChatReply {
                text,
                tool_calls: reply.tool_calls.iter().flatten().map(CallLine::to_call).collect(),
                reasoning: reply.reasoning.clone(),
                thinking: Vec::new(),
                usage,
                cost_usd: None,
                stated: StatedUsage::default(),
                finish: reply.finish.clone().unwrap_or_else(|| reply.usual_finish()),
                model: reply.model.clone().unwrap_or_else(|| Replay::MODEL.to_owned()),
                // A session is of one machine, and no program continues it in a replay.
                session: None,
            }),
        }
    }
}

/// Returns the line of an exchange, its end included. Keys are removed from all of its texts.
pub(super) fn write_line(request: &ChatRequest, outcome: &Result<ChatReply, ModelError>) -> String {
    let asked = RequestLine::of(request);
    let line = EntryLine {
        v: VERSION,
        node: request.caller.clone(),
        about: None,
        key: Some(key_of(&request.caller, &asked)),
        request: Some(asked),
        when: None,
        reply: ReplyLine::of(outcome),
    };
    let mut line = serde_json::to_value(&line).expect("texts and numbers can always be written");
    redact_value(&mut line);
    format!("{line}\n")
}

/// Returns the key of a request of a node: the hash of node, messages, schema and tools, each normalised.
pub(super) fn request_key(node: &str, request: &ChatRequest) -> String {
    key_of(node, &RequestLine::of(request))
}

/// The key leaves out ids of calls and the model's thoughts: they are no part of the question.
fn key_of(node: &str, asked: &RequestLine) -> String {
    let mut hash = blake3::Hasher::new();
    add_text(&mut hash, node);
    add_text(&mut hash, asked.schema.as_deref().unwrap_or_default());
    for message in &asked.messages {
        add_message(&mut hash, message);
    }
    for tool in &asked.tools {
        add_text(&mut hash, tool);
    }
    hash.finalize().to_hex().to_string()
}

/// Adds a message without the ids of its calls.
pub(super) fn add_message(hash: &mut blake3::Hasher, message: &Message) {
    add_text(hash, message.role.as_str());
    add_text(hash, &normalise(&message.content));
    for file in &message.attachments {
        add_text(hash, file.name());
        add_text(hash, file.hash());
    }
    for call in &message.tool_calls {
        add_text(hash, &call.name);
        add_text(hash, &normalise(&call.arguments));
    }
}

fn add_text(hash: &mut blake3::Hasher, text: &str) {
    // The length is included, so that no two lists of texts are equal when joined.
    hash.update(&(text.len() as u64).to_le_bytes());
    hash.update(text.as_bytes());
}

/// Returns the normalised text of a conversation, in which hand-written entries look for their
/// texts.
pub(super) fn joined(messages: &[Message]) -> String {
    let mut texts = Vec::new();
    for message in messages {
        texts.push(normalise(&message.content));
        let files = message.attachments.iter();
        texts.extend(files.map(|it| format!("[{} {}]", it.name(), it.hash())));
        let calls = message.tool_calls.iter();
        texts.extend(calls.map(|it| normalise(&format!("{}({})", it.name, it.arguments))));
    }
    texts.join("\n")
}
