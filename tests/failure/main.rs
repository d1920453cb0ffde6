//! What a run makes of failure: retries that survive a restart, timeouts, panics, and what is kept.

mod panics;
mod retries;
#[path = "../support/mod.rs"]
mod support;
mod time;
mod timeouts;
mod timers;

use std::{collections::BTreeMap, sync::Arc};

use graphrun::{
    checkpoint::{Checkpointer, RunInfo},
    compile::{CompiledGraph, compile},
    engine::{Engine, RunEnd, RunError, Stop},
    event::EventSink,
    graph::{Catch, GraphBuilder, Node, NodeContext, NodeError, Policies, Target, node_fn},
    id::{NodeName, RunId},
    state::{State, Update},
    storage::MemoryStorage,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Team {
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    notes: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

#[derive(Serialize, JsonSchema)]
struct Noted {
    notes: Vec<String>,
}

fn name(name: &str) -> NodeName {
    NodeName::parse(name).unwrap()
}

#[expect(clippy::unnecessary_wraps, reason = "it is what node functions end with")]
fn noted(note: impl Into<String>) -> Result<Noted, NodeError> {
    Ok(Noted { notes: vec![note.into()] })
}

/// A node that notes its name and by which way the run came to it.
fn notes_its_way() -> impl Node {
    node_fn(|_: Nothing, ctx: NodeContext| async move {
        let error = ctx.via.error().map(|it| format!(" after: {it}")).unwrap_or_default();
        noted(format!("{}{error}", ctx.node))
    })
}

fn caught_by(node: &str) -> Policies {
    let catch = vec![Catch { kind: None, to: Target::Node(name(node)) }];
    Policies { catch, ..Policies::default() }
}

fn compiled(builder: GraphBuilder) -> CompiledGraph {
    compile(builder.build()).unwrap().0
}

fn notes(state: &State) -> Vec<String> {
    state.read::<Team>().unwrap().notes
}

/// A storage and a run in it.
struct Saved {
    storage: Arc<MemoryStorage>,
    info: RunInfo,
}

impl Saved {
    fn new() -> Self {
        Self { storage: Arc::default(), info: RunInfo::new("team") }
    }

    fn engine(&self, graph: &CompiledGraph) -> Engine {
        Engine::new(graph.clone(), Arc::clone(&self.storage) as Arc<dyn Checkpointer>)
    }

    fn run(&self) -> &RunId {
        &self.info.id
    }

    async fn start(&self, engine: &Engine) -> RunEnd {
        let (info, input) = (self.info.clone(), Update::default());
        engine.start(info, input, EventSink::default(), &Stop::default()).await.unwrap()
    }

    async fn resume(&self, engine: &Engine) -> Result<RunEnd, RunError> {
        let (answers, stop) = (BTreeMap::new(), Stop::default());
        engine.resume(self.run(), answers, EventSink::default(), &stop).await
    }
}
