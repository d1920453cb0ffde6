//! `graphrun lsp`.

use super::{
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
};
use crate::lsp;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Accepted because clients pass it; there is no other transport
    #[arg(long, hide = true)]
    stdio: bool,
}

/// Serves an editor on stdin and stdout until the editor ends the session.
pub(super) fn run(_: &Args, globals: &Globals) -> Result<Exit, CliError> {
    globals.expect_output("lsp", &[Output::Text])?;
    match lsp::serve(crate::registry()) {
        Ok(true) => Ok(Exit::Done),
        // The protocol requires 1 from a server without a shutdown request.
        Ok(false) => Ok(Exit::Failed),
        Err(error) => {
            Err(CliError::new(Exit::Failed, "the editor sent an invalid message").because(error))
        }
    }
}
