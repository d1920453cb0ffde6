//! Runs a compiled graph: the rules of a super-step, and the loop that follows them.
//!
//! Start with [`machine`], which makes all decisions; then read `driver`, which carries them out.
//! - [`Engine`] (`engine`): a graph with its storage and settings.
//! - [`machine`]: the rules, with `budget` for the limits; `driver`: what performs their actions; `task`: one attempt of a
//!   node; `redaction`: the removal of keys from what nodes and people give to a run.
//! - `journal_writer`: which results are saved together; `log`: the numbered events; `lease`: the right to write a run.
//! - [`checkpoint`]: the journal of a run, and the trait of storage for it; [`results`]: the trait of storage for node results.
//! - [`storage`]: storage in memory, and the rules that every storage follows.
//! - [`subgraph`]: a graph as a node of another one; `nested`: how its runs are driven and saved.
//! - `spans`: what `tracing` subscribers see.
//! - [`Launch`] (`launch`): what a program asks for, and [`Run`]: the handle of a run that is driven in its own task; `accept`,
//!   and `turn` for threads, with `turn_queue`: how a run is saved and becomes that of this process.
//! - `resume`, `revise`, `fork`, `migrate`, `compare`: what continues, changes, copies and moves saved runs.
//!
//! ```
//! use graphrun_analysis::GraphBuilder;
//! use graphrun_core::graph::{END, NodeError, START};
//! use graphrun_engine::Invoke;
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

// Only tests may print or unwrap.
#![warn(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]

mod accept;
mod answers;
mod budget;
pub mod checkpoint;
mod clock;
mod compare;
mod driver;
mod engine;
mod error;
mod fork;
mod journal_writer;
mod launch;
mod lease;
mod log;
pub mod machine;
mod migrate;
mod nested;
mod redaction;
pub mod results;
mod resume;
mod retry;
mod revise;
mod run;
mod shutdown;
mod spans;
pub mod storage;
mod stream;
mod subgraph;
mod task;
mod turn;
mod turn_queue;

pub use self::{
    answers::{Answers, ClosedReason},
    clock::Clock,
    compare::{Difference, Remedy},
    engine::{Engine, Invoke, TraceContext},
    error::RunError,
    launch::{IntoInput, Launch, LaunchKind, NewRun, NewTurn, Resume, Retry},
    machine::ReviseError,
    migrate::MigrationResult,
    nested::NestedGraph,
    retry::{check_retry, failed_records, failures},
    run::{Run, RunEnd},
    shutdown::ShutdownHandle,
    stream::{StreamChunk, StreamMode},
    subgraph::{Subgraph, subgraph},
};
pub use crate::checkpoint::OpenQuestion;
