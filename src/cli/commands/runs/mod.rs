//! `graphrun runs …`: shows and manages runs. Reading changes nothing and creates no database.

mod diff;
pub(super) mod difference;
mod events;
mod export;
mod history;
pub(super) mod item_writers;
mod list;
mod prune;
mod removal;
mod rm;
mod show;
mod state;
pub(super) mod steps;
mod update;
mod verify;

use crate::cli::{arguments::globals::Globals, error::CliError, exit::Exit};

/// List, inspect and remove runs
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

commands! {
    enum Command {
        List(list::Args),
        Show(show::Args),
        State(state::Args),
        Diff(diff::Args),
        History(history::Args),
        Events(events::Args),
        Update(update::Args),
        Export(export::Args),
        Rm(rm::Args),
        Prune(prune::Args),
        Verify(verify::Args),
    }
}

impl Args {
    pub(crate) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        self.command.run(globals)
    }
}
