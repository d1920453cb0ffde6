//! Why a model did not answer: one classified enum for every provider, network and recording.
//!
//! Start at [`ModelError::is_retryable`] and [`ModelError::kind`]. The messages of providers are
//! kept, truncated to a readable length and without secrets.

use std::{path::PathBuf, time::Duration};

use graphrun_core::graph;
use serde::{Deserialize, Serialize};

use super::{AttachmentKind, TokenUsage};

/// The reason why a model did not answer. It is saved with a run if the call has cost something.
#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelError {
    /// Too many requests or tokens a minute.
    #[error("the provider limits the rate of requests: {message}")]
    RateLimited {
        /// The wait that the provider asks for, clamped.
        after: Option<Duration>,
        /// The provider's message.
        message: String,
    },
    /// The provider has no capacity at the moment.
    #[error("the provider is overloaded: {message}")]
    Overloaded {
        /// The wait that the provider asks for, clamped.
        after: Option<Duration>,
        /// The provider's message.
        message: String,
    },
    /// A fault of the network, a proxy or the provider that the next attempt may not meet.
    #[error("the provider is unreachable or returned an invalid response: {message}")]
    Transient {
        /// The wait that the provider asks for, clamped.
        after: Option<Duration>,
        /// The problem.
        message: String,
    },
    /// No data arrived in time.
    #[error("no answer within {} while {phase}", seconds(*.after))]
    Timeout {
        /// The phase of the request.
        phase: Phase,
        /// The limit that was reached.
        after: Duration,
    },
    /// The key is wrong, or not allowed to use the model.
    #[error("the provider refuses the credentials: {message}")]
    Auth {
        /// The provider's message.
        message: String,
    },
    /// The model cannot be asked here: its provider is unknown, or has no key or address. Nothing was sent.
    #[error("{message}")]
    Unavailable {
        /// The reason, and what to do.
        message: String,
    },
    /// The account has no credit left. Waiting does not help; a person has to act.
    #[error("the account's quota is used up: {message}")]
    Quota {
        /// The provider's message.
        message: String,
    },
    /// The conversation, or the conversation with its answer, is longer than the model can take.
    #[error("the request is too long for the model: {message}")]
    ContextOverflow {
        /// The provider's message.
        message: String,
        /// The usage of the call, if it filled the context.
        usage: TokenUsage,
    },
    /// The provider has no such model, or nothing is at the address.
    #[error("the provider finds no such model or address: {message}")]
    NotFound {
        /// The provider's message.
        message: String,
    },
    /// The provider rejects the request, and would reject it again.
    #[error("the provider rejects the request with status {status}: {message}")]
    BadRequest {
        /// The HTTP status.
        status: u16,
        /// The provider's message.
        message: String,
    },
    /// The protocol of the provider has no place for a file of this kind.
    #[error("the model cannot be sent `{name}`: its protocol takes no {kind} of this type")]
    Attachment {
        /// The name of the file.
        name: String,
        /// The kind of the file.
        kind: AttachmentKind,
    },
    /// The model, or a filter before it, declines to answer.
    #[error("the model refuses to answer: {text}")]
    Refused {
        /// The text that it sent instead.
        text: String,
        /// The usage of the call.
        usage: TokenUsage,
    },
    /// The answer was truncated at the token limit.
    #[error("the answer was truncated after {} tokens", .usage.output_tokens)]
    Truncated {
        /// The answer's beginning.
        text: String,
        /// The usage of the call.
        usage: TokenUsage,
        /// The most tokens of an answer that the model allows, if the request asked for more. Asking for more again is of no use.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tokens_max: Option<u32>,
    },
    /// The answer ended early, for a reason that the next attempt may not meet, or for an unknown one.
    #[error("the answer is not known to be whole: it ended with {finish:?}")]
    Incomplete {
        /// The provider's word for the end.
        finish: String,
        /// The answer's beginning.
        text: String,
        /// The usage of the call.
        usage: TokenUsage,
    },
    /// The stream of the answer ended before the answer. The next attempt may get it whole.
    #[error("the stream ended before the answer was whole, after {} characters", .text.chars().count())]
    StreamTruncated {
        /// The answer's beginning.
        text: String,
        /// The usage of the call.
        usage: TokenUsage,
    },
    /// The model called a tool that it was not offered, and gave no answer.
    #[error("the model called `{name}`, a tool that does not exist, instead of answering")]
    UnknownTool {
        /// The tool.
        name: String,
        /// The arguments of the call, which are no answer.
        arguments: String,
        /// The usage of the call.
        usage: TokenUsage,
    },
    /// The model had to answer after its last round of tool calls, and called tools again.
    #[error(
        "the model did not answer: it called `{name}` again after its {rounds} rounds of tool calls"
    )]
    NoAnswer {
        /// The tool.
        name: String,
        /// The number of rounds.
        rounds: u32,
        /// The usage of the call.
        usage: TokenUsage,
    },
    /// The provider reported success, but there is no answer in the reply.
    #[error("the reply is empty")]
    EmptyResponse {
        /// The usage of the call.
        usage: TokenUsage,
    },
    /// The reply exceeds the client's limit.
    #[error("the reply is larger than {bytes_max} bytes")]
    ReplyTooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// A program that answers in place of a model gave no answer.
    #[error("{}", .failure.message)]
    Program {
        /// The failure of its node.
        failure: Box<graph::Failure>,
        /// The usage of the call, as far as the program states it.
        usage: TokenUsage,
        /// The cost in US dollars, if the program states it.
        cost_usd: Option<f64>,
    },
    /// A failure of a call that has cost something, such as an error in the middle of an answer. The failure itself states
    /// no usage or no cost. [`ModelError::reason`] returns it.
    #[error("{error}")]
    Charged {
        /// The failure.
        error: Box<Self>,
        /// The usage of the call.
        usage: TokenUsage,
        /// The cost in US dollars, if the provider states it.
        cost_usd: Option<f64>,
    },
    /// The request was not sent, because earlier ones failed or have used up what the provider allows. [`ModelError::reason`]
    /// returns their failure.
    #[error("{error}")]
    NotSent {
        /// The failure of earlier requests.
        error: Box<Self>,
    },
    /// A recording has no answer to the request.
    #[error("no entry of {} answers node {node:?}{}", .file.display(), nearest_text(.nearest.as_ref()))]
    NoRecording {
        /// The node that asked.
        node: String,
        /// The recording.
        file: PathBuf,
        /// The most similar entry, if the recording has any for the node.
        nearest: Option<Nearest>,
    },
    /// The exchange could not be added to the recording.
    #[error("cannot record to {}: {message}", .file.display())]
    NotRecorded {
        /// The recording.
        file: PathBuf,
        /// The problem.
        message: String,
    },
}

