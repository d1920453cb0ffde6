//! The packages of a repository, for the sandboxes that name its lock files.
//!
//! A lock file is read from the commit that the run started from, so nothing that an agent writes decides about packages.
//! Nodes install nothing: they find the packages in the cache, where `graphrun prepare` or the start of a run has put them.

use graphrun_core::graph::{ErrorKind, Failure, NodeContext, NodeError};
use graphrun_folders::{FolderError, RunFolders};
use graphrun_sandbox::{
    InstalledPackages, LockFile, LockFileError, PackageCache, PackageInstaller, PackagesError,
};
use graphrun_workflow::LockFileUse;
use thiserror::Error;

use crate::{in_folder, in_folder::folders_of};

/// A lock file cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LockFileReadError {
    /// The commit has no such file, or git failed.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Its content is not acceptable.
    #[error("the lock file `{path}` of the folder `{folder}` is refused")]
    Refused {
        /// The name of the folder.
        folder: String,
        /// The path in the folder.
        path: String,
        /// The reason, with the line.
        source: LockFileError,
    },
}

/// Reads a lock file from the commit that a run started from.
///
/// # Errors
///
/// Fails when the commit has no such file, and with the first line that names something else than a package of a registry.
pub async fn read_lock_file(
    folders: &RunFolders,
    used: &LockFileUse,
) -> Result<LockFile, LockFileReadError> {
    let read =
        async |path: &str| folders.base_file(&used.folder, path, LockFile::BYTES_MAX as u64).await;
    let lock = read(&used.path).await?;
    let manifest = match used.installer.manifest_name() {
        None => Vec::new(),
        Some(name) => {
            let folder = used.path.rsplit_once('/').map(|(folder, _)| format!("{folder}/"));
            read(&format!("{}{name}", folder.unwrap_or_default())).await?
        }
    };
    let checked = match used.installer {
        PackageInstaller::Pip => LockFile::pip(&lock),
        PackageInstaller::Npm => LockFile::npm(&lock, &manifest),
        PackageInstaller::Cargo => LockFile::cargo(&lock),
        PackageInstaller::Go => LockFile::go(&lock, &manifest),
    };
    checked.map_err(|source| LockFileReadError::Refused {
        folder: used.folder.clone(),
        path: used.path.clone(),
        source,
    })
}

/// Finds the packages of lock files for an attempt.
pub(super) async fn find(
    ctx: &NodeContext,
    used: &[LockFileUse],
    cache: &PackageCache,
) -> Result<Vec<InstalledPackages>, NodeError> {
    let folders = folders_of(ctx)?;
    let mut found = Vec::new();
    for used in used {
        let lock = read_lock_file(&folders, used).await.map_err(|error| match error {
            LockFileReadError::Folder(error) => in_folder::failure(&error),
            refused @ LockFileReadError::Refused { .. } => {
                Failure::of(ErrorKind::Folder, &refused).into()
            }
        })?;
        let unusable = |error: PackagesError| {
            let hint = error.hint();
            NodeError::from(Failure::of(ErrorKind::Sandbox, &error).with_hint(hint.as_deref()))
        };
        let packages = cache.find(&lock).await.map_err(unusable)?;
        found.push(packages.ok_or_else(|| missing(used))?);
    }
    Ok(found)
}

fn missing(used: &LockFileUse) -> NodeError {
    let message = format!(
        "the packages of `{}` in the folder `{}` are not installed, and a node installs none (resume the run with \
         `--allow-network` for the host of the registry)",
        used.path, used.folder
    );
    Failure::new(ErrorKind::Sandbox, message).into()
}
