//! Where runs are kept, as `--db` names it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{error::CliError, exit::Exit, words::shell_word};
use crate::{
    checkpoint::{CheckpointError, Checkpointer},
    results::ResultStore,
    storage::{MemoryResults, MemoryStorage, SqliteStorage},
};

/// Where runs are kept when nobody says so.
const PATH_DEFAULT: &str = ".graphrun/runs.db";

/// A place that keeps runs, as the user named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Database {
    location: Location,
    /// What a later command must say to find it again, if it must.
    flag: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Location {
    Sqlite(PathBuf),
    Memory,
}

impl Default for Database {
    fn default() -> Self {
        Self { location: Location::Sqlite(PATH_DEFAULT.into()), flag: None }
    }
}

impl Database {
    /// Reads a URL; `layer` is the flag or variable it came from.
    ///
    /// # Errors
    ///
    /// Fails when this version does not know such a place.
    pub(super) fn parse(url: &str, layer: &str) -> Result<Self, CliError> {
        let location = match url.split_once(':') {
            Some(("sqlite", path)) if !path.trim_start_matches('/').is_empty() => {
                Location::Sqlite(path.strip_prefix("//").unwrap_or(path).into())
            }
            Some(("memory", "")) => Location::Memory,
            _ => {
                let message = format!("{layer} is `{url}`, which names no place to keep runs");
                return Err(CliError::new(Exit::Usage, message)
                    .with_help("this version knows `sqlite:PATH` and `memory:`"));
            }
        };
        Ok(Self { location, flag: Some(url.to_owned()) })
    }

    /// The same place, named by the environment: later commands find it without a flag.
    pub(super) fn implied(self) -> Self {
        Self { flag: None, ..self }
    }

    /// Opens it, and makes it if it is not there.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be used.
    pub(super) fn create(&self) -> Result<Arc<dyn Checkpointer>, CliError> {
        match &self.location {
            Location::Memory => Ok(Arc::new(MemoryStorage::default())),
            Location::Sqlite(path) => Ok(Arc::new(SqliteStorage::open(path)?)),
        }
    }

    /// Opens it for the results of nodes. It is there already, since a run is.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be used.
    pub(super) fn results(&self) -> Result<Arc<dyn ResultStore>, CliError> {
        match &self.location {
            Location::Memory => Ok(Arc::new(MemoryResults::default())),
            Location::Sqlite(path) => Ok(Arc::new(SqliteStorage::open_existing(path)?)),
        }
    }

    /// Opens it, or gives nothing back if it is not there; a look makes no database.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be used.
    pub(super) fn open(&self) -> Result<Option<Arc<dyn Checkpointer>>, CliError> {
        match &self.location {
            Location::Memory => Ok(None),
            Location::Sqlite(path) if !path.exists() => Ok(None),
            Location::Sqlite(path) => Ok(Some(Arc::new(SqliteStorage::open_existing(path)?))),
        }
    }

    /// Opens it to look for a run.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be used, or is not there.
    pub(super) fn open_for(&self, run: &str) -> Result<Arc<dyn Checkpointer>, CliError> {
        self.open()?.ok_or_else(|| {
            let place = match &self.location {
                Location::Memory => "runs in memory end with their process".to_owned(),
                Location::Sqlite(path) => format!("there is no database `{}`", path.display()),
            };
            CliError::new(Exit::NotResumable, format!("there is no run `{run}`: {place}"))
                .with_help("run this where the run was started, or name its database with `--db`")
        })
    }

    /// The command with which a later process goes on with a run; none if nothing is left of it.
    pub(super) fn command(&self, verb: &str, run: &str) -> Option<String> {
        if self.location == Location::Memory {
            return None;
        }
        let flag = self.flag.as_ref().map(|url| format!(" --db {}", shell_word(url)));
        Some(format!("graphrun {verb} {}{}", shell_word(run), flag.unwrap_or_default()))
    }

    /// The file, if it is one.
    pub(super) fn path(&self) -> Option<&Path> {
        match &self.location {
            Location::Sqlite(path) => Some(path),
            Location::Memory => None,
        }
    }
}

impl From<CheckpointError> for CliError {
    fn from(error: CheckpointError) -> Self {
        let exit = match &error {
            CheckpointError::UnknownRun(_)
            | CheckpointError::Damaged { .. }
            | CheckpointError::Owned { .. }
            | CheckpointError::Overtaken { .. } => Exit::NotResumable,
            CheckpointError::Exists(_) | CheckpointError::UnknownStep { .. } => Exit::Usage,
            CheckpointError::Unusable { .. } | CheckpointError::Storage { .. } => Exit::Unusable,
        };
        let help = match &error {
            CheckpointError::UnknownRun(_) => Some("`graphrun runs list` shows what there is"),
            CheckpointError::Exists(_) => Some("choose another id, or none: graphrun makes one"),
            CheckpointError::Owned { .. } => Some(
                "wait until it comes to rest, or stop that process; `graphrun runs show` tells how far it is",
            ),
            CheckpointError::Overtaken { .. } => Some(
                "another process goes on with this run; `graphrun runs show` tells how far it is",
            ),
            _ => None,
        };
        let message = error.to_string();
        let wrapped = match error {
            CheckpointError::Damaged { source, .. }
            | CheckpointError::Overtaken { source, .. }
            | CheckpointError::Storage { source, .. } => Self::new(exit, message).because(source),
            _ => Self::new(exit, message),
        };
        help.into_iter().fold(wrapped, Self::with_help)
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
            command(&parse("sqlite:a.db").unwrap().implied()).unwrap(),
            "graphrun resume calm-otter"
        );
        assert_eq!(command(&parse("memory:").unwrap()), None);
    }

    #[test]
    fn what_names_no_place_is_wrong_usage_and_says_which_layer_it_came_from() {
        for wrong in ["", "sqlite:", "sqlite://", "runs.db", "memory:x", "postgres://host/db"] {
            let error = Database::parse(wrong, "GRAPHRUN_DB").unwrap_err();
            let text = error.draw(super::super::terminal::Paint::new(false), 80);
            assert!(text.starts_with("error: GRAPHRUN_DB is"), "{text}");
            assert_eq!(error.exit(), Exit::Usage);
        }
        assert_eq!(parse("sqlite:///a/b").unwrap().path(), Some(Path::new("/a/b")));
    }
}
