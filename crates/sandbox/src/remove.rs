//! The removal of a folder that an untrusted program has filled.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, Permissions},
    io,
    os::{
        fd::AsRawFd as _,
        unix::fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, openat},
    sys::stat::Mode,
    unistd::{UnlinkatFlags, unlinkat},
};

use super::descent::{Visitor, is_replaced, list, open_folder, visit};

/// Removes a folder with everything in it, if it is there. Folders of this user may lack permissions, and may be nested more
/// deeply than a path can name. No link is followed.
///
/// # Errors
///
/// Fails when the system does not allow the removal of a part. The other parts may be gone.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let around = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match File::open(around) {
        Ok(around) => visit(around, vec![name.to_owned()], &mut Removal),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

struct Removal;

impl Visitor for Removal {
    type Stop = io::Error;

    fn open(&mut self, around: &File, name: &OsStr) -> io::Result<Option<File>> {
        // This opens a folder without any permission, but cannot list it.
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let found = match openat(around, name, flags, Mode::empty()) {
            Ok(found) => File::from(found),
            Err(Errno::ENOENT) => return Ok(None),
            Err(error) if is_replaced(error) => {
                unlink(around, name, UnlinkatFlags::NoRemoveDir)?;
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        if found.metadata()?.mode() & 0o700 != 0o700 {
            // The folder that is open. If the change is refused, the error of the next step is the better one.
            let opened = format!("/proc/self/fd/{}", found.as_raw_fd());
            let _ = fs::set_permissions(opened, Permissions::from_mode(0o700));
        }
        Ok(Some(open_folder(&found, OsStr::new("."))?))
    }

    fn enter(&mut self, folder: &File) -> io::Result<Vec<OsString>> {
        let mut inner = Vec::new();
        for entry in list(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                inner.push(entry.file_name());
            } else {
                unlink(folder, &entry.file_name(), UnlinkatFlags::NoRemoveDir)?;
            }
        }
        Ok(inner)
    }

    fn leave(&mut self, around: &File, name: &OsStr) -> io::Result<()> {
        unlink(around, name, UnlinkatFlags::RemoveDir)
    }
}

fn unlink(around: &File, name: &OsStr, flags: UnlinkatFlags) -> io::Result<()> {
    match unlinkat(around, name, flags) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::descent::tests::{has_few_open_files, nest};

    #[test]
    fn a_folder_without_permissions_is_removed_and_no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("home/a/b")).unwrap();
        fs::create_dir(path("kept")).unwrap();
        fs::write(path("kept/file"), "1").unwrap();
        fs::write(path("home/a/b/file"), "2").unwrap();
        symlink(path("kept"), path("home/a/link")).unwrap();
        symlink(path("kept"), path("link")).unwrap();
        for (name, mode) in [("home/a/b", 0o300), ("home/a", 0o000), ("home", 0o500)] {
            fs::set_permissions(path(name), Permissions::from_mode(mode)).unwrap();
        }
        for name in ["home", "link", "nowhere", "nowhere/deep"] {
            remove_folder(&path(name)).unwrap();
            assert!(!path(name).exists() && !path(name).is_symlink(), "{name}");
        }
        assert_eq!(fs::read_to_string(path("kept/file")).unwrap(), "1");
    }

    #[test]
    fn the_depth_of_a_folder_needs_no_open_files() {
        if has_few_open_files("remove::tests::the_depth_of_a_folder_needs_no_open_files") {
            let folder = tempfile::tempdir().unwrap();
            nest(folder.path(), 1500);
            remove_folder(folder.path()).unwrap();
            assert!(!folder.path().exists());
        }
    }
}
