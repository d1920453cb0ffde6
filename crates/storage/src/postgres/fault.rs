//! Why a transaction failed, whether to retry it, and the error for the caller.

use std::{error::Error as _, io};

use deadpool_postgres::{HookError, PoolError};
use graphrun_engine::{checkpoint::CheckpointError, storage::rules::Refusal};
use thiserror::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use super::place::DatabaseAddress;

/// Why a transaction failed.
#[derive(Debug, Error)]
pub enum Fault {
    /// The server rejected a statement, or the connection is lost.
    #[error(transparent)]
    Postgres(#[from] tokio_postgres::Error),
    /// No answer arrived within the time limit.
    #[error("the server did not answer in time")]
    Silent,
    /// Other work used all connections for too long.
    #[error("all connections of this process were in use for too long")]
    Busy,
    /// The runtime of the storage is gone: the storage was dropped.
    #[error("the storage is closed")]
    Closed,
    /// An entry does not fit the journal of its run.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A value cannot be written as JSON.
    #[error(transparent)]
    Unwritable(serde_json::Error),
    /// The error for the caller.
    #[error(transparent)]
    Known(#[from] CheckpointError),
    /// Why the database cannot be used, and what to do.
    #[error("{0}")]
    Unusable(String),
}

/// The message of the server, in one line; the client's own text for it is "db error".
#[derive(Debug, Error)]
#[error("{place}: {words}")]
struct ServerMessage {
    place: String,
    words: String,
    source: tokio_postgres::Error,
}

/// A transaction was sent and no response came.
#[derive(Debug, Error)]
#[error("the connection to {place} was lost while it was saved, so it may be saved or not")]
struct UnknownOutcome {
    place: String,
    source: Fault,
}

impl Fault {
    /// Returns whether a retry may succeed: the transaction had a conflict, or the connection was
    /// lost.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Silent | Self::Busy => true,
            Self::Postgres(error) => error.code().map_or_else(|| is_lost(error), is_passing_code),
            Self::Closed
            | Self::Refused(_)
            | Self::Unwritable(_)
            | Self::Known(_)
            | Self::Unusable(_) => false,
        }
    }

    /// Returns whether a statement with this result may be saved: the server has not reported its failure.
    pub(super) fn leaves_doubt(&self) -> bool {
        match self {
            Self::Silent => true,
            // A server that ends the connection may have committed before.
            Self::Postgres(error) => {
                let severity = error.as_db_error().map(DbError::parsed_severity);
                severity != Some(Some(Severity::Error))
            }
            Self::Busy
            | Self::Closed
            | Self::Refused(_)
            | Self::Unwritable(_)
            | Self::Known(_)
            | Self::Unusable(_) => false,
        }
    }

    /// Returns the error for the caller that tried `action`.
    pub(super) fn explain(self, place: &DatabaseAddress, action: String) -> CheckpointError {
        match self {
            Self::Known(error) => error,
            Self::Refused(refusal) => refusal.explain(action),
            Self::Unwritable(source) => CheckpointError::Storage { action, source: source.into() },
            Self::Unusable(reason) => unusable(place, reason),
            Self::Postgres(source) => {
                if let Some(reason) = reason(place, &source) {
                    return unusable(place, reason);
                }
                let is_full = source.code() == Some(&SqlState::DISK_FULL);
                let place = place.to_string();
                let words = words(&source);
                let source = ServerMessage { place, words, source }.into();
                if is_full {
                    CheckpointError::Full { action, source }
                } else {
                    CheckpointError::Storage { action, source }
                }
            }
            Self::Silent | Self::Busy | Self::Closed => {
                CheckpointError::Storage { action, source: self.into() }
            }
        }
    }

    /// Returns the error for the caller if it is unknown whether `action` was done.
    pub(super) fn explain_doubt(self, place: &DatabaseAddress, action: String) -> CheckpointError {
        let source = UnknownOutcome { place: place.to_string(), source: self }.into();
        CheckpointError::Storage { action, source }
    }
}

impl From<PoolError> for Fault {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
                Self::Postgres(error)
            }
            PoolError::Timeout(deadpool_postgres::TimeoutType::Wait) => Self::Busy,
            PoolError::Timeout(_) => Self::Silent,
            PoolError::Closed
            | PoolError::NoRuntimeSpecified
            | PoolError::PostCreateHook(HookError::Message(_)) => Self::Closed,
        }
    }
}

/// Returns the fault for an error; a missing privilege is explained by `problem`.
pub(super) fn forbidden(error: tokio_postgres::Error, problem: &str) -> Fault {
    if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        Fault::Unusable(problem.to_owned())
    } else {
        error.into()
    }
}

/// Returns whether a code is that of a transient error: <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
fn is_passing_code(code: &SqlState) -> bool {
    code.code().starts_with("08")
        || [
            &SqlState::T_R_SERIALIZATION_FAILURE,
            &SqlState::T_R_DEADLOCK_DETECTED,
            &SqlState::LOCK_NOT_AVAILABLE,
            &SqlState::ADMIN_SHUTDOWN,
            &SqlState::CRASH_SHUTDOWN,
            &SqlState::CANNOT_CONNECT_NOW,
            &SqlState::TOO_MANY_CONNECTIONS,
            &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        ]
        .contains(&code)
}

