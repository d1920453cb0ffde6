//! The identity of the files of a database: a process must notice when another file is at one of their paths.
//!
//! A removed or moved file stays open, and SQLite continues to write to it. These entries are lost
//! to every other process. That holds for the database, for its log, and for the index of the log: with another index, two
//! processes do not see each other's entries.

use std::{
    ffi::OsString,
    fs,
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use graphrun_engine::checkpoint::CheckpointError;

use super::no_access::unusable;

/// The endings of the files of a database that is open: none, its log, and the index of the log.
const ENDINGS: [&str; 3] = ["", "-wal", "-shm"];

/// The files of an open database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity(Vec<OpenFile>);

/// A file that is open: its path, its device and its inode number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OpenFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Identity {
    /// Returns the identity of the database at a path. It leaves out files that are unknown.
    pub(super) fn of(database: &Path) -> Self {
        let files = ENDINGS.into_iter().filter_map(|ending| {
            let mut path = OsString::from(database);
            path.push(ending);
            let found = fs::metadata(&path).ok()?;
            Some(OpenFile { path: path.into(), device: found.dev(), inode: found.ino() })
        });
        Self(files.collect())
    }

    /// Fails if the file at one of the paths is another one or missing. `anew` is what to do in place of using it.
    pub(super) fn check(&self, anew: &str) -> Result<(), CheckpointError> {
        self.0.iter().try_for_each(|it| it.check(anew))
    }
}

impl OpenFile {
    /// Fails if the file at the path is another one or missing. An inaccessible path proves nothing.
    fn check(&self, anew: &str) -> Result<(), CheckpointError> {
        let what = match fs::metadata(&self.path) {
            Ok(found) if found.dev() == self.device && found.ino() == self.inode => return Ok(()),
            Ok(_) => "another file replaced it",
            Err(error) if error.kind() == ErrorKind::NotFound => "it was removed or moved away",
            Err(_) => return Ok(()),
        };
        let reason = format!(
            "{what} while this program was writing to it, so what it wrote later is lost; put the file back and \
             resume the run, or {anew}"
        );
        Err(unusable(&self.path, &reason))
    }
}
