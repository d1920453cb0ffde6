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
    command: RunsCommand,
}

#[derive(Debug, Subcommand)]
enum RunsCommand {
    /// List runs, the newest first
    List(list::Args),
    /// Show the status of a run, its tasks and its open questions
    Show(show::Args),
    /// Print the state of a run, now or after a step
    State(state::Args),
    /// Print the differences between two steps of one or two runs, and their writers
    Diff(diff::Args),
    /// Print the steps of a run: its tasks, their changes and the next tasks
    History(history::Args),
    /// Print the events of a run
    Events(events::Args),
    /// Change the state of a stopped run like the update of a node
    Update(update::Args),
    /// Print all saved data of a run, one JSON object per entry
    Export(export::Args),
    /// Remove runs
    Rm(rm::Args),
    /// Remove old runs without an owner, and free their space
    Prune(prune::Args),
    /// Verify histories: find entries that were lost, changed or moved
    Verify(verify::Args),
}

/// Runs the subcommand.
pub(super) fn run(args: Args, globals: &Globals) -> Result<Exit, CliError> {
    block_on(async {
        match args.command {
            RunsCommand::List(args) => list::run(&args, globals).await,
            RunsCommand::Show(args) => show::run(&args, globals).await,
            RunsCommand::State(args) => state::run(&args, globals).await,
            RunsCommand::Diff(args) => diff::run(&args, globals).await,
            RunsCommand::History(args) => history::run(&args, globals).await,
            RunsCommand::Events(args) => events::run(&args, globals).await,
            RunsCommand::Update(args) => update::run(&args, globals).await,
            RunsCommand::Export(args) => export::run(&args, globals).await,
            RunsCommand::Rm(args) => rm::run(&args, globals).await,
            RunsCommand::Prune(args) => prune::run(&args, globals).await,
            RunsCommand::Verify(args) => verify::run(&args, globals).await,
        }
    })
}
