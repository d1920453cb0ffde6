//! Places that keep runs, and results for later runs: in memory, and in a SQLite database.
//!
//! Both keep the same promises, and `tests/storage` holds them to these. What a step costs
//! follows from what it changed: the state itself is never stored, only its changes.

#[cfg(feature = "sqlite")]
mod journal;
mod memory;
mod results;
mod rules;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteStorage;
pub use self::{memory::MemoryStorage, results::MemoryResults};
