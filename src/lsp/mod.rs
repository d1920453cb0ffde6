//! The language server of the format: findings on each keystroke, hover texts, definitions,
//! completion and symbols.
//!
//! Start with `server`, which turns messages into calls. `workspace` keeps what is open and checks
//! it as `graphrun validate` does. What a cursor stands on is said by the outline of the file, which
//! never fails, and by the JSON Schema of the format (`grammar`), so a key that is added to the
//! format is known here. Types are those of the last state that could be read.

mod complete;
mod define;
mod expressions;
mod grammar;
mod hover;
mod nodes;
mod positions;
mod protocol;
mod server;
mod symbols;
mod uri;
mod workspace;

use std::io;

use lsp_server::Connection;

use self::server::Server;
use crate::workflow::Registry;

/// Serves one client on stdin and stdout until it says `exit` or goes away.
///
/// Workflows may name what the registry has.
///
/// Gives back whether it said `shutdown` before.
///
/// # Errors
///
/// Fails when a message cannot be read or written.
pub fn serve(registry: Registry) -> io::Result<bool> {
    let (connection, threads) = Connection::stdio();
    let is_orderly = Server::serve(&connection, registry);
    // The writer ends once nobody can send any more.
    drop(connection);
    threads.join()?;
    Ok(is_orderly)
}
