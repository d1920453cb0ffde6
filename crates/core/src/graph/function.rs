//! Nodes made of async functions.

use std::{
    fmt,
    future::{Future, ready},
    marker::PhantomData,
    pin::Pin,
    sync::{Arc, OnceLock},
};

use futures_util::FutureExt;
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    Command, Contract, FunctionId, IntoCommand, Node, NodeContext, NodeDescription, NodeError,
    NodeTypes, Read,
};
use crate::{id::ChannelName, state::Type};

/// An async function that can be a node.
///
/// It has up to three [arguments](Argument): structs of the channels it reads, the [`Item`] of a dispatched task, and
/// the [`NodeContext`]. A function without the context counts as one that calls no models. It returns a `Result` of a struct of the channels it writes, or of a [`Command`] of one or a
/// [`Go`](super::Go) if it also chooses targets. Its error is anything that becomes a [`NodeError`], as any
/// [`std::error::Error`] does.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a node",
    note = "a node is an async function of up to three arguments: structs that derive `Deserialize` and `JsonSchema`, an `Item`, a `NodeContext`",
    note = "it returns a `Result` of a struct that derives `Serialize` and `JsonSchema`, of `()`, or of a `Command` of such a struct"
)]
pub trait NodeFunction<Marker>: Send + Sync + 'static {
    /// Calls the function with its arguments from the context. An argument that is missing is an error of the future.
    fn call(&self, ctx: NodeContext) -> impl Future<Output = Result<Command, NodeError>> + Send;

    /// Returns the description that follows from its types.
    fn describe() -> NodeDescription;
}

/// An argument of a node function.
///
/// A struct whose fields are channels is one: an optional field may be unwritten. `()` reads nothing.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a node",
    label = "derive `Deserialize` and `JsonSchema` for it"
)]
pub trait Argument: Sized + Send {
    /// Takes the argument out of the context.
    ///
    /// # Errors
    ///
    /// Fails when the context does not have it, or has it in another form.
    fn take(ctx: &NodeContext) -> Result<Self, NodeError>;

    /// Takes the last argument, for which the context is no longer needed.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    fn take_last(ctx: NodeContext) -> Result<Self, NodeError> {
        Self::take(&ctx)
    }

    /// Returns the channels that it reads; `None` if it may read any.
    fn reads() -> Option<Vec<Read>> {
        Some(Vec::new())
    }

    /// Returns the type that it reads from the state, if it reads it.
    fn read_type() -> Option<Type> {
        None
    }

    /// Returns the type of the item, if it needs one.
    fn item() -> Option<Type> {
        None
    }

    /// Returns whether it is the context, by which a node calls models.
    fn is_context() -> bool {
        false
    }
}

/// The item of a task that was [dispatched](super::dispatch). A node with this argument runs only for items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Item<T>(pub T);

impl<R: DeserializeOwned + JsonSchema + Send> Argument for R {
    fn take(ctx: &NodeContext) -> Result<Self, NodeError> {
        Ok(ctx.state.read()?)
    }

    fn reads() -> Option<Vec<Read>> {
        fields_of::<R>(SchemaSettings::for_deserialize)
    }

    fn read_type() -> Option<Type> {
        Some(Type::of::<R>())
    }
}

impl Argument for NodeContext {
    fn take(ctx: &NodeContext) -> Result<Self, NodeError> {
        Ok(ctx.clone())
    }

    fn take_last(ctx: NodeContext) -> Result<Self, NodeError> {
        Ok(ctx)
    }

    fn is_context() -> bool {
        true
    }
}

impl<T: DeserializeOwned + JsonSchema + Send> Argument for Item<T> {
    fn take(ctx: &NodeContext) -> Result<Self, NodeError> {
        let missing = || {
            let node = &ctx.node;
            NodeError::permanent(format!(
                "`{node}` needs an item, and an edge started it without one"
            ))
        };
        Ok(Self(T::deserialize(ctx.input.item().ok_or_else(missing)?)?))
    }

    fn item() -> Option<Type> {
        Some(Type::of::<T>())
    }
}

/// Implements [`NodeFunction`] for functions with this many arguments. The last one takes the context itself.
macro_rules! node_functions {
    ($(($($argument:ident $value:ident),*; $($last:ident $last_value:ident)?)),*) => {$(
        impl<F, Fut, O, E, $($argument,)* $($last)?> NodeFunction<fn($($argument,)* $($last)?) -> Result<O, E>> for F
        where
            F: Fn($($argument,)* $($last)?) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = Result<O, E>> + Send,
            O: IntoCommand + Send,
            O::Writes: JsonSchema,
            E: Into<NodeError>,
            $($argument: Argument,)*
            $($last: Argument,)?
        {
            fn call(&self, ctx: NodeContext) -> impl Future<Output = Result<Command, NodeError>> + Send {
                let start = || -> Result<Fut, NodeError> {
                    let _ = &ctx;
                    $(let $value = $argument::take(&ctx)?;)*
                    $(let $last_value = $last::take_last(ctx)?;)?
                    Ok(self($($value,)* $($last_value)?))
                };
                // An `async` block would hold the context, and the future of the function twice.
                match start() {
                    Ok(work) => work.map(|it| it.map_err(Into::into)?.into_command()).left_future(),
                    Err(error) => ready(Err(error)).right_future(),
                }
            }

            fn describe() -> NodeDescription {
                let arguments = [
                    $(ArgumentTypes::of::<$argument>(),)*
                    $(ArgumentTypes::of::<$last>())?
                ];
                describe::<O::Writes>(&arguments)
            }
        }
    )*};
}

