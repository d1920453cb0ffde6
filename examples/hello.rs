//! The smallest graph: one node, one field in, one field out.
//!
//! `cargo run --example hello`

use std::{error::Error, sync::Arc};

use graphrun::{
    compile::compile,
    engine::Engine,
    graph::{GraphBuilder, NodeContext, NodeError, node_fn},
    storage::MemoryStorage,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state: its fields are the channels of the graph.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Hello {
    name: Option<String>,
    greeting: Option<String>,
}

/// What the node reads. A field that is not optional must be there before the node may run.
#[derive(Deserialize, JsonSchema)]
struct Named {
    name: String,
}

/// What the node writes.
#[derive(Serialize, JsonSchema)]
struct Greeted {
    greeting: String,
}

async fn greet(reads: Named, _: NodeContext) -> Result<Greeted, NodeError> {
    Ok(Greeted { greeting: format!("Hello, {}!", reads.name) })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", run().await?);
    Ok(())
}

/// Runs the graph and returns the greeting.
pub async fn run() -> Result<String, Box<dyn Error>> {
    let graph = GraphBuilder::new::<Hello>("hello")
        .input("name")
        .node("greet", node_fn(greet))
        .entry("greet")
        .then("greet", "end");
    let (graph, _warnings) = compile(graph.build())?;

    let engine = Engine::new(graph, Arc::new(MemoryStorage::default()));
    let input = Hello { name: Some("world".into()), ..Hello::default() };
    let end = engine.run(&input).await?;
    Ok(end.state.read::<Hello>()?.greeting.unwrap_or_default())
}
