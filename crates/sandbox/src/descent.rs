//! The way through a folder that an untrusted program has filled.
//!
//! A program can nest folders more deeply than a path can name, and than this process can have open files. So each step is
//! one name from an open folder, and follows no link. Only the last folders of the way down stay open. On the way up, the
//! others are opened again as the folder around an open one, and have to be those of the way down.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, ReadDir},
    io, mem,
    os::{
        fd::{AsFd, AsRawFd as _},
        unix::fs::MetadataExt as _,
    },
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, openat},
    sys::stat::Mode,
};

/// The folders around the current one that stay open.
const OPEN_MAX: usize = 32;

/// Something that is done with each folder.
pub(crate) trait Visitor {
    /// Why a visit ends early.
    type Stop: From<io::Error>;

    /// Opens a folder that an earlier call of [`enter`](Self::enter) has named; `None` if it is not visited.
    fn open(&mut self, around: &File, name: &OsStr) -> Result<Option<File>, Self::Stop>;

    /// Visits a folder. Returns the names of the folders in it that are visited next.
    fn enter(&mut self, folder: &File) -> Result<Vec<OsString>, Self::Stop>;

    /// Leaves a folder, in which everything has been visited.
    fn leave(&mut self, around: &File, name: &OsStr) -> Result<(), Self::Stop>;
}

/// The current folder.
struct Place {
    folder: File,
    /// Its name in the folder around it.
    name: OsString,
    /// The folders in it that are not visited yet.
    inner: Vec<OsString>,
}

/// A folder around the current one.
struct Around {
    /// The folder, if it is still open.
    folder: Option<File>,
    identity: (u64, u64),
    name: OsString,
    inner: Vec<OsString>,
}

/// Visits these folders in a folder, and everything below them.
pub(crate) fn visit<V: Visitor>(
    folder: File,
    inner: Vec<OsString>,
    visitor: &mut V,
) -> Result<(), V::Stop> {
    let mut around: Vec<Around> = Vec::new();
    let mut place = Place { folder, name: OsString::new(), inner };
    loop {
        if let Some(name) = place.inner.pop() {
            let Some(folder) = visitor.open(&place.folder, &name)? else { continue };
            let inner = visitor.enter(&folder)?;
            let inside = Place { folder, name, inner };
            around.push(mem::replace(&mut place, inside).step_in()?);
            if let Some(far) = around.len().checked_sub(OPEN_MAX + 1) {
                around[far].folder = None;
            }
        } else if let Some(last) = around.pop() {
            let outside = last.step_out(&place.folder)?;
            let left = mem::replace(&mut place, outside);
            visitor.leave(&place.folder, &left.name)?;
        } else {
            return Ok(());
        }
    }
}

impl Place {
    fn step_in(self) -> io::Result<Around> {
        let Self { folder, name, inner } = self;
        Ok(Around { identity: identity_of(&folder)?, folder: Some(folder), name, inner })
    }
}

impl Around {
    /// Returns the folder around an open one.
    ///
    /// # Errors
    ///
    /// Fails if it has to be opened again, and another folder is there by now.
    fn step_out(self, inside: &File) -> io::Result<Place> {
        let Self { folder, identity, name, inner } = self;
        let folder = match folder {
            Some(folder) => folder,
            None => open_folder(inside, OsStr::new(".."))?,
        };
        if identity_of(&folder)? != identity {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "a folder was moved meanwhile",
            ));
        }
        Ok(Place { folder, name, inner })
    }
}

fn identity_of(folder: &File) -> io::Result<(u64, u64)> {
    let data = folder.metadata()?;
    Ok((data.dev(), data.ino()))
}

/// Opens the folder of this name. A link is refused.
pub(crate) fn open_folder(around: impl AsFd, name: &OsStr) -> Result<File, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(around, name, flags, Mode::empty()).map(File::from)
}

/// Lists an open folder, wherever it is by now.
pub(crate) fn list(folder: &File) -> io::Result<ReadDir> {
    fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()))
}

/// Returns whether an entry that was listed is gone, or something else than a folder has its name by now.
pub(crate) fn is_replaced(error: Errno) -> bool {
    matches!(error, Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{path::Path, process::Command};

    use nix::sys::resource::{Resource, getrlimit};

    use super::*;

    /// Nests folders with long names, so that the innermost has no path that the system accepts.
    pub(crate) fn nest(folder: &Path, depth: usize) {
        let name = "n".repeat(200);
        let mut folder = File::open(folder).unwrap();
        for _ in 0..depth {
            fs::create_dir(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd())).unwrap();
            folder = open_folder(&folder, OsStr::new(&name)).unwrap();
        }
        fs::write(format!("/proc/self/fd/{}/file", folder.as_raw_fd()), vec![7; 50_000]).unwrap();
    }

    /// Runs a test again, in a process that can have only a few open files. Returns whether this is that process.
    pub(crate) fn has_few_open_files(test: &str) -> bool {
        const FEW: u64 = 64;
        if getrlimit(Resource::RLIMIT_NOFILE).unwrap().0 <= FEW {
            return true;
        }
        let mut again = Command::new("bash");
        again.args(["-c", &format!(r#"ulimit -n {FEW}; exec "$@""#), "few"]);
        again.arg(std::env::current_exe().unwrap()).args([test, "--exact"]);
        let done = again.output().unwrap();
        let output = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && output.contains("1 passed"), "{output}");
        false
    }
}
