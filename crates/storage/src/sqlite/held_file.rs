//! The descriptors of database files that this process opens besides those of SQLite.
//!
//! The locks of SQLite belong to the process, not to a descriptor: when the process closes any descriptor of a file, the kernel
//! drops all its POSIX locks on that file. Another process could then remove the log of a database that is open here. So this
//! process has at most one such descriptor of each file, and closes it only after the last connection to the file.

use std::{
    collections::BTreeMap,
    fs::{self, File, Metadata, OpenOptions},
    io, mem,
    ops::Deref,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The files that are held.
static FILES: Mutex<Files> = Mutex::new(BTreeMap::new());

type Files = BTreeMap<FileId, Arc<File>>;

/// The identity of a file while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FileId {
    device: u64,
    inode: u64,
}

/// A file that stays open while this value exists. A second one of the same file shares its descriptor.
#[derive(Debug)]
pub(super) struct HeldFile {
    // Dropped before the use, so that the last use closes the file.
    file: Arc<File>,
    _use: Use,
}

/// A use of a held file.
#[derive(Debug)]
struct Use(FileId);

impl HeldFile {
    /// Opens a file to read it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut files = files();
        let id = FileId::of(&fs::metadata(path)?);
        match files.get(&id) {
            Some(file) => Ok(Self { file: Arc::clone(file), _use: Use(id) }),
            None => Self::hold(&mut files, File::open(path)?),
        }
    }

    /// Opens a file to lock it; returns none if this process has it open already.
    pub(super) fn open_if_unused(path: &Path) -> io::Result<Option<Self>> {
        let mut files = files();
        if files.contains_key(&FileId::of(&fs::metadata(path)?)) {
            return Ok(None);
        }
        Self::hold(&mut files, to_share().open(path)?).map(Some)
    }

    /// Creates a file that only its owner can read.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        // Locked first: another thread must not open the file before it is held.
        let mut files = files();
        let file = to_share().create_new(true).mode(0o600).open(path)?;
        Self::hold(&mut files, file)
    }

    fn hold(files: &mut Files, file: File) -> io::Result<Self> {
        let id = FileId::of(&file.metadata()?);
        if let Some(held) = files.get(&id) {
            // The file got this path a moment ago. To close the second descriptor would drop the locks.
            mem::forget(file);
            return Ok(Self { file: Arc::clone(held), _use: Use(id) });
        }
        let file = Arc::new(file);
        files.insert(id, Arc::clone(&file));
        Ok(Self { file, _use: Use(id) })
    }
}

impl Deref for HeldFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        // Closed while no other thread can open the file and connect to it.
        let mut files = files();
        if files.get(&self.0).is_some_and(|it| Arc::strong_count(it) == 1) {
            files.remove(&self.0);
        }
    }
}

impl FileId {
    fn of(found: &Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino() }
    }
}

/// The descriptor is shared by those that read the file and those that write to it.
fn to_share() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options
}

fn files() -> MutexGuard<'static, Files> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}
