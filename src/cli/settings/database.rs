//! The database for runs, as `--db` names it.

use std::{
    fmt,
    fs::File,
    io,
    path::{self, Path, PathBuf},
    sync::Arc,
};

use nix::unistd::{AccessFlags, access};

use crate::{
    checkpoint::{CheckpointError, Checkpointer, RunInfo},
    cli::{
        allow::{known_databases::remember_new, permission::Permission},
        error::CliError,
        exit::Exit,
        output::words::shell_word,
        run::origin::Origin,
    },
    memory::{InMemoryStore, SqliteStore, Store, StoreError},
    redact::{self, names_a_secret},
    results::ResultStore,
    storage::{InMemoryStorage, MemoryResults, SqliteStorage},
};
#[cfg(feature = "postgres")]
use crate::{memory::PostgresStore, storage::PostgresStorage};

/// The default path.
pub(crate) const PATH_DEFAULT: &str = ".graphrun/runs.db";

/// The default path of the memory across runs.
pub(crate) const MEMORY_DEFAULT: &str = ".graphrun/memory.db";

/// What to do if there is no database.
const ELSEWHERE: &str =
    "change to the folder where the run was started, or name its database with `--db`";

/// What to do if the id of a new run is in use.
pub(crate) const OTHER_ID: &str = "choose another id, or omit it: graphrun then makes one";

/// A database, as the user named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Database {
    location: DatabaseLocation,
    /// The `--db` flag that a later command needs to find it again, if any.
    flag: Option<Url>,
    /// The `--memory` flag that a later command needs as well, if any.
    memory_flag: Option<Url>,
    /// The permissions that hold for one process only, which a command that continues a run needs as well.
    permissions: Vec<Permission>,
    /// Whether the folder, not the user, chose the path: the file may have come with the folder.
    is_of_folder: bool,
    /// Whether a command only reads it: a user without the right to write it can do that, too.
    is_read_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum DatabaseLocation {
    Sqlite(PathBuf),
    /// The URL of a server, which may contain a password.
    #[cfg(feature = "postgres")]
    Postgres(Url),
    Memory,
}

/// A URL whose secrets are hidden in output.
#[derive(Clone, PartialEq, Eq)]
struct Url(String);

impl Default for Database {
    fn default() -> Self {
        Self {
            location: DatabaseLocation::Sqlite(PATH_DEFAULT.into()),
            flag: None,
            memory_flag: None,
            permissions: Vec::new(),
            is_of_folder: true,
            is_read_only: false,
        }
    }
}

impl Database {
    /// Parses a URL; `layer` is the flag or variable it came from.
    ///
    /// # Errors
    ///
    /// Fails when this version does not support the URL.
    pub(crate) fn parse(url: &str, layer: &str) -> Result<Self, CliError> {
        redact::learn_url(url);
        let location = match url.split_once(':') {
            // In other programs, this means a database in memory.
            Some(("sqlite", ":memory:")) => return Err(no_place(url, layer)),
            Some(("sqlite", path)) if !path.trim_start_matches('/').is_empty() => {
                DatabaseLocation::Sqlite(path.strip_prefix("//").unwrap_or(path).into())
            }
            Some(("memory", "")) => DatabaseLocation::Memory,
            Some(("postgres" | "postgresql", _)) => postgres(url, layer)?,
            _ => return Err(no_place(url, layer)),
        };
        let flag = Some(Url(url.to_owned()));
        Ok(Self { location, flag, is_of_folder: false, ..Self::default() })
    }

    /// Returns the default database in the working directory. A symbolic link of this name may have
    /// come with the folder, so only the user may choose its target.
    ///
    /// # Errors
    ///
    /// Fails when the path is a symbolic link.
    pub(crate) fn of_the_folder() -> Result<Self, CliError> {
        Self::at_default(PATH_DEFAULT, "--db")
    }

    /// Returns the default memory in the working directory.
    ///
    /// # Errors
    ///
    /// Fails when the path is a symbolic link.
    pub(crate) fn memory_of_the_folder() -> Result<Self, CliError> {
        Self::at_default(MEMORY_DEFAULT, "--memory")
    }

