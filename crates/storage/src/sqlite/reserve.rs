//! Reserved disk space for the last entries of a run: a file beside the database.
//!
//! When the disk is full, removing the file makes room for the entry that stops or suspends the
//! run, and for the lease of a run whose node still runs. The next process that acquires a run
//! reserves the space again.

use std::{
    ffi::OsString,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use nix::fcntl::OFlag;

/// The reserved bytes. An entry of a usual size takes a few thousand.
const BYTES: usize = 1 << 20;

/// Reserves the space, unless it is reserved already or the disk is nearly full.
pub(super) fn keep(database: &Path) {
    let path = path_of(database);
    // A symbolic link of this name may have come with the folder; it leads to another file.
    if fs::symlink_metadata(&path).is_ok_and(|it| it.len() == BYTES as u64) {
        return;
    }
    if write(&path).is_err() {
        drop(fs::remove_file(&path));
    }
}

/// Releases the space. Returns whether there was any.
pub(super) fn give_up(database: &Path) -> bool {
    fs::remove_file(path_of(database)).is_ok()
}

fn write(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(path)?;
    // A sparse file takes no space; uniform bytes take none in some file systems.
    let mut bytes = vec![0; BYTES];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    file.write_all(&bytes)
}

fn path_of(database: &Path) -> PathBuf {
    let mut path = OsString::from(database);
    path.push("-reserve");
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_kept_once_and_given_up_once() {
        let folder = tempfile::TempDir::new().unwrap();
        let database = folder.path().join("runs.db");
        assert!(!give_up(&database));
        keep(&database);
        keep(&database);
        assert_eq!(fs::metadata(folder.path().join("runs.db-reserve")).unwrap().len(), 1 << 20);
        assert!(give_up(&database) && !give_up(&database));
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let folder = tempfile::TempDir::new().unwrap();
        let database = folder.path().join("runs.db");
        let other = folder.path().join("other");
        fs::write(&other, "precious").unwrap();
        std::os::unix::fs::symlink(&other, path_of(&database)).unwrap();
        keep(&database);
        assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
        keep(&database);
        assert!(fs::symlink_metadata(path_of(&database)).unwrap().is_file());
    }
}
