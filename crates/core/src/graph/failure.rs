//! Why a node did not return a command.

use std::{error::Error, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Question, Timer};

/// Declares the kinds of failure: a sentence, the variant, the word in a workflow, and the class of most failures of the
/// kind.
macro_rules! error_kinds {
    ($(#[doc = $about:literal] $kind:ident $word:literal $class:ident;)*) => {
        /// The kinds of failure that a `catch` route distinguishes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum ErrorKind {
            $(#[doc = $about] #[serde(rename = $word)] $kind,)*
        }

        impl ErrorKind {
            /// Every kind, in the order of the documentation.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$kind),*];

            /// Returns the word for it in a workflow.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $word,)*
                }
            }

            /// Returns the description of the kind, a sentence.
            pub fn about(self) -> &'static str {
                match self {
                    $(Self::$kind => $about.trim_ascii_start(),)*
                }
            }

            /// Returns the class of most failures of the kind.
            pub fn usual_class(self) -> FailureClass {
                match self {
                    $(Self::$kind => FailureClass::$class,)*
                }
            }
        }
    };
}

error_kinds! {
    /// The attempt took longer than its timeout, or a question was not answered in time.
    Timeout "timeout" Retryable;
    /// A provider limited the rate of requests, more often than `retry` allows.
    RateLimit "rate_limit" Retryable;
    /// A provider failed.
    Provider "provider" Retryable;
    /// A model refused to answer.
    Refused "refused" Permanent;
    /// The answer of a model was invalid, also after the repairs, or the output of a command is no JSON.
    InvalidOutput "invalid_output" Permanent;
    /// A request, or a request with its answer, was longer than its model can take.
    ContextOverflow "context_overflow" Permanent;
    /// The key or quota of a provider cannot be used.
    Credentials "credentials" NeedsHuman;
    /// A tool failed.
    Tool "tool" Permanent;
    /// A command ended with an exit code other than zero, or was stopped.
    Command "command" Permanent;
    /// A person declined a command on this machine.
    Declined "declined" Permanent;
    /// The operator does not allow a command on this machine, or it cannot be started.
    Host "host" NeedsHuman;
    /// The sandbox could not be set up.
    Sandbox "sandbox" NeedsHuman;
    /// A recording has no answer to a request, or could not be written.
    Recording "recording" NeedsHuman;
    /// The files could not be written to their destination.
    Delivery "delivery" NeedsHuman;
    /// An item of a map that this one needs failed, so it did not run.
    Dependency "dependency" Permanent;
    /// The changes of two branches do not fit together.
    Conflict "conflict" Permanent;
    /// A secret would become a part of a commit.
    Secret "secret" Permanent;
    /// A folder of the run cannot be used: git, its repository or its branch.
    Folder "folder" NeedsHuman;
    /// The memory across runs cannot be read or written.
    Memory "memory" NeedsHuman;
    /// A limit of the node was reached before the attempt began, or a limit of its nested run.
    Limit "limit" Permanent;
    /// The node panicked.
    Panic "panic" Bug;
    /// Any other failure.
    Other "other" Permanent;
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
    /// Whether a task of a nested run failed. Its policy for outages is used up, so the outer node does not retry it by default.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_nested: bool,
    /// Whether a request was held back, because earlier ones to its provider failed. The attempt does not count, unless its
    /// wait is so long that its time does not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unsent: bool,
    /// The exit code of a command that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
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
    /// Not a failure: the node waits for a time.
    Wait(Box<Timer>),
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
    /// Adds a hint to the message, if there is one.
    #[must_use]
    pub fn with_hint(self, hint: Option<&str>) -> Self {
        Self { message: with_hint(self.message, hint), ..self }
    }

    /// Makes a failure that a retry would repeat.
    pub fn new(kind: ErrorKind, message: impl fmt::Display) -> Self {
        let message = message.to_string();
        Self {
            kind,
            message,
            transient: false,
            retry_after_ms: None,
            is_nested: false,
            is_unsent: false,
            exit_code: None,
            raw: None,
        }
    }

    /// Returns the class of the failure. Each failure has exactly one class.
    pub fn class(&self) -> FailureClass {
        match self.kind.usual_class() {
            FailureClass::Retryable | FailureClass::Permanent if self.transient => {
                FailureClass::Retryable
            }
            FailureClass::Retryable => FailureClass::Permanent,
            class => class,
        }
    }

    /// Returns whether a provider cannot answer at the moment: the same run may continue later.
    pub fn is_outage(&self) -> bool {
        self.transient && matches!(self.kind, ErrorKind::RateLimit | ErrorKind::Provider)
    }

    /// Returns whether a route for any failure may take it. Otherwise the run stops and can continue from the same task,
    /// once the operator has mended the cause or the outage is over.
    pub fn ends_its_task(&self) -> bool {
        !self.kind.is_for_the_operator() && !self.is_outage()
    }

    /// Returns whether a limit of the node itself was reached, and not one of a nested run.
    pub fn is_node_limit(&self) -> bool {
        self.kind == ErrorKind::Limit && !self.is_nested
    }

    /// Makes a failure from an error and all of its causes.
    pub fn of(kind: ErrorKind, error: &dyn Error) -> Self {
        Self::new(kind, with_causes(error))
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for NodeError {
    fn from(error: E) -> Self {
        Self::permanent(with_causes(&error))
    }
}

impl From<Failure> for NodeError {
    fn from(failure: Failure) -> Self {
        Self::Failed(Box::new(failure))
    }
}

impl ErrorKind {
    /// Returns the kind of a word.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == word)
    }

    /// Returns whether only the operator can fix it.
    ///
    /// A route for `any` failure does not catch these: the run stops where it is, and continues
    /// once there is a key, a sandbox, a recording that fits, or space on the disk.
    pub fn is_for_the_operator(self) -> bool {
        self.usual_class() == FailureClass::NeedsHuman
    }

    /// Returns whether something outside of the workflow is missing. The run can continue once it is there.
    pub fn is_from_outside(self) -> bool {
        self.is_for_the_operator() || matches!(self, Self::RateLimit | Self::Provider)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Returns the texts of an error and its causes in one line.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Returns a message with a hint in parentheses, if there is one.
pub fn with_hint(message: impl Into<String>, hint: Option<&str>) -> String {
    let message = message.into();
    match hint {
        Some(hint) => format!("{message} ({hint})"),
        None => message,
    }
}
