//! How a run handles failures: retries that survive a restart, timeouts, panics, and kept results.

mod budget;
mod leases;
mod memos;
mod outages;
mod panics;
mod retries;
mod routes;
mod time;
mod timeouts;
mod timers;

use std::{collections::BTreeMap, sync::Arc};

use crate::support::team::{Noted, Nothing, Team, compiled, name, noted, notes};
use graphrun::{
    checkpoint::{Checkpointer, RunInfo},
    compile::CompiledGraph,
    engine::{Engine, RunEnd, RunError, ShutdownHandle},
    graph::{Catch, Node, NodeContext, Policies, Target, node_fn},
    id::RunId,
    state::Update,
    storage::InMemoryStorage,
};

/// A node that notes its name and its trigger.
fn notes_its_way() -> impl Node {
    node_fn(|_: Nothing, ctx: NodeContext| async move {
        let error = ctx.trigger.error().map(|it| format!(" after: {it}")).unwrap_or_default();
        noted(format!("{}{error}", ctx.node))
    })
}

fn caught_by(node: &str) -> Policies {
    let catch = vec![Catch { kind: None, to: Target::Node(name(node)) }];
    Policies { catch, ..Policies::default() }
}

/// A storage and a run in it.
struct Saved {
    storage: Arc<InMemoryStorage>,
    info: RunInfo,
}

impl Saved {
    fn new() -> Self {
        Self { storage: Arc::default(), info: RunInfo::new("team") }
    }

    fn engine(&self, graph: &CompiledGraph) -> Engine {
        Engine::new(graph.clone()).with_storage(Arc::clone(&self.storage) as Arc<dyn Checkpointer>)
    }

    fn run(&self) -> &RunId {
        &self.info.id
    }

    async fn start(&self, engine: &Engine) -> RunEnd {
        let info = self.info.clone();
        let input = Update::default();
        engine.run(input).with_info(info).await.unwrap()
    }

    async fn resume(&self, engine: &Engine) -> Result<RunEnd, RunError> {
        let answers = BTreeMap::new();
        let stop = ShutdownHandle::default();
        engine.resume(self.run()).with_answers(answers).with_shutdown(&stop).await
    }
}