    fn at_default(path: &str, flag: &str) -> Result<Self, CliError> {
        let path = Path::new(path);
        match path.ancestors().find(|it| it.is_symlink()) {
            None => {
                Ok(Self { location: DatabaseLocation::Sqlite(path.to_owned()), ..Self::default() })
            }
            Some(link) => {
                let message = format!(
                    "`{}` is a symbolic link, which may lead to the data of others",
                    link.display()
                );
                Err(CliError::new(Exit::Unusable, message)
                    .with_help(format!("name the database with `{flag} sqlite:PATH`")))
            }
        }
    }

    /// Returns the same database, for a command with this `--memory` flag.
    pub(crate) fn with_memory_flag(self, url: Option<&String>) -> Self {
        Self { memory_flag: url.map(|it| Url(it.clone())), ..self }
    }

    /// Opens the memory across runs and creates it if it is missing.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be used.
    pub(crate) fn create_memory(&self) -> Result<Arc<dyn Store>, CliError> {
        match &self.location {
            DatabaseLocation::Memory => Ok(Arc::new(InMemoryStore::default())),
            DatabaseLocation::Sqlite(path) => {
                let remember = |file: &File| remember_new(path, file, !self.is_of_folder);
                Ok(Arc::new(SqliteStore::open_with(path, remember)?))
            }
            #[cfg(feature = "postgres")]
            DatabaseLocation::Postgres(Url(url)) => Ok(Arc::new(PostgresStore::open(url)?)),
        }
    }

    /// Opens the memory across runs; returns none if it is missing, since reading creates none.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be used.
    pub(crate) fn open_memory(&self) -> Result<Option<Arc<dyn Store>>, CliError> {
        match &self.location {
            DatabaseLocation::Memory => Ok(None),
            DatabaseLocation::Sqlite(path) => {
                let store = if self.is_read_only {
                    SqliteStore::find_to_read(path)?
                } else {
                    SqliteStore::find(path)?
                };
                Ok(store.map(|it| Arc::new(it) as _))
            }
            #[cfg(feature = "postgres")]
            DatabaseLocation::Postgres(Url(url)) => {
                Ok(PostgresStore::open_existing(url)?.map(|it| Arc::new(it) as _))
            }
        }
    }

    /// Returns why the memory holds nothing.
    pub(crate) fn memory_absence(&self) -> String {
        match &self.location {
            DatabaseLocation::Memory => "memory in memory ends with its process".to_owned(),
            DatabaseLocation::Sqlite(path) => {
                format!("there is no memory `{}` yet", path.display())
            }
            #[cfg(feature = "postgres")]
            DatabaseLocation::Postgres(url) => format!("{url:?} contains no memory yet"),
        }
    }

    /// Returns the same database, named by the environment or a file: later commands need no flag.
    pub(crate) fn implied(self, is_of_folder: bool) -> Self {
        Self { flag: None, is_of_folder, ..self }
    }

    /// Returns the same database, for a command that only reads it.
    pub(crate) fn read_only(self) -> Self {
        Self { is_read_only: true, ..self }
    }

    /// Returns the path, if the folder chose it and not the user.
    pub(crate) fn file_of_folder(&self) -> Option<&Path> {
        match &self.location {
            DatabaseLocation::Sqlite(path) if self.is_of_folder => Some(path),
            _ => None,
        }
    }

    /// Opens the database and creates it if it is missing.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be used.
    pub(crate) fn create(&self) -> Result<Arc<dyn Checkpointer>, CliError> {
        match &self.location {
            DatabaseLocation::Memory => Ok(Arc::new(InMemoryStorage::default())),
            DatabaseLocation::Sqlite(path) => {
                let remember = |file: &File| remember_new(path, file, !self.is_of_folder);
                Ok(Arc::new(SqliteStorage::open_with(path, remember)?.on_the_same_thread()))
            }
            #[cfg(feature = "postgres")]
            DatabaseLocation::Postgres(Url(url)) => Ok(Arc::new(PostgresStorage::open(url)?)),
        }
    }

