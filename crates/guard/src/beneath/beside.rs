//! Files whose names follow from a file that a person named, such as `review.mcp.lock` beside `review.yaml`.
//!
//! No person chose these names for writing, and a cloned folder may contain links of these names. So no link is followed.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use nix::{fcntl::OFlag, sys::stat::Mode};

use super::{BeneathError, Folder, Kind, Links, regular};

/// Writes a file, and syncs it. A file of this name is replaced and never changed; a reader sees the old one or the new one, with the
/// same permissions.
///
/// # Errors
///
/// Fails when a link, a folder or a device has the name, or the file cannot be written. A file that this user may not write
/// stays, although the folder would allow its replacement.
pub fn write_beside(path: &Path, content: &[u8]) -> Result<(), BeneathError> {
    let (folder, name) = parts(path)?;
    match folder.kind(name)? {
        None => {}
        Some(Kind::File) => {
            let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
            drop(folder.resolve(name, flags, Mode::empty(), Links::Never)?);
        }
        Some(Kind::Folder) => return Err(BeneathError::IsFolder),
        Some(Kind::Other) if path.is_symlink() => return Err(BeneathError::Link),
        Some(Kind::Other) => return Err(BeneathError::NotRegular),
    }
    let new = PathBuf::from(format!(".{}.{}", name.display(), std::process::id()));
    let written = folder
        .write_new(&new, content)
        .and_then(|()| folder.copy_permissions(name, &new))
        .and_then(|()| folder.rename(&new, name));
    // Nothing else has this name.
    written.inspect_err(|_| drop(folder.remove(&new)))
}

/// Opens a file to read it and to add to it, and makes it if it is not there.
///
/// # Errors
///
/// Fails when a link, a folder or a device has the name, or the file cannot be opened.
pub fn append_beside(path: &Path) -> Result<File, BeneathError> {
    let (folder, name) = parts(path)?;
    let flags =
        OFlag::O_RDWR | OFlag::O_APPEND | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let mode = Mode::from_bits_truncate(0o644);
    regular(folder.resolve(name, flags, mode, Links::Never)?)
}

/// Returns the folder of a file, and its name there.
fn parts(path: &Path) -> Result<(Folder, &Path), BeneathError> {
    let name = path.file_name().ok_or(BeneathError::IsFolder)?;
    Ok((Folder::open(path.parent().unwrap_or(Path::new("")))?, Path::new(name)))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        io::Write as _,
        os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    };

    use nix::unistd::{Uid, setfsuid};

    use super::*;

    #[test]
    fn a_file_is_replaced_and_no_link_is_followed() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        write_beside(&path("new"), b"1").unwrap();
        fs::set_permissions(path("new"), Permissions::from_mode(0o600)).unwrap();
        fs::hard_link(path("new"), path("hard")).unwrap();
        write_beside(&path("new"), b"2").unwrap();
        let read = |name: &str| fs::read_to_string(path(name)).unwrap();
        assert_eq!((read("new"), read("hard")), ("2".to_owned(), "1".to_owned()));
        assert_eq!(fs::metadata(path("new")).unwrap().mode() & 0o777, 0o600);
        symlink(path("hard"), path("link")).unwrap();
        symlink(path("nowhere"), path("dangling")).unwrap();
        fs::create_dir(path("folder")).unwrap();
        for name in ["link", "dangling"] {
            assert!(matches!(write_beside(&path(name), b"3"), Err(BeneathError::Link)), "{name}");
            assert!(matches!(append_beside(&path(name)), Err(BeneathError::Link)), "{name}");
        }
        assert!(matches!(write_beside(&path("folder"), b"3"), Err(BeneathError::IsFolder)));
        append_beside(&path("added")).unwrap().write_all(b"a").unwrap();
        append_beside(&path("added")).unwrap().write_all(b"b").unwrap();
        assert_eq!((read("added"), read("hard")), ("ab".to_owned(), "1".to_owned()));
        assert!(!path("nowhere").exists());
        assert_eq!(fs::metadata(path("hard")).unwrap().nlink(), 1);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 6);
    }

    #[test]
    fn a_file_that_this_user_may_not_write_stays() {
        let folder = tempfile::TempDir::new().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "1").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
        let written = std::thread::scope(|scope| {
            let write = || {
                // An ordinary user, for this thread alone.
                setfsuid(Uid::from_raw(65534));
                write_beside(&path, b"2")
            };
            scope.spawn(write).join().unwrap()
        });
        assert!(matches!(&written, Err(BeneathError::Io(_))), "{written:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "1");
    }
}
