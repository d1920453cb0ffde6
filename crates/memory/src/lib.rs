//! Knowledge that lasts across runs: stores in memory, in a SQLite database, and in a PostgreSQL
//! database.
//!
//! Start with [`Store`] and [`Entry`]. All stores keep the same promises; `tests/stores.rs` checks
//! them. The journal of a run contains the entries that the run has read, so a store need not keep old ones.

// Only tests may print or unwrap.
#![warn(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]

mod entry;
mod in_memory;
#[cfg(feature = "postgres")]
mod postgres;
mod rules;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;
mod vector;

#[cfg(feature = "postgres")]
pub use self::postgres::PostgresStore;
#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteStore;
pub use self::{
    entry::{Approval, Batch, Entry, EntryId, NewEntry, Source},
    in_memory::InMemoryStore,
    store::{
        CANDIDATES_MAX, ENTRIES_MAX, Filter, Listing, Memory, Search, Store, StoreError,
        TEXT_BYTES_MAX, VALUE_BYTES_MAX, VECTORS_MAX,
    },
    vector::{Embedding, Vector},
};