    /// Opens the database for the results of nodes. It exists already, since the run is in it.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be used.
    pub(crate) fn results(&self) -> Result<Arc<dyn ResultStore>, CliError> {
        match &self.location {
            DatabaseLocation::Memory => Ok(Arc::new(MemoryResults::default())),
            DatabaseLocation::Sqlite(path) => Ok(Arc::new(SqliteStorage::open_existing(path)?)),
            #[cfg(feature = "postgres")]
            DatabaseLocation::Postgres(Url(url)) => Ok(Arc::new(PostgresStorage::open(url)?)),
        }
    }

    /// Opens the database; returns none if it is missing, since reading creates no database.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be used.
    pub(crate) fn open(&self) -> Result<Option<Arc<dyn Checkpointer>>, CliError> {
        match &self.location {
            DatabaseLocation::Memory => Ok(None),
            DatabaseLocation::Sqlite(path) => {
                let storage = if self.is_read_only {
                    SqliteStorage::find_to_read(path)?
                } else {
                    SqliteStorage::find(path)?
                };
                Ok(storage.map(|it| Arc::new(it.on_the_same_thread()) as _))
            }
            #[cfg(feature = "postgres")]
            DatabaseLocation::Postgres(Url(url)) => {
                Ok(PostgresStorage::open_existing(url)?.map(|it| Arc::new(it) as _))
            }
        }
    }

    /// Opens the database to remove runs, also on a full disk; returns none if it is missing.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be used.
    pub(crate) fn open_to_remove(&self) -> Result<Option<Arc<dyn Checkpointer>>, CliError> {
        match &self.location {
            DatabaseLocation::Sqlite(path) => {
                let storage = SqliteStorage::find_to_remove(path)?;
                Ok(storage.map(|it| Arc::new(it.on_the_same_thread()) as _))
            }
            DatabaseLocation::Memory => self.open(),
            #[cfg(feature = "postgres")]
            DatabaseLocation::Postgres(_) => self.open(),
        }
    }

    /// Returns the error for a database that is missing, if a command needs one.
    pub(crate) fn missing(&self) -> CliError {
        CliError::new(Exit::NotResumable, self.absence()).with_help(ELSEWHERE)
    }

    /// Opens the database to search for a run.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be used or is missing.
    pub(crate) fn open_for(&self, run: &str) -> Result<Arc<dyn Checkpointer>, CliError> {
        self.open()?.ok_or_else(|| self.without(run))
    }

    /// Returns the error for a run whose database is missing.
    pub(crate) fn without(&self, run: &str) -> CliError {
        let place = self.absence();
        CliError::new(Exit::NotResumable, format!("there is no run `{run}`: {place}"))
            .with_help(ELSEWHERE)
    }

    /// Returns a text that no other database has. It contains no password.
    pub(crate) fn key(&self) -> String {
        match &self.location {
            DatabaseLocation::Memory => "memory:".to_owned(),
            DatabaseLocation::Sqlite(path) => {
                let absolute = path::absolute(path).unwrap_or_else(|_| path.clone());
                // The folder may be reached by a link; the database need not exist yet.
                let folder = absolute.parent().and_then(|it| it.canonicalize().ok());
                let found = folder.zip(absolute.file_name()).map(|(it, name)| it.join(name));
                format!("sqlite:{}", found.unwrap_or(absolute).display())
            }
            #[cfg(feature = "postgres")]
            DatabaseLocation::Postgres(Url(url)) => without_secrets(url),
        }
    }

    /// Returns why there are no runs: the user may be in another folder than that of the runs.
    pub(crate) fn absence(&self) -> String {
        match &self.location {
            DatabaseLocation::Memory => "runs in memory end with their process".to_owned(),
            DatabaseLocation::Sqlite(path) => format!("there is no database `{}`", path.display()),
            #[cfg(feature = "postgres")]
            DatabaseLocation::Postgres(url) => format!("{url:?} contains no runs yet"),
        }
    }

    /// Returns the same database, for commands with these permissions.
    #[must_use]
    pub(crate) fn with_permissions(mut self, permissions: Vec<Permission>) -> Self {
        Permission::merge(&mut self.permissions, permissions);
        self
    }

