//! The folder that the built-in tools read, with refusals that a model can act on.

use std::{
    fs::{File, ReadDir},
    path::Path,
};

use graphrun_guard::beneath::{BeneathError, Folder, is_of_git};

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
        refuse_git(path)?;
        self.0.open_any(Path::new(path)).map_err(|error| refusal(path, &error))
    }

    /// Returns the names in a folder below it. `.git` can be among them.
    pub(super) fn entries(&self, path: &str) -> Result<ReadDir, ToolError> {
        refuse_git(path)?;
        self.0.entries(Path::new(path)).map_err(|error| refusal(path, &error))
    }

    /// Reads at most this many bytes of a regular file. Also returns the size of the file.
    pub(super) fn read(&self, path: &str, bytes_max: u64) -> Result<(Vec<u8>, u64), ToolError> {
        refuse_git(path)?;
        self.0.read_start(Path::new(path), bytes_max).map_err(|error| refusal(path, &error))
    }
}

fn refuse_git(path: &str) -> Result<(), ToolError> {
    if is_of_git(Path::new(path)) {
        return Err(ToolError::permanent("`.git` belongs to git and is not read"));
    }
    Ok(())
}

fn refusal(path: &str, error: &BeneathError) -> ToolError {
    let shown: String = path.chars().take(PATH_CHARACTERS_MAX).collect();
    ToolError::permanent(match error {
        BeneathError::LeadsOut => format!("`{shown}` leads out of the folder of the tools"),
        BeneathError::Missing => format!("there is no `{shown}`"),
        other => format!("`{shown}` cannot be read: {other}"),
    })
}
