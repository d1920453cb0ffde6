//! Python packages for generated code: environments that are built once, outside the sandbox, from programs and
//! packages that the operator trusts. No run can change them.
//!
//! Generated code never takes part: packages come as wheels, whose installation runs no code.

use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::{
    cache_entry::{CacheEntry, key_of},
    install::{INSIDE, build},
    interpreter::{Interpreter, is_readable_inside},
    job::Mount,
    packages::InstalledPackages,
    python_error::PythonError,
};

/// The version of the build procedure; a part of the key of an environment. Raise it when the procedure changes.
const FORMAT: &str = "graphrun-python-2";

/// A Python with packages, for use in the sandbox.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use graphrun_sandbox::{Job, PythonEnvironment, Sandbox};
///
/// let environment = PythonEnvironment::prepare(&["pytest".to_owned()], "/var/cache/graphrun".as_ref()).await?;
/// let job = Job {
///     argv: vec![environment.python().to_owned(), "-c".to_owned(), "import pytest".to_owned()],
///     read_only: environment.mounts().to_vec(),
///     ..Job::default()
/// };
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct PythonEnvironment {
    folder: PathBuf,
    /// The folders with packages.
    packages: Vec<PathBuf>,
    mounts: Vec<Mount>,
}

/// Returns the default folder for environments: the user's cache, or root's, which `nobody` can read. `None` if a user
/// has neither.
///
/// Takes the values of `HOME` and `XDG_CACHE_HOME`, because a library does not read the environment.
pub fn default_cache_dir(home: Option<&Path>, xdg_cache_home: Option<&Path>) -> Option<PathBuf> {
    if geteuid().is_root() {
        return Some("/var/cache/graphrun".into());
    }
    // The specification says that relative values are ignored.
    let cache = xdg_cache_home.filter(|path| path.is_absolute()).map(Path::to_owned);
    Some(cache.or_else(|| Some(home?.join(".cache")))?.join("graphrun"))
}

impl PythonEnvironment {
    /// Finds the environment with these packages in the cache, or builds it. Processes that want the same one at the
    /// same time build it once.
    ///
    /// Requirements are pip's, such as `pytest==8.3.4`; the operator chooses them, never the generated code. A cached
    /// environment is used as it is: a requirement without a version means the newest one of the day it was built.
    ///
    /// # Errors
    /// Fails with the missing part; [`PythonError::hint`] says what to do.
    ///
    /// # Cancel safety
    /// The next build removes the rest of a dropped one.
    pub async fn prepare(requirements: &[String], cache: &Path) -> Result<Self, PythonError> {
        let (interpreter, entry) = place_of(requirements, cache).await?;
        let folder = entry
            .ensure(async |unfinished: &Path| {
                build(&interpreter, requirements, unfinished).await?;
                Ok::<_, PythonError>(unfinished.to_owned())
            })
            .await?;
        Ok(Self::at(folder, &interpreter))
    }

    /// Finds the environment with these packages in the cache, if it was built before.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub async fn find(requirements: &[String], cache: &Path) -> Result<Option<Self>, PythonError> {
        let (interpreter, entry) = place_of(requirements, cache).await?;
        Ok(entry.find().map(|folder| Self::at(folder, &interpreter)))
    }

    fn at(folder: PathBuf, interpreter: &Interpreter) -> Self {
        let mut mounts = vec![Mount { host: folder.clone(), inside: INSIDE.into() }];
        mounts.extend(interpreter.mount());
        Self { packages: vec![folder.join(interpreter.site_packages())], folder, mounts }
    }

    /// Adds the packages of a lock file. Those of the environment come first.
    #[must_use]
    pub fn with_packages(mut self, packages: &InstalledPackages) -> Self {
        self.packages.push(packages.folder().to_owned());
        self.mounts.extend(packages.mounts());
        self
    }

    /// Returns the interpreter, as a program of a [`Job`](super::Job).
    pub fn python(&self) -> &'static str {
        "/env/bin/python3"
    }

    /// Returns the mounts that a job with the interpreter needs.
    pub fn mounts(&self) -> &[Mount] {
        &self.mounts
    }

    /// Returns the folder of the environment on the host.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns whether a package or module of this name is installed.
    pub fn has_module(&self, name: &str) -> bool {
        let path = |folder: &PathBuf| folder.join(name);
        self.packages.iter().map(path).any(|it| it.is_dir() || it.with_extension("py").is_file())
    }
}

