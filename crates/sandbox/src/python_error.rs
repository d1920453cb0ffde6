//! The reasons why there is no Python environment, and advice.

use std::{io, path::PathBuf};

use thiserror::Error;

use super::cache_entry::CacheFault;

/// The reason why there is no Python environment.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PythonError {
    /// No Python is suitable.
    #[error("no usable Python 3 ({rejected})")]
    NoInterpreter {
        /// The rejected interpreters, each with the reason.
        rejected: String,
    },
    /// There is no pip to install packages with.
    #[error("there is no pip for {}", python.display())]
    NoPip {
        /// The interpreter.
        python: PathBuf,
    },
    /// A requirement that pip would read as an option.
    #[error("`{0}` is not the name of a package")]
    Requirement(String),
    /// Packages could not be installed.
    #[error("the packages cannot be installed: {detail}")]
    Install {
        /// The message of pip.
        detail: String,
    },
    /// The sandbox could not read the cache.
    #[error("the cache `{}` cannot be read from inside the sandbox", cache.display())]
    Cache {
        /// The folder.
        cache: PathBuf,
    },
    /// A step failed.
    #[error("failed to {attempt}: {detail}")]
    Tool {
        /// The attempted action.
        attempt: &'static str,
        /// The output of the program.
        detail: String,
    },
    /// The host could not do its part.
    #[error("failed to {attempt}")]
    Io {
        /// The attempted action.
        attempt: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

impl PythonError {
    /// What the operator can do about it, where there is something.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoInterpreter { .. } => {
                Some("install Python 3, for example with `apt-get install python3`")
            }
            Self::NoPip { .. } => {
                Some("install pip, for example with `apt-get install python3-pip`")
            }
            Self::Install { .. } => Some(
                "check the names, and that the package index can be reached; offline, set PIP_FIND_LINKS to a folder of wheels",
            ),
            Self::Cache { .. } => Some(
                "root's sandboxes run as `nobody`: use a cache that every user can read, such as \
                 /var/cache/graphrun",
            ),
            Self::Io { .. } => Some(
                "check that this user can write the cache; XDG_CACHE_HOME names another place for it",
            ),
            Self::Requirement(_) | Self::Tool { .. } => None,
        }
    }
}

pub(super) fn io_error(attempt: &'static str) -> impl FnOnce(io::Error) -> PythonError {
    move |source| PythonError::Io { attempt, source }
}

impl From<CacheFault> for PythonError {
    fn from(CacheFault { attempt, source }: CacheFault) -> Self {
        Self::Io { attempt, source }
    }
}
