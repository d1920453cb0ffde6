//! Runs graphs of agents over a typed state.

pub mod checkpoint;
pub mod diagnostic;
pub mod event;
pub mod graph;
pub mod id;
pub mod llm;
pub mod state;
pub mod workflow;