    /// Returns the same database, for commands with the permissions that a run was started with.
    #[must_use]
    pub(crate) fn with_permissions_of(self, run: &RunInfo) -> Self {
        let permissions = Origin::of(run).map(|it| it.permissions).unwrap_or_default();
        self.with_permissions(permissions)
    }

    /// Returns whether its runs end with this process.
    pub(crate) fn ends_with_process(&self) -> bool {
        self.location == DatabaseLocation::Memory
    }

    /// Returns the command for a run in a later process; none for a database in memory. A command that continues the run
    /// gets its permissions.
    pub(crate) fn command(&self, verb: &str, run: &str) -> Option<String> {
        if self.ends_with_process() {
            return None;
        }
        // Printed text ends up in logs, so a password is left out. A variable in its place could name another database.
        let word = |Url(url): &Url| shell_word(&without_secrets(url)).into_owned();
        let flag = self.flag.as_ref().map(|it| format!(" --db {}", word(it)));
        let memory = self.memory_flag.as_ref().map(|it| format!(" --memory {}", word(it)));
        let flags = [flag, memory].into_iter().flatten().collect::<String>();
        let continues = ["resume", "retry", "approve", "reject"].contains(&verb);
        let permissions = self.permissions.iter().filter(|_| continues);
        let permissions: Vec<String> = permissions.map(|it| format!(" {it}")).collect();
        let permissions = permissions.concat();
        Some(format!("graphrun {verb} {}{flags}{permissions}", shell_word(run)))
    }

    /// Describes the existing database in a few words; creates nothing.
    ///
    /// # Errors
    ///
    /// Fails when the database cannot be used.
    pub(crate) fn survey(&self) -> Result<String, CliError> {
        let path = match &self.location {
            DatabaseLocation::Memory => {
                return Ok("in memory: runs end with their process".to_owned());
            }
            #[cfg(feature = "postgres")]
            DatabaseLocation::Postgres(Url(url)) => {
                let found = PostgresStorage::check(url)?;
                let url = PostgresStorage::shown(url).unwrap_or_default();
                return Ok(match found {
                    Some(storage) => format!("{url}, {}", storage.server()),
                    None => format!("{url} (no tables yet)"),
                });
            }
            DatabaseLocation::Sqlite(path) => path,
        };
        let exists = SqliteStorage::find(path)?.is_some();
        let absolute = path::absolute(path).unwrap_or_else(|_| path.clone());
        let nearest = absolute.ancestors().skip(1).find(|it| it.exists()).unwrap_or(Path::new("/"));
        match access(nearest, AccessFlags::W_OK | AccessFlags::X_OK) {
            Ok(()) if exists => Ok(absolute.display().to_string()),
            Ok(()) => Ok(format!("{} (missing yet)", absolute.display())),
            Err(error) => {
                let error = io::Error::from(error);
                let problem = format!("`{}` cannot be written: {error}", nearest.display());
                Err(CliError::new(Exit::Unusable, problem)
                    .with_help("name another database with `--db sqlite:PATH`"))
            }
        }
    }
}

fn no_place(url: &str, layer: &str) -> CliError {
    let url = without_secrets(url);
    let help = if url.contains(':') {
        "graphrun supports `sqlite:PATH`, `postgres://…` and `memory:`".to_owned()
    } else {
        format!("a file is `sqlite:{url}`; there are also `postgres://…` and `memory:`")
    };
    CliError::setting(layer, format!("{layer} is `{url}`, which is not the URL of a database"))
        .with_help(help)
}

#[cfg(feature = "postgres")]
#[expect(clippy::unnecessary_wraps, reason = "a program without PostgreSQL refuses it")]
fn postgres(url: &str, _: &str) -> Result<DatabaseLocation, CliError> {
    Ok(DatabaseLocation::Postgres(Url(url.to_owned())))
}

#[cfg(not(feature = "postgres"))]
fn postgres(_: &str, layer: &str) -> Result<DatabaseLocation, CliError> {
    let message =
        format!("{layer} names a PostgreSQL server, but this program was built without PostgreSQL");
    Err(CliError::setting(layer, message)
        .with_help("build it with `cargo install --path . --features postgres`"))
}

