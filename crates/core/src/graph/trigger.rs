//! How a run reached a node.

use serde::{Deserialize, Serialize};

use super::{ErrorKind, Failure};
use crate::{id::NodeName, words::count};

/// The trigger: why a task was activated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Trigger {
    /// The run starts here.
    #[default]
    Start,
    /// By an edge, a route or a dispatch.
    Then {
        /// The node that the edge leaves.
        node: NodeName,
    },
    /// A bound was used up, and this node is the target for that case.
    Exhausted {
        /// The node whose bound it is.
        node: NodeName,
        /// The bound.
        max_visits: u32,
        /// The error that led to the node once more, if one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<String>,
    },
    /// A failure was caught.
    Caught {
        /// The node that failed.
        node: NodeName,
        /// The failure.
        failure: Box<Failure>,
    },
    /// A limit of the run or of a node was reached.
    Limit {
        /// The limit, in words.
        error: String,
    },
}

/// The kind of a [`Trigger`], without its details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TriggerKind {
    /// [`Trigger::Start`].
    Start,
    /// [`Trigger::Then`].
    Then,
    /// [`Trigger::Exhausted`].
    Exhausted,
    /// [`Trigger::Caught`].
    Caught,
    /// [`Trigger::Limit`].
    Limit,
}

impl TriggerKind {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::Start, Self::Then, Self::Exhausted, Self::Caught, Self::Limit];

    /// Returns the word for it in prompts and expressions.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Then => "then",
            Self::Exhausted => "exhausted",
            Self::Caught => "caught",
            Self::Limit => "limit",
        }
    }

    /// Returns whether such a trigger has a [node](Trigger::node).
    pub const fn has_node(self) -> bool {
        matches!(self, Self::Then | Self::Exhausted | Self::Caught)
    }

    /// Returns whether such a trigger has an [error](Trigger::error).
    pub const fn has_error(self) -> bool {
        matches!(self, Self::Exhausted | Self::Caught | Self::Limit)
    }
}

impl Trigger {
    /// Returns the node that led here.
    pub fn node(&self) -> Option<&NodeName> {
        match self {
            Self::Start | Self::Limit { .. } => None,
            Self::Then { node } | Self::Exhausted { node, .. } | Self::Caught { node, .. } => {
                Some(node)
            }
        }
    }

    /// Returns the same with another name of its node.
    pub(super) fn with_node(mut self, name: NodeName) -> Self {
        if let Self::Then { node } | Self::Exhausted { node, .. } | Self::Caught { node, .. } =
            &mut self
        {
            *node = name;
        }
        self
    }

    /// Returns the kind, which prompts and expressions read as `via.reason`.
    pub fn kind(&self) -> TriggerKind {
        match self {
            Self::Start => TriggerKind::Start,
            Self::Then { .. } => TriggerKind::Then,
            Self::Exhausted { .. } => TriggerKind::Exhausted,
            Self::Caught { .. } => TriggerKind::Caught,
            Self::Limit { .. } => TriggerKind::Limit,
        }
    }

    /// Returns the error behind it, without the bounds that it used up before.
    pub fn cause(&self) -> Option<&str> {
        match self {
            Self::Start | Self::Then { .. } => None,
            Self::Exhausted { cause, .. } => cause.as_deref(),
            Self::Caught { failure, .. } => Some(&failure.message),
            Self::Limit { error } => Some(error),
        }
    }

    /// The kinds of errors that are a trigger but no failure of a node.
    pub const OTHER_ERROR_KINDS: [&str; 2] = ["exhausted", "limit"];

    /// Returns the kind of the error, if the trigger is one: that of a failure, or one of
    /// [`OTHER_ERROR_KINDS`](Self::OTHER_ERROR_KINDS).
    pub fn error_kind(&self) -> Option<&'static str> {
        match self {
            Self::Start | Self::Then { .. } => None,
            Self::Exhausted { .. } => Some(Self::OTHER_ERROR_KINDS[0]),
            Self::Caught { failure, .. } => Some(ErrorKind::as_str(failure.kind)),
            Self::Limit { .. } => Some(Self::OTHER_ERROR_KINDS[1]),
        }
    }

    /// Returns the text of the error, if the trigger is one.
    pub fn error(&self) -> Option<String> {
        match self {
            Self::Start | Self::Then { .. } => None,
            Self::Exhausted { node, max_visits, cause } => {
                let visits = count(u64::from(*max_visits), "visit");
                let exhausted = format!("`{node}` used up its {visits}");
                Some(with_cause(exhausted, cause.as_deref()))
            }
            Self::Caught { failure, .. } => Some(failure.message.clone()),
            Self::Limit { error } => Some(error.clone()),
        }
    }
}

/// Adds the error behind an error to its text.
pub fn with_cause(error: String, cause: Option<&str>) -> String {
    match cause {
        Some(cause) => format!("{error}; the last error: {cause}"),
        None => error,
    }
}
