//! What every storage promises, and what the database does beyond that.
//!
//! `contract` holds the promises of the trait, each kept by both storages; `files` is about what a
//! database file may be, `damage` about files that were changed by somebody else.

mod contract;
mod damage;
mod files;
mod sample;
