//! Delivers generated files to a folder of the host.
//!
//! The folder may hold an earlier delivery, or anything else that grew there since. Every step is taken relative to an
//! open folder and follows no symbolic link, so nothing that lies in the folder can lead a write out of it. Nothing in it
//! is changed before everything is known to be possible.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2, renameat},
    sys::stat::{Mode, SFlag, fstatat, mkdirat},
    unistd::{UnlinkatFlags, unlinkat},
};
use thiserror::Error;

use super::{
    delivered::{self, Delivered},
    path::{FilesRefused, check_files},
    source_file::SourceFile,
};

/// The largest file that a delivery may have left; a larger one is somebody else's.
const CONTENT_BYTES_MAX: u64 = 64 << 20;
/// How many files in the way are named.
const NAMED_MAX: usize = 10;

/// Which files a delivery may replace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replace {
    /// Those of earlier deliveries that nobody has changed since.
    #[default]
    Delivered,
    /// Any regular file.
    Anything,
}

/// Why files were not delivered.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The files are not acceptable; nothing was written.
    #[error("the files are refused")]
    Refused(#[from] FilesRefused),
    /// The folder itself cannot be made or opened.
    #[error("cannot open the folder `{}`", path.display())]
    Root {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// In the way lies a symbolic link, a folder in the place of a file, or something stranger; it was left alone.
    #[error("`{}` is in the way: it is no regular {expected}", path.display())]
    InTheWay {
        /// What is in the way.
        path: PathBuf,
        /// What should be there: a file or a folder.
        expected: &'static str,
    },
    /// Files of the same names are there, and no earlier delivery left them as they are; nothing was written.
    #[error("{} not of an earlier delivery, or changed since: {}; nothing was written", are(paths.len()), listed(paths))]
    Foreign {
        /// The files.
        paths: Vec<String>,
    },
    /// A file could not be written.
    #[error("cannot write `{}`", path.display())]
    Write {
        /// The file, or a folder on the way to it.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Writes generated files below `root`, which is made if it does not exist, and returns their paths in order.
///
/// A regular file of the same name is replaced as a whole if it has the new content already, an earlier delivery left it
/// as it is, or `replace` says so; to deliver twice is harmless, also when the first time was cut short by the end of the
/// process. What is there and is not named stays. Symbolic links below `root` are neither followed nor replaced; `root`
/// itself is the caller's word. Deliveries to one folder wait for each other.
///
/// # Errors
/// Everything is checked, and every file is written under another name, before the first one gets its own: what is
/// refused, and a disk that is full, deliver nothing.
pub fn write_files(
    root: &Path,
    files: &[SourceFile],
    replace: Replace,
) -> Result<Vec<PathBuf>, WriteError> {
    check_files(files)?;
    let failed = |source| WriteError::Root { path: root.to_owned(), source };
    fs::create_dir_all(root).map_err(failed)?;
    let folder = File::open(root).map_err(failed)?;
    // Where the file system knows no locks, whoever delivers must see to it that nobody else does.
    let _ = folder.lock();
    let folder = OwnedFd::from(folder);
    let mut list = Delivered::parse(&known(&folder).unwrap_or_default());
    let mut places = Vec::new();
    let mut foreign = Vec::new();
    for file in files {
        let place = Place::find(root, &folder, file)?;
        if let Some(content) = place.content()? {
            let is_ours = content == file.content.as_bytes() || list.knows(&file.path, &content);
            if !is_ours && replace == Replace::Delivered {
                foreign.push(file.path.clone());
            }
            list.expect(&file.path, &content);
        }
        list.expect(&file.path, file.content.as_bytes());
        places.push(place);
    }
    if !foreign.is_empty() {
        return Err(WriteError::Foreign { paths: foreign });
    }
    stage(&places, files)?;
    let keep = |list: &Delivered| {
        let path = root.join(delivered::LIST);
        put(&folder, delivered::LIST, &list.to_text()).map_err(|it| write_error(&path, it))
    };
    keep(&list).inspect_err(|_| places.iter().for_each(Place::unstage))?;
    for (place, file) in places.iter().zip(files) {
        place.take_name()?;
        list.settle(&file.path, file.content.as_bytes());
    }
    keep(&list)?;
    Ok(places.into_iter().map(|it| it.path).collect())
}

/// Writes all files under other names, or none.
fn stage(places: &[Place], files: &[SourceFile]) -> Result<(), WriteError> {
    for (place, file) in places.iter().zip(files) {
        let staged = write_temporary(&place.parent, &place.name, file.content.as_bytes());
        if let Err(source) = staged {
            places.iter().for_each(Place::unstage);
            return Err(write_error(&place.path, source));
        }
    }
    Ok(())
}

/// Where a file goes.
struct Place {
    path: PathBuf,
    parent: OwnedFd,
    name: String,
}

impl Place {
    /// Finds it, and makes the folders on the way.
    fn find(root: &Path, folder: &OwnedFd, file: &SourceFile) -> Result<Self, WriteError> {
        let target = root.join(&file.path);
        let (parents, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
        let mut parent =
            folder.as_fd().try_clone_to_owned().map_err(|source| write_error(&target, source))?;
        let mut path = root.to_owned();
        for component in parents.split('/').filter(|component| !component.is_empty()) {
            path.push(component);
            parent = enter(&parent, component, &path)?;
        }
        // Asked first for the sake of the message: a rename would replace a link, and never follow it.
        match fstatat(&parent, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat)
                if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG =>
            {
                return Err(WriteError::InTheWay { path: target, expected: "file" });
            }
            Ok(_) | Err(Errno::ENOENT) => {}
            Err(error) => return Err(write_error(&target, error.into())),
        }
        Ok(Self { path: target, parent, name: name.to_owned() })
    }

    /// What is there already.
    fn content(&self) -> Result<Option<Vec<u8>>, WriteError> {
        read(&self.parent, &self.name, CONTENT_BYTES_MAX).map_err(|it| write_error(&self.path, it))
    }

    /// Gives the file that was written under another name its own.
    fn take_name(&self) -> Result<(), WriteError> {
        let temporary = temporary_name(&self.name);
        renameat(&self.parent, temporary.as_str(), &self.parent, self.name.as_str())
            .map_err(|error| write_error(&self.path, error.into()))
    }

    fn unstage(&self) {
        // It may not exist; the error that led here is the one to report.
        let temporary = temporary_name(&self.name);
        let _ = unlinkat(&self.parent, temporary.as_str(), UnlinkatFlags::NoRemoveDir);
    }
}

/// The list of a folder, if it has one.
fn known(folder: &OwnedFd) -> Option<Vec<u8>> {
    read(folder, delivered::LIST, delivered::BYTES_MAX).ok().flatten()
}

/// The content of a regular file, if it is there.
fn read(parent: &OwnedFd, name: &str, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    // Something other than a file, put there in between, must not keep us waiting.
    match open(parent, name, OFlag::O_RDONLY | OFlag::O_NONBLOCK) {
        Ok(descriptor) => {
            let mut content = Vec::new();
            File::from(descriptor).take(bytes_max).read_to_end(&mut content)?;
            Ok(Some(content))
        }
        Err(Errno::ENOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Opens a folder inside a folder, and makes it if it is not there.
fn enter(parent: &OwnedFd, name: &str, path: &Path) -> Result<OwnedFd, WriteError> {
    match mkdirat(parent, name, Mode::from_bits_truncate(0o755)) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(error) => return Err(write_error(path, error.into())),
    }
    open(parent, name, OFlag::O_DIRECTORY | OFlag::O_RDONLY).map_err(|error| match error {
        Errno::ELOOP | Errno::ENOTDIR => {
            WriteError::InTheWay { path: path.to_owned(), expected: "folder" }
        }
        error => write_error(path, error.into()),
    })
}

/// Puts a file with this content in the place of whatever has the name: a reader sees the old file or the new one.
fn put(parent: &OwnedFd, name: &str, content: &[u8]) -> io::Result<()> {
    write_temporary(parent, name, content)?;
    Ok(renameat(parent, temporary_name(name).as_str(), parent, name)?)
}

/// Writes a file under the name that it has until it is whole.
fn write_temporary(parent: &OwnedFd, name: &str, content: &[u8]) -> io::Result<()> {
    // The name is one that generated files may not have, and always the same: what a killed process left is found, and
    // nobody else is at work on it, since the folder is locked.
    let temporary = temporary_name(name);
    // Mostly there is nothing; if it cannot be removed, making the new one fails and says why.
    let _ = unlinkat(parent, temporary.as_str(), UnlinkatFlags::NoRemoveDir);
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY;
    let mut file = File::from(open(parent, &temporary, flags)?);
    file.write_all(content)?;
    file.sync_all()
}

/// What a file is called until it is whole.
fn temporary_name(name: &str) -> String {
    format!(".graphrun-{name}.tmp")
}

fn open(parent: &OwnedFd, name: &str, flags: OFlag) -> Result<OwnedFd, Errno> {
    let mut how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    if flags.contains(OFlag::O_CREAT) {
        how = how.mode(Mode::from_bits_truncate(0o644));
    }
    openat2(parent, name, how)
}

fn are(many: usize) -> &'static str {
    if many == 1 { "a file is in the way," } else { "files are in the way," }
}

fn listed(paths: &[String]) -> String {
    let named: Vec<String> = paths.iter().take(NAMED_MAX).map(|it| format!("`{it}`")).collect();
    let more = paths.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    named.join(", ") + &more
}

fn write_error(path: &Path, source: io::Error) -> WriteError {
    WriteError::Write { path: path.to_owned(), source }
}

#[cfg(test)]
#[path = "write/tests.rs"]
mod tests;
