//! Places that keep runs, and results for later runs: in memory, in a SQLite database, and in a
//! PostgreSQL database.
//!
//! All keep the same promises, and `tests/storage` holds them to these. What a step costs
//! follows from what it changed: the state itself is never stored, only its changes.

#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod journal;
mod memory;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod open_steps;
#[cfg(feature = "postgres")]
mod postgres;
mod proof;
mod results;
mod rules;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "postgres")]
pub use self::postgres::PostgresStorage;
#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteStorage;
pub use self::{
    memory::MemoryStorage,
    proof::{Proof, prove},
    results::MemoryResults,
};
