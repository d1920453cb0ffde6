//! The trait of nodes.

use std::{fmt, future::Future, marker::PhantomData, sync::OnceLock};

use async_trait::async_trait;
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Command, IntoCommand, NodeContext, NodeError};
use crate::id::ChannelName;

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
    /// The maximum number of model calls in one attempt, for the worst case. `None` means unknown,
    /// not zero.
    pub calls_max: Option<u64>,
    /// The side effects of the node, which decide whether a test can run it unchanged.
    pub side_effects: SideEffects,
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
            calls_max: None,
            side_effects: SideEffects::World,
            fingerprint: Value::Null,
        }
    }
}

/// The side effects of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideEffects {
    /// None: it computes synchronously from its context, or asks a person.
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

/// Makes a node from an async function.
///
/// The function takes and returns structs whose fields are channels. An optional field of the first
/// struct may be unwritten; a field of the second with the value `None` is not written. To choose
/// targets as well, return a [`Command`] of the second struct.
///
/// ```
/// use graphrun_core::graph::{Node, NodeContext, NodeError, node_fn};
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Reads {
///     name: String,
/// }
///
/// #[derive(Serialize, JsonSchema)]
/// struct Writes {
///     greeting: String,
/// }
///
/// async fn greet(reads: Reads, _: NodeContext) -> Result<Writes, NodeError> {
///     Ok(Writes { greeting: format!("Hello, {}!", reads.name) })
/// }
///
/// let node = node_fn(greet);
/// assert_eq!(node.describe().contract.writes.unwrap()[0].as_str(), "greeting");
/// ```
pub fn node_fn<F, R, O, Fut>(function: F) -> NodeFn<F, R, O>
where
    F: Fn(R, NodeContext) -> Fut + Send + Sync,
    Fut: Future<Output = Result<O, NodeError>> + Send,
    R: DeserializeOwned + JsonSchema + Send,
    O: IntoCommand + Send,
    O::Writes: JsonSchema,
{
    NodeFn { function, description: OnceLock::new(), types: PhantomData }
}

/// A node made by [`node_fn`].
pub struct NodeFn<F, R, O> {
    function: F,
    /// The description, once it was derived from the types.
    description: OnceLock<NodeDescription>,
    types: PhantomData<fn(R) -> O>,
}

#[async_trait]
impl<F, R, O, Fut> Node for NodeFn<F, R, O>
where
    F: Fn(R, NodeContext) -> Fut + Send + Sync,
    Fut: Future<Output = Result<O, NodeError>> + Send,
    R: DeserializeOwned + JsonSchema + Send,
    O: IntoCommand + Send,
    O::Writes: JsonSchema,
{
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        let reads = ctx.state.read::<R>()?;
        (self.function)(reads, ctx).await?.into_command()
    }

    fn describe(&self) -> NodeDescription {
        let describe = || NodeDescription {
            kind: "function",
            contract: Contract {
                reads: fields_of::<R>(SchemaSettings::for_deserialize),
                writes: fields_of::<O::Writes>(SchemaSettings::for_serialize)
                    .map(|fields| fields.into_iter().map(|it| it.channel).collect()),
            },
            writes_always: never_null::<O::Writes>(),
            ..NodeDescription::default()
        };
        self.description.get_or_init(describe).clone()
    }
}

impl<F, R, O> fmt::Debug for NodeFn<F, R, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeFn")
    }
}

impl fmt::Debug for dyn Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({})", self.describe().kind)
    }
}

/// Returns the fields of a struct that are always written. A field with the value null is not
/// written.
fn never_null<T: JsonSchema>() -> Option<Vec<ChannelName>> {
    let fields = fields_of::<T>(SchemaSettings::for_serialize)?;
    let schema =
        SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>();
    let is_null = |it: &Value| {
        let named = it.get("type").unwrap_or(&Value::Null);
        named == "null" || named.as_array().is_some_and(|it| it.iter().any(|it| it == "null"))
    };
    let may_be_null = |name: &str| {
        let field = schema.get("properties").and_then(|it| it.get(name));
        let options = field.and_then(|it| it.get("anyOf")).and_then(Value::as_array);
        field.is_none_or(is_null) || options.is_some_and(|it| it.iter().any(is_null))
    };
    let always = fields.into_iter().filter(|it| it.required && !may_be_null(it.channel.as_str()));
    Some(always.map(|it| it.channel).collect())
}

/// Returns the fields of a struct as channels, or `None` if the type is not a struct.
pub(super) fn fields_of<T: JsonSchema>(
    side: fn(SchemaSettings) -> SchemaSettings,
) -> Option<Vec<Read>> {
    let generator: SchemaGenerator = side(SchemaSettings::draft2020_12()).into_generator();
    let schema = generator.into_root_schema_for::<T>();
    let Some(Value::Object(properties)) = schema.get("properties") else {
        // `()` has no fields; a JSON value may have any.
        let nothing = schema.get("type").and_then(Value::as_str) == Some("null");
        return nothing.then(Vec::new);
    };
    let required = schema.get("required").and_then(Value::as_array);
    let read = |name: &String| {
        let listed = |all: &Vec<Value>| all.iter().any(|it| it.as_str() == Some(name));
        Some(Read {
            channel: ChannelName::parse(name).ok()?,
            required: required.is_some_and(listed),
        })
    };
    properties.keys().map(read).collect()
}
