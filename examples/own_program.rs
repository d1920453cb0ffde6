//! A program of your own with every command of `graphrun`, which knows your nodes.
//!
//! `cargo run --example own_program -- execute examples/custom_node.yaml -i text="To be, or not to be."`

use std::{process::ExitCode, sync::Arc};

use graphrun::{graph::node_fn, prelude::*};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, JsonSchema)]
struct Reads {
    text: String,
}

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

/// Runs the command line.
pub fn main() -> ExitCode {
    graphrun::cli::main_with(graphrun::registry().node("count_words", Arc::new(node_fn(count))))
}
