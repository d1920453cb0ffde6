//! The files that a workflow consists of, as trees of values with their places, and the diagnostics about them.

pub(super) mod files;
pub(super) mod prompts;
pub(super) mod reader;
pub(super) mod references;
pub(super) mod report;
mod secrets;
pub(super) mod shape;
