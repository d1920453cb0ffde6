//! Entries of the cache: folders that are built once, and that no run changes.
//!
//! A build works in a folder beside its entry, which is renamed when it is complete. So an entry is there whole or not at
//! all, also after a kill or a power failure. Processes that need the same entry at the same time build it once.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use nix::unistd::syncfs;

use super::remove::remove_folder;

/// The folder in the cache with the packages of lock files.
pub(super) const PACKAGES: &str = "packages";
/// The length of a key.
const KEY_CHARACTERS: usize = 32;

/// The cache could not do a part of a build.
#[derive(Debug)]
pub(super) struct CacheFault {
    pub(super) attempt: &'static str,
    pub(super) source: io::Error,
}

/// A place for an entry.
#[derive(Debug)]
pub(super) struct CacheEntry {
    /// The folder with all entries.
    cache: PathBuf,
    key: String,
}

impl CacheEntry {
    /// Finds the cache, and makes it if there is none.
    pub(super) fn cache(folder: &Path) -> Result<PathBuf, CacheFault> {
        fs::create_dir_all(folder).map_err(fault("make the cache"))?;
        folder.canonicalize().map_err(fault("find the cache"))
    }

    /// Returns the entry with a key, in a folder that [`cache`](Self::cache) has found.
    pub(super) fn new(cache: &Path, key: String) -> Self {
        Self { cache: cache.to_owned(), key }
    }

    /// Returns the folder of the entry.
    pub(super) fn folder(&self) -> PathBuf {
        self.cache.join(&self.key)
    }

    /// Returns the folder of the entry if it is there, and notes that it is used.
    pub(super) fn find(&self) -> Option<PathBuf> {
        let folder = self.folder();
        if !folder.is_dir() {
            return None;
        }
        // A cache of another user cannot be written, and is not pruned by this one.
        let lock = OpenOptions::new().write(true).open(self.lock_file());
        let _ = lock.and_then(|it| it.set_modified(SystemTime::now()));
        Some(folder)
    }

    /// Returns the path of its lock, whose time is that of its last use.
    fn lock_file(&self) -> PathBuf {
        self.cache.join(format!("{}.lock", self.key))
    }

    /// Removes the entry unless it was used after a time. Returns its room if it was removed.
    fn prune(&self, unused_since: SystemTime) -> io::Result<Option<u64>> {
        // Each build makes the lock, so a folder without one is no entry.
        let file = OpenOptions::new().write(true).open(self.lock_file())?;
        let is_used = file.metadata()?.modified()? > unused_since;
        // The process that builds an entry holds its lock.
        if is_used || file.try_lock().is_err() {
            return Ok(None);
        }
        let folder = self.folder();
        // From now on it is not found.
        let removed = self.cache.join(format!("{}.tmp-{}", self.key, std::process::id()));
        fs::rename(&folder, &removed)?;
        let bytes = bytes_of(&removed);
        remove_folder(&removed)?;
        Ok(Some(bytes))
    }

    /// Builds the entry, unless it is there. `build` gets the path of a folder that is not there yet, and returns the
    /// folder at or below it that becomes the entry.
    pub(super) async fn ensure<E: From<CacheFault>>(
        &self,
        build: impl AsyncFnOnce(&Path) -> Result<PathBuf, E>,
    ) -> Result<PathBuf, E> {
        if let Some(folder) = self.find() {
            return Ok(folder);
        }
        let folder = self.folder();
        let _lock = lock(self.lock_file()).await?;
        // Another process may have built it while this one waited.
        if folder.exists() {
            return Ok(folder);
        }
        self.remove_leftovers()?;
        let unfinished = self.cache.join(format!("{}.tmp-{}", self.key, std::process::id()));
        match build(&unfinished).await {
            Ok(complete) => {
                put_in_place(&complete, &folder).map_err(fault("put the entry into the cache"))?;
                // What a build leaves beside its entry is not needed.
                let _ = remove_folder(&unfinished);
                Ok(folder)
            }
            Err(error) => {
                let _ = remove_folder(&unfinished);
                Err(error)
            }
        }
    }

