//! The files of a folder, for a sandbox.

use std::{
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use graphrun_guard::beneath::{BeneathError, Folder};
use graphrun_sandbox::{FolderContent, FolderFile};

use super::{error::FolderError, worktree::OpenFolder};

/// The most files and folders of a folder that a sandbox gets.
const ENTRIES_MAX: usize = 20_000;
/// The most bytes of all of them.
const BYTES_MAX: u64 = 64 << 20;
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
