//! Runs graphs of agents over a typed state: checked before the first token is spent, saved at
//! every step.
//!
//! A workflow is data: nodes by name, edges, and a state whose fields are typed channels. It is
//! written in YAML (see [`workflow`]) or built in Rust:
//!
//! ```
//! use graphrun::prelude::*;
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Default, Serialize, Deserialize, JsonSchema)]
//! struct Count {
//!     #[serde(default)]
//!     count: u32,
//! }
//!
//! async fn increment(reads: Count) -> Result<Count, NodeError> {
//!     Ok(Count { count: reads.count + 1 })
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let graph = GraphBuilder::new::<Count>("counter")
//!     .node("increment", increment)
//!     .edge(START, "increment")
//!     .edge("increment", END)
//!     .compile()?;
//! let end: Count = graph.invoke(&Count { count: 41 }).await?;
//! assert_eq!(end.count, 42);
//! # Ok(())
//! # }
//! ```
//!
//! `ARCHITECTURE.md` lists the crates, lowest first. To see how a run
//! works, read [`engine::machine`] and then `engine/driver.rs`.

// Tests, examples and benches may; the library may not.
#![warn(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]

pub use graphrun_analysis as compile;
pub use graphrun_core::{diagnostic, event, fault, graph::START, id, state};
pub use graphrun_engine as engine;
pub use graphrun_engine::{checkpoint, results};
pub use graphrun_folders as folders;
pub use graphrun_guard::{beneath, data_limit, redact};
#[cfg(feature = "mcp")]
pub use graphrun_mcp as mcp;
pub use graphrun_memory as memory;
pub use graphrun_models as models;
pub use graphrun_nodes as nodes;
pub use graphrun_sandbox as sandbox;
pub use graphrun_storage as storage;
pub use graphrun_team as team;
#[cfg(feature = "otel")]
pub use graphrun_telemetry as telemetry;
pub use graphrun_workflow as workflow;
pub use graphrun_workflow::tool;

/// Graphs: their builder, their nodes, edges, routes and policies.
pub mod graph {
    pub use graphrun_analysis::{GraphBuilder, Names};
    pub use graphrun_core::graph::*;
}

pub mod cases;
pub mod draw;
pub mod prelude;

/// Returns the kinds of nodes and the states that the program `graphrun` knows: the built-in kinds, and the state of
/// the [software team](team).
pub fn registry() -> workflow::Registry {
    static REGISTRY: std::sync::LazyLock<workflow::Registry> =
        std::sync::LazyLock::new(|| team::register(nodes::registry()));
    REGISTRY.clone()
}

#[cfg(feature = "cli")]
pub mod lsp;

#[cfg(feature = "cli")]
pub mod cli;

/// The pages for users of the library: their blocks of code are compiled and run as tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../docs/library/graphs.md")]
    struct Graphs;
    #[doc = include_str!("../docs/library/workflows.md")]
    struct Workflows;
    #[doc = include_str!("../docs/library/runs.md")]
    struct Runs;
}
