//! What a graph takes as a node, with the policies that are set where the node is named.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::{
    Backoff, Command, Defer, ErrorKind, Node, NodeContext, NodeDescription, NodeError, NodeFn,
    NodeFunction, NodeLimits, NodeSpec, Policies,
};

/// What a graph takes as a node: an async function (see [`NodeFunction`]), a [`Node`], or one of them with policies.
///
/// The methods set policies where the node is named, such as `judge.retry(3).timeout(Duration::from_secs(60))`.
/// Policies that name other nodes are methods of the graph builder: `max_visits`, `catch`, `resets`, `clears`,
/// `may_clear`.
///
/// ```
/// use std::time::Duration;
///
/// use graphrun_core::graph::{IntoNode, NodeError};
///
/// async fn judge() -> Result<(), NodeError> {
///     Ok(())
/// }
///
/// let node = judge.retry(3).timeout(Duration::from_secs(60));
/// assert_eq!(node.policies.attempts.retry.attempts_max, Some(3));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a node",
    note = "a node is a type that implements `Node`, or an async function of up to three arguments: structs that derive `Deserialize` and `JsonSchema`, an `Item`, a `NodeContext`",
    note = "the function returns a `Result` of a struct that derives `Serialize` and `JsonSchema`, of `()`, or of a `Command` of such a struct"
)]
pub trait IntoNode<Marker>: Sized {
    /// Makes the node with its policies.
    fn into_node(self) -> NodeSpec;

    /// Sets all policies at once.
    fn with_policies(self, policies: impl Into<Policies>) -> NodeSpec {
        self.set(|it| *it = policies.into())
    }

    /// Tries the node up to this many times in all when a failure is transient.
    fn retry(self, attempts_max: u32) -> NodeSpec {
        self.set(|it| it.attempts.retry.attempts_max = Some(attempts_max))
    }

    /// Tries the node up to this many times in all when a failure is of one of these kinds, transient or not. The
    /// default policy applies to all other failures.
    fn retry_on(self, attempts_max: u32, kinds: impl IntoIterator<Item = ErrorKind>) -> NodeSpec {
        self.set(|it| {
            let waits = std::mem::take(&mut it.attempts.retry);
            it.attempts.retry = Backoff { attempts_max: Some(attempts_max), ..waits }.on(kinds);
        })
    }

    /// Sets the number of attempts and the waits between them.
    fn backoff(self, backoff: Backoff) -> NodeSpec {
        self.set(|it| it.attempts.retry = backoff)
    }

    /// Limits the duration of one attempt.
    fn timeout(self, duration: Duration) -> NodeSpec {
        self.set(|it| it.attempts.timeout = Some(duration))
    }

    /// Limits the time of one attempt without a report or a heartbeat.
    fn idle_timeout(self, duration: Duration) -> NodeSpec {
        self.set(|it| it.attempts.idle_timeout = Some(duration))
    }

    /// Limits what all visits of the node in a run may use together.
    fn limits(self, limits: NodeLimits) -> NodeSpec {
        self.set(|it| it.bounds.limits = Some(limits))
    }

    /// Runs the node once, when no other task is left.
    fn defer(self) -> NodeSpec {
        self.set(|it| it.schedule.defer = Some(Defer::Siblings))
    }

    /// Limits how many tasks that were dispatched to the node run at the same time.
    fn concurrency(self, tasks_max: usize) -> NodeSpec {
        self.set(|it| it.schedule.width_max = Some(tasks_max))
    }

    /// Publishes an event of this name when the run reaches the node.
    fn emits(self, name: impl Into<String>) -> NodeSpec {
        self.set(|it| it.emits = Some(name.into()))
    }

    /// Declares that the node calls no models, so a limit of calls, tokens or money does not keep it from running,
    /// and the worst case of a run counts no calls of it. A function without [`NodeContext`] needs no declaration.
    fn without_models(self) -> NodeSpec {
        let mut spec = self.into_node();
        spec.set_node(Arc::new(WithoutModels(Arc::clone(spec.node()))));
        spec
    }

    /// Changes its policies.
    fn set(self, change: impl FnOnce(&mut Policies)) -> NodeSpec {
        let mut spec = self.into_node();
        change(&mut spec.policies);
        spec
    }
}

/// A node that calls no models, as its user declares.
struct WithoutModels(Arc<dyn Node>);

#[async_trait]
impl Node for WithoutModels {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        self.0.run(ctx).await
    }

    fn describe(&self) -> NodeDescription {
        NodeDescription { calls_max: Some(0), calls_again_max: Some(0), ..self.0.describe() }
    }

    fn preview(&self, ctx: &NodeContext) -> Result<Map<String, Value>, NodeError> {
        self.0.preview(ctx)
    }

    fn cache_key(&self, ctx: &NodeContext) -> Result<Value, NodeError> {
        self.0.cache_key(ctx)
    }
}

/// Marks that a [`Node`] is used as it is.
#[derive(Debug)]
pub struct AsNode;

/// Marks that a function is used as a node.
#[derive(Debug)]
pub struct AsFunction<Marker>(std::marker::PhantomData<fn() -> Marker>);

/// Marks that policies are set already.
#[derive(Debug)]
pub struct AsSpec;

impl<N: Node + 'static> IntoNode<AsNode> for N {
    fn into_node(self) -> NodeSpec {
        NodeSpec::of(Arc::new(self))
    }
}

impl<F: NodeFunction<Marker>, Marker: 'static> IntoNode<AsFunction<Marker>> for F {
    fn into_node(self) -> NodeSpec {
        NodeFn::new(self).into_node()
    }
}

impl IntoNode<AsSpec> for NodeSpec {
    fn into_node(self) -> NodeSpec {
        self
    }
}
