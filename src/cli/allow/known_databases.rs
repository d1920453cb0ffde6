//! The databases that graphrun created for this user, and those that the user trusts: a list in the
//! user's state folder.
//!
//! A database may come with a folder of another author, and its runs name the workflow and the
//! output folder that `resume` uses. So a database that the user did not name is opened only if it
//! is in this list. A file is identified by its inode and its creation time. No repository or
//! archive can choose these. A moved folder keeps them; a copy has others.

use std::{
    fs::{self, File, Metadata},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use serde::{Deserialize, Serialize};

use super::state_file::{self, Stored};
use crate::cli::{
    error::CliError,
    exit::Exit,
    output::{terminal::print_message, words::shell_word},
    settings::user_folders::UserFolders,
};

/// With more databases than this, missing ones are removed from the list.
const DATABASES_MAX: usize = 500;
/// With more bytes of paths than this, the oldest databases are removed from the list.
const PATHS_BYTES_MAX: usize = 256 << 10;
/// The endings of the files that SQLite reads with a database.
const LOGS: [&str; 2] = ["-wal", "-journal"];

/// The stored list, the oldest database first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DatabaseFile {
    v: u32,
    databases: Vec<KnownDatabase>,
}

/// A database in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownDatabase {
    file: String,
    /// The path when it was added.
    path: PathBuf,
    /// Whether the user trusts a database that graphrun did not create.
    trusted: bool,
}

/// Why a database needs the user's consent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UntrustedFile {
    /// It is not in the list.
    Database,
    /// SQLite did not create the file with this ending beside it.
    Log(&'static str),
}

/// What a database holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatabaseKind {
    Runs,
    Memory,
}

impl DatabaseKind {
    /// Returns the flag and the variable that name such a database.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Runs => ("--db", "GRAPHRUN_DB"),
            Self::Memory => ("--memory", "GRAPHRUN_MEMORY"),
        }
    }

    /// Returns what its content does, a sentence without its beginning.
    pub(crate) fn danger(self) -> &'static str {
        match self {
            Self::Runs => "its runs name the files that `resume` reads and writes",
            Self::Memory => "its entries become a part of prompts",
        }
    }
}

impl UntrustedFile {
    /// Checks the database at a path. Returns none for a missing file, for a database of this user,
    /// and where no list can be kept.
    ///
    /// # Errors
    ///
    /// Fails when the list cannot be read.
    pub(crate) fn find(path: &Path) -> Result<Option<Self>, CliError> {
        // The code that opens the database reports an inaccessible file.
        let Ok(found) = fs::metadata(path) else { return Ok(None) };
        let file = UserFolders::find().databases_file();
        if !state_file::can_be_kept(file.as_deref()) {
            return Ok(None);
        }
        let list: DatabaseFile = state_file::read(file.as_deref())?;
        if !list.has(&identity_of(&found, path)) {
            return Ok(Some(Self::Database));
        }
        let mode = |it: &Metadata| it.permissions().mode();
        // SQLite gives its files the mode of the database, and a repository cannot make a file
        // unreadable for others.
        let is_strange = |ending: &str| {
            fs::symlink_metadata(beside(path, ending)).is_ok_and(|it| mode(&it) != mode(&found))
        };
        Ok(LOGS.into_iter().find(|it| is_strange(it)).map(Self::Log))
    }

    /// Returns the error with its remedy.
    pub(crate) fn refusal(self, path: &Path, kind: DatabaseKind) -> CliError {
        match self {
            Self::Database => {
                let message = format!(
                    "`{}` is not a database that graphrun made for you; it was not opened",
                    path.display()
                );
                let url = shell_word(&format!("sqlite:{}", path.display())).into_owned();
                let (flag, variable) = kind.names();
                CliError::new(Exit::Unusable, message)
                    .with_help(format!(
                        "if it comes from another author, do not use it: {}",
                        kind.danger()
                    ))
                    .with_help(format!(
                        "if it is yours, such as a copy, run `graphrun trust` once, or name it \
                         with `{flag} {url}` or `{variable}`"
                    ))
            }
            Self::Log(ending) => {
                let log = beside(path, ending);
                let message = format!(
                    "`{}` has other permissions than `{}`, so graphrun did not make it; nothing \
                     was opened",
                    log.display(),
                    path.display()
                );
                CliError::new(Exit::Unusable, message).with_help(
                    "if it came with the folder, remove it; if both files are yours, give them the \
                     same permissions",
                )
            }
        }
    }
}

/// Adds a database that is about to get its name. If it cannot be added, a warning explains what
/// later commands need.
pub(crate) fn remember_new(path: &Path, file: &File, is_named_by_user: bool) {
    if !state_file::can_be_kept(UserFolders::find().databases_file().as_deref()) {
        return;
    }
    let added = file.metadata().map_err(CliError::write).and_then(|it| add(path, &it, false));
    if let (Err(error), false) = (added, is_named_by_user) {
        let flag = shell_word(&format!("sqlite:{}", path.display())).into_owned();
        print_message(&format!(
            "warning: graphrun cannot remember that it made `{}` ({}); later commands need `--db {flag}`, \
             or `GRAPHRUN_DB`",
            path.display(),
            error.message()
        ));
    }
}