node_functions!((;), (; A a), (A a; B b), (A a, B b; C c));

/// Returns the description of a node that reads an argument and writes the fields of a struct.
pub fn describe_types<A: Argument, W: JsonSchema>() -> NodeDescription {
    describe::<W>(&[ArgumentTypes::of::<A>()])
}

/// The description of one argument.
struct ArgumentTypes {
    reads: Option<Vec<Read>>,
    read_type: Option<Type>,
    item: Option<Type>,
    is_context: bool,
}

impl ArgumentTypes {
    fn of<A: Argument>() -> Self {
        Self {
            reads: A::reads(),
            read_type: A::read_type(),
            item: A::item(),
            is_context: A::is_context(),
        }
    }
}

fn describe<W: JsonSchema>(arguments: &[ArgumentTypes]) -> NodeDescription {
    let reads: Option<Vec<Vec<Read>>> = arguments.iter().map(|it| it.reads.clone()).collect();
    let channels = |fields: Vec<Read>| fields.into_iter().map(|it| it.channel).collect();
    let items: Vec<Type> = arguments.iter().filter_map(|it| it.item.clone()).collect();
    let has_context = arguments.iter().any(|it| it.is_context);
    NodeDescription {
        kind: "function",
        contract: Contract {
            reads: reads.map(|it| it.concat()),
            writes: fields_of::<W>(SchemaSettings::for_serialize).map(channels),
        },
        writes_always: never_null::<W>(),
        // Usage is counted by the context alone, so a function without it uses nothing of a limit.
        calls_max: (!has_context).then_some(0),
        item: items.first().cloned(),
        types: Some(Arc::new(NodeTypes {
            reads: arguments.iter().filter_map(|it| it.read_type.clone()).collect(),
            items,
            writes: Some(Type::of_written::<W>()),
        })),
        ..NodeDescription::default()
    }
}

/// Makes a node of an async function, where a value of the type [`Node`] is needed or a closure leaves out types.
///
/// The function takes and returns structs whose fields are channels. An optional field of the first
/// struct may be unwritten; a field of the second with the value `None` is not written.
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
pub fn node_fn<F, R, O, Fut>(function: F) -> NodeFn<F, WithContext<R, O>>
where
    F: Fn(R, NodeContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, NodeError>> + Send,
    R: Argument + 'static,
    O: IntoCommand + Send + 'static,
    O::Writes: JsonSchema,
{
    NodeFn::new(function)
}

/// The marker of a function of the fields it reads and of its context.
pub type WithContext<R, O> = fn(R, NodeContext) -> Result<O, NodeError>;

/// A node made of an async function.
pub struct NodeFn<F, Marker> {
    function: F,
    /// The description, once it was derived from the types.
    description: OnceLock<NodeDescription>,
    marker: PhantomData<fn() -> Marker>,
}

impl<F: NodeFunction<Marker>, Marker: 'static> NodeFn<F, Marker> {
    /// Makes the node.
    pub fn new(function: F) -> Self {
        Self { function, description: OnceLock::new(), marker: PhantomData }
    }
}

impl<F: NodeFunction<Marker>, Marker: 'static> Node for NodeFn<F, Marker> {
    // The form that `async_trait` gives the method; its own future would hold the context beside that of the function.
    fn run<'node, 'run>(
        &'node self,
        ctx: NodeContext,
    ) -> Pin<Box<dyn Future<Output = Result<Command, NodeError>> + Send + 'run>>
    where
        'node: 'run,
        Self: 'run,
    {
        Box::pin(self.function.call(ctx))
    }

    fn describe(&self) -> NodeDescription {
        let describe =
            || NodeDescription { function: Some(FunctionId::of::<F>()), ..F::describe() };
        self.description.get_or_init(describe).clone()
    }
}

impl<F, Marker> fmt::Debug for NodeFn<F, Marker> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeFn")
    }
}

/// Returns the fields of a struct that are always written. A field with the value null is not
/// written.
fn never_null<T: JsonSchema>() -> Option<Vec<ChannelName>> {
    let fields = fields_of::<T>(SchemaSettings::for_serialize)?;
    let schema =
        SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>();
    let is_null = |schema: &Value| {
        let named = schema.get("type").unwrap_or(&Value::Null);
        let mut types = named.as_array().into_iter().flatten();
        named == "null" || types.any(|it| it == "null")
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
