//! The words that all parts of graphrun share.
//!
//! - [`id`]: names of nodes and fields, ids of runs and tasks.
//! - [`diagnostic`]: what checks report, with codes and places.
//! - [`state`]: typed channels, their reducers, updates and schemas.
//! - [`event`]: what happens in a run, as observers see it.
//! - [`graph`]: nodes, edges, routes and policies, and the builder that makes a graph of them.
//! - [`fault`]: faults on purpose, for tests of crashes.
//! ```
//! use graphrun_core::graph::{GraphBuilder, NodeContext, NodeError, node_fn};
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
//! let (graph, diagnostics) = GraphBuilder::new::<Count>("counter")
//!     .node("increment", node_fn(increment))
//!     .entry("increment")
//!     .then("increment", "end")
//!     .build();
//! assert!(!diagnostics.has_errors());
//! assert_eq!(graph.nodes.len(), 1);
//! ```

// Tests may; the library may not.
#![warn(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]

pub mod diagnostic;
pub mod event;
pub mod fault;
pub mod graph;
pub mod id;
pub mod state;
pub mod usage;
