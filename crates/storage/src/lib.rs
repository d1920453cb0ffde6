//! Storage for runs, and for results that later runs reuse: in memory, in a SQLite database, and in
//! a PostgreSQL database.
//!
//! All keep the same promises; `tests/storage` checks them. The cost of a step depends on its
//! changes: only changes are stored, never the state itself.
//! ```
//! # #[cfg(feature = "sqlite")]
//! # fn open() -> Result<(), Box<dyn std::error::Error>> {
//! use graphrun_storage::SqliteStorage;
//!
//! let folder = tempfile::tempdir()?;
//! let storage = SqliteStorage::open(&folder.path().join("runs.db"))?;
//! # drop(storage);
//! # Ok(())
//! # }
//! ```

// Only tests may print or unwrap.
#![warn(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]

#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod group;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod head;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod journal;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod lease;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod migrations;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod open_steps;
#[cfg(feature = "postgres")]
mod postgres;
mod proof;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod result_row;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "postgres")]
pub use self::postgres::PostgresStorage;
pub use self::proof::{Proof, prove};
#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteStorage;

/// Files of SQLite that other crates keep with the same care.
#[cfg(feature = "sqlite")]
pub mod sqlite_file {
    pub use super::sqlite::{FileConnection, FileKind, explain};
}
/// Connections, transactions and tables of PostgreSQL, which other crates use with the same care.
#[cfg(feature = "postgres")]
pub mod postgres_server {
    pub use super::postgres::{Fault, Missing, Mode, Server, Session, Tables, Traits, Work, get};
    pub use tokio_postgres::{Row, types::ToSql};
}
pub use graphrun_engine::storage::{InMemoryStorage, MemoryResults};
