//! Runs generated code where it can do no harm.
//!
//! Generated code is untrusted. It runs in separate namespaces (made by bubblewrap), without
//! network, capabilities or the host's files, under limits, behind a system call filter, and leaves
//! no process and no file behind. There is no weaker level: without a working sandbox,
//! [`Sandbox::probe`] fails and names the missing part. Start with [`Sandbox`] and [`Job`];
//! [`PythonEnvironment`] and [`run_pytest`] add the parts that a software team needs.
//! ```no_run
//! use graphrun_sandbox::{Job, Sandbox};
//! use tokio_util::sync::CancellationToken;
//!
//! # async fn run() -> Result<(), graphrun_sandbox::SandboxError> {
//! let job = Job { argv: vec!["/usr/bin/id".to_owned()], ..Job::default() };
//! let finished = Sandbox::probe()?.run(&job, &CancellationToken::new()).await?;
//! assert!(finished.output.contains("uid=1000"));
//! # Ok(())
//! # }
//! ```

// Only tests may print or unwrap.
#![warn(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]

mod archive;
mod cache_entry;
mod command_tests;
mod delivered;
mod descent;
mod enter;
mod error;
mod filter;
mod folder_file;
mod go_test;
mod home;
mod host_command;
mod host_guard;
mod host_tool;
mod install;
mod interpreter;
mod jest;
mod job;
mod job_streams;
mod junit;
mod launch;
mod libtest;
mod mounts;
mod network;
mod node;
mod output;
mod output_reader;
mod packages;
mod path;
mod probe;
mod process_tree;
mod pytest;
mod python;
mod python_error;
mod remove;
mod report_error;
mod room;
mod source_file;
mod supervisor;
mod tap;
mod test_item;
mod test_run;
mod write;

pub use cache_entry::{PrunedEntry, prune_cache};
pub use command_tests::{CommandReport, ReportForm, TestCommand, run_test_command};
pub use error::{JobError, SandboxError};
pub use folder_file::{FolderContent, FolderFile, Project};
pub use host_command::{HostCommand, HostCommandError, HostProcess, HostResult, find_program};
pub use job::{
    Channel, Collect, FixedFile, Job, JobResult, Limits, Mount, ProgramEnd, is_harmless_variable,
};
pub use job_streams::JobStreams;
pub use launch::SHELL;
pub use mounts::find_tool;
pub use network::{Answer, Connections, Network, NetworkAccess, NetworkHost, NetworkHostError};
pub use node::run_node;
pub use output::{clean_output, clean_text};
pub use output_reader::OutputReader;
pub use packages::{
    InstalledPackages, LockFile, LockFileError, PackageCache, PackageInstaller, PackagesError,
    Registries, RegistryError,
};
pub use path::{FileProblem, FilesRefused, PathError, check_files, check_path};
pub use probe::Sandbox;
pub use pytest::{PytestError, run_pytest};
pub use python::{PythonEnvironment, default_cache_dir};
pub use python_error::PythonError;
pub use remove::remove_folder;
pub use source_file::SourceFile;
pub use test_item::{ItemOutcome, TestCounts, TestItem};
pub use test_run::{Allowed, Proof, TestOutcome, TestReport, TestSettings};
pub use write::{
    Replace, WriteError, change_files, is_temporary, remove_files, replace_files, write_files,
};
