//! A cached node: a node is not recomputed for identical inputs.
//!
//! The cache keeps the update of the node. The transition is decided anew, on the current state. A failure, a question, and
//! the result of a node that chose its own route are never cached. The result is stored before the task is recorded, so a
//! crash between the two costs nothing. The key contains the input of the node, such as a rendered prompt or evaluated
//! arguments. The age of a result is checked at lookup, so a shorter maximum applies at once.
//!
//! Of several tasks that want the same result at the same time, one computes it and the others wait for it (`flight`).

mod flight;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use graphrun_core::{
    event::Report,
    graph::{Command, Goto, Node, NodeContext, NodeDescription, NodeError, with_causes},
    id::ChannelName,
};
use graphrun_engine::results::{CachedResult, ResultKey, ResultStore};
use graphrun_guard::redact::redact_value;
use graphrun_workflow::{Expression, ExpressionView};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use self::flight::{Flights, Role};

/// The store of results, and whether existing results are used.
///
/// Clones share the knowledge of which results are being computed, so give the runs of a process clones of one cache.
#[derive(Clone, Debug)]
pub struct Cache {
    store: Arc<dyn ResultStore>,
    is_renewed: bool,
    flights: Flights,
}

/// A node that is not run when its cache holds a result for the same inputs.
///
/// Two tasks share a result if these are equal: the version of this library, the name and the kind
/// of the node, its [fingerprint](graphrun_core::graph::NodeDescription::fingerprint), its [input](Node::cache_key), and the types of the
/// channels that it writes. Of a node without a fingerprint, which is every node in Rust that states none, also: the name of the
/// graph, and the type of the function.
///
/// Neither the code of a function nor the values that a closure captured are part of the key. Give a node whose results
/// outlast the process a [label](Self::labelled), such as a version, and change it with the code. Another version of the
/// compiler may compute all results of functions anew.
///
/// A task that wants a result which another task with a clone of the same [`Cache`] is computing waits for it. If that
/// task fails, asks or is aborted, the next one computes the result. The wait counts towards the timeout of the node,
/// and not as silence.
///
/// ```
/// use std::sync::Arc;
///
/// use graphrun_core::graph::{NodeContext, NodeError, node_fn};
/// use graphrun_engine::storage::MemoryResults;
/// use graphrun_nodes::{Cache, CachedNode};
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, JsonSchema)]
/// struct Number {
///     number: u64,
/// }
///
/// async fn slow(reads: Number, _: NodeContext) -> Result<Number, NodeError> {
///     Ok(Number { number: reads.number * 2 })
/// }
///
/// let cache = Cache::new(Arc::new(MemoryResults::default()));
/// let node = CachedNode::new(Arc::new(node_fn(slow)), cache);
/// ```
#[doc(alias = "CachePolicy")]
pub struct CachedNode {
    inner: Arc<dyn Node>,
    cache: Cache,
    /// The part of the fingerprint that is not the node's own.
    label: Value,
    age_max: Option<Duration>,
    /// The cache key in place of the node's input.
    key: Option<Expression>,
}

impl Cache {
    /// Uses existing results of a store, and adds new ones.
    pub fn new(store: Arc<dyn ResultStore>) -> Self {
        Self { store, is_renewed: false, flights: Flights::default() }
    }

    /// Runs every node, and replaces existing results.
    #[must_use]
    pub fn renewed(self) -> Self {
        Self { is_renewed: true, ..self }
    }
}

impl CachedNode {
    /// Caches the results of a node, without a bound on their age.
    pub fn new(inner: Arc<dyn Node>, cache: Cache) -> Self {
        Self { inner, cache, label: Value::Null, age_max: None, key: None }
    }

    /// Reuses only results up to this age. `None` is no bound.
    #[must_use]
    pub fn no_older_than(self, age_max: Option<Duration>) -> Self {
        Self { age_max, ..self }
    }

    /// Uses an expression as the cache key, in place of the node's input.
    #[must_use]
    pub(super) fn by(self, key: Option<Expression>) -> Self {
        Self { key, ..self }
    }

    /// Adds a label to the cache key, for nodes without a fingerprint: a version of the code, or what a closure captured.
    #[must_use]
    pub fn labelled(self, label: impl Into<Value>) -> Self {
        Self { label: label.into(), ..self }
    }

