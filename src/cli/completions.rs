//! `graphrun completions SHELL`.

use clap::CommandFactory;
use clap_complete::Shell;

use super::{
    Cli,
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    terminal::print_result,
};

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell the script is for
    #[arg(value_enum)]
    shell: Shell,
}

impl Args {
    /// Prints the script; the shell decides where to store it.
    pub(super) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("completions", &[Output::Text])?;
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "graphrun", &mut script);
        print_result(&String::from_utf8_lossy(&script)).map_err(CliError::write)?;
        Ok(Exit::Done)
    }
}
