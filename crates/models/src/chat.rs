//! A conversation with a model: the trait that every model implements, its requests and replies.
//!
//! The types are plain data, independent of any provider's format; [`ProviderClient`](super::ProviderClient) and
//! [`Replay`](super::Replay) translate. A model makes one attempt and no retries; [`ModelError::is_retryable`] says
//! whether another attempt makes sense.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    Admission, AnswerSink, Attachment, ModelError, RequestSettings, StatedUsage, TokenUsage,
    ToolCall, ToolChoice, ToolSpec,
};

/// Answers conversations: a provider, a recording, or a double of a test.
#[async_trait]
pub trait ChatModel: fmt::Debug + Send + Sync {
    /// Sends the conversation and returns the model's answer; makes one attempt.
    ///
    /// # Errors
    /// Returns the provider's or the network's failure, classified. A truncated ([`ModelError::Truncated`]), refused
    /// ([`ModelError::Refused`]) or incomplete ([`ModelError::Incomplete`]) answer is an error too, so that no caller takes half an answer for a whole one.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the request; the provider may still charge for it.
    async fn chat(&self, request: &ChatRequest) -> Result<ChatReply, ModelError>;

    /// Returns the provider and the model, as in `openai/gpt-5-mini`.
    fn name(&self) -> &str;
}

/// One request to a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChatRequest {
    /// The node that asks. It finds the right answer in a recording and is never sent.
    pub caller: String,
    /// Names this request among all requests of all runs (`run/step/node/…`), so that a provider that
    /// supports the `Idempotency-Key` header does not charge a repeated one twice. Empty: no header.
    pub key: String,
    /// The model to use instead of the client's own.
    pub model: Option<String>,
    /// The conversation, oldest message first.
    pub messages: Vec<Message>,
    /// The shape of the answer; `None` asks for plain text.
    pub output: Option<OutputSchema>,
    /// The tools that the model may call before it answers.
    pub tools: Vec<ToolSpec>,
    /// Whether it may still call them.
    pub tool_choice: ToolChoice,
    /// Sampling, limits, and parts of a single provider.
    pub settings: RequestSettings,
    /// Whether it repeats a request that failed. The clients of a process send few of these while a provider fails.
    pub is_repeat: bool,
    /// The longest duration of the exchange, instead of the client's own.
    pub timeout: Option<Duration>,
    /// How long the provider may be silent, if the time of the caller is limited.
    pub patience: Option<Patience>,
    /// The last check before the request is sent, if it has to wait for its turn.
    pub admission: Admission,
    /// Where the pieces of the answer go as they arrive.
    pub deltas: AnswerSink,
}

impl ChatRequest {
    /// Returns the characters of the texts, calls and files of the conversation.
    pub fn characters(&self) -> u64 {
        self.messages.iter().map(Message::characters).sum()
    }

    /// A question of a node in one message.
    pub(crate) fn of_node(node: &str, question: &str) -> Self {
        let messages = vec![Message::user(question)];
        Self { caller: node.to_owned(), messages, ..Self::default() }
    }
}

/// How long a provider may be silent. A limit of the whole exchange would end slow answers, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// The time at which a provider that is silent is given up, if there is one. One that sends its answer may continue.
    pub until: Option<Instant>,
    /// The time without data after which a provider counts as silent then.
    pub silence_min: Duration,
    /// The longest time without data before.
    pub silence_max: Option<Duration>,
}

impl Patience {
    /// Returns when a provider is given up whose last sign of life was at this time.
    pub fn end(&self, last: Instant) -> Option<Instant> {
        let end = self.until.map(|it| it.max(last + self.silence_min));
        // A clock cannot count to the end of a very long time.
        let longest = self.silence_max.and_then(|it| last.checked_add(it));
        end.into_iter().chain(longest).min()
    }
}

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// The author of the message.
    pub role: Role,
    /// The text of the message.
    pub content: String,
    /// The files beside the text, in a message of the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// The calls of the model, in a message of the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The id of the call with this result, in a message of a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The reasoning of the model before its calls. It is only sent to providers that require it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// The provider's own record of that reasoning, such as signed blocks, which it requires back unchanged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thinking: Vec<Value>,
}

