//! What a program that builds graphs in Rust needs: `use graphrun::prelude::*;`.
//!
//! A state struct also derives `Serialize`, `Deserialize` and `schemars::JsonSchema`.
//!
//! ```
//! use graphrun::prelude::*;
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Default, Serialize, Deserialize, JsonSchema)]
//! struct Texts {
//!     #[serde(default)]
//!     texts: Vec<String>,
//!     /// Written by many tasks of one step: their writes are added up.
//!     #[serde(default)]
//!     #[schemars(extend("x-merge" = "sum"))]
//!     words: u64,
//! }
//!
//! #[derive(Serialize, JsonSchema)]
//! struct Counted {
//!     words: u64,
//! }
//!
//! async fn count(Item(text): Item<String>) -> Result<Counted, NodeError> {
//!     Ok(Counted { words: text.split_whitespace().count() as u64 })
//! }
//!
//! async fn split() -> Result<(), NodeError> {
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let graph = GraphBuilder::new::<Texts>("words")
//!     .node("split", split)
//!     .node("count", count.retry(3))
//!     .edge(START, "split")
//!     .route("split", ["count"], |state: &Texts| {
//!         state.texts.iter().map(|text| dispatch("count", text)).collect::<Vec<_>>()
//!     })
//!     .edge("count", END)
//!     .compile()?;
//! let texts = vec!["to be or not to be".to_owned(), "aye".to_owned()];
//! let end: Texts = graph.invoke(&Texts { texts, words: 0 }).await?;
//! assert_eq!(end.words, 7);
//! # Ok(())
//! # }
//! ```

pub use graphrun_analysis::{CompiledGraph, GraphBuilder};
pub use graphrun_core::{
    event::Status,
    graph::{
        Backoff, Command, END, ErrorKind, FAIL, Failure, IntoNode, Item, Limits, Next, Node,
        NodeContext, NodeError, Question, START, clear, dispatch, goto,
    },
    id::{NodeName, RunId},
    state::Update,
};
pub use graphrun_engine::{
    Engine, Invoke, Run, RunEnd, RunError, ShutdownHandle, StreamChunk, StreamMode,
    storage::InMemoryStorage, subgraph,
};
#[cfg(feature = "sqlite")]
pub use graphrun_storage::SqliteStorage;
