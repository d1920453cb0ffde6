//! The reasons why packages are not installed, and advice.

use std::path::PathBuf;

use thiserror::Error;

use super::{lock_file::PackageInstaller, registries::RegistryError};
use crate::{PythonError, SandboxError, cache_entry::CacheFault};

/// The most bytes of the packages on the disk, with everything that an installer needs meanwhile.
pub(super) const BYTES_MAX: u64 = 4 << 30;

/// The reason why the packages of a lock file are not installed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PackagesError {
    /// A program is missing on this machine, where the sandbox finds its programs.
    #[error("`{0}` is not installed in /usr")]
    MissingTool(&'static str),
    /// The compiler for the packages is missing.
    #[error("`{tool}` is not installed")]
    NoToolchain {
        /// The program.
        tool: &'static str,
    },
    /// The compiler for the packages is in a folder that no program of a sandbox can read.
    #[error("`{tool}` is in `{}`, which the user inside the sandbox cannot read", root.display())]
    UnreadableToolchain {
        /// The program.
        tool: &'static str,
        /// Its folder.
        root: PathBuf,
    },
    /// The machine could not do its part.
    #[error(transparent)]
    Host(#[from] PythonError),
    /// A registry cannot be used.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The sandbox of the installer failed.
    #[error("the sandbox of {installer} failed")]
    Sandbox {
        /// The installer.
        installer: PackageInstaller,
        /// The reason.
        source: SandboxError,
    },
    /// The installer has refused.
    #[error("{installer} cannot install the packages: {detail}")]
    Install {
        /// The installer.
        installer: PackageInstaller,
        /// The refused connections, and the last lines of its output.
        detail: String,
        /// Whether a connection was refused.
        is_refused: bool,
    },
    /// The installer was stopped at a limit.
    #[error("{installer} was stopped: {reason}")]
    Stopped {
        /// The installer.
        installer: PackageInstaller,
        /// The limit.
        reason: &'static str,
    },
    /// The packages are too large.
    #[error("the packages have more than {} GiB or too many files", BYTES_MAX >> 30)]
    TooLarge,
    /// The installer has made something else than files, folders and links.
    #[error("the packages contain something else than files, folders and links")]
    SpecialFile,
}

impl PackagesError {
    /// Returns the advice to the operator, if there is any.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::MissingTool(tool) => {
                Some(format!("install it, for example with `apt-get install {tool}`"))
            }
            Self::NoToolchain { tool } | Self::UnreadableToolchain { tool, .. } => Some(format!(
                "install `{tool}` below /usr, for example by a package of the system; without root, one in your home \
                 will do"
            )),
            Self::Host(error) => error.hint().map(str::to_owned),
            Self::Sandbox { source, .. } => source.hint(),
            Self::Registry(RegistryError::Settings { .. } | RegistryError::Certificates { .. }) => None,
            Self::Registry(_) => {
                Some("name a registry as in `https://mirror.example.com/simple`".to_owned())
            }
            Self::Install { is_refused: true, .. } => None,
            Self::Install { installer: PackageInstaller::Pip, .. } => Some(
                "the file must list every package that the others need, as `pip-compile` and `uv pip compile` write it, \
                 and each must have a wheel"
                    .to_owned(),
            ),
            Self::Install { installer: PackageInstaller::Go, .. } => Some(
                "`go mod tidy` writes `go.mod` and `go.sum` so that they fit each other; set `GOPROXY` if the modules are \
                 private"
                    .to_owned(),
            ),
            Self::Install { .. } | Self::Stopped { .. } | Self::TooLarge | Self::SpecialFile => None,
        }
    }
}

impl From<CacheFault> for PackagesError {
    fn from(fault: CacheFault) -> Self {
        Self::Host(fault.into())
    }
}