/// The entry of a recording that is most similar to an unanswered request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nearest {
    /// Its line in the file, from 1.
    pub line: usize,
    /// The difference.
    pub why: String,
}

/// The phase of a request when its time ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Opening the connection.
    Connect,
    /// Waiting for the reply to begin.
    Response,
    /// Reading the reply.
    Body,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connect => "connecting",
            Self::Response => "waiting for the reply",
            Self::Body => "reading the reply",
        })
    }
}

/// The kind of a failure of a model. Nodes turn it into the kind by which a workflow catches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModelErrorKind {
    /// No data arrived in time.
    Timeout,
    /// Too many requests.
    RateLimit,
    /// The provider or the network failed.
    Provider,
    /// The credentials are unusable.
    Auth,
    /// The account has no credit.
    Quota,
    /// The request is too long.
    ContextOverflow,
    /// The request is not acceptable.
    BadRequest,
    /// The model declines.
    Refused,
    /// The answer does not fit the requested shape.
    InvalidOutput,
    /// A program that answers in place of a model failed.
    Program,
    /// The recording does not fit.
    Recording,
}

impl ModelErrorKind {
    /// Returns the word used in traces and lists of models.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::RateLimit => "rate_limit",
            Self::Provider => "provider",
            Self::Auth => "auth",
            Self::Quota => "quota",
            Self::ContextOverflow => "context_overflow",
            Self::BadRequest => "bad_request",
            Self::Refused => "refused",
            Self::InvalidOutput => "invalid_output",
            Self::Program => "program",
            Self::Recording => "recording",
        }
    }
}

impl ModelError {
    /// Returns the kind of the failure.
    pub fn kind(&self) -> ModelErrorKind {
        match self {
            Self::RateLimited { .. } => ModelErrorKind::RateLimit,
            Self::Overloaded { .. }
            | Self::Transient { .. }
            | Self::EmptyResponse { .. }
            | Self::Incomplete { .. }
            | Self::StreamTruncated { .. }
            | Self::ReplyTooLarge { .. } => ModelErrorKind::Provider,
            Self::Timeout { .. } => ModelErrorKind::Timeout,
            Self::Auth { .. } | Self::Unavailable { .. } => ModelErrorKind::Auth,
            Self::Quota { .. } => ModelErrorKind::Quota,
            Self::ContextOverflow { .. } => ModelErrorKind::ContextOverflow,
            Self::BadRequest { .. } | Self::NotFound { .. } | Self::Attachment { .. } => {
                ModelErrorKind::BadRequest
            }
            Self::Refused { .. } => ModelErrorKind::Refused,
            Self::Truncated { .. } | Self::UnknownTool { .. } | Self::NoAnswer { .. } => {
                ModelErrorKind::InvalidOutput
            }
            Self::Program { .. } => ModelErrorKind::Program,
            Self::Charged { error, .. } | Self::NotSent { error } => error.kind(),
            Self::NoRecording { .. } | Self::NotRecorded { .. } => ModelErrorKind::Recording,
        }
    }

