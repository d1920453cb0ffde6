//! Runs graphs of agents over a typed state: checked before the first token is spent, saved at
//! every step.
//!
//! A workflow is data: nodes by name, edges, and a state whose fields are typed channels. It is
//! written in YAML (see [`workflow`]) or built in Rust:
//!
//! ```
//! use std::sync::Arc;
//!
//! use graphrun::{
//!     compile::compile,
//!     engine::Engine,
//!     graph::{GraphBuilder, NodeContext, NodeError, node_fn},
//!     storage::MemoryStorage,
//! };
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Default, Serialize, Deserialize, JsonSchema)]
//! struct Count {
//!     #[serde(default)]
//!     count: u32,
//! }
//!
//! async fn increment(reads: Count, _: NodeContext) -> Result<Count, NodeError> {
//!     Ok(Count { count: reads.count + 1 })
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let graph = GraphBuilder::new::<Count>("counter")
//!     .node("increment", node_fn(increment))
//!     .entry("increment")
//!     .then("increment", "end");
//! let (graph, _warnings) = compile(graph.build())?;
//!
//! let engine = Engine::new(graph, Arc::new(MemoryStorage::default()));
//! let end = engine.run(&Count { count: 41 }).await?;
//! assert_eq!(end.state.read::<Count>()?.count, 42);
//! # Ok(())
//! # }
//! ```
//!
//! The modules below stand in reading order, and each uses only those above it. To see how a run
//! works, read [`engine::superstep`] and then `engine/driver.rs`.

// Tests, examples and benches may; the library may not.
#![warn(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]
// Each in a separate group; otherwise, rustfmt would sort them.

pub mod id;

pub mod data_limit;
pub mod diagnostic;
pub mod fault;
pub mod redact;

pub mod beneath;

pub mod state;

pub mod llm;

pub mod sandbox;

pub mod team;
pub mod tool;

pub mod event;

pub mod graph;

pub mod workflow;

pub mod compile;

pub mod checkpoint;

pub mod results;

pub mod engine;

pub mod storage;

pub mod draw;

pub mod nodes;

pub mod cases;

#[cfg(feature = "cli")]
pub mod lsp;

#[cfg(feature = "cli")]
pub mod cli;
