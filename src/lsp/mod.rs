//! The language server of the workflow format: diagnostics on each keystroke, hover texts,
//! definitions, references, renames, completion, symbols, quick fixes and formatting.
//!
//! Start with `server`, which turns messages into calls. `workspace` holds the open documents and
//! checks them like `graphrun validate`. Two sources describe the name under a cursor: the outline
//! of the file, which never fails, and the JSON Schema of the format (`grammar`), which includes
//! new keys of the format automatically. Types come from the last state that could be parsed.

mod cases;
mod complete;
mod define;
mod expressions;
mod fixes;
mod grammar;
mod hover;
mod mentions;
mod neighbours;
mod nodes;
mod positions;
mod protocol;
mod references;
mod server;
mod symbols;
mod templates;
mod uri;
mod workspace;

use std::io;

use lsp_server::Connection;

use self::server::Server;
use crate::workflow::Registry;

/// Serves one client on stdin and stdout until it sends `exit` or closes the connection.
///
/// Workflows may use the names in the registry.
///
/// Returns whether the client sent `shutdown` before.
///
/// # Errors
///
/// Fails if a message cannot be read or written.
pub fn serve(registry: Registry) -> io::Result<bool> {
    let (connection, threads) = Connection::stdio();
    let is_orderly = Server::serve(&connection, registry);
    // The writer thread ends when the last sender is dropped.
    drop(connection);
    threads.join()?;
    Ok(is_orderly)
}
