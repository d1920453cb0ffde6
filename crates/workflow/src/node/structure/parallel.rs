//! `parallel`: runs branches at the same time.
//!
//! It is no node of a run: `declarations` reads its branches, and `fan` makes edges of it.

use std::sync::Arc;

use schemars::JsonSchema;

use crate::kind::{
    Keys, Kind, NodeReader, NodeSettings,
    values::{NodeRef, OneOrMany},
};

/// The kind `parallel`.
#[derive(Debug)]
pub struct Parallel;

#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct ParallelKeys {
    /// Runs these branches in parallel; `then` waits for all of them. A branch is a node, or a
    /// list of nodes that follow each other.
    parallel: Vec<OneOrMany<NodeRef>>,
}

impl Kind for Parallel {
    fn key(&self) -> &'static str {
        "parallel"
    }

    fn keys(&self) -> Keys {
        Keys::of::<ParallelKeys>()
    }

    /// Reads nothing: a `parallel` has edges, and no node.
    fn read(&self, _: &mut NodeReader<'_>) -> Option<Arc<dyn NodeSettings>> {
        None
    }
}