/// Returns the interpreter and the place of an environment.
async fn place_of(
    requirements: &[String],
    cache: &Path,
) -> Result<(Interpreter, CacheEntry), PythonError> {
    let is_bad = |it: &&String| it.trim().is_empty() || it.trim_start().starts_with('-');
    if let Some(bad) = requirements.iter().find(is_bad) {
        return Err(PythonError::Requirement(bad.clone()));
    }
    let interpreter = Interpreter::find().await?;
    let cache = CacheEntry::cache(cache)?;
    if !is_readable_inside(&cache) {
        return Err(PythonError::Cache { cache });
    }
    let entry = CacheEntry::new(&cache, key(&interpreter, requirements));
    Ok((interpreter, entry))
}

/// Returns the key of an environment: everything in which two environments differ.
fn key(interpreter: &Interpreter, requirements: &[String]) -> String {
    let packages = requirements.iter().map(String::as_bytes);
    key_of([FORMAT.as_bytes()].into_iter().chain(interpreter.identity()).chain(packages))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt as _,
    };

    use super::*;

    #[tokio::test]
    async fn options_are_not_requirements() {
        for bad in ["--index-url=http://evil", "-e.", " -r x", ""] {
            let result =
                PythonEnvironment::prepare(&[bad.to_owned()], Path::new("/nonexistent")).await;
            assert!(matches!(result, Err(PythonError::Requirement(_))), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn different_lists_have_different_keys() {
        let interpreter = Interpreter::find().await.unwrap();
        let of = |list: &[&str]| {
            key(&interpreter, &list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
        };
        assert_ne!(of(&["a", "b"]), of(&["ab"]));
        assert_ne!(of(&["a", "b"]), of(&["b", "a"]));
        assert_eq!(of(&["a"]), of(&["a"]));
    }

    #[test]
    fn the_cache_is_where_the_sandbox_can_read_it() {
        let home = Some(Path::new("/home/u"));
        let cache = Some(Path::new("/cache"));
        if geteuid().is_root() {
            assert_eq!(default_cache_dir(home, cache), Some("/var/cache/graphrun".into()));
        } else {
            assert_eq!(default_cache_dir(home, cache), Some("/cache/graphrun".into()));
            assert_eq!(
                default_cache_dir(home, Some(Path::new("relative"))),
                Some("/home/u/.cache/graphrun".into())
            );
            assert_eq!(default_cache_dir(None, None), None);
        }
    }

    #[tokio::test]
    async fn concurrent_builds_make_one_environment_and_no_leftovers() {
        let cache = tempfile::tempdir().unwrap();
        fs::set_permissions(cache.path(), Permissions::from_mode(0o755)).unwrap();
        let (one, two) = tokio::join!(
            PythonEnvironment::prepare(&[], cache.path()),
            PythonEnvironment::prepare(&[], cache.path())
        );
        let one = one.unwrap();
        let two = two.unwrap();
        assert_eq!(one.folder(), two.folder());
        let mut names: Vec<_> =
            fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        let key = one.folder().file_name().unwrap();
        assert_eq!(names, [key.to_owned(), format!("{}.lock", key.to_str().unwrap()).into()]);
    }

    #[tokio::test]
    async fn a_failed_build_leaves_no_environment() {
        let cache = tempfile::tempdir().unwrap();
        fs::set_permissions(cache.path(), Permissions::from_mode(0o755)).unwrap();
        // pip itself refuses it, before it uses any index.
        let requirement = "not a requirement".to_owned();
        let error = PythonEnvironment::prepare(&[requirement], cache.path()).await.unwrap_err();
        let is_explained = matches!(&error, PythonError::Install { detail } if detail.contains("not a requirement"));
        assert!(is_explained, "{error}");
        assert!(error.hint().is_some());
        let finished = fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(finished.filter(|name| !name.to_string_lossy().contains('.')).count(), 0);
    }

    #[tokio::test]
    async fn a_cache_without_access_for_others_is_refused_to_root() {
        let cache = tempfile::tempdir().unwrap();
        fs::set_permissions(cache.path(), Permissions::from_mode(0o700)).unwrap();
        let result = PythonEnvironment::prepare(&[], cache.path()).await;
        assert_eq!(
            matches!(result, Err(PythonError::Cache { .. })),
            geteuid().is_root(),
            "{result:?}"
        );
    }
}
