//! The words that all parts of graphrun share.
//!
//! - [`id`]: names of nodes and fields, ids of runs and tasks.
//! - [`diagnostic`]: what checks report, with codes and places.
//! - [`state`]: typed channels, their reducers, updates and schemas.
//! - [`event`]: what happens in a run, as observers see it.
//! - [`usage`]: tokens, calls and money.
//! - [`graph`]: nodes, edges, routes and policies.
//! - [`fault`]: faults on purpose, for tests of crashes.
//! - [`words`]: words in messages.
//!
//! ```
//! use graphrun_core::graph::{IntoNode, NodeError};
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
//! let node = increment.retry(3);
//! assert_eq!(node.describe().contract.writes.as_ref().unwrap()[0].as_str(), "count");
//! ```

// Only tests may print or unwrap.
#![warn(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]

pub mod diagnostic;
pub mod event;
pub mod fault;
pub mod graph;
pub mod id;
pub mod state;
pub mod usage;
pub mod words;