    /// Removes the rests of unfinished builds. The lock is held, so no build is running.
    fn remove_leftovers(&self) -> Result<(), CacheFault> {
        let prefix = format!("{}.tmp-", self.key);
        let remove = || {
            for entry in fs::read_dir(&self.cache)? {
                let entry = entry?;
                if entry.file_name().to_string_lossy().starts_with(&prefix) {
                    remove_folder(&entry.path())?;
                }
            }
            Ok(())
        };
        remove().map_err(fault("remove an unfinished entry of the cache"))
    }
}

/// An entry that was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrunedEntry {
    /// Its folder.
    pub folder: PathBuf,
    /// The room that it took on the disk.
    pub bytes: u64,
}

/// Removes the packages and the Python environments of a [cache](crate::default_cache_dir) that no run has used for this
/// time. A program that still works with one of them loses it, so the time is longer than any program works.
///
/// # Errors
///
/// Fails when an entry cannot be removed. Those before it are removed.
pub fn prune_cache(cache: &Path, unused_for: Duration) -> io::Result<Vec<PrunedEntry>> {
    let unused_since = SystemTime::now().checked_sub(unused_for).unwrap_or(UNIX_EPOCH);
    let mut pruned = Vec::new();
    for place in [cache.to_owned(), cache.join(PACKAGES)] {
        for entry in fs::read_dir(&place).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let key = name.to_str().filter(|it| is_key(it));
            let Some(key) = key.filter(|_| entry.file_type().is_ok_and(|it| it.is_dir())) else {
                continue;
            };
            match CacheEntry::new(&place, key.to_owned()).prune(unused_since) {
                Ok(Some(bytes)) => pruned.push(PrunedEntry { folder: entry.path(), bytes }),
                Ok(None) => {}
                // It has no lock, or another process has just removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(pruned)
}

/// Returns whether a name is one that [`key_of`] makes.
fn is_key(name: &str) -> bool {
    name.len() == KEY_CHARACTERS && name.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns the room that a folder takes on the disk.
fn bytes_of(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = |entry: fs::DirEntry| {
        let Ok(data) = entry.metadata() else { return 0 };
        let below = if data.is_dir() { bytes_of(&entry.path()) } else { 0 };
        data.blocks() * 512 + below
    };
    entries.map(bytes).sum()
}

/// Returns the key of an entry: a hash of everything in which two entries differ.
pub(super) fn key_of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        // The length is included, so that no two lists give the same bytes.
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    hasher.finalize().to_hex()[..KEY_CHARACTERS].to_owned()
}

/// Makes a folder readable for all users: a strict umask would exclude `nobody`, the user of root's sandboxes.
pub(super) fn make_readable(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            make_readable(&entry.path())?;
        } else if kind.is_file() {
            let is_program = entry.metadata()?.permissions().mode() & 0o100 != 0;
            fs::set_permissions(
                entry.path(),
                Permissions::from_mode(if is_program { 0o755 } else { 0o644 }),
            )?;
        }
    }
    Ok(())
}

/// Renames a complete folder. All of its files are on the disk before, so a power failure leaves no entry with empty files.
fn put_in_place(complete: &Path, folder: &Path) -> io::Result<()> {
    syncfs(File::open(complete)?)?;
    fs::rename(complete, folder)
}

/// Waits for the lock of an entry. Dropping the file releases it, also when the process dies.
async fn lock(path: PathBuf) -> Result<File, CacheFault> {
    let wait = move || {
        let file = File::create(path)?;
        file.lock()?;
        Ok(file)
    };
    let locked = tokio::task::spawn_blocking(wait).await;
    locked.map_err(io::Error::other).flatten().map_err(fault("lock an entry of the cache"))
}

