//! The one trait to implement: a node.

use std::{fmt, future::Future, marker::PhantomData};

use async_trait::async_trait;
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Command, IntoCommand, NodeContext, NodeError};
use crate::id::ChannelName;

/// A step of work.
///
/// A node may run more than once with the same input: after a retry, after a crash, or when it is
/// resumed with an [answer](NodeContext::ask). Work with outside effects should therefore be safe
/// to repeat; [`NodeContext::idempotency_key`] helps.
#[async_trait]
pub trait Node: Send + Sync {
    /// Does the work and says what should happen next.
    ///
    /// # Errors
    ///
    /// Fails, or asks a person; see [`NodeError`].
    ///
    /// # Cancel safety
    ///
    /// The future is dropped at a timeout and when the run is stopped at once.
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError>;

    /// The channels it reads and writes, so that the flow of data can be checked.
    ///
    /// A node that does not say so may read and write everything.
    fn contract(&self) -> Contract {
        Contract::default()
    }

    /// The channels it writes whenever it finishes; `None` if those are all that its contract
    /// names.
    fn writes_always(&self) -> Option<Vec<ChannelName>> {
        None
    }

    /// The most calls of models that one attempt makes, so that the worst case is known.
    ///
    /// `None` if it does not say, which is not the same as none.
    fn calls_max(&self) -> Option<u64> {
        None
    }

    /// The word for this kind of node in drawings and messages.
    fn kind(&self) -> &'static str {
        "node"
    }

    /// What its result follows from besides what it is [given](Node::given): its settings, such as
    /// a model, a prompt or a version. It tells kept results apart; see
    /// [`Cached`](crate::nodes::Cached).
    fn identity(&self) -> Value {
        Value::Null
    }

    /// What its result follows from of all that it sees in a context. It tells kept results apart.
    ///
    /// The default is the channels that its contract reads, or all of them, and everything else
    /// that a node sees but its run and task.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be told; then no result is kept.
    fn given(&self, ctx: &NodeContext) -> Result<Value, NodeError> {
        let reads = self.contract().reads;
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
            "visits": *ctx.visits,
            "via": ctx.via,
        }))
    }

    /// What running it touches, so that a test knows which nodes it may run as they are.
    ///
    /// The default claims nothing, and such a node never runs in a test.
    fn touches(&self) -> Touches {
        Touches::World
    }
}

/// What a node touches when it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touches {
    /// Nothing: it computes at once, on what its context holds, or asks a person for an answer.
    Nothing,
    /// Models, and nothing else.
    Models,
    /// Anything: files, programs, services.
    World,
}

/// The channels a node reads and writes; `None` where it does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contract {
    /// What it reads.
    pub reads: Option<Vec<Read>>,
    /// What it may write.
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

/// Makes a node of an async function from what it reads to what it writes.
///
/// Both are structs whose fields are channels. What is optional in the first may be unwritten;
/// what is `None` in the second is left alone. To choose where to go as well, return a
/// [`Command`] of the second.
///
/// ```
/// use graphrun::graph::{Node, NodeContext, NodeError, node_fn};
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
/// assert_eq!(node.contract().writes.unwrap()[0].as_str(), "greeting");
/// ```
pub fn node_fn<F, R, O, Fut>(function: F) -> NodeFn<F, R, O>
where
    F: Fn(R, NodeContext) -> Fut + Send + Sync,
    Fut: Future<Output = Result<O, NodeError>> + Send,
    R: DeserializeOwned + JsonSchema + Send,
    O: IntoCommand + Send,
    O::Writes: JsonSchema,
{
    NodeFn { function, types: PhantomData }
}

/// A node made by [`node_fn`].
pub struct NodeFn<F, R, O> {
    function: F,
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

    fn contract(&self) -> Contract {
        Contract {
            reads: fields_of::<R>(SchemaSettings::for_deserialize),
            writes: fields_of::<O::Writes>(SchemaSettings::for_serialize)
                .map(|fields| fields.into_iter().map(|it| it.channel).collect()),
        }
    }

    fn writes_always(&self) -> Option<Vec<ChannelName>> {
        never_null::<O::Writes>()
    }

    fn kind(&self) -> &'static str {
        "function"
    }
}

impl<F, R, O> fmt::Debug for NodeFn<F, R, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeFn")
    }
}

impl fmt::Debug for dyn Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({})", self.kind())
    }
}

/// The fields of a struct that are written whatever they hold: one that is null is left alone.
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

/// The fields of a struct as channels, or `None` if the type is no struct.
pub(super) fn fields_of<T: JsonSchema>(
    side: fn(SchemaSettings) -> SchemaSettings,
) -> Option<Vec<Read>> {
    let generator: SchemaGenerator = side(SchemaSettings::draft2020_12()).into_generator();
    let schema = generator.into_root_schema_for::<T>();
    let Some(Value::Object(properties)) = schema.get("properties") else {
        // `()` reads or writes nothing; a JSON value may be anything.
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
