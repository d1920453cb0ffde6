//! What every storage promises, and what the database does beyond that.
//!
//! `contract` holds the promises of the trait, each kept by all storages, `entries` those about what
//! is saved at a time, `journal` and `histories` those about what is read again, and `leases` those
//! about who may write; `files` is about what a database file may be, `damage` about files that were
//! changed by somebody else, and `proof` about what shows that nobody did. `lost` is about connections
//! to PostgreSQL, and `servers` about which of its servers and databases are refused.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod contract;
mod damage;
mod entries;
mod files;
mod growth;
mod histories;
mod journal;
mod leases;
#[cfg(feature = "postgres")]
mod lost;
mod migration;
mod proof;
#[cfg(feature = "postgres")]
mod proxy;
mod sample;
#[cfg(feature = "postgres")]
#[path = "../support/postgres.rs"]
mod server;
#[cfg(feature = "postgres")]
mod servers;
mod values;
