//! Creates a database.
//!
//! The database is created under another name in the same folder and gets its final name once it is
//! complete. So no process sees half a database, even if its creator dies. If several processes
//! create one at once, the first to finish wins; the others remove theirs and use that one.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, TryLockError},
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{self, Path, PathBuf},
    thread,
    time::Duration,
};

use graphrun_core::fault::{Point, hit};
use rusqlite::{Connection, OpenFlags};

use super::{fault::Fault, held_file::HeldFile};

/// Part of the name of an incomplete database.
const MARK: &str = ".graphrun-new-";

/// The number of hexadecimal digits after the mark, which distinguish several processes.
const DIGITS: usize = 16;

/// How often the number of names is looked at, for the process that has just created the database.
const NAMES_ATTEMPTS: u32 = 50;

/// The pause between these looks.
const NAMES_PAUSE: Duration = Duration::from_millis(5);

/// A database without its final name. Dropping it removes the file.
struct Draft {
    path: PathBuf,
    /// Locked while its process lives and needs it, which other processes can check.
    file: HeldFile,
}

/// Creates the database with `fill`, unless a file of that name exists by then. `announce` gets the
/// file before the file gets its name.
pub(super) fn create(
    path: &Path,
    fill: impl FnOnce(&mut Connection) -> Result<(), Fault>,
    announce: impl FnOnce(&File),
) -> Result<(), Fault> {
    let folder = folder_of(path);
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    remove_abandoned(path)?;
    let draft = Draft::new(path)?;
    hit(Point::CreateBegun)?;
    // Without the usual flags for opening a database, with which names such as `file:x` have
    // another meaning.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path::absolute(&draft.path)?, flags)?;
    // An incomplete draft is discarded, so it needs no journal.
    connection.pragma_update_and_check(None, "journal_mode", "off", |_| Ok(()))?;
    fill(&mut connection)?;
    connection.close().map_err(|(_, error)| error)?;
    draft.file.sync_all()?;
    announce(&draft.file);
    hit(Point::CreateFilled)?;
    // Unlike a rename, this never replaces a file that another process created meanwhile.
    match fs::hard_link(&draft.path, path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
        Err(error) if has_no_links(&error) && !path.exists() => fs::rename(&draft.path, path)?,
        linked => linked?,
    }
    hit(Point::CreateNamed)?;
    drop(draft);
    // The name, too, must survive a power failure.
    Ok(File::open(folder)?.sync_all()?)
}

impl Draft {
    /// Creates an empty draft that only its owner can read.
    fn new(path: &Path) -> io::Result<Self> {
        loop {
            let name = format!("{MARK}{:0DIGITS$x}", rand::random::<u64>());
            let path = draft_path(path, &name);
            let file = HeldFile::create(&path)?;
            file.lock()?;
            // Another process may have removed it as abandoned before it was locked.
            if file.metadata()?.nlink() > 0 {
                return Ok(Self { path, file });
            }
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // The next process that creates a database here removes a leftover.
        drop(fs::remove_file(&self.path));
    }
}

/// Returns whether the file of a database has another name. For a moment, its draft is one; the draft of a process that
/// died then is removed.
pub(super) fn has_other_names(path: &Path) -> io::Result<bool> {
    for _ in 0..NAMES_ATTEMPTS {
        if fs::metadata(path)?.nlink() <= 1 {
            return Ok(false);
        }
        remove_abandoned(path)?;
        thread::sleep(NAMES_PAUSE);
    }
    Ok(fs::metadata(path)?.nlink() > 1)
}

/// Removes the drafts of processes that died while they created this database.
fn remove_abandoned(path: &Path) -> io::Result<()> {
    let prefix = draft_path(path, MARK);
    let prefix = prefix.file_name().unwrap_or_default().as_encoded_bytes();
    for entry in fs::read_dir(folder_of(path))? {
        let entry = entry?;
        let name = entry.file_name();
        let digits = name.as_encoded_bytes().strip_prefix(prefix);
        let is_draft =
            digits.is_some_and(|it| it.len() == DIGITS && it.iter().all(u8::is_ascii_hexdigit));
        if is_draft {
            remove_if_abandoned(&entry.path())?;
        }
    }
    Ok(())
}

fn remove_if_abandoned(draft: &Path) -> io::Result<()> {
    let file = match HeldFile::open_if_unused(draft) {
        // Its process removed it meanwhile, or it belongs to another user.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            return Ok(());
        }
        opened => opened?,
    };
    // Another thread of this process may be creating the database.
    let Some(file) = file else { return Ok(()) };
    match file.try_lock() {
        Ok(()) => {
            drop(fs::remove_file(draft));
            Ok(())
        }
        Err(TryLockError::WouldBlock) => Ok(()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Returns whether the file system has no hard links.
fn has_no_links(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns a hidden name beside the database.
fn draft_path(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(ending);
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name());
        let mut names: Vec<String> = names.map(|it| it.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn an_abandoned_draft_is_removed_and_one_in_use_stays() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("runs.db");
        let in_use = Draft::new(&path).unwrap();
        let abandoned = draft_path(&path, &format!("{MARK}{:0DIGITS$x}", 7));
        let other = draft_path(&path, &format!("{MARK}notes"));
        for file in [&abandoned, &other] {
            fs::write(file, "half a database").unwrap();
        }
        create(&path, |_| Ok(()), |_| ()).unwrap();
        assert!(in_use.path.exists() && other.exists() && !abandoned.exists());
        assert_eq!(names(folder.path()).len(), 3, "{:?}", names(folder.path()));
    }

    #[test]
    fn a_file_that_appears_meanwhile_is_kept() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("runs.db");
        create(&path, |_| Ok(fs::write(&path, "first")?), |_| ()).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(names(folder.path()), ["runs.db"]);
    }

    #[test]
    fn a_draft_that_cannot_be_filled_leaves_nothing() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("runs.db");
        let error = create(&path, |_| Err(Fault::Failed), |_| ()).unwrap_err();
        assert!(matches!(error, Fault::Failed));
        assert!(names(folder.path()).is_empty(), "{:?}", names(folder.path()));
    }
}