impl Message {
    fn characters(&self) -> u64 {
        let calls = self.tool_calls.iter().map(|it| characters(&it.arguments));
        let files = self.attachments.iter().map(Attachment::characters);
        characters(&self.content).saturating_add(calls.chain(files).sum())
    }

    /// Creates a system message.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new(Role::System, content)
    }

    /// Creates a user message.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new(Role::User, content)
    }

    /// Creates a message of the model.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new(Role::Assistant, content)
    }

    /// Creates the message of the model with the calls of a reply.
    pub fn calls(reply: ChatReply) -> Self {
        let ChatReply { text, reasoning, thinking, tool_calls, .. } = reply;
        Self { tool_calls, reasoning, thinking, ..Self::assistant(text) }
    }

    /// Creates the message with the result of a call.
    pub fn tool(id: impl Into<String>, content: impl Into<String>) -> Self {
        Self { tool_call_id: Some(id.into()), ..Self::new(Role::Tool, content) }
    }

    /// Creates a message of an author.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self {
            role,
            content: content.into(),
            attachments: Vec::new(),
            tool_calls: Vec::new(),
            tool_call_id: None,
            reasoning: None,
            thinking: Vec::new(),
        }
    }
}

/// The author of a [`Message`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The instructions of the workflow.
    System,
    /// The user, here the node.
    User,
    /// The model.
    Assistant,
    /// A tool called by the model.
    Tool,
}

impl Role {
    /// Returns the role's name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// The required shape of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputSchema {
    /// A short name, shown to the model.
    pub name: String,
    /// The full JSON Schema. Properties that are `readOnly` are left out of every request; keywords that a provider
    /// does not support are left out of its request only.
    pub schema: Value,
}

/// A model's answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatReply {
    /// The answer. If the model called the form of the answer like a tool, these are the call's arguments. With calls,
    /// this is the text beside them, which may be empty.
    pub text: String,
    /// The tools it calls before it answers; none if it was offered none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The reasoning of the model, if the provider returns it.
    pub reasoning: Option<String>,
    /// The provider's own record of that reasoning; see [`Message::thinking`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thinking: Vec<Value>,
    /// The usage of the call.
    pub usage: TokenUsage,
    /// The cost in US dollars, if the provider states it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// The numbers of the provider that are ignored in the usage and the cost. They are not saved.
    #[serde(skip)]
    pub stated: StatedUsage,
    /// Why the answer ended.
    pub finish: Finish,
    /// The model that answered, as the provider names it.
    pub model: String,
    /// The session of a program that answered, which a later request can continue. Models have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

#[cfg(feature = "openai")]
impl ChatReply {
    /// Returns the characters that the model has written: its answer, its reasoning and the arguments of its calls.
    pub(crate) fn characters(&self) -> u64 {
        let calls = self.tool_calls.iter().map(|it| characters(&it.arguments));
        let reasoning = self.reasoning.iter().map(|it| characters(it));
        characters(&self.text).saturating_add(calls.chain(reasoning).sum())
    }
}

pub(crate) fn characters(text: &str) -> u64 {
    u64::try_from(text.chars().count()).unwrap_or(u64::MAX)
}

/// Why a model stopped. A truncated or refused answer is a [`ModelError`], not a `Finish`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The answer is complete.
    #[default]
    Stop,
    /// The model called a tool.
    ToolCalls,
    /// A value specific to this provider, unchanged. It is known to mean a whole answer.
    Other(String),
}

impl Finish {
    /// The code of a provider that has checked the model's output itself and rejects it.
    pub(super) const FAILED_GENERATION: &str = "failed_generation";

    pub(super) fn failed_generation() -> Self {
        Self::Other(Self::FAILED_GENERATION.to_owned())
    }

    /// Returns whether the provider rejected the model's output, which is then the text of the reply.
    pub fn is_failed_generation(&self) -> bool {
        matches!(self, Self::Other(word) if word == Self::FAILED_GENERATION)
    }
}
