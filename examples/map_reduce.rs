//! Map-reduce: one parallel task for each item of a list, then one that sums up.
//!
//! `cargo run --example map_reduce`

use std::{error::Error, sync::Arc};

use graphrun::{
    compile::compile,
    engine::Engine,
    graph::{Dispatch, GraphBuilder, Input, NodeContext, NodeError, node_fn},
    id::NodeName,
    storage::MemoryStorage,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Counts words of texts.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct Count {
    #[serde(default)]
    texts: Vec<String>,
    /// Written by many tasks of one step, applied in the order in which they were sent.
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    counts: Vec<usize>,
    total: Option<usize>,
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

#[derive(Serialize, JsonSchema)]
struct Counted {
    counts: Vec<usize>,
}

/// Works on the dispatched text, not on the state.
async fn count(_: Nothing, ctx: NodeContext) -> Result<Counted, NodeError> {
    let Input::Value(text) = &ctx.input else {
        return Err(NodeError::permanent("`count` is only dispatched to"));
    };
    let words = text.as_str().map_or(0, |it| it.split_whitespace().count());
    Ok(Counted { counts: vec![words] })
}

#[derive(Deserialize, JsonSchema)]
struct Counts {
    counts: Vec<usize>,
}

#[derive(Serialize, JsonSchema)]
struct Summed {
    total: usize,
}

async fn sum(reads: Counts, _: NodeContext) -> Result<Summed, NodeError> {
    Ok(Summed { total: reads.counts.iter().sum() })
}

#[derive(Serialize, JsonSchema)]
struct Nothings {}

async fn split(_: Nothing, _: NodeContext) -> Result<Nothings, NodeError> {
    Ok(Nothings {})
}

#[derive(Deserialize, JsonSchema)]
struct Texts {
    texts: Vec<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (counts, total) = run(&["to be or not to be", "that is the question"]).await?;
    println!("{counts:?} make {total}");
    Ok(())
}

/// Counts the words of each text, and of all.
pub async fn run(texts: &[&str]) -> Result<(Vec<usize>, usize), Box<dyn Error>> {
    let count_node = NodeName::parse("count")?;
    let graph = GraphBuilder::new::<Count>("word_count")
        .input("texts")
        .node("split", node_fn(split))
        .node("count", node_fn(count))
        .node("sum", node_fn(sum))
        .entry("split")
        .route("split", ["count"], move |state: &Texts| {
            let send = |text| Dispatch { node: count_node.clone(), input: json!(text) };
            state.texts.iter().map(send).collect::<Vec<_>>()
        })
        .then("count", "sum")
        .then("sum", "end");
    let (graph, _warnings) = compile(graph.build())?;

    let engine = Engine::new(graph, Arc::new(MemoryStorage::default()));
    let texts = texts.iter().map(ToString::to_string).collect();
    let end = engine.run(&Count { texts, ..Count::default() }).await?;
    let count: Count = end.state.read()?;
    Ok((count.counts, count.total.unwrap_or_default()))
}
