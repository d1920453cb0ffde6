//! Entries of the cache: folders that are built once, and that no run changes.
//!
//! A build works in a folder beside its entry, which is renamed when it is complete. So an entry is there whole or not at
//! all, also after a kill or a power failure. Processes that need the same entry at the same time build it once.

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use nix::unistd::syncfs;

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

    /// Builds the entry, unless it is there. `build` gets the path of a folder that is not there yet, and returns the
    /// folder at or below it that becomes the entry.
    pub(super) async fn ensure<E: From<CacheFault>>(
        &self,
        build: impl AsyncFnOnce(&Path) -> Result<PathBuf, E>,
    ) -> Result<PathBuf, E> {
        let folder = self.folder();
        if folder.exists() {
            return Ok(folder);
        }
        let _lock = lock(self.cache.join(format!("{}.lock", self.key))).await?;
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
                let _ = fs::remove_dir_all(&unfinished);
                Ok(folder)
            }
            Err(error) => {
                let _ = fs::remove_dir_all(&unfinished);
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
                    fs::remove_dir_all(entry.path())?;
                }
            }
            Ok(())
        };
        remove().map_err(fault("remove an unfinished entry of the cache"))
    }
}

/// Returns the key of an entry: a hash of everything in which two entries differ.
pub(super) fn key_of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        // The length is included, so that no two lists give the same bytes.
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    hasher.finalize().to_hex()[..32].to_owned()
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
