//! What every storage promises, and what the database does beyond that.
//!
//! `contract` holds the promises of the trait, each kept by both storages; `files` is about what a
//! database file may be, `damage` about files that were changed by somebody else.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod contract;
mod damage;
mod files;
mod sample;
