//! The serialised form of a line of a recording, part by part.

use std::time::Duration;

use graphrun_core::graph::{ErrorKind, Failure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    ChatReply, ChatRequest, Finish, Message, ModelError, Phase, TokenUsage, ToolCall,
    lenient::text_of,
};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EntryLine {
    pub(super) v: u64,
    pub(super) node: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) about: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) request: Option<RequestLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) when: Option<WhenLine>,
    pub(super) reply: ReplyLine,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestLine {
    pub(super) messages: Vec<Message>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) schema: Option<String>,
    /// The names of the tools that it may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) tools: Vec<String>,
}

impl RequestLine {
    pub(super) fn of(request: &ChatRequest) -> Self {
        let may_call = request.tool_choice.allows_calls();
        let tools = request.tools.iter().filter(|_| may_call);
        Self {
            // What only the provider can read is no part of the question, and its answers are not asked for again.
            messages: request
                .messages
                .iter()
                .map(|it| Message { thinking: Vec::new(), ..it.clone() })
                .collect(),
            schema: request.output.as_ref().map(|it| it.name.clone()),
            tools: tools.map(|it| it.name.clone()).collect(),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WhenLine {
    #[serde(default)]
    pub(super) contains: Vec<String>,
    #[serde(default)]
    pub(super) lacks: Vec<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ReplyLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) json: Option<Value>,
    /// Calls, with or without a text beside them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_calls: Option<Vec<CallLine>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<ErrorLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) finish: Option<Finish>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<TokenUsage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
}

impl ReplyLine {
    pub(super) fn validate(&self) -> Result<(), String> {
        let calls = self.tool_calls.as_ref().filter(|it| !it.is_empty());
        match (&self.text, &self.json, &self.error, calls) {
            (Some(_), None, None, None) | (None, Some(_), None, None) => Ok(()),
            (_, None, Some(_), None) | (_, None, None, Some(_)) => Ok(()),
            _ => Err("`reply` needs exactly one of `text`, `json`, `tool_calls` and `error`; \
                      only calls and an error may have a text beside them"
                .to_owned()),
        }
    }

    /// Returns the default `finish` of a reply.
    pub(super) fn usual_finish(&self) -> Finish {
        if self.tool_calls.is_some() { Finish::ToolCalls } else { Finish::Stop }
    }

    fn without_usual_finish(mut self) -> Self {
        self.finish = self.finish.take().filter(|it| *it != self.usual_finish());
        self
    }

    pub(super) fn of(outcome: &Result<ChatReply, ModelError>) -> Self {
        match outcome {
            Ok(reply) => Self {
                // Always text, even for JSON: a replay returns exactly the same reply.
                text: Some(reply.text.clone())
                    .filter(|it| !it.is_empty() || reply.tool_calls.is_empty()),
                tool_calls: CallLine::of(&reply.tool_calls),
                reasoning: reply.reasoning.clone(),
                finish: Some(reply.finish.clone()),
                usage: Some(reply.usage),
                model: Some(reply.model.clone()),
                ..Self::default()
            }
            .without_usual_finish(),
            Err(error) => Self {
                text: match error.reason() {
                    ModelError::Refused { text, .. }
                    | ModelError::Truncated { text, .. }
                    | ModelError::StreamTruncated { text, .. }
                    | ModelError::Incomplete { text, .. } => Some(text.clone()),
                    ModelError::UnknownTool { arguments, .. } => Some(arguments.clone()),
                    _ => None,
                },
                usage: Some(error.usage()),
                error: Some(ErrorLine::of(error)),
                ..Self::default()
            },
        }
    }
}

/// A call. The arguments are written as JSON if the same text can be restored from that.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallLine {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) id: String,
    pub(super) name: String,
    #[serde(default)]
    pub(super) arguments: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) extra: Option<Value>,
}