/// Wraps an error with the attempted action; for `map_err`.
pub(super) fn fault(attempt: &'static str) -> impl FnOnce(io::Error) -> CacheFault {
    move |source| CacheFault { attempt, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unfinished_build_is_never_an_entry() {
        let cache = tempfile::tempdir().unwrap();
        let entry = CacheEntry::new(cache.path(), "key".to_owned());
        // A killed process leaves its folder, and cannot remove it.
        fs::create_dir_all(cache.path().join("key.tmp-1/tree")).unwrap();
        fs::create_dir_all(cache.path().join("other.tmp-1")).unwrap();
        let failed = entry.ensure(async |unfinished: &Path| {
            fs::create_dir(unfinished).unwrap();
            Err(CacheFault { attempt: "fail", source: io::ErrorKind::Other.into() })
        });
        assert_eq!(failed.await.unwrap_err().attempt, "fail");
        let names = || {
            let names = fs::read_dir(cache.path()).unwrap().map(|it| it.unwrap().file_name());
            let mut names: Vec<_> = names.map(|it| it.into_string().unwrap()).collect();
            names.sort();
            names
        };
        assert_eq!(names(), ["key.lock", "other.tmp-1"]);
        let build = async |unfinished: &Path| {
            fs::create_dir_all(unfinished.join("tree/inner")).unwrap();
            Ok::<_, CacheFault>(unfinished.join("tree"))
        };
        let folder = entry.ensure(build).await.unwrap();
        assert!(folder.join("inner").is_dir());
        assert_eq!(names(), ["key", "key.lock", "other.tmp-1"]);
        let again = entry.ensure(async |_: &Path| unreachable!("it is there")).await;
        assert_eq!(again.map_err(|it: CacheFault| it.attempt), Ok(folder));
    }

    #[tokio::test]
    async fn only_entries_that_nothing_has_used_are_pruned() {
        const DAY: Duration = Duration::from_secs(86_400);
        let cache = tempfile::tempdir().unwrap();
        let packages = cache.path().join(PACKAGES);
        fs::create_dir(&packages).unwrap();
        let build = async |unfinished: &Path| {
            fs::create_dir(unfinished).unwrap();
            fs::write(unfinished.join("a"), [7; 9000]).unwrap();
            Ok::<_, CacheFault>(unfinished.to_owned())
        };
        let key = |name: &str| key_of([name.as_bytes()]);
        let mut entries = Vec::new();
        for (place, name) in [(cache.path(), "old"), (&packages, "older"), (&packages, "used")] {
            let entry = CacheEntry::new(place, key(name));
            entry.ensure(build).await.unwrap();
            let lock = OpenOptions::new().write(true).open(entry.lock_file()).unwrap();
            lock.set_modified(SystemTime::now() - 3 * DAY).unwrap();
            entries.push(entry);
        }
        // What no run could use is left alone.
        fs::create_dir(cache.path().join("homes")).unwrap();
        let locked = CacheEntry::new(&packages, key("locked"));
        locked.ensure(build).await.unwrap();
        let lock = OpenOptions::new().write(true).open(locked.lock_file()).unwrap();
        lock.set_modified(SystemTime::now() - 3 * DAY).unwrap();
        lock.lock().unwrap();

        assert!(entries[2].find().is_some());
        assert_eq!(prune_cache(cache.path(), 4 * DAY).unwrap(), []);
        let pruned = prune_cache(cache.path(), 2 * DAY).unwrap();
        let folders: Vec<PathBuf> = pruned.iter().map(|it| it.folder.clone()).collect();
        assert_eq!(folders, [entries[0].folder(), entries[1].folder()]);
        assert!(pruned.iter().all(|it| it.bytes >= 9000), "{pruned:?}");
        let there = entries.iter().chain([&locked]).map(|it| it.folder().exists());
        assert_eq!(there.collect::<Vec<_>>(), [false, false, true, true]);
        assert!(cache.path().join("homes").exists());
        // The next run makes it again.
        assert_eq!(entries[0].ensure(build).await.unwrap(), entries[0].folder());
    }

    #[tokio::test]
    async fn builds_of_one_entry_wait_for_each_other() {
        let cache = tempfile::tempdir().unwrap();
        let counted = std::sync::atomic::AtomicU32::new(0);
        let build = async || {
            let entry = CacheEntry::new(cache.path(), "key".to_owned());
            let build = async |unfinished: &Path| {
                counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                tokio::task::yield_now().await;
                fs::create_dir(unfinished).unwrap();
                Ok::<_, CacheFault>(unfinished.to_owned())
            };
            entry.ensure(build).await.unwrap()
        };
        let (one, other) = tokio::join!(build(), build());
        assert_eq!((one, counted.into_inner()), (other, 1));
    }
}
