//! The files of a folder, for a sandbox.

use std::{
    fs::DirEntry,
    io::Read,
    os::unix::fs::{MetadataExt as _, PermissionsExt},
    path::{Path, PathBuf},
};

use nix::unistd::{getegid, geteuid};

use graphrun_guard::beneath::{BeneathError, Folder, is_of_git};
use graphrun_sandbox::{FolderContent, FolderFile};

use super::{
    error::FolderError,
    worktree::{ExclusiveFolder, SharedFolder},
};

/// The most files and folders of a folder that a sandbox gets.
const ENTRIES_MAX: usize = 20_000;
/// The most bytes of all of them.
const BYTES_MAX: u64 = 64 << 20;
/// The most files and folders of a folder that a sandbox gets without a copy.
const MOUNTED_ENTRIES_MAX: usize = 500_000;
/// The permission to execute.
const EXECUTE: u32 = 0o111;

impl ExclusiveFolder {
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

impl SharedFolder {
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

    /// Returns the paths of the regular files, sorted. Those in `.git` are not among them. Links are not followed.
    ///
    /// # Errors
    ///
    /// As [`is_mountable`](Self::is_mountable).
    pub async fn paths(&self) -> Result<Vec<PathBuf>, FolderError> {
        let path = self.path.clone();
        let found = tokio::task::spawn_blocking(move || paths_of_files(&path)).await;
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

/// Returns whether all entries can be in a lower layer of a sandbox. Another owner could not be replaced by the user
/// inside, and only the `.git` at the top can be hidden.
fn is_plain(root: &Path) -> Result<bool, FolderError> {
    let user = geteuid().as_raw();
    let group = getegid().as_raw();
    let mut is_plain = true;
    walk(root, MOUNTED_ENTRIES_MAX, |_, path, entry| {
        let is_git = is_of_git(path);
        let data = entry.metadata().map_err(FolderError::io("read the folder"))?;
        if (is_git && path != Path::new(".git")) || data.uid() != user || data.gid() != group {
            is_plain = false;
            return Ok(AfterVisit::Last);
        }
        Ok(if is_git { AfterVisit::Whole } else { AfterVisit::Open })
    })?;
    Ok(is_plain)
}

fn paths_of_files(root: &Path) -> Result<Vec<PathBuf>, FolderError> {
    let mut paths = Vec::new();
    walk(root, MOUNTED_ENTRIES_MAX, |_, path, entry| {
        if is_of_git(path) {
            return Ok(AfterVisit::Whole);
        }
        if entry.file_type().map_err(FolderError::io("read the folder"))?.is_file() {
            paths.push(path.to_owned());
        }
        Ok(AfterVisit::Open)
    })?;
    paths.sort();
    Ok(paths)
}

fn read_all(root: &Path) -> Result<Vec<FolderFile>, FolderError> {
    let mut files = Vec::new();
    let mut bytes_left = BYTES_MAX;
    walk(root, ENTRIES_MAX, |folder, path, entry| {
        if is_of_git(path) {
            return Ok(AfterVisit::Whole);
        }
        let kind = entry.file_type().map_err(FolderError::io("read the folder"))?;
        if kind.is_dir() {
            return Ok(AfterVisit::Open);
        }
        let content = if kind.is_symlink() {
            FolderContent::Link(folder.link_target(path).map_err(unreadable(path))?)
        } else {
            let file = folder.open_file(path).map_err(unreadable(path))?;
            let io = FolderError::io("read a file of the folder");
            let mode = file.metadata().map_err(FolderError::io("read the folder"))?;
            let mut bytes = Vec::new();
            file.take(bytes_left + 1).read_to_end(&mut bytes).map_err(io)?;
            let left = bytes_left.checked_sub(bytes.len() as u64);
            bytes_left = left.ok_or_else(|| FolderError::TooLarge { what: "64 MiB".into() })?;
            let is_executable = mode.permissions().mode() & EXECUTE != 0;
            FolderContent::File { bytes: bytes.into(), is_executable }
        };
        files.push(FolderFile { path: path.to_owned(), content });
        Ok(AfterVisit::Whole)
    })?;
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

/// What follows after an entry of a folder.
enum AfterVisit {
    /// The entries below it, if it is a folder.
    Open,
    /// The next entry beside it.
    Whole,
    /// No other entry.
    Last,
}

/// Visits the entries below a folder, each folder before its entries. Links are not followed.
fn walk(
    root: &Path,
    entries_max: usize,
    mut visit: impl FnMut(&Folder, &Path, &DirEntry) -> Result<AfterVisit, FolderError>,
) -> Result<(), FolderError> {
    let folder = Folder::open(root).map_err(unreadable(root))?;
    let mut open = vec![PathBuf::new()];
    let mut visited = 0;
    while let Some(parent) = open.pop() {
        for entry in folder.entries(&parent).map_err(unreadable(&parent))? {
            let entry = entry.map_err(FolderError::io("read the folder"))?;
            visited += 1;
            if visited > entries_max {
                return Err(FolderError::TooLarge { what: format!("{entries_max} files") });
            }
            let path = parent.join(entry.file_name());
            match visit(&folder, &path, &entry)? {
                AfterVisit::Last => return Ok(()),
                AfterVisit::Open
                    if entry.file_type().map_err(FolderError::io("read the folder"))?.is_dir() =>
                {
                    open.push(path);
                }
                AfterVisit::Open | AfterVisit::Whole => (),
            }
        }
    }
    Ok(())
}

/// Returns the error of an entry that cannot be read.
fn unreadable(path: &Path) -> impl FnOnce(BeneathError) -> FolderError {
    let path = path.display().to_string();
    move |source| FolderError::Read { path, source }
}
