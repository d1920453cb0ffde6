//! The room that a folder of the host takes while programs inside fill it.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path, time::Duration};

use tokio::{task::spawn_blocking, time::sleep};

/// The interval in which a folder is measured.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The most that a folder may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoomLimit {
    pub(crate) bytes: u64,
    /// Files and folders.
    pub(crate) entries: u64,
}

/// A folder takes more than its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

/// The room that folders take.
#[derive(Debug, Default)]
struct Room {
    bytes: u64,
    entries: u64,
}

impl RoomLimit {
    /// Measures a folder, whose files may change meanwhile.
    ///
    /// # Errors
    ///
    /// Fails when it is too large.
    pub(crate) fn check(self, folder: &Path) -> Result<(), TooLarge> {
        Room::default().add(folder, self)
    }

    /// Waits until a folder is too large.
    pub(crate) async fn exceeded(self, folder: &Path) {
        loop {
            sleep(LOOK_INTERVAL).await;
            let folder = folder.to_owned();
            if matches!(spawn_blocking(move || self.check(&folder)).await, Ok(Err(TooLarge))) {
                return;
            }
        }
    }
}

impl Room {
    /// Adds everything below a folder.
    fn add(&mut self, folder: &Path, limit: RoomLimit) -> Result<(), TooLarge> {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            // A removed entry takes no room.
            let Ok(data) = entry.metadata() else { continue };
            self.entries += 1;
            self.bytes += data.blocks() * 512;
            if self.entries > limit.entries || self.bytes > limit.bytes {
                return Err(TooLarge);
            }
            if data.is_dir() {
                self.add(&entry.path(), limit)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_a_limited_size() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        fs::write(folder.path().join("inner/a"), [0; 5000]).unwrap();
        let check = |bytes, entries| RoomLimit { bytes, entries }.check(folder.path());
        assert_eq!(check(1 << 20, 2), Ok(()));
        assert_eq!(check(4000, 2), Err(TooLarge));
        assert_eq!(check(1 << 20, 1), Err(TooLarge));
    }
}
