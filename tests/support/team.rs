//! A state of notes, and nodes that write into it.

use graphrun::{
    compile::CompiledGraph,
    graph::{GraphBuilder, NodeError},
    id::NodeName,
    state::State,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Team {
    #[serde(default)]
    #[schemars(extend("x-merge" = "append"))]
    pub(crate) notes: Vec<String>,
}

/// What a node reads that reads nothing.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Nothing {}

/// What a node writes.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Noted {
    pub(crate) notes: Vec<String>,
}

/// Ends a node with a note.
#[expect(clippy::unnecessary_wraps, reason = "it is what node functions end with")]
pub(crate) fn noted(note: impl Into<String>) -> Result<Noted, NodeError> {
    Ok(Noted { notes: vec![note.into()] })
}

pub(crate) fn notes(state: &State) -> Vec<String> {
    state.read::<Team>().expect("it is the state of a team").notes
}

pub(crate) fn name(name: &str) -> NodeName {
    NodeName::parse(name).expect("tests give names that there may be")
}

pub(crate) fn compiled(builder: GraphBuilder) -> CompiledGraph {
    builder.compile().expect("tests make graphs that can be")
}
