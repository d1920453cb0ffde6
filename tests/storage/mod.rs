//! The promises of every storage, and the additional behaviour of databases.
//!
//! `contract` contains the promises of the trait, which all storages keep; `entries` those about
//! appending, `journal` and `histories` those about reading, and `leases` those about ownership.
//! `groups` tests entries of several runs that are saved together. `files` tests which database
//! files are accepted, `damage` files that other programs changed, and `proof` the proof that a run
//! is unchanged. `lost` tests lost connections to PostgreSQL, and `servers` which of its servers and
//! databases are refused.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod contract;
mod damage;
mod entries;
mod files;
mod groups;
mod growth;
mod histories;
mod journal;
mod leases;
mod lost;
mod migration;
mod proof;
mod proxy;
mod sample;
mod servers;
mod values;
