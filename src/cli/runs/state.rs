//! `graphrun runs state RUN[@STEP]`.

use super::super::{
    error::CliError,
    exit::Exit,
    globals::{Globals, Output},
    json::to_json,
    run_at::RunAt,
    terminal::print_result,
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The run by name or id, and the step if not the last; step 0 is the input
    #[arg(value_name = "RUN[@STEP]")]
    run: RunAt,
}

/// Prints the values of all channels as JSON.
pub(super) async fn run(args: &Args, globals: &Globals) -> Result<Exit, CliError> {
    globals.expect_output("runs state", &[Output::Text, Output::Json])?;
    let checkpointer = globals.database_to_read()?.open_for(&args.run.run)?;
    let found = args.run.find(checkpointer.as_ref()).await?;
    print_result(&to_json(&found.values)?).map_err(CliError::write)?;
    Ok(Exit::Done)
}
