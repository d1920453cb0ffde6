//! Files beneath a folder: no path and no link leads out of it.
//!
//! Every path that a state, a model or a file can influence is opened here. The callers' rule: open the [`Folder`] that
//! bounds the access once, by a path that a person chose, and pass every other path to it. Never join such a path to
//! another one and open the result.
//!
//! The kernel resolves the paths (`openat2` with `RESOLVE_BENEATH`), so there is no moment between a check and its use.
//! Reading follows symbolic links that stay beneath the folder. Writing follows none. A hard link has no other end that
//! could be checked: it is a file of the folder. Writing never changes a file in place, so a hard link is safe there.

mod beside;
mod named;
mod project;
mod write;

use std::{
    fs::{self, File, ReadDir},
    io::{self, Read},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, openat2, readlinkat},
    sys::stat::Mode,
};
use thiserror::Error;

pub use self::{
    beside::{append_beside, write_beside},
    named::{append_named, open_given, open_named, read_named},
    project::Project,
    write::Kind,
};
use crate::data_limit::{DataLimit, DataLimitReached};

/// How often a path is resolved anew while a rename disturbs the resolution.
const ATTEMPTS_MAX: u32 = 64;

/// Returns whether a path leads to files of git, or through them. The `.git` of a worktree names a folder of the host,
/// and programs obey the settings there, so neither tools nor sandboxes get them. Some file systems ignore the case.
pub fn is_of_git(path: &Path) -> bool {
    path.iter().any(|it| it.eq_ignore_ascii_case(".git"))
}

/// An open folder. Nothing outside of it is read or written through it.
#[derive(Debug)]
pub struct Folder(File);

/// Why a path beneath a folder cannot be used. The text does not repeat the path.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BeneathError {
    /// The path, or a link in it, leads out of the folder.
    #[error("it leads out of the folder")]
    LeadsOut,
    /// There is nothing of this name.
    #[error("there is no such file or folder")]
    Missing,
    /// A symbolic link is in the way of a writer.
    #[error("the path contains a symbolic link")]
    Link,
    /// It is a pipe, a device or a socket.
    #[error("it is not a regular file")]
    NotRegular,
    /// It is a folder.
    #[error("it is a folder and not a file")]
    IsFolder,
    /// It is not a folder.
    #[error("it is not a folder")]
    NotFolder,
    /// It has more bytes than the limit.
    #[error("it is {0}")]
    TooLarge(DataLimitReached),
    /// It is not text.
    #[error("it is not UTF-8")]
    NotText,
    /// The kernel is too old.
    #[error("this kernel cannot keep a path inside a folder (it has no `openat2`)")]
    Unsupported,
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

// The text has that of the limit, so the limit is no source as well.
impl From<DataLimitReached> for BeneathError {
    fn from(reached: DataLimitReached) -> Self {
        Self::TooLarge(reached)
    }
}

/// Which symbolic links are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Links {
    /// Those that stay beneath the folder.
    Beneath,
    /// None.
    Never,
}

