//! The parts of a run that is recorded or replayed: results of calls take the place of the calls.

pub(super) mod mcp;
pub(super) mod memory;
pub(super) mod tools;
