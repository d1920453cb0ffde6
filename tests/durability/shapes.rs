//! The workflows of these tests, and their nodes.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use graphrun::{
    compile::{CompiledGraph, compile},
    graph::{Node, NodeContext, NodeError, node_fn},
    nodes::{Services, factory},
    registry,
    workflow::load,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::durability::ledger;

/// A workflow in `shapes/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape(pub(crate) &'static str);

/// The number of failures of `flaky` before it succeeds.
const FAILURES: u32 = 2;

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

#[derive(Serialize, JsonSchema)]
struct Noted {
    notes: Vec<String>,
}

/// Returns the workflow, with nodes that write into this ledger and take this long.
pub(crate) fn graph(shape: &str, ledger: &Path, takes: Duration) -> CompiledGraph {
    let registry = registry()
        .node("work", node(ledger, takes, 0))
        .node("flaky", node(ledger, takes, FAILURES))
        .node("parts", parts(ledger, takes))
        .node("blocks", blocks(ledger, takes));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/durability/shapes");
    let path = folder.join(format!("{shape}.yaml"));
    let (workflow, _) = load(&path, &registry).unwrap_or_else(|it| panic!("{shape}: {it:?}"));
    let factory = factory(Services::offline(), registry);
    let compiled = compile(workflow.into_graph(&factory));
    compiled.unwrap_or_else(|it| panic!("{shape}: {it:?}"))
}

/// A node that notes its task and its item.
fn node(ledger: &Path, takes: Duration, failures: u32) -> Arc<dyn Node> {
    let ledger = ledger.to_owned();
    Arc::new(node_fn(move |_: Nothing, ctx: NodeContext| {
        let ledger = ledger.clone();
        async move {
            ledger::write(&ledger, "begin", &ctx);
            tokio::time::sleep(takes).await;
            if ctx.attempt <= failures {
                return Err(NodeError::transient(format!("attempt {} fails", ctx.attempt)));
            }
            ledger::write(&ledger, "end", &ctx);
            noted(&ctx)
        }
    }))
}

/// A node that works in parts. If it has retries, its first attempt fails between the parts.
fn parts(ledger: &Path, takes: Duration) -> Arc<dyn Node> {
    let ledger = ledger.to_owned();
    Arc::new(node_fn(move |_: Nothing, ctx: NodeContext| {
        let ledger = ledger.clone();
        async move {
            ledger::write(&ledger, "begin", &ctx);
            let part = async |name: &'static str| {
                ledger::write(&ledger, name, &ctx);
                tokio::time::sleep(takes).await;
                Ok::<_, NodeError>(name.len())
            };
            let first: usize = ctx.memo("first", part("first")).await?;
            if ctx.node.as_str() == "two" && ctx.attempt == 1 {
                return Err(NodeError::transient("between two parts"));
            }
            let second: usize = ctx.memo("second", part("second")).await?;
            assert_eq!((first, second), ("first".len(), "second".len()));
            ledger::write(&ledger, "end", &ctx);
            noted(&ctx)
        }
    }))
}

/// A node that blocks its thread.
fn blocks(ledger: &Path, takes: Duration) -> Arc<dyn Node> {
    let ledger: PathBuf = ledger.to_owned();
    Arc::new(node_fn(move |_: Nothing, ctx: NodeContext| {
        let ledger = ledger.clone();
        async move {
            ledger::write(&ledger, "begin", &ctx);
            std::thread::sleep(takes);
            ledger::write(&ledger, "end", &ctx);
            noted(&ctx)
        }
    }))
}

#[expect(clippy::unnecessary_wraps, reason = "it is what node functions end with")]
fn noted(ctx: &NodeContext) -> Result<Noted, NodeError> {
    let item = ctx.input.item().map(ToString::to_string).unwrap_or_default();
    Ok(Noted { notes: vec![format!("{} {} {item}", ctx.node, ctx.task)] })
}