impl CallLine {
    fn of(calls: &[ToolCall]) -> Option<Vec<Self>> {
        let line = |call: &ToolCall| {
            let ToolCall { id, name, arguments, extra } = call.clone();
            let json = serde_json::from_str::<Value>(&arguments).ok().filter(Value::is_object);
            let written = json.as_ref().map(Value::to_string);
            let json = json.filter(|_| written.as_ref() == Some(&arguments));
            Self { id, name, arguments: json.unwrap_or(Value::String(arguments)), extra }
        };
        (!calls.is_empty()).then(|| calls.iter().map(line).collect())
    }

    pub(super) fn to_call(&self) -> ToolCall {
        let arguments = text_of(Some(&self.arguments));
        let Self { id, name, extra, .. } = self;
        ToolCall { id: id.clone(), name: name.clone(), arguments, extra: extra.clone() }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ErrorLine {
    pub(super) kind: ErrorWord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) after_ms: Option<u64>,
    /// The most tokens of an answer, if the request of a truncated one asked for more than the model allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tokens_max: Option<u32>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) message: String,
    /// The failure of a program that answers in place of a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<Box<Failure>>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ErrorWord {
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
    UnknownTool,
    EmptyResponse,
    Incomplete,
    StreamTruncated,
    ReplyTooLarge,
    NotFound,
    Program,
}

impl ErrorLine {
    pub(super) fn to_error(&self, text: String, usage: TokenUsage) -> ModelError {
        let message =
            if self.message.is_empty() { "as recorded".to_owned() } else { self.message.clone() };
        let after = self.after_ms.map(Duration::from_millis);
        match self.kind {
            ErrorWord::RateLimited => ModelError::RateLimited { after, message },
            ErrorWord::Overloaded => ModelError::Overloaded { after, message },
            ErrorWord::Transient => ModelError::Transient { after, message },
            ErrorWord::Timeout => {
                ModelError::Timeout { phase: Phase::Response, after: after.unwrap_or_default() }
            }
            ErrorWord::Auth => ModelError::Auth { message },
            ErrorWord::Quota => ModelError::Quota { message },
            ErrorWord::ContextOverflow => ModelError::ContextOverflow { message, usage },
            ErrorWord::BadRequest => {
                ModelError::BadRequest { status: self.status.unwrap_or(400), message }
            }
            ErrorWord::Refused => {
                ModelError::Refused { text: if text.is_empty() { message } else { text }, usage }
            }
            ErrorWord::Truncated => {
                ModelError::Truncated { text, usage, tokens_max: self.tokens_max }
            }
            ErrorWord::UnknownTool => {
                ModelError::UnknownTool { name: message, arguments: text, usage }
            }
            ErrorWord::EmptyResponse => ModelError::EmptyResponse { usage },
            ErrorWord::Incomplete => ModelError::Incomplete { finish: message, text, usage },
            ErrorWord::StreamTruncated => ModelError::StreamTruncated { text, usage },
            ErrorWord::ReplyTooLarge => {
                ModelError::ReplyTooLarge { bytes_max: message.parse().unwrap_or_default() }
            }
            ErrorWord::NotFound => ModelError::NotFound { message },
            ErrorWord::Program => {
                let other = || Box::new(Failure::new(ErrorKind::Command, message));
                let failure = self.failure.clone().unwrap_or_else(other);
                ModelError::Program { failure, usage, cost_usd: None }
            }
        }
    }

