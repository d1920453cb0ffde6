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

pub(super) use self::list::process_gone;
use super::{error::CliError, exit::Exit, globals::Globals};

/// List, inspect and remove runs
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

commands! {
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

impl Args {
    pub(super) fn run(self, globals: &Globals) -> Result<Exit, CliError> {
        self.command.run(globals)
    }
}
