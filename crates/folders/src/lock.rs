//! Locks of folders and of repositories: one operation at a time, in all processes.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use nix::fcntl::OFlag;

use super::error::FolderError;

/// Waits until no other operation has this lock, and keeps others from it until the file is closed.
///
/// Each git process inherits it. So the lock of a killed process ends with its last
/// git process.
pub(crate) async fn lock(path: &Path) -> Result<File, FolderError> {
    take(path, File::lock).await
}

/// Waits until no operation changes the folder of this lock, and keeps others from changing it until the file is closed.
pub(crate) async fn lock_shared(path: &Path) -> Result<File, FolderError> {
    take(path, File::lock_shared).await
}

async fn take(path: &Path, lock: fn(&File) -> io::Result<()>) -> Result<File, FolderError> {
    let shown = path.to_owned();
    let path = path.to_owned();
    let take = move || {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        // A repository is untrusted, and could have a link there.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(&path)?;
        lock(&file)?;
        Ok(file)
    };
    let taken = tokio::task::spawn_blocking(take).await.unwrap_or_else(|it| Err(it.into()));
    taken.map_err(|source| FolderError::Lock { path: shown, source })
}
