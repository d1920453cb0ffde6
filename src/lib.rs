//! Runs graphs of agents over a typed state.

pub mod checkpoint;
#[cfg(feature = "cli")]
pub mod cli;
pub mod compile;
pub mod diagnostic;
pub mod engine;
pub mod draw;
pub mod event;
pub mod graph;
pub mod id;
pub mod llm;
pub mod state;
pub mod storage;