/// Returns a URL without its password, and without its parameters if one of them has the name of a secret.
pub(crate) fn without_secrets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // A mistyped URL of a server has a password, too.
        return match url.rsplit_once('@') {
            Some((_, rest)) if !url.starts_with("sqlite:") => format!("…@{rest}"),
            _ => url.to_owned(),
        };
    };
    let rest = match rest.rsplit_once('@') {
        Some((user, rest)) => match user.split_once(':') {
            Some((user, _)) => format!("{user}:…@{rest}"),
            None => format!("{user}@{rest}"),
        },
        None => rest.to_owned(),
    };
    let rest = match rest.split_once('?') {
        Some((before, query)) if query.split(['&', ';', '#']).any(holds_a_secret) => {
            format!("{before}?…")
        }
        _ => rest,
    };
    format!("{scheme}://{rest}")
}

/// Returns the value of a setting without secrets. The query of an address may have a key under any name.
pub(crate) fn shown_setting(text: &str) -> String {
    let is_address = text.starts_with("http://") || text.starts_with("https://");
    let end = if is_address { text.find(['?', '#']).unwrap_or(text.len()) } else { text.len() };
    without_secrets(&text[..end])
}

/// Returns whether a parameter of a URL has the name of a secret.
fn holds_a_secret(parameter: &str) -> bool {
    names_a_secret(parameter.split_once('=').map_or(parameter, |it| it.0))
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_secrets(&self.0))
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        let message = error.to_string();
        match error {
            StoreError::Unknown(_) => Self::usage(message)
                .with_help("`graphrun memory list` lists the entries with their ids"),
            StoreError::Failed { source, .. } => Self::new(Exit::Unusable, message).because(source),
            StoreError::Unusable { .. } => Self::new(Exit::Unusable, message),
            _ => Self::usage(message),
        }
    }
}

/// Returns what to do about an error; nothing if its text says so.
fn help_of(error: &CheckpointError) -> String {
    let help = match error {
        CheckpointError::UnknownRun(_) => "`graphrun runs list` lists all runs",
        CheckpointError::AmbiguousRun { .. } => "write more of the id",
        CheckpointError::UnknownStep { .. } => "`graphrun runs history` lists its steps",
        CheckpointError::Exists(_) => OTHER_ID,
        CheckpointError::Owned { run, lease } => {
            let pid = lease.owner.pid;
            let host = &lease.owner.host;
            return format!(
                "wait until the run stops, or stop that process (`kill {pid}` on {host}); `graphrun runs show {run}` prints \
                 its progress"
            );
        }
        CheckpointError::Full { .. } => {
            "free some space on the disk of the database, and try again"
        }
        CheckpointError::Overtaken { .. } => {
            "`graphrun runs show` tells whether another process continues this run; otherwise `graphrun resume` does"
        }
        CheckpointError::Damaged { .. }
        | CheckpointError::Ended { .. }
        | CheckpointError::Unusable { .. }
        | CheckpointError::Storage { .. } => "",
    };
    help.to_owned()
}

