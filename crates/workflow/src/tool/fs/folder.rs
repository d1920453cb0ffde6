//! The folder that the built-in tools read, with refusals that a model can act on.

use std::{
    fs::{File, ReadDir},
    path::Path,
};

use graphrun_guard::beneath::{BeneathError, Folder};

use crate::tool::ToolError;

/// The longest part of a path that is shown, in characters.
pub(super) const PATH_CHARACTERS_MAX: usize = 200;

/// The folder to which the tools are restricted.
#[derive(Debug)]
pub(super) struct ToolFolder(Folder);

impl ToolFolder {
    pub(super) fn open(root: &Path) -> Result<Self, ToolError> {
        Folder::open(root).map(Self).map_err(|error| {
            ToolError::permanent(format!("the folder of the tools cannot be opened: {error}"))
        })
    }

    /// Opens a file or a folder below it.
    pub(super) fn open_any(&self, path: &str) -> Result<File, ToolError> {
        self.0.open_any(Path::new(path)).map_err(|error| refusal(path, &error))
    }

    /// Returns the names in a folder below it.
    pub(super) fn entries(&self, path: &str) -> Result<ReadDir, ToolError> {
        self.0.entries(Path::new(path)).map_err(|error| refusal(path, &error))
    }

    /// Reads at most this many bytes of a regular file. Also returns the size of the file. The files of git are not read: the
    /// `.git` of a worktree names a folder of the host.
    pub(super) fn read(&self, path: &str, bytes_max: u64) -> Result<(Vec<u8>, u64), ToolError> {
        if path.split('/').any(|it| it.eq_ignore_ascii_case(".git")) {
            return Err(ToolError::permanent("`.git` belongs to git and is not read"));
        }
        self.0.read_start(Path::new(path), bytes_max).map_err(|error| refusal(path, &error))
    }
}

fn refusal(path: &str, error: &BeneathError) -> ToolError {
    let shown: String = path.chars().take(PATH_CHARACTERS_MAX).collect();
    ToolError::permanent(match error {
        BeneathError::LeadsOut => format!("`{shown}` leads out of the folder of the tools"),
        BeneathError::Missing => format!("there is no `{shown}`"),
        other => format!("`{shown}` cannot be read: {other}"),
    })
}
