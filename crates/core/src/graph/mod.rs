//! A graph as its author defined it: names, edges, policies and nodes, not yet checked.
//!
//! Start with [`Node`] and [`IntoNode`]; `compile` makes a [`Graph`] executable.

mod access;
mod command;
mod condition;
mod context;
mod definition;
mod facts;
mod failure;
mod function;
mod go;
mod item_order;
mod memo;
mod node;
mod policy;
mod provided;
mod question;
mod route;
mod saved_values;
mod scope;
mod spec;
mod timer;
mod trigger;
mod visits;

pub use self::{
    access::{Access, AccessSet, Fraction},
    command::{Command, Dispatch, Goto, IntoCommand, Target, Transition},
    condition::{Condition, condition_fn},
    context::{
        AttemptMessage, CallPermit, Cancel, DeltaReader, DriverLink, Input, MessageContent,
        MessagePiece, NodeContext, OriginalTask, OuterNode, PlannedCall, Reporter,
    },
    definition::{Edge, Graph, NodeSpec, UncheckedGraph},
    facts::{FactNeeds, Remaining, RunFacts},
    failure::{ErrorKind, Failure, FailureClass, NodeError, with_causes, with_hint},
    function::{Argument, Item, NodeFn, NodeFunction, WithContext, describe_types, node_fn},
    go::{DispatchOf, END, FAIL, Go, Next, START, clear, dispatch, goto},
    item_order::{ItemNeeds, ItemOrder, ItemReads},
    memo::{GRANT_MEMO, Memo, NESTED_MEMO},
    node::{
        Contract, FunctionId, NESTED_LEVELS_MAX, NestedGraphRef, Node, NodeDescription, NodeFault,
        NodeTypes, Read, SideEffects,
    },
    policy::{
        Attempts, Backoff, Bounds, Catch, Defer, ItemPolicy, Limits, NodeLimits, OnFinish,
        Policies, RetriedKinds, Schedule,
    },
    provided::ProvidedValues,
    question::{NestedAsker, Question},
    route::{
        IntoChoice, Route, RouteChoice, RouteError, RouteTarget, RouteView, Spread, Starts,
        route_fn,
    },
    saved_values::SavedValues,
    scope::Scope,
    spec::{AsFunction, AsNode, AsSpec, IntoNode},
    timer::{TIMER_MEMO, Timer, TimerEnd},
    trigger::{Trigger, TriggerKind, with_cause},
    visits::Visits,
};