    /// Returns whether the same request may succeed when it is sent again.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::RateLimited { .. }
            | Self::Overloaded { .. }
            | Self::Transient { .. }
            | Self::Timeout { .. }
            | Self::EmptyResponse { .. }
            | Self::Incomplete { .. }
            | Self::StreamTruncated { .. } => true,
            Self::Program { failure, .. } => failure.transient,
            Self::Charged { error, .. } | Self::NotSent { error } => error.is_retryable(),
            Self::Auth { .. }
            | Self::Unavailable { .. }
            | Self::Quota { .. }
            | Self::ContextOverflow { .. }
            | Self::BadRequest { .. }
            | Self::NotFound { .. }
            | Self::Attachment { .. }
            | Self::Refused { .. }
            | Self::Truncated { .. }
            | Self::UnknownTool { .. }
            | Self::NoAnswer { .. }
            | Self::ReplyTooLarge { .. }
            | Self::NoRecording { .. }
            | Self::NotRecorded { .. } => false,
        }
    }

    /// Returns the wait that the provider asks for before the next attempt, clamped to a day.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { after, .. }
            | Self::Overloaded { after, .. }
            | Self::Transient { after, .. } => *after,
            Self::Charged { error, .. } | Self::NotSent { error } => error.retry_after(),
            _ => None,
        }
    }

    /// Returns the usage of the failed call, as far as it is known.
    pub fn usage(&self) -> TokenUsage {
        match self {
            Self::Refused { usage, .. }
            | Self::Truncated { usage, .. }
            | Self::ContextOverflow { usage, .. }
            | Self::Incomplete { usage, .. }
            | Self::StreamTruncated { usage, .. }
            | Self::UnknownTool { usage, .. }
            | Self::NoAnswer { usage, .. }
            | Self::Program { usage, .. }
            | Self::Charged { usage, .. }
            | Self::EmptyResponse { usage } => *usage,
            _ => TokenUsage::default(),
        }
    }

    /// Returns the cost of the failed call in US dollars, if it is stated.
    pub fn cost_usd(&self) -> Option<f64> {
        match self {
            Self::Program { cost_usd, .. } | Self::Charged { cost_usd, .. } => *cost_usd,
            _ => None,
        }
    }

    /// Returns the failure itself, without its [charge](Self::Charged), also that of [earlier requests](Self::NotSent). Match
    /// on it, not on the whole error.
    ///
    /// ```
    /// use graphrun_models::{ModelError, TokenUsage};
    ///
    /// let usage = TokenUsage { input_tokens: 12, calls: 1, ..TokenUsage::default() };
    /// let broken = ModelError::Transient { after: None, message: "broken".into() };
    /// let charged = broken.clone().charged(usage, Some(0.3));
    /// assert_eq!((charged.reason(), charged.usage(), charged.cost_usd()), (&broken, usage, Some(0.3)));
    /// assert_eq!(charged.to_string(), broken.to_string());
    /// ```
    pub fn reason(&self) -> &Self {
        match self {
            Self::Charged { error, .. } | Self::NotSent { error } => error.reason(),
            error => error,
        }
    }

    /// Returns whether the request was held back, so that the provider knows nothing of it.
    pub fn is_unsent(&self) -> bool {
        matches!(self, Self::NotSent { .. })
    }

    /// Returns the failure with the usage and the cost of its call, in place of those that it has.
    #[must_use]
    pub fn charged(mut self, usage: TokenUsage, cost_usd: Option<f64>) -> Self {
        match &mut self {
            Self::Charged { usage: known, cost_usd: known_cost, .. }
            | Self::Program { usage: known, cost_usd: known_cost, .. } => {
                (*known, *known_cost) = (usage, cost_usd);
                return self;
            }
            Self::Refused { usage: known, .. }
            | Self::Truncated { usage: known, .. }
            | Self::ContextOverflow { usage: known, .. }
            | Self::Incomplete { usage: known, .. }
            | Self::StreamTruncated { usage: known, .. }
            | Self::UnknownTool { usage: known, .. }
            | Self::NoAnswer { usage: known, .. }
            | Self::EmptyResponse { usage: known } => {
                *known = usage;
                if cost_usd.is_none() {
                    return self;
                }
            }
            _ if usage == TokenUsage::default() && cost_usd.is_none() => return self,
            _ => {}
        }
        Self::Charged { error: Box::new(self), usage, cost_usd }
    }
}

fn seconds(after: Duration) -> String {
    format!("{} s", after.as_secs_f64())
}

fn nearest_text(nearest: Option<&Nearest>) -> String {
    nearest.map_or_else(
        || ": the recording has no entry for this node".to_owned(),
        |nearest| format!(": nearest is line {}, but {}", nearest.line, nearest.why),
    )
}
