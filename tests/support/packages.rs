//! Programs of npm and of `PyPI` that tests use. Each is installed once, into the cache of the tests.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

use crate::support::cache_dir;

static INSTALLING: Mutex<()> = Mutex::new(());

/// Returns the folder with the packages of npm that a folder of the repository pins. Its name changes with their
/// versions.
pub(crate) fn npm(source: &str) -> PathBuf {
    let name = Path::new(source).file_name().unwrap().display().to_string();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let lock = fs::read(source.join("package-lock.json")).unwrap();
    let folder = format!("{name}-{}", &blake3::hash(&lock).to_hex()[..16]);
    install_once(&folder, |unfinished| {
        for file in ["package.json", "package-lock.json"] {
            fs::copy(source.join(file), unfinished.join(file)).unwrap();
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"]);
        npm.current_dir(unfinished);
        npm
    })
}

/// Returns the folder with one package of `PyPI`, such as `rotel==1.0`, without those that it requires.
pub(crate) fn pypi(requirement: &str) -> PathBuf {
    install_once(requirement, |unfinished| {
        let mut pip = Command::new("python3");
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
            "--target",
        ]);
        pip.arg(unfinished).arg(requirement);
        pip
    })
}

/// Installs into a folder beside it and renames that, so that it is there whole or not at all.
fn install_once(folder: &str, installer: impl FnOnce(&Path) -> Command) -> PathBuf {
    let cache = cache_dir();
    let folder = cache.join(folder);
    let _one_at_a_time = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    if folder.exists() {
        return folder;
    }
    fs::create_dir_all(&cache).unwrap();
    let unfinished = tempfile::tempdir_in(&cache).unwrap();
    let mut installer = installer(unfinished.path());
    let ended = installer.output().unwrap_or_else(|error| {
        panic!("cannot start {installer:?} ({error}); see `scripts/setup --tests`")
    });
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{installer:?} failed:\n{said}");
    let renamed = fs::rename(unfinished.keep(), &folder);
    assert!(folder.exists(), "{renamed:?}");
    folder
}
