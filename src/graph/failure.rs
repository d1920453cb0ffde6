//! Why a node did not return a command.

use std::{error::Error, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Question;

/// The kinds of failure that a `catch` route tells apart.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// It took longer than its timeout.
    Timeout,
    /// A provider asked for patience, more often than the retries allow.
    RateLimit,
    /// A provider failed.
    Provider,
    /// A model refused to answer.
    Refused,
    /// The answer of a model could not be read, in spite of the repairs.
    InvalidOutput,
    /// Key or quota of a provider are not usable.
    Credentials,
    /// A tool failed.
    Tool,
    /// A command ended with another code than zero, or was stopped.
    Command,
    /// The sandbox could not be set up.
    Sandbox,
    /// A recording has no answer to a request, or could not be written.
    Recording,
    /// Files could not be written where they were to go.
    Delivery,
    /// The node panicked.
    Panic,
    /// Anything else.
    Other,
}

/// What can be done about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// Trying again may help; the retries that the node has were not enough.
    Retryable,
    /// Trying again would repeat it: the workflow, its input or what a model says must change.
    Permanent,
    /// The operator can mend it: a key, a sandbox, a recording, room on a disk.
    NeedsHuman,
    /// The code of a node, route or reducer is wrong.
    Bug,
}

/// A failure in the form in which it is saved and shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind.
    pub kind: ErrorKind,
    /// What went wrong, with its causes.
    pub message: String,
    /// Whether trying again may help.
    pub transient: bool,
    /// How long to wait at least before trying again, if a provider said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The raw text that could not be read, kept for whoever looks into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
}

/// Why a node did not return a command.
///
/// This type is not a [`std::error::Error`], so that `?` turns any error into a permanent failure.
#[derive(Debug)]
pub enum NodeError {
    /// Not a failure: the node waits for an answer.
    Ask(Box<Question>),
    /// The node failed.
    Failed(Box<Failure>),
}

impl NodeError {
    /// A failure that trying again would repeat.
    pub fn permanent(message: impl fmt::Display) -> Self {
        Failure::new(ErrorKind::Other, message).into()
    }

    /// A failure that trying again may mend.
    pub fn transient(message: impl fmt::Display) -> Self {
        Failure { transient: true, ..Failure::new(ErrorKind::Other, message) }.into()
    }
}

impl Failure {
    /// A failure that trying again would repeat.
    pub fn new(kind: ErrorKind, message: impl fmt::Display) -> Self {
        let message = message.to_string();
        Self { kind, message, transient: false, retry_after_ms: None, raw: None }
    }

    /// What can be done about it. Every failure is of one class.
    pub fn class(&self) -> FailureClass {
        match self.kind {
            ErrorKind::Panic => FailureClass::Bug,
            kind if kind.is_for_the_operator() => FailureClass::NeedsHuman,
            _ if self.transient => FailureClass::Retryable,
            _ => FailureClass::Permanent,
        }
    }

    /// A failure out of an error and all of its causes.
    pub fn of(kind: ErrorKind, error: &dyn Error) -> Self {
        Self::new(kind, chain(error))
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for NodeError {
    fn from(error: E) -> Self {
        Self::permanent(chain(&error))
    }
}

impl From<Failure> for NodeError {
    fn from(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}

impl ErrorKind {
    /// Every kind, in the order of the documentation.
    pub const ALL: [Self; 13] = [
        Self::Timeout,
        Self::RateLimit,
        Self::Provider,
        Self::Refused,
        Self::InvalidOutput,
        Self::Credentials,
        Self::Tool,
        Self::Command,
        Self::Sandbox,
        Self::Recording,
        Self::Delivery,
        Self::Panic,
        Self::Other,
    ];

    /// Whether it is the operator who can mend it, and not the run.
    ///
    /// A route for `any` failure does not catch these: the run rests where it is, and goes on once
    /// there is a key, a sandbox, a recording that fits, or room on the disk.
    pub fn is_for_the_operator(self) -> bool {
        matches!(self, Self::Credentials | Self::Sandbox | Self::Recording | Self::Delivery)
    }

    /// The word a workflow uses for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::RateLimit => "rate_limit",
            Self::Provider => "provider",
            Self::Refused => "refused",
            Self::InvalidOutput => "invalid_output",
            Self::Credentials => "credentials",
            Self::Tool => "tool",
            Self::Command => "command",
            Self::Sandbox => "sandbox",
            Self::Recording => "recording",
            Self::Delivery => "delivery",
            Self::Panic => "panic",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The texts of an error and its causes in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
