//! Folders with a history: each run has its own git worktree and branch.
//!
//! The files and the configuration of a repository are untrusted: git runs no hook, filter or other program that they
//! name. The checkout of the user stays unchanged. A merge moves only a branch that is checked out
//! nowhere. Start with [`RunFolder`], which is saved with its run, and [`RunFolders`].

// Only tests may print or unwrap.
#![warn(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]

mod base;
mod error;
mod files;
mod git;
mod git_folder;
mod history;
mod lock;
mod patch;
mod secrets;
mod stage;
mod task;
mod worktree;

pub use self::{
    error::FolderError,
    git::version,
    history::{Against, Commit, CommitRequest, MergeConflict, PreparedMerge},
    worktree::{ExclusiveFolder, NewFolder, RunFolder, RunFolders, SharedFolder},
};
