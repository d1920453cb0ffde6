//! Runs generated code where it can do no harm.
//!
//! Generated code is untrusted. It runs in namespaces of its own (made by bubblewrap), without network, capabilities or the
//! host's files, under limits, behind a system call filter, and leaves no process and no file behind. There is one
//! level: where it cannot be had, [`Sandbox::probe`] refuses and says what is missing. Start with [`Sandbox`] and
//! [`Job`]; [`PythonEnvironment`] and [`run_pytest`] are what a software team needs on top.

mod archive;
mod delivered;
mod error;
mod filter;
mod install;
mod interpreter;
mod job;
mod junit;
mod launch;
mod mounts;
mod output;
mod path;
mod probe;
mod process_tree;
mod pytest;
mod python;
mod supervisor;
mod write;

pub use error::{JobError, SandboxError};
pub use job::{Finished, Job, Limits, Mount, Outcome, SourceFile, is_harmless_variable};
pub use output::clean_output;
pub use path::{FileProblem, FilesRefused, PathError, check_files, check_path};
pub use probe::Sandbox;
pub use pytest::{PytestError, PytestOutcome, PytestReport, run_pytest};
pub use python::{PythonEnvironment, PythonError, default_cache_dir};
pub use write::{Replace, WriteError, write_files};
