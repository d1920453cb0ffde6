//! Runs graphs of agents over a typed state.

pub mod state;
pub mod team;
