//! Why a transaction failed, and the error for the caller.

use std::{io, path::Path};

use graphrun_core::fault::InjectedFault;
use graphrun_engine::{checkpoint::CheckpointError, storage::rules::Refusal};
use rusqlite::{ErrorCode, ffi};
use thiserror::Error;

use super::no_access::{not_writable, unusable};

/// Why a transaction failed.
#[derive(Debug, Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    File(#[from] io::Error),
    #[error("{0}")]
    Damaged(String),
    /// Why the database cannot be used, and what to do.
    #[error("{0}")]
    Unusable(String),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Unwritable(serde_json::Error),
    #[error(transparent)]
    Known(#[from] CheckpointError),
    #[error(transparent)]
    InjectedFault(#[from] InjectedFault),
    #[error("an earlier write to the database failed, so this process no longer writes to it")]
    Failed,
}

/// Other processes have locked the database for too long.
#[derive(Debug, Error)]
#[error("another process has locked {path}; try again later, or end that process")]
struct DatabaseLocked {
    path: String,
    source: rusqlite::Error,
}

impl Fault {
    /// Returns whether another process has locked the database.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Sqlite(error) if is_busy(error))
    }

    /// Returns whether the disk is full.
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::Sqlite(error) if is_full(error))
    }

    /// Returns the error for the caller that tried `action` on the database at `path`.
    pub(super) fn explain(self, path: &Path, action: String) -> CheckpointError {
        match self {
            Self::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::ReadOnly) => {
                not_writable(path)
            }
            Self::Known(error) => error,
            Self::InjectedFault(source) => {
                CheckpointError::Storage { action, source: source.into() }
            }
            Self::Refused(refusal) => refusal.explain(action),
            Self::File(source) => CheckpointError::Storage { action, source: source.into() },
            Self::Unwritable(source) => CheckpointError::Storage { action, source: source.into() },
            Self::Damaged(how) => damaged(path, &how),
            Self::Unusable(reason) => unusable(path, &reason),
            Self::Sqlite(error) if is_damage(&error) => damaged(path, &error.to_string()),
            Self::Sqlite(source) if is_busy(&source) => {
                let source = DatabaseLocked { path: path.display().to_string(), source }.into();
                CheckpointError::Storage { action, source }
            }
            Self::Sqlite(source) if is_full(&source) => {
                CheckpointError::Full { action, source: source.into() }
            }
            Self::Sqlite(source) => CheckpointError::Storage { action, source: source.into() },
            Self::Failed => CheckpointError::Storage { action, source: self.into() },
        }
    }
}

/// Returns whether the error means that another process has locked the database.
fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

/// Returns whether the error means a full disk.
fn is_full(error: &rusqlite::Error) -> bool {
    // The second case: the index of the log could not be extended.
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
        || error.sqlite_extended_error_code() == Some(ffi::SQLITE_IOERR_SHMSIZE)
}

/// Returns whether the error means a failed write or flush: the content of the file is unknown
/// until it is opened again.
pub(super) fn is_failed_write(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) && !is_full(error)
}

/// Returns whether the error means that we cannot have written this file content.
fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::Error;
    match error {
        Error::SqliteFailure(failure, _) => {
            matches!(failure.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
        }
        Error::FromSqlConversionFailure(..)
        | Error::IntegralValueOutOfRange(..)
        | Error::InvalidColumnType(..)
        | Error::Utf8Error(..) => true,
        _ => false,
    }
}

fn damaged(path: &Path, how: &str) -> CheckpointError {
    unusable(
        path,
        &format!(
            "the file is damaged ({how}); restore a backup, or move it away to \
             start with a new one"
        ),
    )
}
