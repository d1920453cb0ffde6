//! `graphrun runs …`: shows and manages runs. Reading changes nothing and creates no database.

mod diff;
mod events;
mod export;
mod history;
mod list;
mod prune;
mod removal;
mod rm;
mod show;
mod state;
mod update;
mod verify;

pub(crate) use self::list::process_gone;
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