/// Trusts the database at a path from now on.
///
/// # Errors
///
/// Fails when the list cannot be written.
pub(crate) fn trust(path: &Path) -> Result<(), CliError> {
    let found = fs::metadata(path).map_err(|error| CliError::read(path, error))?;
    add(path, &found, true)
}

/// Removes the trust in the database at a path. Returns whether the user trusted it.
///
/// # Errors
///
/// Fails when the list cannot be written.
pub(crate) fn revoke(path: &Path) -> Result<bool, CliError> {
    let is_it = |it: &KnownDatabase| it.trusted && it.path == path;
    if !trusted()?.iter().any(|it| it == path) {
        return Ok(false);
    }
    let place = UserFolders::find().databases_file();
    state_file::change(place.as_deref(), |file: &mut DatabaseFile| {
        file.databases.retain(|it| !is_it(it));
    })?;
    Ok(true)
}

/// Returns the databases that the user trusts, by their paths at that time.
///
/// # Errors
///
/// Fails when the list cannot be read.
pub(crate) fn trusted() -> Result<Vec<PathBuf>, CliError> {
    let list: DatabaseFile = state_file::read(UserFolders::find().databases_file().as_deref())?;
    Ok(list.databases.into_iter().filter(|it| it.trusted).map(|it| it.path).collect())
}

fn add(path: &Path, found: &Metadata, trusted: bool) -> Result<(), CliError> {
    let path = absolute(path).map_err(|error| CliError::read(path, error))?;
    let known = KnownDatabase { file: identity_of(found, &path), path, trusted };
    let place = UserFolders::find().databases_file();
    state_file::change(place.as_deref(), |it: &mut DatabaseFile| it.add(known)).map(drop)
}

/// Returns the identity of a file: its inode and its creation time. A file system without creation
/// times reuses inodes, so the identity also contains the path there.
fn identity_of(found: &Metadata, path: &Path) -> String {
    let made = found.created().ok().and_then(|it| it.duration_since(UNIX_EPOCH).ok());
    let made = made.map_or_else(
        || absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string(),
        |it| it.as_nanos().to_string(),
    );
    format!("{}-{made}", found.ino())
}

/// Returns the path with resolved symbolic links in its folder; the file itself may be missing.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(fs::canonicalize(folder)?.join(path.file_name().unwrap_or_default()))
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(ending);
    beside.into()
}

impl Default for DatabaseFile {
    fn default() -> Self {
        Self { v: Self::VERSION, databases: Vec::new() }
    }
}

impl Stored for DatabaseFile {
    const NAME: &'static str = "known databases";
    const VERSION: u32 = 1;
    const REMOVED: &'static str = "graphrun asks for each database once more";

    fn version(&self) -> u32 {
        self.v
    }
}

impl DatabaseFile {
    fn has(&self, file: &str) -> bool {
        self.databases.iter().any(|it| it.file == file)
    }

    fn add(&mut self, known: KnownDatabase) {
        self.databases.retain(|it| it.file != known.file);
        if self.databases.len() >= DATABASES_MAX {
            let is_there = |known: &KnownDatabase| {
                fs::metadata(&known.path)
                    .is_ok_and(|found| identity_of(&found, &known.path) == known.file)
            };
            self.databases.retain(is_there);
        }
        self.databases.push(known);
        let bytes = |it: &KnownDatabase| it.path.as_os_str().len();
        let mut total: usize = self.databases.iter().map(bytes).sum();
        while total > PATHS_BYTES_MAX && self.databases.len() > 1 {
            total -= bytes(&self.databases.remove(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(path: &Path) -> KnownDatabase {
        let file =
            fs::metadata(path).map_or_else(|_| "gone".to_owned(), |it| identity_of(&it, path));
        KnownDatabase { file, path: path.to_owned(), trusted: false }
    }

    #[test]
    fn a_file_keeps_its_identity_and_its_copy_has_another() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a"), "x").unwrap();
        let first = known(&path("a")).file;
        fs::copy(path("a"), path("b")).unwrap();
        assert_ne!(known(&path("b")).file, first);
        fs::write(path("a"), "other content").unwrap();
        assert_eq!(known(&path("a")).file, first);
        fs::rename(path("b"), path("a")).unwrap();
        assert_ne!(known(&path("a")).file, first);
    }

    #[test]
    fn databases_that_are_gone_leave_a_long_list() {
        let folder = tempfile::TempDir::new().unwrap();
        let kept = folder.path().join("kept");
        fs::write(&kept, "x").unwrap();
        let mut list = DatabaseFile::default();
        list.add(known(&kept));
        for number in 0..DATABASES_MAX {
            list.add(KnownDatabase {
                file: number.to_string(),
                path: "/gone".into(),
                trusted: false,
            });
        }
        let last = (DATABASES_MAX - 1).to_string();
        assert!(list.has(&known(&kept).file) && list.has(&last));
        assert_eq!(list.databases.len(), 2);
    }

    #[test]
    fn a_list_of_long_paths_drops_the_oldest() {
        let mut list = DatabaseFile::default();
        for number in 0..100 {
            let path = "x".repeat(4000).into();
            list.add(KnownDatabase { file: number.to_string(), path, trusted: false });
        }
        assert!(!list.has("0") && list.has("99"));
        assert!(list.databases.len() <= PATHS_BYTES_MAX / 4000);
    }
}