impl Folder {
    /// Opens a folder that a person named: links in the path to it are followed.
    ///
    /// # Errors
    ///
    /// Fails when it is not there, is not a folder or cannot be read.
    pub fn open(path: &Path) -> Result<Self, BeneathError> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_DIRECTORY;
        let opened = nix::fcntl::open(path, flags, Mode::empty());
        opened.map(|it| Self(File::from(it))).map_err(BeneathError::from)
    }

    /// Opens a file or a folder, which is not waited for.
    ///
    /// # Errors
    ///
    /// Fails when it leads out, is not there or cannot be read.
    pub fn open_any(&self, path: &Path) -> Result<File, BeneathError> {
        self.resolve(path, OFlag::O_RDONLY, Mode::empty(), Links::Beneath)
    }

    /// Opens a regular file.
    ///
    /// # Errors
    ///
    /// As [`open_any`](Self::open_any), and fails when it is something else, such as a pipe or a device.
    pub fn open_file(&self, path: &Path) -> Result<File, BeneathError> {
        self.open_any(path).and_then(regular)
    }

    /// Opens a folder.
    ///
    /// # Errors
    ///
    /// As [`open_any`](Self::open_any), and fails when it is no folder.
    pub fn open_folder(&self, path: &Path) -> Result<Self, BeneathError> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        self.resolve(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty(), Links::Beneath)
            .map(Self)
    }

    /// Returns whether there is a regular file.
    pub fn has_file(&self, path: &Path) -> bool {
        self.open_file(path).is_ok()
    }

    /// Lists a folder.
    ///
    /// # Errors
    ///
    /// As [`open_any`](Self::open_any), and fails when it is no folder.
    pub fn entries(&self, path: &Path) -> Result<ReadDir, BeneathError> {
        let folder = self.open_folder(path)?;
        // The folder that is open, even if its path names another one by now.
        Ok(fs::read_dir(format!("/proc/self/fd/{}", folder.0.as_raw_fd()))?)
    }

    /// Returns the target of a symbolic link, as it is written there.
    ///
    /// # Errors
    ///
    /// As [`open_any`](Self::open_any), and fails when it is no link.
    pub fn link_target(&self, path: &Path) -> Result<PathBuf, BeneathError> {
        let parent = self.open_folder(path.parent().unwrap_or(Path::new("")))?;
        let name = path.file_name().ok_or(BeneathError::Missing)?;
        Ok(readlinkat(&parent.0, name)?.into())
    }

    /// Reads the first bytes of a regular file, at most `bytes_max`, and returns them with the size of the file.
    ///
    /// # Errors
    ///
    /// As [`open_file`](Self::open_file), and fails when it cannot be read.
    pub fn read_start(&self, path: &Path, bytes_max: u64) -> Result<(Vec<u8>, u64), BeneathError> {
        start_of(self.open_file(path)?, bytes_max)
    }

    /// Reads the whole text of a regular file.
    ///
    /// # Errors
    ///
    /// As [`open_file`](Self::open_file), and fails when it is larger than the limit or is not UTF-8.
    pub fn read_text(&self, path: &Path, limit: DataLimit) -> Result<String, BeneathError> {
        text_of(self.open_file(path)?, limit)
    }

    fn resolve(
        &self,
        path: &Path,
        flags: OFlag,
        mode: Mode,
        links: Links,
    ) -> Result<File, BeneathError> {
        let links = match links {
            Links::Beneath => ResolveFlag::RESOLVE_NO_MAGICLINKS,
            Links::Never => ResolveFlag::RESOLVE_NO_SYMLINKS,
        };
        // Not blocking, so that a pipe does not hold the thread for ever.
        let flags = flags | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let how =
            OpenHow::new().flags(flags).mode(mode).resolve(links | ResolveFlag::RESOLVE_BENEATH);
        for _ in 1..ATTEMPTS_MAX {
            match openat2(&self.0, path, how) {
                // A rename happened meanwhile, and the kernel cannot prove that a `..` stays beneath.
                Err(Errno::EAGAIN) => (),
                opened => return opened.map(File::from).map_err(BeneathError::from),
            }
        }
        openat2(&self.0, path, how).map(File::from).map_err(BeneathError::from)
    }
}

/// Passes a regular file on, and refuses anything else.
fn regular(file: File) -> Result<File, BeneathError> {
    match file.metadata()?.file_type() {
        kind if kind.is_file() => Ok(file),
        kind if kind.is_dir() => Err(BeneathError::IsFolder),
        _ => Err(BeneathError::NotRegular),
    }
}

/// Reads the first bytes of a file, and returns its size with them.
fn start_of(file: File, bytes_max: u64) -> Result<(Vec<u8>, u64), BeneathError> {
    let size = file.metadata()?.len();
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok((bytes, size))
}

/// Reads a text up to a limit. The size is not trusted: a file may grow, and a device has none.
fn text_of(file: File, limit: DataLimit) -> Result<String, BeneathError> {
    let mut bytes = Vec::new();
    file.take(limit.value().saturating_add(1)).read_to_end(&mut bytes)?;
    limit.check(bytes.len() as u64)?;
    String::from_utf8(bytes).map_err(|_| BeneathError::NotText)
}

/// Returns a text without the byte order mark at its start. Some editors write it, and show the text without it.
///
/// ```
/// use graphrun_guard::beneath::without_mark;
///
/// assert_eq!(without_mark("\u{feff}a".to_owned()), "a");
/// ```
pub fn without_mark(text: String) -> String {
    text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)
}

impl From<Errno> for BeneathError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::EXDEV => Self::LeadsOut,
            Errno::ENOENT => Self::Missing,
            Errno::ELOOP => Self::Link,
            Errno::ENOTDIR => Self::NotFolder,
            // A socket, or a device without a driver.
            Errno::ENXIO | Errno::ENODEV => Self::NotRegular,
            Errno::ENOSYS => Self::Unsupported,
            other => Self::Io(other.into()),
        }
    }
}

impl From<BeneathError> for io::Error {
    fn from(error: BeneathError) -> Self {
        let kind = match &error {
            BeneathError::Io(_) => match error {
                BeneathError::Io(error) => return error,
                _ => io::ErrorKind::Other,
            },
            BeneathError::Missing => io::ErrorKind::NotFound,
            BeneathError::NotFolder => io::ErrorKind::NotADirectory,
            BeneathError::IsFolder => io::ErrorKind::IsADirectory,
            BeneathError::NotText => io::ErrorKind::InvalidData,
            BeneathError::TooLarge(_) => io::ErrorKind::FileTooLarge,
            BeneathError::LeadsOut | BeneathError::Link => io::ErrorKind::PermissionDenied,
            BeneathError::Unsupported => io::ErrorKind::Unsupported,
            BeneathError::NotRegular => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests;
