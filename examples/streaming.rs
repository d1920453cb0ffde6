//! A run as a stream: what its nodes emit and write, as it happens.
//!
//! `cargo run --example streaming`

use std::error::Error;

use futures_util::StreamExt;
use graphrun::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, JsonSchema)]
struct Poem {
    lines: Option<Vec<String>>,
}

/// The progress of the node, which the program emits in its own type.
#[derive(Serialize, Deserialize)]
struct Progress {
    line: usize,
}

async fn write(ctx: NodeContext) -> Result<Poem, NodeError> {
    let mut lines = Vec::new();
    for (at, line) in ["the river", "under ice"].into_iter().enumerate() {
        lines.push(line.to_owned());
        ctx.emit(&Progress { line: at + 1 }).await?;
    }
    Ok(Poem { lines: Some(lines) })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    for seen in run().await? {
        println!("{seen}");
    }
    Ok(())
}

/// Runs the graph and describes each chunk of its stream.
pub async fn run() -> Result<Vec<String>, Box<dyn Error>> {
    let graph = GraphBuilder::new::<Poem>("poem").node("write", write);
    let engine = Engine::new(graph.edge(START, "write").edge("write", END).compile()?);
    let mut run = engine.run(&()).stream([StreamMode::Custom, StreamMode::Updates]).start().await?;
    let mut seen = Vec::new();
    while let Some(chunk) = run.next().await {
        if let Some(progress) = chunk.custom::<Progress>() {
            seen.push(format!("line {} is there", progress.line));
        } else if let StreamChunk::Updates { node, .. } = &chunk {
            seen.push(format!("{node} has finished"));
        }
    }
    let poem: Poem = run.outcome().await?.output()?;
    seen.push(poem.lines.unwrap_or_default().join(" / "));
    Ok(seen)
}
