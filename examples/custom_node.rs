//! A custom node in a YAML workflow.
//!
//! `cargo run --example custom_node`

use std::{error::Error, path::Path, sync::Arc};

use async_trait::async_trait;
use graphrun::{
    compile::compile,
    engine::Engine,
    graph::{Command, Node, NodeContext, NodeDescription, NodeError, node_fn},
    nodes::{Services, factory},
    registry, workflow,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The fields that the node reads; the workflow declares them.
#[derive(Deserialize, JsonSchema)]
struct Reads {
    text: String,
}

/// The fields that it writes.
#[derive(Serialize, JsonSchema)]
struct Writes {
    counts: Counts,
}

#[derive(Serialize, JsonSchema)]
struct Counts {
    words: usize,
    sentences: usize,
}

async fn count(reads: Reads, _: NodeContext) -> Result<Writes, NodeError> {
    let words = reads.text.split_whitespace().count();
    let ends = reads.text.matches(['.', '!', '?']).count();
    Ok(Writes { counts: Counts { words, sentences: ends.max(1) } })
}

/// The same as an implementation of the trait, for nodes that own a resource: a client, a cache.
struct CountWords<N> {
    inner: N,
}

#[async_trait]
impl<N: Node> Node for CountWords<N> {
    async fn run(&self, ctx: NodeContext) -> Result<Command, NodeError> {
        self.inner.run(ctx).await
    }

    fn describe(&self) -> NodeDescription {
        NodeDescription { kind: "count_words", ..self.inner.describe() }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", run("To be, or not to be. That is the question!").await?);
    Ok(())
}

/// Judges the sentences of a text.
pub async fn run(text: &str) -> Result<String, Box<dyn Error>> {
    let registry = registry().node("count_words", Arc::new(CountWords { inner: node_fn(count) }));
    let (workflow, _warnings) = workflow::load(Path::new("examples/custom_node.yaml"), &registry)?;
    let services = Services::offline();
    let graph = compile(workflow.into_graph(&factory(services, registry)))?;

    let engine = Engine::new(graph);
    let end = engine.run(&serde_json::json!({ "text": text })).await?;
    let verdict = end.state.get("verdict").and_then(|it| it.as_str());
    Ok(verdict.ok_or("the workflow ended without a verdict")?.to_owned())
}
