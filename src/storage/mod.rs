//! Places that keep runs: in memory, and in a SQLite database.
//!
//! Both keep the same promises, and `tests/storage` holds them to these. What a step costs
//! follows from what it changed: the state itself is never stored, only its changes.

#[cfg(feature = "sqlite")]
mod journal;
mod memory;
mod rules;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use self::memory::MemoryStorage;
#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteStorage;
