//! The identity of a database file: a process must notice when another file is at its path.
//!
//! A removed or moved file stays open, and SQLite continues to write to it. These entries are lost
//! to every other process.

use std::{fs, io::ErrorKind, os::unix::fs::MetadataExt, path::Path};

use graphrun_engine::checkpoint::CheckpointError;

use super::fault::unusable;

/// The device and inode numbers of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// Returns the identity of the file at a path; none if it is unknown.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Self { device: found.dev(), inode: found.ino() })
    }

    /// Fails if the file at the path is another one or missing. An inaccessible path proves
    /// nothing.
    pub(super) fn check(self, path: &Path) -> Result<(), CheckpointError> {
        let what = match fs::metadata(path) {
            Ok(found) if found.dev() == self.device && found.ino() == self.inode => return Ok(()),
            Ok(_) => "another file replaced it",
            Err(error) if error.kind() == ErrorKind::NotFound => "it was removed or moved away",
            Err(_) => return Ok(()),
        };
        let reason = format!(
            "{what} while a run was writing to it, so later steps are lost; put the file back and \
             resume the run, or start a new run"
        );
        Err(unusable(path, &reason))
    }
}
