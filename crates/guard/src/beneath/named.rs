//! Files that a person names: links are followed, and only regular files are opened.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use nix::libc::{O_NOCTTY, O_NONBLOCK};

use super::{BeneathError, regular, text_of};
use crate::data_limit::DataLimit;

/// The device that is always empty.
const NULL_DEVICE: &str = "/dev/null";

/// Opens a regular file to read it, or `/dev/null`, which stands for an empty one. A pipe or another device is refused, and
/// is not waited for.
///
/// # Errors
///
/// Fails when it is not there, cannot be read or is not a regular file.
pub fn open_named(path: &Path) -> Result<File, BeneathError> {
    let opened = OpenOptions::new().read(true).custom_flags(O_NONBLOCK | O_NOCTTY).open(path)?;
    if path == Path::new(NULL_DEVICE) { Ok(opened) } else { regular(opened) }
}

/// Reads the whole text of a regular file.
///
/// # Errors
///
/// As [`open_named`], and fails when it is larger than the limit or is not UTF-8.
pub fn read_named(path: &Path, limit: DataLimit) -> Result<String, BeneathError> {
    text_of(open_named(path)?, limit)
}

/// Opens a regular file to read it and to add to it, and makes it if it is not there.
///
/// # Errors
///
/// Fails when it cannot be opened or is not a regular file.
pub fn append_named(path: &Path) -> Result<File, BeneathError> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).custom_flags(O_NONBLOCK | O_NOCTTY);
    regular(options.open(path)?)
}

/// Opens a regular file, or a descriptor that the shell passes, such as `/dev/stdin`, whose bytes the caller bounds.
///
/// # Errors
///
/// As [`open_named`].
pub fn open_given(path: &Path) -> Result<File, BeneathError> {
    // A descriptor is open already, by the word of the user. Reading waits for its writer, as with standard input.
    if is_descriptor(path) { Ok(File::open(path)?) } else { open_named(path) }
}

fn is_descriptor(path: &Path) -> bool {
    path == Path::new("/dev/stdin")
        || ["/dev/fd", "/proc/self/fd"]
            .iter()
            .any(|folder| path.parent() == Some(Path::new(folder)))
}
