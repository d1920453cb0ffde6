//! The flags and values of the command line.

pub(super) mod globals;
pub(super) mod input;
pub(super) mod keys;
pub(super) mod migrate_flags;
pub(super) mod options;
pub(super) mod run_at;
pub(super) mod set;
pub(super) mod values;
pub(super) mod workflow_files;
