//! The tools of MCP servers, which describe their tools and answer calls: programs, over their standard streams, and
//! addresses, over HTTP.
//!
//! [`Servers`] starts the servers of a workflow when a tool is called, and checks that their tools are those of the lock
//! file. [`look`] lists what a server has, for the lock file and for people. The protocol itself is that of the crate
//! `rmcp`; it stands in `connection.rs`, with the limits of a server that hangs, floods or dies. `program.rs` starts
//! programs, and `web.rs` connects to addresses.

// Only tests may print or unwrap.
#![warn(clippy::print_stderr, clippy::print_stdout, clippy::unwrap_used)]

mod access;
mod connection;
mod content;
mod error;
mod lines;
mod look;
mod program;
mod servers;
mod web;

pub use self::{
    access::ServerAccess,
    error::McpError,
    look::{Offer, PromptLine, ResourceLine, look},
    servers::{Servers, end_sessions},
};
