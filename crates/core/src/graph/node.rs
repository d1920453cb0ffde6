//! The trait of nodes.

use std::{
    any::{Any, TypeId, type_name},
    fmt,
    sync::Arc,
};

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::{Command, NodeContext, NodeError};
use crate::{id::ChannelName, state::Type};

/// A unit of work in a graph. Only [`run`](Self::run) is needed.
///
/// A node may run more than once with the same input: after a retry, after a crash, or on resume
/// with an [answer](NodeContext::ask). External side effects should therefore be safe to repeat;
/// [`NodeContext::idempotency_key`] helps.
#[async_trait]
pub trait Node: Send + Sync {
    /// Does the work and returns the updates and the next targets.
    ///
    /// # Errors
    ///
    /// Returns a failure, or a question to a person; see [`NodeError`].
    ///
    /// # Cancel safety
    ///
    /// The engine drops the future at a timeout, and when the run is aborted.
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError>;

    /// Describes the node for checks, the worst case, drawings, test cases and the cache.
    fn describe(&self) -> NodeDescription {
        NodeDescription::default()
    }

    /// Returns the texts and values that the node would make of its templates in this context, by name, without sending
    /// them: for an agent, what its model is asked.
    ///
    /// By default there are none.
    ///
    /// # Errors
    ///
    /// Fails if a template cannot be rendered.
    fn preview(&self, _ctx: &NodeContext) -> Result<Map<String, Value>, NodeError> {
        Ok(Map::new())
    }

    /// Returns the parts of the context that its result depends on. They are part of the cache key.
    ///
    /// The default is the channels that its contract reads (all without a contract) and the input. A
    /// node whose result also depends on its visits or its trigger adds them.
    ///
    /// # Errors
    ///
    /// Fails if they cannot be determined; the result is not cached then.
    fn cache_key(&self, ctx: &NodeContext) -> Result<Value, NodeError> {
        let reads = self.describe().contract.reads;
        let is_read = |name: &str| match &reads {
            Some(reads) => reads.iter().any(|it| it.channel.as_str() == name),
            None => true,
        };
        let state = ctx.state.iter().filter(|(name, _)| is_read(name));
        let state: serde_json::Map<String, Value> =
            state.map(|(name, value)| (name.to_owned(), value.clone())).collect();
        Ok(serde_json::json!({
            "state": state,
            "input": ctx.input,
        }))
    }
}

/// The most levels of graphs within a node: each one takes a part of the stack.
pub const NESTED_LEVELS_MAX: usize = 32;

/// The description of a node. The default assumes the worst: any channel, any number of model calls, any side
/// effects.
///
/// ```
/// use graphrun_core::graph::{NodeDescription, SideEffects};
///
/// let counter = NodeDescription {
///     kind: "counter",
///     calls_max: Some(0),
///     side_effects: SideEffects::Nothing,
///     ..NodeDescription::default()
/// };
/// assert_eq!(counter.contract.reads, None);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct NodeDescription {
    /// The word for this kind of node in drawings and messages; `node` by default.
    pub kind: &'static str,
    /// The channels that the node reads and writes, so that `compile` can check the data flow.
    pub contract: Contract,
    /// The channels that it writes whenever it finishes (must-assign); `None` means all channels
    /// that its contract names.
    pub writes_always: Option<Vec<ChannelName>>,
    /// The lists to which it adds exactly one item.
    pub writes_one: Vec<ChannelName>,
    /// The maximum number of model calls in one attempt, for the worst case. `None` means unknown,
    /// not zero.
    pub calls_max: Option<u64>,
    /// The maximum number of model calls in an attempt that follows another one of the same task. `None` means as many as
    /// in the first one.
    pub calls_again_max: Option<u64>,
    /// How many levels of graphs are within it, if a task of it is a nested run; otherwise zero. During an outage only the
    /// tasks of the nested run are retried, not the node itself.
    pub nested_levels: usize,
    /// The graph of these nested runs.
    pub nested: Option<NestedGraphRef>,
    /// The side effects of the node, which decide whether a test can run it unchanged.
    pub side_effects: SideEffects,
    /// The type of the item that it needs, if it runs only when it is [dispatched](super::dispatch).
    pub item: Option<Type>,
    /// The Rust types of its arguments and its result, so that `compile` can compare them with the channels.
    pub types: Option<Arc<NodeTypes>>,
    /// The function that it is made of, which stands for its code in the cache key.
    pub function: Option<FunctionId>,
    /// The mistakes in the node itself, which `compile` reports.
    pub faults: Vec<NodeFault>,
    /// The settings that its result depends on besides its [input](Node::cache_key), such as a
    /// model, a prompt or a version. They are part of the cache key.
    pub fingerprint: Value,
}

impl Default for NodeDescription {
    fn default() -> Self {
        Self {
            kind: "node",
            contract: Contract::default(),
            writes_always: None,
            writes_one: Vec::new(),
            calls_max: None,
            calls_again_max: None,
            nested_levels: 0,
            nested: None,
            side_effects: SideEffects::World,
            item: None,
            types: None,
            function: None,
            faults: Vec::new(),
            fingerprint: Value::Null,
        }
    }
}

/// The graph of the nested runs of a node. This crate does not know compiled graphs, so a reader names their type.
#[derive(Clone)]
pub struct NestedGraphRef(Arc<dyn Any + Send + Sync>);

impl NestedGraphRef {
    /// Wraps a graph.
    pub fn new(graph: impl Any + Send + Sync) -> Self {
        Self(Arc::new(graph))
    }

    /// Returns the graph, if it has this type.
    pub fn downcast_ref<G: Any>(&self) -> Option<&G> {
        self.0.downcast_ref()
    }
}

impl PartialEq for NestedGraphRef {
    /// Compares the identities.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for NestedGraphRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NestedGraphRef")
    }
}

/// A mistake in a node itself, wherever it stands in a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFault {
    /// The code of the diagnostic.
    pub code: &'static str,
    /// The message, without the name of the node.
    pub message: String,
}

/// The Rust types that a node function takes and returns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeTypes {
    /// The types that it reads from the state: records whose fields are channels.
    pub reads: Vec<Type>,
    /// The types that it reads from its item.
    pub items: Vec<Type>,
    /// The type of its writes: a record whose fields are channels.
    pub writes: Option<Type>,
}

/// The identity of a function: the name of its type, and what distinguishes closures of one name. It says nothing about
/// the code in the function or about captured values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionId {
    name: &'static str,
    id: TypeId,
}

impl FunctionId {
    /// Returns the identity of a type.
    pub fn of<F: 'static>() -> Self {
        Self { name: type_name::<F>(), id: TypeId::of::<F>() }
    }
}

impl fmt::Display for FunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.name, self.id)
    }
}

/// The side effects of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideEffects {
    /// None: it computes synchronously from its context, asks a person, or waits for a time.
    Nothing,
    /// Only calls of models.
    Models,
    /// Any: files, programs, services. Such a node never runs in a test.
    World,
}

/// The channels that a node reads and writes; `None` if it does not declare them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contract {
    /// The channels it reads.
    pub reads: Option<Vec<Read>>,
    /// The channels it may write.
    pub writes: Option<Vec<ChannelName>>,
}

/// A channel that a node reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The channel.
    pub channel: ChannelName,
    /// Whether it must be written before the node runs.
    pub required: bool,
}

impl fmt::Debug for dyn Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({})", self.describe().kind)
    }
}
