//! The work of nodes, recorded outside their runs.

use std::{
    collections::BTreeMap,
    panic::resume_unwind,
    sync::{Arc, Mutex},
    time::Duration,
};

use graphrun::{
    graph::{ErrorKind, Failure, Node, NodeContext, NodeError, Question, node_fn},
    id::TaskId,
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{simulation::parts::Temper, support::team::Nothing};

/// Kinds of failure, of each class.
const KINDS: [ErrorKind; 8] = [
    ErrorKind::Provider,
    ErrorKind::Refused,
    ErrorKind::Credentials,
    ErrorKind::Tool,
    ErrorKind::Sandbox,
    ErrorKind::Delivery,
    ErrorKind::Panic,
    ErrorKind::Other,
];

/// The recorded work of nodes.
#[derive(Clone, Default)]
pub(crate) struct World {
    begun: Arc<Mutex<BTreeMap<(TaskId, u32), usize>>>,
    /// How often the routes of nodes have panicked.
    strayed: Arc<Mutex<BTreeMap<String, u32>>>,
    /// Gives nodes random durations and failures.
    lazy: Option<u64>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Channels {
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    notes: Vec<String>,
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    lost: Vec<Value>,
    #[serde(default)]
    #[schemars(extend("x-merge" = "sum"))]
    sum: u64,
}

#[derive(Serialize, JsonSchema)]
struct Noted {
    notes: Vec<String>,
    sum: u64,
}

impl World {
    /// Returns a world with random disturbances from a seed.
    pub(crate) fn disturbed(seed: u64) -> Self {
        Self { lazy: Some(seed), ..Self::default() }
    }

    pub(crate) fn begun(&self) -> BTreeMap<(TaskId, u32), usize> {
        self.begun.lock().unwrap().clone()
    }

    /// Returns how often each task began, over all attempts.
    pub(crate) fn tasks(&self) -> BTreeMap<TaskId, usize> {
        let mut tasks = BTreeMap::new();
        for ((task, _), count) in self.begun() {
            *tasks.entry(task).or_default() += count;
        }
        tasks
    }

    /// Returns a route that panics this often if the world is disturbed, and then leads to a node.
    pub(crate) fn route(
        &self,
        from: &str,
        to: &str,
        times: u32,
    ) -> impl Fn(&Nothing) -> &'static str + Send + Sync + 'static {
        let world = self.clone();
        let from = from.to_owned();
        // A route names its target by a text that outlives the graph.
        let to: &str = to.to_owned().leak();
        move |_| {
            let strayed = {
                let mut strayed = world.strayed.lock().unwrap();
                let strayed = strayed.entry(from.clone()).or_default();
                *strayed += 1;
                *strayed
            };
            if world.lazy.is_some() && strayed <= times {
                // Like `panic!`, without the slow message on stderr.
                resume_unwind(Box::new("a route that is not repaired yet"));
            }
            to
        }
    }

    /// Returns a node of this world.
    pub(crate) fn node(&self, temper: Temper) -> impl Node + 'static {
        let world = self.clone();
        node_fn(move |_: Nothing, ctx: NodeContext| {
            let world = world.clone();
            async move {
                let nth = {
                    let mut begun = world.begun.lock().unwrap();
                    let nth = begun.entry((ctx.task, ctx.attempt)).or_default();
                    *nth += 1;
                    u64::try_from(*nth).unwrap()
                };
                if let Some(seed) = world.lazy {
                    let mixed = ctx.task.step.0 ^ u64::from(ctx.task.index) << 8 ^ nth << 16;
                    let mut random = StdRng::seed_from_u64(seed ^ mixed);
                    sleep(Duration::from_millis(random.random_range(0..50))).await;
                }
                match temper {
                    Temper::Fails(times) if ctx.attempt <= times => {
                        return Err(NodeError::transient(format!("attempt {}", ctx.attempt)));
                    }
                    Temper::Of(items) if ctx.input.item().is_some_and(|it| items.fails(it)) => {
                        return Err(Failure::new(ErrorKind::Tool, "an item is broken").into());
                    }
                    // Like `panic!`, without the slow message on stderr.
                    Temper::Panics => resume_unwind(Box::new("a node that always panics")),
                    Temper::Hangs if ctx.attempt == 1 => std::future::pending().await,
                    Temper::Slow(seconds) => sleep(Duration::from_secs(seconds)).await,
                    Temper::Breaks(times) if nth <= times && world.lazy.is_some() => {
                        let kind =
                            KINDS[usize::try_from(nth + ctx.task.step.0).unwrap() % KINDS.len()];
                        return Err(Failure::new(kind, "broken").into());
                    }
                    Temper::Asks => {
                        let question = Question::new(format!("q{}", ctx.task), "how many?");
                        let question = question.with_schema(json!({"type": "integer"}));
                        let answer: u64 = ctx.ask(question)?;
                        return Ok(Noted { notes: vec![format!("{answer}")], sum: answer });
                    }
                    _ => (),
                }
                let item = ctx.input.item().map(ToString::to_string).unwrap_or_default();
                let note = format!("{} {} {item} {}", ctx.node, ctx.task, ctx.attempt);
                Ok(Noted { notes: vec![note], sum: ctx.task.step.0 })
            }
        })
    }
}
