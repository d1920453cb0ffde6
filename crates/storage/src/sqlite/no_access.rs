//! Why a file cannot be opened or written: rights, folders, descriptors, memory.

use std::{
    fs::File,
    io::{self, ErrorKind},
    path::{self, Path},
};

use graphrun_engine::checkpoint::CheckpointError;
use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags},
    unistd::{AccessFlags, faccessat},
};

/// The files that SQLite opens for a database: itself, its log, and the index of the log.
const DESCRIPTORS: usize = 3;

const NO_MEMORY: &str =
    "there is not enough memory; end other programs, or allow this one more, and try again";

/// Returns the error for a file that must not be used. The reason contains the remedy.
pub(super) fn unusable(path: &Path, reason: &str) -> CheckpointError {
    CheckpointError::Unusable { path: path.display().to_string(), reason: reason.to_owned() }
}

/// Returns why this user may not write a database, with the remedy; none if nothing keeps the user from it. SQLite also writes
/// beside it.
pub(super) fn unwritable(path: &Path) -> Option<String> {
    let may_write = |path: &Path| faccessat(AT_FDCWD, path, AccessFlags::W_OK, AtFlags::AT_EACCESS);
    let absolute = path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // A missing folder would be made in the nearest one that exists.
    let folder = absolute.ancestors().skip(1).find(|it| it.exists()).unwrap_or(Path::new("/"));
    let reason = match (may_write(&absolute), may_write(folder)) {
        (Err(Errno::EROFS), _) | (_, Err(Errno::EROFS)) => {
            "its file system is read-only; copy it to another one, or give another path".to_owned()
        }
        (Ok(()) | Err(Errno::ENOENT), Ok(())) => return None,
        (Ok(()) | Err(Errno::ENOENT), Err(_)) => format!(
            "this user may not write in the folder `{}`; change its permissions, or give another path",
            folder.display()
        ),
        (Err(_), _) => {
            "this user may not read and write it; change its permissions, or give another path"
                .to_owned()
        }
    };
    Some(reason)
}

/// Returns the error for a database that cannot be written.
pub(super) fn not_writable(path: &Path) -> CheckpointError {
    match unwritable(path) {
        Some(reason) => unusable(path, &reason),
        None => inaccessible(path, &ErrorKind::PermissionDenied.into()),
    }
}

/// Returns the error of the next open, if this process or the machine has no free descriptors.
pub(super) fn out_of_descriptors() -> Option<io::Error> {
    let null = || File::open("/dev/null");
    let opened: io::Result<Vec<File>> = (0..DESCRIPTORS).map(|_| null()).collect();
    opened.err().filter(|error| shortage(error).is_some())
}

/// Returns which resource this process or the machine lacks, and the remedy.
fn shortage(error: &io::Error) -> Option<&'static str> {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EMFILE) => Some(
            "this process may not open more files; allow it more, such as with `ulimit -n 256`",
        ),
        Some(Errno::ENFILE) => {
            Some("this machine has too many files open; close other programs and try again")
        }
        Some(Errno::ENOMEM) => Some(NO_MEMORY),
        _ if error.kind() == ErrorKind::OutOfMemory => Some(NO_MEMORY),
        _ => None,
    }
}

/// Returns the error for a file that cannot be opened.
pub(super) fn inaccessible(path: &Path, error: &io::Error) -> CheckpointError {
    if let Some(reason) = shortage(error) {
        return unusable(path, reason);
    }
    let reason = match error.kind() {
        ErrorKind::NotFound => {
            "there is no such file; give the path of an existing database".into()
        }
        ErrorKind::PermissionDenied => {
            "this user may not read and write it; change its permissions, or give another path"
                .into()
        }
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            "a part of its path is a file, not a folder; give another path".into()
        }
        ErrorKind::IsADirectory => "it is a folder; give the path of a file".into(),
        _ => format!("it cannot be opened ({error}); give another path"),
    };
    unusable(path, &reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_named_with_its_remedy() {
        for (cause, says) in [
            (Errno::EMFILE, "this process may not open more files; allow it more"),
            (Errno::ENFILE, "this machine has too many files open; close other programs"),
            (Errno::ENOMEM, "there is not enough memory; end other programs"),
        ] {
            let error = inaccessible(Path::new("runs.db"), &io::Error::from(cause)).to_string();
            assert!(error.starts_with(&format!("runs.db cannot be used: {says}")), "{error}");
        }
    }
}
