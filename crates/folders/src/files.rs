//! The files of a folder, for a sandbox.

use std::{
    io::Read,
    os::unix::fs::{MetadataExt as _, PermissionsExt},
    path::{Path, PathBuf},
};

use nix::unistd::{getegid, geteuid};

use graphrun_guard::beneath::{BeneathError, Folder};
use graphrun_sandbox::{FolderContent, FolderFile};

use super::{
    error::FolderError,
    worktree::{KeptFolder, OpenFolder},
};

/// The most files and folders of a folder that a sandbox gets.
const ENTRIES_MAX: usize = 20_000;
/// The most bytes of all of them.
const BYTES_MAX: u64 = 64 << 20;
/// The most files and folders of a folder that a sandbox gets without a copy.
const MOUNTED_ENTRIES_MAX: usize = 500_000;
/// The permission to execute.
const EXECUTE: u32 = 0o111;

impl OpenFolder {
    /// Reads all files of the folder, for a sandbox. `.git` is not among them. Links are not followed.
    ///
    /// # Errors
    ///
    /// Fails when the folder has more than 20,000 entries or 64 MiB, or a file cannot be read.
    pub async fn files(&self) -> Result<Vec<FolderFile>, FolderError> {
        let path = self.folder.worktree.clone();
        let read = tokio::task::spawn_blocking(move || read_all(&path)).await;
        read.map_err(|it| FolderError::io("read the folder")(it.into()))?
    }
}

impl KeptFolder {
    /// Returns whether a sandbox can get the folder without a copy: all of it belongs to this user and group, and there is
    /// no `.git` below its top. Links are not followed.
    ///
    /// # Errors
    ///
    /// Fails when the folder has more than 500,000 entries, or cannot be read.
    pub async fn is_mountable(&self) -> Result<bool, FolderError> {
        let path = self.path.clone();
        let found = tokio::task::spawn_blocking(move || is_plain(&path)).await;
        found.map_err(|it| FolderError::io("read the folder")(it.into()))?
    }

    /// Returns whether the folder has a regular file with this content.
    pub fn has(&self, path: &Path, content: &[u8]) -> bool {
        let file = Folder::open(&self.path).and_then(|it| it.open_file(path));
        let Ok(file) = file else { return false };
        let mut bytes = Vec::new();
        let read = file.take(content.len() as u64 + 1).read_to_end(&mut bytes);
        read.is_ok() && bytes == content
    }
}

/// Whether all entries can be in a lower layer of a sandbox. Another owner could not be replaced by the user inside, and
/// only the `.git` at the top can be hidden.
fn is_plain(root: &Path) -> Result<bool, FolderError> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |source: BeneathError| FolderError::Read { path, source }
    };
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let folder = Folder::open(root).map_err(failed(root))?;
    let (mut open, mut visited) = (vec![PathBuf::new()], 0);
    while let Some(parent) = open.pop() {
        for entry in folder.entries(&parent).map_err(failed(&parent))? {
            let entry = entry.map_err(FolderError::io("read the folder"))?;
            visited += 1;
            if visited > MOUNTED_ENTRIES_MAX {
                return Err(FolderError::TooLarge { what: format!("{MOUNTED_ENTRIES_MAX} files") });
            }
            let name = entry.file_name();
            if name.eq_ignore_ascii_case(".git")
                && (name != ".git" || !parent.as_os_str().is_empty())
            {
                return Ok(false);
            }
            let data = entry.metadata().map_err(FolderError::io("read the folder"))?;
            if data.uid() != user || data.gid() != group {
                return Ok(false);
            }
            if data.is_dir() && name != ".git" {
                open.push(parent.join(name));
            }
        }
    }
    Ok(true)
}

fn read_all(root: &Path) -> Result<Vec<FolderFile>, FolderError> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |source: BeneathError| FolderError::Read { path, source }
    };
    let folder = Folder::open(root).map_err(failed(root))?;
    let (mut files, mut bytes_left, mut visited) = (Vec::new(), BYTES_MAX, 0);
    let mut open = vec![PathBuf::new()];
    while let Some(parent) = open.pop() {
        for entry in folder.entries(&parent).map_err(failed(&parent))? {
            let entry = entry.map_err(FolderError::io("read the folder"))?;
            visited += 1;
            if visited > ENTRIES_MAX {
                return Err(FolderError::TooLarge { what: format!("{ENTRIES_MAX} files") });
            }
            if entry.file_name().eq_ignore_ascii_case(".git") {
                continue;
            }
            let path = parent.join(entry.file_name());
            let kind = entry.file_type().map_err(FolderError::io("read the folder"))?;
            if kind.is_dir() {
                open.push(path);
                continue;
            }
            let content = if kind.is_symlink() {
                FolderContent::Link(folder.link_target(&path).map_err(failed(&path))?)
            } else {
                let file = folder.open_file(&path).map_err(failed(&path))?;
                let io = FolderError::io("read a file of the folder");
                let mode = file.metadata().map_err(FolderError::io("read the folder"))?;
                let mut bytes = Vec::new();
                file.take(bytes_left + 1).read_to_end(&mut bytes).map_err(io)?;
                let left = bytes_left.checked_sub(bytes.len() as u64);
                bytes_left = left.ok_or_else(|| FolderError::TooLarge { what: "64 MiB".into() })?;
                let is_executable = mode.permissions().mode() & EXECUTE != 0;
                FolderContent::File { bytes: bytes.into(), is_executable }
            };
            files.push(FolderFile { path, content });
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}
