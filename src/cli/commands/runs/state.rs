//! `graphrun runs state RUN[@STEP]`.

use crate::cli::{
    arguments::{
        globals::{Globals, Output},
        run_at::RunAt,
    },
    error::CliError,
    exit::Exit,
    output::{json::to_json, terminal::print_result},
    process::runtime::block_on,
};

/// Print the state of a run, now or after a step
///
/// It is the state after a whole step. Finished tasks of a step that has not ended are in the trace of `graphrun runs show`; their
/// results are saved, and join the state at the end of the step.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The run by name or id, and the step if not the last; step 0 is the input
    #[arg(value_name = "RUN[@STEP]")]
    run: RunAt,
}

impl Args {
    /// Prints the values of all channels that are not private as JSON.
    pub(super) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        block_on(async {
            globals.expect_output("runs state", &[Output::Text, Output::Json])?;
            let checkpointer = globals.database_to_read()?.open_for(&self.run.run)?;
            let found = self.run.find(checkpointer.as_ref()).await?.without_private();
            print_result(&to_json(&found.values)?).map_err(CliError::write)?;
            Ok(Exit::Done)
        })
    }
}