    fn of(error: &ModelError) -> Self {
        let error = error.reason();
        let kind = match error {
            ModelError::RateLimited { .. } => ErrorWord::RateLimited,
            ModelError::Overloaded { .. } => ErrorWord::Overloaded,
            ModelError::Timeout { .. } => ErrorWord::Timeout,
            ModelError::Auth { .. } | ModelError::Unavailable { .. } => ErrorWord::Auth,
            ModelError::Quota { .. } => ErrorWord::Quota,
            ModelError::ContextOverflow { .. } => ErrorWord::ContextOverflow,
            ModelError::Refused { .. } => ErrorWord::Refused,
            ModelError::Truncated { .. } => ErrorWord::Truncated,
            // Only the loop of calls around a client reports the second one, and it is not recorded.
            ModelError::UnknownTool { .. } | ModelError::NoAnswer { .. } => ErrorWord::UnknownTool,
            ModelError::EmptyResponse { .. } => ErrorWord::EmptyResponse,
            ModelError::Incomplete { .. } => ErrorWord::Incomplete,
            ModelError::StreamTruncated { .. } => ErrorWord::StreamTruncated,
            ModelError::ReplyTooLarge { .. } => ErrorWord::ReplyTooLarge,
            // After both, the next model of a list is asked.
            ModelError::NotFound { .. } | ModelError::Attachment { .. } => ErrorWord::NotFound,
            ModelError::Program { .. } => ErrorWord::Program,
            ModelError::Transient { .. } => ErrorWord::Transient,
            ModelError::BadRequest { .. }
            // Its reason is recorded.
            | ModelError::Charged { .. }
            | ModelError::NotSent { .. }
            | ModelError::NoRecording { .. }
            | ModelError::NotRecorded { .. } => ErrorWord::BadRequest,
        };
        let (after, message) = match error {
            ModelError::RateLimited { after, message }
            | ModelError::Overloaded { after, message }
            | ModelError::Transient { after, message } => (*after, message.clone()),
            ModelError::Timeout { after, .. } => (Some(*after), String::new()),
            ModelError::Auth { message }
            | ModelError::Unavailable { message }
            | ModelError::Quota { message }
            | ModelError::ContextOverflow { message, .. }
            | ModelError::NotFound { message }
            | ModelError::Incomplete { finish: message, .. }
            | ModelError::BadRequest { message, .. } => (None, message.clone()),
            ModelError::UnknownTool { name, .. } | ModelError::NoAnswer { name, .. } => {
                (None, name.clone())
            }
            ModelError::ReplyTooLarge { bytes_max } => (None, bytes_max.to_string()),
            ModelError::Attachment { .. } => (None, error.to_string()),
            _ => (None, String::new()),
        };
        let after_ms = after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        let status = match error {
            ModelError::BadRequest { status, .. } => Some(*status),
            _ => None,
        };
        let tokens_max = match error {
            ModelError::Truncated { tokens_max, .. } => *tokens_max,
            _ => None,
        };
        let failure = match error {
            ModelError::Program { failure, .. } => Some(failure.clone()),
            _ => None,
        };
        Self { kind, status, after_ms, tokens_max, message, failure }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_failure_leads_to_the_same_next_step() {
        let usage = TokenUsage::default();
        let text = String::new;
        let message = || "m".to_owned();
        let after = None;
        for error in [
            ModelError::RateLimited { after, message: message() },
            ModelError::Overloaded { after, message: message() },
            ModelError::Transient { after, message: message() },
            ModelError::Timeout { phase: Phase::Response, after: Duration::from_secs(1) },
            ModelError::Auth { message: message() },
            ModelError::Quota { message: message() },
            ModelError::ContextOverflow { message: message(), usage },
            ModelError::BadRequest { status: 422, message: message() },
            ModelError::Refused { text: message(), usage },
            ModelError::Truncated { text: text(), usage, tokens_max: None },
            ModelError::Truncated { text: text(), usage, tokens_max: Some(8192) },
            ModelError::UnknownTool { name: message(), arguments: text(), usage },
            ModelError::EmptyResponse { usage },
            ModelError::Incomplete { finish: message(), text: text(), usage },
            ModelError::StreamTruncated { text: text(), usage },
            ModelError::ReplyTooLarge { bytes_max: 16 },
            ModelError::NotFound { message: message() },
        ] {
            let ReplyLine { text, error: line, .. } = ReplyLine::of(&Err(error.clone()));
            let replayed = line.unwrap().to_error(text.unwrap_or_default(), usage);
            assert_eq!(replayed, error);
        }
    }
}
