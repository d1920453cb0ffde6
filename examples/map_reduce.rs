//! Map-reduce: one parallel task for each item of a list, then one that sums up.
//!
//! `cargo run --example map_reduce`

use std::error::Error;

use graphrun::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

#[derive(Serialize, Deserialize, JsonSchema)]
struct Counts {
    counts: Vec<usize>,
}

#[derive(Serialize, JsonSchema)]
struct Total {
    total: usize,
}

async fn split() -> Result<(), NodeError> {
    Ok(())
}

/// Works on the dispatched text, not on the state.
async fn count(Item(text): Item<String>) -> Result<Counts, NodeError> {
    Ok(Counts { counts: vec![text.split_whitespace().count()] })
}

async fn sum(reads: Counts) -> Result<Total, NodeError> {
    Ok(Total { total: reads.counts.iter().sum() })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (counts, total) = run(&["to be or not to be", "that is the question"]).await?;
    println!("{counts:?} make {total}");
    Ok(())
}

/// Counts the words of each text, and of all.
pub async fn run(texts: &[&str]) -> Result<(Vec<usize>, usize), Box<dyn Error>> {
    let graph = GraphBuilder::new::<Count>("word_count")
        .node("split", split)
        .node("count", count)
        .node("sum", sum)
        .edge(START, "split")
        .route("split", ["count"], |state: &Count| {
            state.texts.iter().map(|text| dispatch("count", text)).collect::<Vec<_>>()
        })
        .edge("count", "sum")
        .edge("sum", END)
        .compile()?;
    let texts = texts.iter().map(ToString::to_string).collect();
    let end: Count = graph.invoke(&Count { texts, ..Count::default() }).await?;
    Ok((end.counts, end.total.unwrap_or_default()))
}
