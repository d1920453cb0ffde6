//! Writing beneath a folder: one name at a time, and no link is followed.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, renameat},
    sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, fstatat, mkdirat},
    unistd::{UnlinkatFlags, unlinkat},
};

use super::{BeneathError, Folder, Links, regular, start_of};

/// What a name in a folder stands for. The target of a link does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A link, a pipe, a device or a socket.
    Other,
}

impl Folder {
    /// Opens a folder that a person named, and makes it if it is not there: links in the path to it are followed.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be made or opened.
    pub fn create(path: &Path) -> Result<Self, BeneathError> {
        fs::create_dir_all(path)?;
        Self::open(path)
    }

    /// Opens the folder of this name, and makes it if it is not there.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be made, or a link or a file has the name.
    pub fn enter(&self, name: &str) -> Result<Self, BeneathError> {
        match mkdirat(&self.0, name, Mode::from_bits_truncate(0o755)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
        self.resolve(Path::new(name), flags, Mode::empty(), Links::Never).map(Self)
    }

    /// Opens the same folder once more.
    ///
    /// # Errors
    ///
    /// Fails when this process has too many open files.
    pub fn again(&self) -> Result<Self, BeneathError> {
        Ok(Self(self.0.try_clone()?))
    }

    /// Waits until no other process has locked the folder, and locks it until it is closed.
    ///
    /// # Errors
    ///
    /// Fails where the file system has no locks.
    pub fn lock(&self) -> io::Result<()> {
        self.0.lock()
    }

    /// Returns the kind of the entry of this name.
    ///
    /// # Errors
    ///
    /// Fails when the folder cannot be searched.
    pub fn kind(&self, name: impl AsRef<Path>) -> Result<Option<Kind>, BeneathError> {
        match fstatat(&self.0, name.as_ref(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
                SFlag::S_IFREG => Kind::File,
                SFlag::S_IFDIR => Kind::Folder,
                _ => Kind::Other,
            })),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the first bytes of the regular file of this name, if it is there. A link is refused.
    ///
    /// # Errors
    ///
    /// Fails when it is something else, or cannot be read.
    pub fn read_own(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, BeneathError> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW;
        match self.resolve(Path::new(name), flags, Mode::empty(), Links::Never) {
            Ok(file) => Ok(Some(start_of(regular(file)?, bytes_max)?.0)),
            Err(BeneathError::Missing) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a new file of this name, and syncs it. A file or a link of this name is removed first.
    ///
    /// # Errors
    ///
    /// Fails when the name stays taken, as by a folder, or the file cannot be written.
    pub fn write_new(&self, name: impl AsRef<Path>, content: &[u8]) -> Result<(), BeneathError> {
        let name = name.as_ref();
        // If the name stays taken, the creation fails and its error is the better one.
        let _ = self.remove(name);
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_NOFOLLOW;
        let mode = Mode::from_bits_truncate(0o644);
        let mut file = self.resolve(name, flags, mode, Links::Never)?;
        file.write_all(content)?;
        Ok(file.sync_all()?)
    }

    /// Gives a file another name in this folder. A file of that name is replaced and never changed; a reader sees the
    /// old file or the new one.
    ///
    /// # Errors
    ///
    /// Fails when a folder has the other name.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<(), BeneathError> {
        Ok(renameat(&self.0, from.as_ref(), &self.0, to.as_ref())?)
    }

    /// Opens a folder below this one. No link is followed.
    ///
    /// # Errors
    ///
    /// Fails when it is not there, is no folder, or a folder above it is a link.
    pub fn open_plain(&self, path: &Path) -> Result<Self, BeneathError> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
        self.resolve(path, flags, Mode::empty(), Links::Never).map(Self)
    }

    /// Gives a file the permissions of another one, which may be missing.
    ///
    /// # Errors
    ///
    /// Fails when the other file cannot be examined, or this one cannot be changed.
    pub(super) fn copy_permissions(&self, from: &Path, to: &Path) -> Result<(), BeneathError> {
        let mode = match fstatat(&self.0, from, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Mode::from_bits_truncate(stat.st_mode),
            Err(Errno::ENOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        Ok(fchmodat(&self.0, to, mode, FchmodatFlags::FollowSymlink)?)
    }

    /// Makes a file a program if another one, which may be missing, is one.
    ///
    /// # Errors
    ///
    /// Fails when the other file cannot be examined, or this one cannot be changed.
    pub fn copy_execution(&self, from: &str, to: &str) -> Result<(), BeneathError> {
        let mode = match fstatat(&self.0, from, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Mode::from_bits_truncate(stat.st_mode),
            Err(Errno::ENOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if mode.contains(Mode::S_IXUSR) {
            let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW;
            let file = self.resolve(Path::new(to), flags, Mode::empty(), Links::Never)?;
            file.set_permissions(fs::Permissions::from_mode(0o755))?;
        }
        Ok(())
    }

    /// Removes a file or a link, if there is one.
    ///
    /// # Errors
    ///
    /// Fails when a folder has the name, or the system does not allow the removal.
    pub fn remove(&self, name: impl AsRef<Path>) -> Result<(), BeneathError> {
        match unlinkat(&self.0, name.as_ref(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
    /// Removes an empty folder.
    ///
    /// # Errors
    ///
    /// Fails when it is not empty or not there, something else has the name, or the system does not allow the removal.
    pub fn remove_empty(&self, name: &str) -> Result<(), BeneathError> {
        Ok(unlinkat(&self.0, name, UnlinkatFlags::RemoveDir)?)
    }
}
