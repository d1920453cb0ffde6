//! `graphrun runs …`: shows and manages runs. Reading changes nothing and creates no database.

mod diff;
mod events;
mod export;
mod history;
mod list;
mod prune;
mod rm;
mod show;
mod state;
mod update;
mod verify;

use clap::Subcommand;

use super::{error::CliError, exit::Exit, globals::Globals, runtime::block_on};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List runs, the newest first
    List(list::Args),
    /// Show how a run stands, what its tasks did and what it waits for
    Show(show::Args),
    /// Print the state of a run, now or after a step
    State(state::Args),
    /// Say what differs between two steps of a run, or of two runs, and who wrote it
    Diff(diff::Args),
    /// Print the steps of a run: what ran, what it changed and what came next
    History(history::Args),
    /// Print what happened in a run
    Events(events::Args),
    /// Change the state of a run at rest, as if a node had written it
    Update(update::Args),
    /// Print all that is saved of a run, one JSON object an entry
    Export(export::Args),
    /// Forget runs
    Rm(rm::Args),
    /// Forget old runs that have come to their end, and give their space back
    Prune(prune::Args),
    /// Compute histories anew and find whatever was lost, changed or moved
    Verify(verify::Args),
}

/// Runs the subcommand.
pub(super) fn run(args: Args, globals: &Globals) -> Result<Exit, CliError> {
    block_on(async {
        match args.command {
            Command::List(args) => list::run(&args, globals).await,
            Command::Show(args) => show::run(&args, globals).await,
            Command::State(args) => state::run(&args, globals).await,
            Command::Diff(args) => diff::run(&args, globals).await,
            Command::History(args) => history::run(&args, globals).await,
            Command::Events(args) => events::run(&args, globals).await,
            Command::Update(args) => update::run(&args, globals).await,
            Command::Export(args) => export::run(&args, globals).await,
            Command::Rm(args) => rm::run(&args, globals).await,
            Command::Prune(args) => prune::run(&args, globals).await,
            Command::Verify(args) => verify::run(&args, globals).await,
        }
    })
}
