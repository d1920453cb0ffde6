//! The result of a node: its update, and its choice of the next tasks.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{END, FAIL, NodeError};
use crate::{id::NodeName, state::Update};

/// The result of a node: its update, and where the run continues if the edges alone do not decide.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Command<W = Update> {
    /// The channels to write.
    pub update: W,
    /// Where the run continues.
    pub goto: Goto,
}

/// Whether the edges of the graph decide what runs next.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goto {
    /// The edges decide.
    #[default]
    Edges,
    /// The edges decide, and these run as well.
    Also(Vec<Transition>),
    /// Only these run; the edges are ignored. An empty list means [`Target::End`], and is declared
    /// so.
    Instead(Vec<Transition>),
}

/// One transition to a next task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transition {
    /// Run this node on the state, or end.
    To(Target),
    /// Run a node on a separate input, beside any other dispatches to it.
    Dispatch(Dispatch),
    /// Arrive at a join, a node that waits for several; it runs when all have arrived.
    Join(NodeName),
}

/// Where an edge leads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// To a node.
    Node(NodeName),
    /// To the end of this branch of the run.
    End,
    /// To the failure of the run.
    Fail,
}

/// An input for one node, as in the map half of a map-reduce.
#[doc(alias = "Send")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dispatch {
    /// The node to run.
    pub node: NodeName,
    /// The value that the node receives as its input.
    pub input: Arc<Value>,
    /// The longest duration of each attempt at this task, in place of the node's timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// The types that a node function may return.
#[diagnostic::on_unimplemented(
    message = "a node function returns a struct of the channels it writes, or a `Command` of one",
    label = "derive `Serialize` for this, or return a `Command` of such a struct"
)]
pub trait IntoCommand {
    /// The struct of the channels it writes.
    type Writes: Serialize;

    /// Makes the command.
    ///
    /// # Errors
    ///
    /// Fails if the value is not a struct of channels.
    fn into_command(self) -> Result<Command, NodeError>;
}

impl<W: Serialize> IntoCommand for W {
    type Writes = W;

    fn into_command(self) -> Result<Command, NodeError> {
        Ok(Command { update: Update::of(&self)?, goto: Goto::Edges })
    }
}

impl<W: Serialize> IntoCommand for Command<W> {
    type Writes = W;

    fn into_command(self) -> Result<Command, NodeError> {
        Ok(Command { update: Update::of(&self.update)?, goto: self.goto })
    }
}

impl From<Update> for Command {
    fn from(update: Update) -> Self {
        Self { update, goto: Goto::Edges }
    }
}

impl Goto {
    /// Returns whether the edges decide, alone or with others.
    pub fn follows_edges(&self) -> bool {
        matches!(self, Self::Edges | Self::Also(_))
    }

    /// Returns the transitions that the node chose.
    pub fn chosen(&self) -> &[Transition] {
        match self {
            Self::Edges => &[],
            Self::Also(chosen) | Self::Instead(chosen) => chosen,
        }
    }

    /// Returns the transitions that the node chose, by value.
    pub fn into_chosen(self) -> Vec<Transition> {
        match self {
            Self::Edges => Vec::new(),
            Self::Also(chosen) | Self::Instead(chosen) => chosen,
        }
    }

    /// Returns the transitions that the node chose, to change them.
    pub fn chosen_mut(&mut self) -> &mut [Transition] {
        match self {
            Self::Edges => &mut [],
            Self::Also(chosen) | Self::Instead(chosen) => chosen,
        }
    }
}

impl Dispatch {
    /// Makes a dispatch with the timeout of its node.
    pub fn new(node: NodeName, input: impl Into<Arc<Value>>) -> Self {
        Self { node, input: input.into(), timeout_ms: None }
    }
}

impl Target {
    /// Returns whether this is its name.
    pub fn is_named(&self, name: &str) -> bool {
        match self {
            Self::Node(node) => node.as_str() == name,
            Self::End => name == END,
            Self::Fail => name == FAIL,
        }
    }

    /// Returns the node; `None` for a built-in target.
    pub fn node(&self) -> Option<&NodeName> {
        match self {
            Self::Node(name) => Some(name),
            Self::End | Self::Fail => None,
        }
    }
}

impl Transition {
    /// Returns the target of the transition.
    pub fn target(&self) -> Target {
        match self {
            Self::To(target) => target.clone(),
            Self::Dispatch(dispatch) => Target::Node(dispatch.node.clone()),
            Self::Join(node) => Target::Node(node.clone()),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => name.fmt(f),
            Self::End => f.write_str(END),
            Self::Fail => f.write_str(FAIL),
        }
    }
}
