//! Packages of npm that tests use, as a folder of the tests pins them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

use crate::support::cache_dir;

static INSTALLING: Mutex<()> = Mutex::new(());

/// Returns the folder in which the packages of a folder of the repository are installed. Its name changes with their
/// versions.
pub(crate) fn installed(source: &str) -> PathBuf {
    let name = Path::new(source).file_name().unwrap().display().to_string();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let lock = fs::read(source.join("package-lock.json")).unwrap();
    let cache = cache_dir();
    let folder = cache.join(format!("{name}-{}", &blake3::hash(&lock).to_hex()[..16]));
    let _one_at_a_time = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    if !folder.exists() {
        install(&source, &cache, &folder);
    }
    folder
}

/// Installs into a folder beside it and renames that, so that it is there whole or not at all.
fn install(source: &Path, cache: &Path, folder: &Path) {
    fs::create_dir_all(cache).unwrap();
    let unfinished = tempfile::tempdir_in(cache).unwrap();
    for file in ["package.json", "package-lock.json"] {
        fs::copy(source.join(file), unfinished.path().join(file)).unwrap();
    }
    let installed = Command::new("npm")
        .args(["ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"])
        .current_dir(unfinished.path())
        .output()
        .unwrap_or_else(|error| panic!("cannot start npm ({error}); see `scripts/setup --tests`"));
    let said = String::from_utf8_lossy(&installed.stderr);
    let source = source.display();
    assert!(installed.status.success(), "npm cannot install what {source} names:\n{said}");
    let renamed = fs::rename(unfinished.keep(), folder);
    assert!(folder.exists(), "{renamed:?}");
}
