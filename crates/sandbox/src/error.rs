//! The reasons why there is no sandbox, or why it could not run a job.
//!
//! None of these is about the program inside; its result is a [`ProgramEnd`](super::ProgramEnd).

use std::{io, path::PathBuf};

use thiserror::Error;

use super::{
    job::Job,
    path::{FilesRefused, PathError},
};

/// The reason why there is no sandbox, or why it could not run a job.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// A program that the sandbox needs is missing on this machine.
    #[error("no sandbox: `{tool}` is not installed")]
    MissingTool {
        /// Name of the program.
        tool: &'static str,
        /// Debian's package with the program.
        package: &'static str,
    },
    /// The kernel, or a security module, denies namespaces to this user.
    #[error("no sandbox: user namespaces are denied ({detail})")]
    NamespacesDenied {
        /// The message of bubblewrap.
        detail: String,
    },
    /// The kernel does not list the children of a process, so the memory watch cannot work.
    #[error("no sandbox: the kernel lists no `/proc/<pid>/task/<tid>/children`")]
    NoChildLists,
    /// There is no system call filter for this processor.
    #[error("no sandbox: no system call filter for the processor architecture `{0}`")]
    UnsupportedArchitecture(&'static str),
    /// The system call filter could not be compiled.
    #[error("no sandbox: the system call filter does not compile")]
    Filter(#[from] seccompiler::BackendError),
    /// The sandbox started, but a program inside it had too many rights.
    #[error("no sandbox: a program inside it would run with {found}")]
    TooWeak {
        /// The wrong line of `/proc/self/status`.
        found: String,
    },
    /// The job requests something that is not allowed; nothing was started.
    #[error("the sandbox refuses this job")]
    Refused(#[from] JobError),
    /// The sandbox could not be built for this job; the program did not run.
    #[error("the sandbox could not be set up: {detail}")]
    Setup {
        /// The messages of the tools, cleaned.
        detail: String,
    },
    /// A folder of the host could not be mounted; the program did not run. A copy of its files needs no mount.
    #[error("the folder cannot be mounted in the sandbox")]
    Mount {
        /// The error of the system.
        source: io::Error,
    },
    /// The home of the program became too large. The program was stopped, and the home is removed.
    #[error("the home of the program had more than {bytes} bytes or {entries} files")]
    HomeTooLarge {
        /// The limit of its bytes.
        bytes: u64,
        /// The limit of its files.
        entries: u64,
    },
    /// A part of the home of the program could not be measured. The program was stopped, and the home is removed.
    #[error(
        "the home of the program had a folder without permissions, or one that moved, which could not be measured"
    )]
    HomeUnmeasured {
        /// The error of the system.
        source: io::Error,
    },
    /// The home of the program cannot be used by the user inside.
    #[error("the folder `{}` cannot be used from inside the sandbox", path.display())]
    Home {
        /// The folder around the home.
        path: PathBuf,
    },
    /// The program does not exist inside the sandbox.
    #[error("there is no program `{program}` inside the sandbox")]
    ProgramNotFound {
        /// The program, as named by the job.
        program: String,
    },
    /// An operation of the host failed.
    #[error("the sandbox failed to {attempt}")]
    Io {
        /// The attempted action.
        attempt: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The run was cancelled; every process of it is gone.
    #[error("the sandboxed run was cancelled")]
    Cancelled,
    /// The supervisor thread died.
    #[error("the thread that supervised the sandbox is gone")]
    SupervisorLost,
}

impl SandboxError {
    /// Wraps an I/O error with the attempted action; for `map_err`.
    pub(super) fn io(attempt: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { attempt, source }
    }

    /// Returns the advice to the operator, if there is any.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::MissingTool { tool, package } => {
                Some(format!("install `{tool}`, for example with `apt-get install {package}`"))
            }
            Self::NamespacesDenied { .. } => Some(
                "allow unprivileged user namespaces: `sysctl user.max_user_namespaces=10000`, on older Debian also \
                 `sysctl kernel.unprivileged_userns_clone=1`; on Ubuntu 23.10 and later give bwrap an AppArmor profile; \
                 in a container allow the `unshare` and `mount` system calls"
                    .to_owned(),
            ),
            Self::NoChildLists => Some("use a kernel built with CONFIG_PROC_CHILDREN".to_owned()),
            Self::UnsupportedArchitecture(_) => Some("use an x86_64 or aarch64 machine".to_owned()),
            Self::TooWeak { .. } => Some("check that bwrap is the distribution's own and not setuid".to_owned()),
            Self::ProgramNotFound { .. } => {
                Some("only programs below /usr and in the job's mounts exist inside".to_owned())
            }
            Self::Home { .. } => Some("let all users enter the folders above it".to_owned()),
            Self::HomeTooLarge { .. }
            | Self::HomeUnmeasured { .. }
            | Self::Filter(_)
            | Self::Refused(_)
            | Self::Setup { .. }
            | Self::Mount { .. }
            | Self::Io { .. }
            | Self::Cancelled
            | Self::SupervisorLost => None,
        }
    }
}

/// The part of a job that is not allowed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JobError {
    /// There is nothing to run.
    #[error("the job names no program")]
    NoProgram,
    /// An argument or a value cannot be passed to a program.
    #[error("an argument or a variable contains a NUL byte")]
    NulByte,
    /// A variable that changes how programs are loaded or found, or an invalid name.
    #[error("the environment variable `{name}` may not be set")]
    Variable {
        /// Name of the variable.
        name: String,
    },
    /// A mount that would hide a part of the sandbox.
    #[error("nothing may be mounted at `{}`", inside.display())]
    Mount {
        /// The mount point inside.
        inside: PathBuf,
    },
    /// The secret of a channel does not fit into a pipe.
    #[error(
        "the secrets have {bytes} bytes, and at most {} reach a program",
        Job::SECRET_BYTES_MAX
    )]
    Secret {
        /// Its length.
        bytes: usize,
    },
    /// A folder that is not named from the root.
    #[error("the folder `{}` cannot be mounted: its path is relative", path.display())]
    Folder {
        /// The path.
        path: PathBuf,
    },
    /// The generated files are not acceptable.
    #[error(transparent)]
    Files(#[from] FilesRefused),
    /// A declared file whose name is not acceptable.
    #[error("the file `{path}` cannot be collected")]
    Collect {
        /// The name as declared.
        path: String,
        /// The problem with the path.
        source: PathError,
    },
}
