//! Why a node did not return a command.

use std::{error::Error, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Question;

/// The kinds of failure that a `catch` route distinguishes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The attempt took longer than its timeout.
    Timeout,
    /// A provider limited the rate of requests, and the retries were not enough.
    RateLimit,
    /// A provider failed.
    Provider,
    /// A model refused to answer.
    Refused,
    /// The answer of a model was invalid, also after the repairs.
    InvalidOutput,
    /// The key or quota of a provider cannot be used.
    Credentials,
    /// A tool failed.
    Tool,
    /// A command ended with an exit code other than zero, or was stopped.
    Command,
    /// The sandbox could not be set up.
    Sandbox,
    /// A recording has no answer to a request, or could not be written.
    Recording,
    /// The files could not be written to their destination.
    Delivery,
    /// The node panicked.
    Panic,
    /// Any other failure.
    Other,
}

/// The class of a failure, by its remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// A retry may help; the retries of the node were not enough.
    Retryable,
    /// A retry would fail again: the workflow, its input or the answer of a model must change.
    Permanent,
    /// The operator can fix it: a key, a sandbox, a recording, space on a disk.
    NeedsHuman,
    /// The code of a node, route or reducer is wrong.
    Bug,
}

/// A failure in the form in which it is saved and shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind.
    pub kind: ErrorKind,
    /// The error text, with its causes.
    pub message: String,
    /// Whether a retry may help.
    pub transient: bool,
    /// The minimum time before a retry, if the provider named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The raw text that could not be parsed, kept for debugging.
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
    /// Makes a failure that a retry would repeat.
    pub fn permanent(message: impl fmt::Display) -> Self {
        Failure::new(ErrorKind::Other, message).into()
    }

    /// Makes a failure that a retry may fix.
    pub fn transient(message: impl fmt::Display) -> Self {
        Failure { transient: true, ..Failure::new(ErrorKind::Other, message) }.into()
    }
}

impl Failure {
    /// Makes a failure that a retry would repeat.
    pub fn new(kind: ErrorKind, message: impl fmt::Display) -> Self {
        let message = message.to_string();
        Self { kind, message, transient: false, retry_after_ms: None, raw: None }
    }

    /// Returns the class of the failure. Each failure has exactly one class.
    pub fn class(&self) -> FailureClass {
        match self.kind {
            ErrorKind::Panic => FailureClass::Bug,
            kind if kind.is_for_the_operator() => FailureClass::NeedsHuman,
            _ if self.transient => FailureClass::Retryable,
            _ => FailureClass::Permanent,
        }
    }

    /// Makes a failure from an error and all of its causes.
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

    /// Returns whether only the operator can fix it.
    ///
    /// A route for `any` failure does not catch these: the run stops where it is, and continues
    /// once there is a key, a sandbox, a recording that fits, or space on the disk.
    pub fn is_for_the_operator(self) -> bool {
        matches!(self, Self::Credentials | Self::Sandbox | Self::Recording | Self::Delivery)
    }

    /// Returns the word for it in a workflow.
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

/// Joins the texts of an error and its causes in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