/// Returns whether the connection is missing or lost.
fn is_lost(error: &tokio_postgres::Error) -> bool {
    let by_system = error.source().and_then(|it| it.downcast_ref::<io::Error>());
    match Kind::of(error) {
        Kind::Connect | Kind::Late => true,
        Kind::Other => by_system.is_some() || error.is_closed(),
        // A certificate or a message that is wrong is invalid data; all else ends the connection.
        Kind::Encryption => by_system.is_some_and(|it| it.kind() != io::ErrorKind::InvalidData),
        Kind::Url | Kind::Proof => false,
    }
}

/// Returns why the whole database cannot be used, if the error says so, and what to do.
fn reason(place: &DatabaseAddress, error: &tokio_postgres::Error) -> Option<String> {
    let user = place.user();
    let database = place.database();
    let Some(refused) = error.as_db_error() else { return unanswered(error) };
    let said = refused.message();
    let code = refused.code();
    let reason = if *code == SqlState::INVALID_PASSWORD {
        format!("the server refuses the password of user `{user}`; correct the one in the URL")
    } else if *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION {
        format!(
            "the server refuses user `{user}` ({said}); correct the user in the URL, or let the \
             server accept it"
        )
    } else if *code == SqlState::INVALID_CATALOG_NAME {
        format!(
            "there is no database `{database}`; correct the URL, or make one with `createdb {database}`"
        )
    } else if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
        read_only()
    } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        format!(
            "user `{user}` may not do this ({said}); ask the owner of the database for the right"
        )
    } else if *code == SqlState::TOO_MANY_CONNECTIONS {
        format!(
            "the server accepts no more connections ({said}); raise its `max_connections`, or let \
             fewer processes run"
        )
    } else if [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_COLUMN, SqlState::INVALID_SCHEMA_NAME]
        .contains(code)
    {
        format!(
            "its tables are not those of this program ({said}); name another schema with `?schema=NAME`"
        )
    } else {
        return None;
    };
    Some(reason)
}

/// Returns why a server did not get as far as opening the database.
fn unanswered(error: &tokio_postgres::Error) -> Option<String> {
    let cause = error.source().map(ToString::to_string);
    let because = cause.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
    let reason = match (Kind::of(error), cause.as_deref()) {
        (Kind::Connect, _) => {
            format!("no server answers there{because}; start it, or correct the address")
        }
        (Kind::Late, _) => "no server answers there in time; correct the address".to_owned(),
        (Kind::Encryption, _) if is_lost(error) => {
            format!(
                "the server closed the connection{because}; try again when it accepts connections"
            )
        }
        (Kind::Encryption, Some(cause)) if cause.contains("does not support TLS") => {
            "the server accepts no encrypted connections; turn its `ssl` on, or disable \
             encryption with `sslmode=disable`"
                .to_owned()
        }
        (Kind::Encryption, _) => format!(
            "the identity of the server cannot be verified{because}; name its authority \
             with `sslrootcert=FILE`, or its host as in its certificate"
        ),
        (Kind::Url, Some("password missing")) => {
            "the server asks for a password, and the URL has none; write \
             `postgres://USER:PASSWORD@…`"
                .to_owned()
        }
        (Kind::Url, _) => format!("its URL cannot be used{because}; correct it"),
        (Kind::Proof, _) => format!(
            "the server and this program support no common authentication method{because}; let \
             the server use `scram-sha-256`"
        ),
        (Kind::Other, _) => return None,
    };
    Some(reason)
}

/// Returns why nothing can be saved in a read-only database.
pub(super) fn read_only() -> String {
    "it can only be read; give the address of the primary server, or turn \
     `default_transaction_read_only` off"
        .to_owned()
}

/// Returns the error for a database that must not be used. The reason contains the remedy.
pub(super) fn unusable(place: &DatabaseAddress, reason: String) -> CheckpointError {
    CheckpointError::Unusable { path: place.to_string(), reason }
}

/// What the client was doing when the connection failed, before the server opened the database.
enum Kind {
    Connect,
    Late,
    Encryption,
    Url,
    Proof,
    Other,
}

impl Kind {
    /// The client distinguishes these only by text.
    fn of(error: &tokio_postgres::Error) -> Self {
        match error.to_string().as_str() {
            "error connecting to server" => Self::Connect,
            "timeout waiting for server" => Self::Late,
            "error performing TLS handshake" => Self::Encryption,
            "invalid configuration" => Self::Url,
            "authentication error" => Self::Proof,
            _ => Self::Other,
        }
    }
}

fn words(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(refused) => {
            let detail = refused.detail().map(|it| format!(" ({it})")).unwrap_or_default();
            format!("{}{detail}", refused.message())
        }
        None if error.is_closed() => "the server closed the connection".to_owned(),
        None => error.to_string(),
    }
}