    fn key(&self, ctx: &NodeContext) -> Result<ResultKey, NodeError> {
        let inputs = match &self.key {
            Some(key) => {
                json!({"key": key.source(), "value": key.evaluate(&ExpressionView::of(ctx))?})
            }
            None => self.inner.cache_key(ctx)?,
        };
        let NodeDescription { kind, contract, fingerprint, function, .. } = self.inner.describe();
        let is_written = |channel: &&ChannelName| {
            contract.writes.as_ref().is_none_or(|writes| writes.contains(channel))
        };
        let channels = ctx.state.schema().channels().iter();
        let types = channels.filter(|it| is_written(&it.name()));
        let fingerprint_is_missing = fingerprint.is_null();
        let types: Vec<Value> = types.map(|it| json!([it.name(), it.schema()])).collect();
        let mut key = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "node": ctx.node,
            "kind": kind,
            "label": self.label,
            "fingerprint": fingerprint,
            "inputs": inputs,
            "writes": types,
        });
        if fingerprint_is_missing {
            key["graph"] = json!(ctx.facts.workflow);
            key["function"] = json!(function.map(|it| it.to_string()));
        }
        Ok(ResultKey::of(&key))
    }

    /// Returns the cached result, if it may be used. Failures of the cache are reported and do not
    /// fail the node.
    async fn find(&self, ctx: &NodeContext, key: &ResultKey) -> Option<CachedResult> {
        match self.cache.store.find(key).await {
            Ok(found) => found.filter(|it| self.is_young(it)),
            Err(error) => {
                warn(ctx, "no cached result is used", &with_causes(&error)).await;
                None
            }
        }
    }

    fn is_young(&self, result: &CachedResult) -> bool {
        let Some(age_max) = self.age_max else { return true };
        // A result from the future means that a clock was set back; its age counts as zero.
        let age = Duration::try_from(Timestamp::now().duration_since(result.at));
        age.unwrap_or_default() <= age_max
    }

    /// Saves the result of the node. Returns it if it may be used by others.
    async fn keep(
        &self,
        ctx: &NodeContext,
        key: &ResultKey,
        command: &Command,
    ) -> Option<CachedResult> {
        if command.goto != Goto::Edges {
            warn(ctx, "the result is not cached", "the node chose where to go itself").await;
            return None;
        }
        // An update that does not fit is a failure of the node, which the rules report.
        if ctx.state.schema().check(&command.update).is_err() {
            return None;
        }
        let mut result = CachedResult { update: command.update.clone(), at: Timestamp::now() };
        // The engine removes keys from all other values, but cached results do not pass
        // it.
        for (_, value) in &mut result.update.writes {
            redact_value(Arc::make_mut(value));
        }
        if let Err(error) = self.cache.store.keep(key, &result).await {
            warn(ctx, "the result is not cached", &with_causes(&error)).await;
        }
        Some(result)
    }
}

#[async_trait]
impl Node for CachedNode {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        // A result that depends on an answer belongs to this run only.
        if !ctx.answers.is_empty() {
            return self.inner.run(ctx).await;
        }
        let key = match self.key(&ctx) {
            Ok(key) => key,
            // The node itself may not need the value that its key needs.
            Err(error) => {
                let why = match &error {
                    NodeError::Failed(failure) => failure.message.as_str(),
                    NodeError::Ask(_) | NodeError::Wait(_) => "it depends on an answer",
                };
                warn(&ctx, "the result is not cached, because its key cannot be computed", why)
                    .await;
                return self.inner.run(ctx).await;
            }
        };
        if self.cache.is_renewed {
            let command = self.inner.run(ctx.clone()).await?;
            self.keep(&ctx, &key, &command).await;
            return Ok(command);
        }
        let flight = loop {
            match self.cache.flights.join(key) {
                Role::First(flight) => break flight,
                Role::Waiting(flight) => {
                    if let Some(result) = flight.landed(&ctx).await.filter(|it| self.is_young(it)) {
                        return Ok(used(&ctx, result).await);
                    }
                }
            }
        };
        if let Some(result) = self.find(&ctx, &key).await {
            flight.land(result.clone());
            return Ok(used(&ctx, result).await);
        }
        let command = self.inner.run(ctx.clone()).await?;
        if let Some(result) = self.keep(&ctx, &key, &command).await {
            flight.land(result);
        }
        Ok(command)
    }

    fn describe(&self) -> NodeDescription {
        self.inner.describe()
    }

    fn cache_key(&self, ctx: &NodeContext) -> Result<Value, NodeError> {
        self.inner.cache_key(ctx)
    }

    fn preview(&self, ctx: &NodeContext) -> Result<Map<String, Value>, NodeError> {
        self.inner.preview(ctx)
    }
}

impl fmt::Debug for CachedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CachedNode({:?})", self.inner)
    }
}

/// Returns the command of a result that another task computed.
async fn used(ctx: &NodeContext, CachedResult { update, at }: CachedResult) -> Command {
    ctx.report(Report::CacheHit { computed_at: at.to_string() }).await;
    update.into()
}

/// Reports a problem that does not fail the node.
async fn warn(ctx: &NodeContext, what: &str, why: &str) {
    ctx.report(Report::Warning { message: format!("{what}: {why}") }).await;
}
