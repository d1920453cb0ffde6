//! The lock of a run's folder: one operation at a time, in all processes.

use std::{
    fs::{self, File, OpenOptions},
    path::Path,
};

use super::error::FolderError;

/// Waits until no other operation works on a worktree, and keeps others from it until the file is closed.
///
/// The file is beside the worktree, and each git process inherits it. So the lock of a killed process ends with its last
/// git process.
pub(crate) async fn lock(path: &Path) -> Result<File, FolderError> {
    let path = path.to_owned();
    let take = move || {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        file.lock()?;
        Ok(file)
    };
    let attempt = "lock the folder of the run";
    let taken = tokio::task::spawn_blocking(take).await;
    taken.map_err(|it| FolderError::io(attempt)(it.into()))?.map_err(FolderError::io(attempt))
}
