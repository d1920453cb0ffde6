//! The room that a folder of the host takes while programs inside fill it.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::unix::fs::MetadataExt as _,
    path::Path,
    time::Duration,
};

use tokio::{task::spawn_blocking, time::sleep};

use super::descent::{Visitor, is_replaced, list, open_folder, visit};

/// The interval in which a folder is measured.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The most that a folder may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoomLimit {
    pub(crate) bytes: u64,
    /// Files and folders.
    pub(crate) entries: u64,
}

/// Why a folder is not within its limit.
#[derive(Debug)]
pub(crate) enum RoomError {
    /// It takes more.
    TooLarge,
    /// A part of it cannot be measured, so it could take any room.
    Unmeasured(io::Error),
}

impl From<io::Error> for RoomError {
    fn from(error: io::Error) -> Self {
        Self::Unmeasured(error)
    }
}

impl RoomLimit {
    /// Measures a folder, whose files may change meanwhile. Files that have been removed, and that a program still has open,
    /// are in no folder and take no room here.
    ///
    /// # Errors
    ///
    /// Fails when it is too large, or a part of it cannot be measured.
    pub(crate) fn check(self, folder: &Path) -> Result<(), RoomError> {
        let folder = File::open(folder)?;
        let mut room = Room { limit: self, bytes: 0, entries: 0 };
        let inner = room.enter(&folder)?;
        visit(folder, inner, &mut room)
    }

    /// Measures a folder without blocking this thread.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub(crate) async fn check_beside(self, folder: &Path) -> Result<(), RoomError> {
        let folder = folder.to_owned();
        let checked = spawn_blocking(move || self.check(&folder)).await;
        checked.unwrap_or_else(|error| Err(RoomError::Unmeasured(error.into())))
    }

    /// Waits until a folder is not within its limit, and returns why.
    pub(crate) async fn exceeded(self, folder: &Path) -> RoomError {
        loop {
            sleep(LOOK_INTERVAL).await;
            if let Err(error) = self.check_beside(folder).await {
                return error;
            }
        }
    }
}

/// The room that folders take.
#[derive(Debug)]
struct Room {
    limit: RoomLimit,
    bytes: u64,
    entries: u64,
}

impl Visitor for Room {
    type Stop = RoomError;

    fn open(&mut self, around: &File, name: &OsStr) -> Result<Option<File>, RoomError> {
        match open_folder(around, name) {
            Ok(folder) => Ok(Some(folder)),
            Err(error) if is_replaced(error) => Ok(None),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    /// Counts the entries of a folder.
    fn enter(&mut self, folder: &File) -> Result<Vec<OsString>, RoomError> {
        let mut inner = Vec::new();
        for entry in unless_gone(list(folder))?.into_iter().flatten() {
            let entry = entry?;
            let Some(data) = unless_gone(entry.metadata())? else { continue };
            self.entries += 1;
            self.bytes += data.blocks() * 512;
            if self.entries > self.limit.entries || self.bytes > self.limit.bytes {
                return Err(RoomError::TooLarge);
            }
            if data.is_dir() {
                inner.push(entry.file_name());
            }
        }
        Ok(inner)
    }

    fn leave(&mut self, _: &File, _: &OsStr) -> Result<(), RoomError> {
        Ok(())
    }
}

/// Something that was removed takes no room.
fn unless_gone<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        descent::tests::{has_few_open_files, nest},
        remove::remove_folder,
    };

    #[test]
    fn a_folder_has_a_limited_size() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        fs::write(folder.path().join("inner/a"), [0; 5000]).unwrap();
        let check = |bytes, entries| RoomLimit { bytes, entries }.check(folder.path());
        check(1 << 20, 2).unwrap();
        assert!(matches!(check(4000, 2), Err(RoomError::TooLarge)));
        assert!(matches!(check(1 << 20, 1), Err(RoomError::TooLarge)));
    }

    #[test]
    fn a_file_in_a_deep_folder_takes_room() {
        if has_few_open_files("room::tests::a_file_in_a_deep_folder_takes_room") {
            let folder = tempfile::tempdir().unwrap();
            nest(folder.path(), 100);
            let check = |bytes, entries| RoomLimit { bytes, entries }.check(folder.path());
            check(1 << 20, 101).unwrap();
            assert!(matches!(check(1 << 20, 100), Err(RoomError::TooLarge)));
            assert!(matches!(check(49_000, 1000), Err(RoomError::TooLarge)));
            remove_folder(folder.path()).unwrap();
        }
    }
}
