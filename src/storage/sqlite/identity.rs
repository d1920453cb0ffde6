//! Which file a database is, so that a process notices when another one stands at its path.
//!
//! A file that is removed or moved stays open, and SQLite continues to write it. These entries are in no file that
//! anybody finds.

use std::{fs, io::ErrorKind, os::unix::fs::MetadataExt, path::Path};

use crate::checkpoint::CheckpointError;

use super::fault::unusable;

/// The number of a file and of its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// Returns which file is at a path; none if it cannot be told.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Self { device: found.dev(), inode: found.ino() })
    }

    /// Fails if another file is at the path, or none. A path that cannot be looked at proves nothing.
    pub(super) fn check(self, path: &Path) -> Result<(), CheckpointError> {
        let what = match fs::metadata(path) {
            Ok(found) if found.dev() == self.device && found.ino() == self.inode => return Ok(()),
            Ok(_) => "another file was put in its place",
            Err(error) if error.kind() == ErrorKind::NotFound => "it was removed or moved away",
            Err(_) => return Ok(()),
        };
        let reason = format!(
            "{what} while a run was writing to it, and the steps since are not in it; put the file back, \
             then resume the run, or start it anew"
        );
        Err(unusable(path, &reason))
    }
}
