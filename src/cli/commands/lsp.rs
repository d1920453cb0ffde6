//! `graphrun lsp`.

use crate::{
    cli::{
        arguments::globals::{Globals, Output},
        error::CliError,
        exit::Exit,
    },
    lsp,
};

/// Serve an editor: diagnostics, hover texts, definitions, completion (LSP on stdio)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Accepted because clients pass it; there is no other transport
    #[arg(long, hide = true)]
    stdio: bool,
}

impl Args {
    /// Serves an editor on stdin and stdout until the editor ends the session.
    pub(crate) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        let Self { stdio: _ } = self;
        globals.expect_output("lsp", &[Output::Text])?;
        match lsp::serve(crate::cli::registry()) {
            Ok(true) => Ok(Exit::Done),
            // The protocol requires 1 from a server without a shutdown request.
            Ok(false) => Ok(Exit::Failed),
            Err(error) => {
                Err(CliError::new(Exit::Failed, "the editor sent an invalid message")
                    .because(error))
            }
        }
    }
}
