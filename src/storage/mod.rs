//! Storage for runs, and for results that later runs reuse: in memory, in a SQLite database, and in
//! a PostgreSQL database.
//!
//! All keep the same promises; `tests/storage` checks them. The cost of a step depends on its
//! changes: only changes are stored, never the state itself.

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
