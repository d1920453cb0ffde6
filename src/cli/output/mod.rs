//! The output: results, progress, diagnostics and reports, for people and for programs.

pub(super) mod diagnostics;
pub(super) mod json;
pub(super) mod left;
pub(super) mod progress;
pub(super) mod report;
pub(super) mod run_result;
pub(super) mod summary;
pub(super) mod terminal;
pub(super) mod terminal_env;
mod visible;
pub(super) mod words;