impl From<CheckpointError> for CliError {
    fn from(error: CheckpointError) -> Self {
        let exit = match &error {
            CheckpointError::UnknownRun(_)
            | CheckpointError::Damaged { .. }
            | CheckpointError::Ended { .. }
            | CheckpointError::Owned { .. }
            | CheckpointError::Overtaken { .. } => Exit::NotResumable,
            CheckpointError::Exists(_)
            | CheckpointError::AmbiguousRun { .. }
            | CheckpointError::UnknownStep { .. } => Exit::Usage,
            CheckpointError::Unusable { .. }
            | CheckpointError::Full { .. }
            | CheckpointError::Storage { .. } => Exit::Unusable,
        };
        let help = help_of(&error);
        let is_elsewhere =
            matches!(error, CheckpointError::Owned { .. } | CheckpointError::Overtaken { .. });
        let message = error.to_string();
        let wrapped = match error {
            CheckpointError::Damaged { source, .. }
            | CheckpointError::Overtaken { source, .. }
            | CheckpointError::Full { source, .. }
            | CheckpointError::Storage { source, .. } => Self::new(exit, message).because(source),
            _ => Self::new(exit, message),
        };
        let wrapped = if is_elsewhere { wrapped.owned_elsewhere() } else { wrapped };
        if help.is_empty() { wrapped } else { wrapped.with_help(help) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Database, CliError> {
        Database::parse(url, "--db")
    }

    #[test]
    fn a_later_command_finds_the_same_database() {
        let command = |database: &Database| database.command("resume", "calm-otter");
        assert_eq!(command(&Database::default()).unwrap(), "graphrun resume calm-otter");
        assert_eq!(
            command(&parse("sqlite:my runs.db").unwrap()).unwrap(),
            "graphrun resume calm-otter --db 'sqlite:my runs.db'"
        );
        assert_eq!(
            command(&parse("sqlite:a.db").unwrap().implied(false)).unwrap(),
            "graphrun resume calm-otter"
        );
        assert_eq!(command(&parse("memory:").unwrap()), None);
    }

    #[test]
    fn an_invalid_url_is_an_error_that_names_its_layer() {
        for wrong in [
            "",
            "sqlite:",
            "sqlite://",
            "sqlite::memory:",
            "runs.db",
            "memory:x",
            "mysql://host/db",
        ] {
            let error = Database::parse(wrong, "GRAPHRUN_DB").unwrap_err();
            let text = error.draw(crate::cli::output::terminal::Paint::new(false), 80);
            assert!(text.starts_with("error: GRAPHRUN_DB is"), "{text}");
            assert_eq!(error.exit(), Exit::Unusable);
            assert_eq!(parse(wrong).unwrap_err().exit(), Exit::Usage);
        }
        assert_eq!(
            parse("sqlite:///a/b").unwrap().location,
            DatabaseLocation::Sqlite(PathBuf::from("/a/b"))
        );
    }

    #[test]
    fn an_address_of_models_is_shown_without_its_query() {
        for (text, shown) in [
            ("https://me:pw@lab/v1?key=secret", "https://me:…@lab/v1"),
            ("http://lab?code=secret#sig=secret", "http://lab"),
            ("postgres://me@db/app?a=b", "postgres://me@db/app?a=b"),
            ("openai/gpt-5?", "openai/gpt-5?"),
        ] {
            assert_eq!(shown_setting(text), shown);
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        for (url, shown) in [
            ("postgress://me:secret@db/app", "postgress://me:…@db/app"),
            ("mysql://me:se@cret@db", "mysql://me:…@db"),
            ("http://db/app?user=me&password=secret", "http://db/app?…"),
            ("http://db/app?user=me&PassWord=secret", "http://db/app?…"),
            ("http://db/app?a=b&api_key=secret", "http://db/app?…"),
            ("http://db/app?auth_token=secret", "http://db/app?…"),
            ("http://db/app?sslpassword=secret", "http://db/app?…"),
            ("http://me@db/app?a=b", "http://me@db/app?a=b"),
            ("postgres//me:secret@db/app", "…@db/app"),
        ] {
            assert_eq!(without_secrets(url), shown);
            let error = parse(url).unwrap_err();
            let text = error.draw(crate::cli::output::terminal::Paint::new(false), 80);
            assert!(text.contains(shown), "{text}");
        }
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_later_command_does_not_repeat_a_password() {
        let command = |url: &str| parse(url).unwrap().command("resume", "calm-otter").unwrap();
        assert_eq!(
            command("postgres://me:secret@db/app"),
            "graphrun resume calm-otter --db 'postgres://me:…@db/app'"
        );
        assert_eq!(
            command("postgresql://db/app?user=me&password=secret"),
            "graphrun resume calm-otter --db 'postgresql://db/app?…'"
        );
        assert_eq!(
            command("postgres://me@db/app"),
            "graphrun resume calm-otter --db postgres://me@db/app"
        );
        let shown = format!("{:?}", parse("postgres://me:secret@db/app").unwrap().location);
        assert_eq!(shown, "Postgres(postgres://me:…@db/app)");
    }
}
