//! Targets by their plain names: what routes and node functions return.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{Command, Dispatch, Goto, IntoCommand, NodeError, RouteError, Target, Transition};
use crate::{
    id::{ChannelName, NameError, NodeName},
    state::{Type, Update, to_json},
};

/// The name under which an edge leaves the start of a graph. No node can have it.
pub const START: &str = "__start__";

/// The target that ends this branch of a run.
pub const END: &str = "end";

/// The target that fails the run.
pub const FAIL: &str = "fail";

/// Starts `node` once for this item, beside its other dispatches.
///
/// The node takes the item as its [`Item`](super::Item) argument, or reads `ctx.input`.
///
/// ```
/// use std::time::Duration;
///
/// use graphrun_core::graph::dispatch;
///
/// let each: Vec<_> = ["a", "b"].iter().map(|it| dispatch("work", it)).collect();
/// assert_eq!(each.len(), 2);
/// let slow = dispatch("work", "c").timeout(Duration::from_secs(60));
/// ```
#[doc(alias = "Send")]
pub fn dispatch<T: Serialize + JsonSchema + ?Sized>(node: &str, item: &T) -> DispatchOf<T> {
    let input = to_json(item).map_err(|it| it.to_string());
    DispatchOf { node: node.to_owned(), input, timeout_ms: None, item: PhantomData }
}

/// An item of the type `T` for one node; see [`dispatch`].
#[derive(Clone, Debug)]
pub struct DispatchOf<T: ?Sized> {
    node: String,
    input: Result<Value, String>,
    timeout_ms: Option<u64>,
    item: PhantomData<fn(&T)>,
}

/// A target by its name, or an item for one: what a route returns that mixes them.
#[derive(Clone, Debug)]
pub enum Next {
    /// A node, [`END`] or [`FAIL`].
    To(String),
    /// An item for a node.
    Dispatch(DispatchOf<Value>),
}

impl<T: JsonSchema + ?Sized> DispatchOf<T> {
    /// Returns the type of the item.
    pub(super) fn item_type() -> Type {
        Type::of::<T>()
    }
}

impl<T: ?Sized> DispatchOf<T> {
    /// Sets the longest duration of each attempt at this task, in place of the node's timeout.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        // A timeout below a millisecond is no timeout of zero.
        let ms = timeout.as_nanos().div_ceil(1_000_000);
        Self { timeout_ms: Some(u64::try_from(ms).unwrap_or(u64::MAX)), ..self }
    }

    pub(super) fn into_dispatch(self) -> Result<Dispatch, RouteError> {
        let Self { node, input, timeout_ms, .. } = self;
        let input = match input {
            Ok(input) => Arc::new(input),
            Err(reason) => return Err(RouteError::Item { node, reason }),
        };
        let node = NodeName::parse_path(&node).map_err(|_| RouteError::Undeclared(node))?;
        Ok(Dispatch { node, input, timeout_ms })
    }
}

impl Next {
    pub(super) fn into_transition(self) -> Result<Transition, RouteError> {
        let target = match self {
            Self::Dispatch(dispatch) => return Ok(Transition::Dispatch(dispatch.into_dispatch()?)),
            Self::To(target) => target,
        };
        Ok(Transition::To(match target.as_str() {
            END => Target::End,
            FAIL => Target::Fail,
            name => match NodeName::parse_path(name) {
                Ok(name) => Target::Node(name),
                Err(_) => return Err(RouteError::Undeclared(target)),
            },
        }))
    }
}

impl From<&str> for Next {
    fn from(name: &str) -> Self {
        Self::To(name.to_owned())
    }
}

impl From<String> for Next {
    fn from(name: String) -> Self {
        Self::To(name)
    }
}

impl<T: ?Sized> From<DispatchOf<T>> for Next {
    fn from(DispatchOf { node, input, timeout_ms, .. }: DispatchOf<T>) -> Self {
        Self::Dispatch(DispatchOf { node, input, timeout_ms, item: PhantomData })
    }
}

/// The result of a node that chooses targets or clears channels; see [`goto`] and [`clear`].
#[derive(Clone, Debug)]
pub struct Go<W = ()> {
    update: W,
    clears: Vec<Result<ChannelName, NameError>>,
    to: Vec<Next>,
    is_instead: bool,
}

/// Leads the run to this target, besides the edges of the node. The graph declares the targets with `goto`.
///
/// ```
/// use graphrun_core::graph::{IntoCommand, goto};
///
/// let command = goto("review").and("test").clear("draft").into_command().unwrap();
/// assert_eq!(command.update.clears[0].as_str(), "draft");
/// ```
pub fn goto(target: impl Into<Next>) -> Go {
    Go { update: (), clears: Vec::new(), to: vec![target.into()], is_instead: false }
}

/// Clears a channel, or resets it to its default, before the writes.
pub fn clear(channel: &str) -> Go {
    Go { update: (), clears: Vec::new(), to: Vec::new(), is_instead: false }.clear(channel)
}

impl<W> Go<W> {
    /// Adds a target.
    #[must_use]
    pub fn and(mut self, target: impl Into<Next>) -> Self {
        self.to.push(target.into());
        self
    }

    /// Ignores the edges of the node: the run continues only at the chosen targets.
    #[must_use]
    pub fn instead_of_edges(mut self) -> Self {
        self.is_instead = true;
        self
    }

    /// Clears a channel, or resets it to its default, before the writes.
    #[must_use]
    pub fn clear(mut self, channel: &str) -> Self {
        self.clears.push(ChannelName::parse(channel));
        self
    }

    /// Writes the fields of a struct.
    #[must_use]
    pub fn write<V: Serialize>(self, update: V) -> Go<V> {
        let Self { clears, to, is_instead, .. } = self;
        Go { update, clears, to, is_instead }
    }
}

impl<W: Serialize> IntoCommand for Go<W> {
    type Writes = W;

    fn into_command(self) -> Result<Command, NodeError> {
        let mut update = Update::of(&self.update)?;
        for channel in self.clears {
            update.clears.push(channel?);
        }
        let to: Vec<Transition> =
            self.to.into_iter().map(Next::into_transition).collect::<Result<_, _>>()?;
        let goto = match to {
            to if self.is_instead => Goto::Instead(to),
            to if to.is_empty() => Goto::Edges,
            to => Goto::Also(to),
        };
        Ok(Command { update, goto })
    }
}
