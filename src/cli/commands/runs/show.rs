//! `graphrun runs show RUN`.

use crate::cli::{
    arguments::globals::{Globals, Output},
    error::CliError,
    exit::Exit,
    output::{
        report::RunReport,
        run_result::draw_report,
        summary::{draw_answers, draw_questions, draw_trace},
        terminal::print_result,
    },
    process::runtime::block_on,
    run::process_gone::process_gone,
};

/// Show the status of a run, its tasks and its open questions
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The name or the id of the run
    run: String,
}

impl Args {
    /// Prints the report of a run, as `execute` does when the run stops, and its tasks.
    pub(super) fn run(&self, globals: &Globals) -> Result<Exit, CliError> {
        block_on(async {
            globals.expect_output("runs show", &[Output::Text, Output::Json])?;
            let database = globals.database_to_read()?;
            let checkpointer = database.open_for(&self.run)?;
            let summary = checkpointer.find(&self.run).await?;
            let id = &summary.info.id;
            let mut report = RunReport::read(checkpointer.as_ref(), id, &database).await?;
            if globals.output == Output::Text {
                report.reason = report.reason.or_else(|| process_gone(&summary).map(str::to_owned));
            }
            let mut text = draw_report(&report, globals, &database)?;
            if globals.output == Output::Text {
                let trace = draw_trace(&report, globals.stdout);
                let questions = draw_questions(&report, &database, globals.stdout);
                let answers = draw_answers(&report, globals.stdout);
                text.extend(["\n", &trace, &answers, &questions]);
            }
            print_result(&text).map_err(CliError::write)?;
            Ok(Exit::Done)
        })
    }
}
