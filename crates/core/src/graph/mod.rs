//! A graph as its author defined it: names, edges, policies and nodes, not yet checked.
//!
//! Start with [`GraphBuilder`] and [`Node`]; `compile` makes a [`Graph`] executable.

mod access;
mod builder;
mod command;
mod condition;
mod context;
mod definition;
mod failure;
mod memo;
mod node;
mod policy;
mod question;
mod route;
mod scope;

pub use self::{
    access::{Access, AccessSet},
    builder::GraphBuilder,
    command::{Command, Dispatch, Goto, IntoCommand, Target, Transition},
    condition::{Condition, condition_fn},
    context::{Input, NodeContext, OriginalTask, Reporter, Trigger},
    definition::{Edge, Graph, NodeSpec},
    failure::{ErrorKind, Failure, FailureClass, NodeError},
    memo::Memos,
    node::{Contract, Node, NodeDescription, Read, SideEffects, node_fn},
    policy::{Backoff, Catch, Defer, Limits, NodeLimits, Policies},
    question::Question,
    route::{Route, RouteChoice, RouteError, RouteTarget, RouteView, Spread, route_fn},
    scope::Scope,
};
pub use self::{
    context::{AttemptMessage, MessageContent},
    memo::Memo,
};
