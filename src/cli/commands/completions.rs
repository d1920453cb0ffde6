//! `graphrun completions SHELL`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::{
    Cli,
    arguments::globals::{Globals, Output},
    error::CliError,
    exit::Exit,
    output::terminal::print_result,
};

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell the script is for
    #[arg(value_enum)]
    shell: Shell,
}

impl Args {
    /// Prints the script; the shell decides where to store it.
    pub(crate) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        globals.expect_output("completions", &[Output::Text])?;
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "graphrun", &mut script);
        print_result(&String::from_utf8_lossy(&script)).map_err(CliError::write)?;
        Ok(Exit::Done)
    }
}
