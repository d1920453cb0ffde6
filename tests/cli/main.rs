//! The features of the command line beyond the library: messages, streams, exit codes, signals.

mod asked;
mod cache;
mod canaries;
mod cases;
mod changed;
mod cloned_database;
mod config;
mod core_files;
mod cycle;
mod damaged;
mod descriptors;
mod events;
mod failure;
mod fmt;
mod folders;
#[path = "../support/git.rs"]
mod git;
mod graph;
mod greeting;
mod hidden;
mod history;
mod init;
mod interrupted;
#[cfg(feature = "failpoints")]
mod killed;
mod lifecycle;
mod list_models;
mod migrate;
mod people;
mod plan;
#[cfg(feature = "postgres")]
mod postgres;
mod program;
mod provider;
mod prune;
mod refused;
mod remedies;
mod rendered;
mod resources;
mod result;
mod retry;
#[cfg(feature = "postgres")]
#[path = "../support/postgres.rs"]
mod server;
mod signals;
mod terminal;
mod threads;
mod tools;
mod trust;
mod used;
mod validate;
mod values;
mod waits;
