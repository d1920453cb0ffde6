//! The result of a run, in the requested format.

use super::{json::to_json, left::left_line, report::RunReport, summary, terminal::print_result};
use crate::{
    cli::{
        arguments::globals::{Globals, Output},
        error::CliError,
        settings::database::Database,
    },
    event::LeftRun,
};

/// Prints the result of a run that this process changed, in the requested format.
///
/// # Errors
///
/// Fails when stdout cannot be written; the error says that the run itself is saved.
pub(crate) fn print_new_report(
    report: &RunReport,
    globals: &Globals,
    database: &Database,
) -> Result<(), CliError> {
    print_result(&draw_report(report, globals, database)?)
        .map_err(|error| globals.unwritten(&report.name, report.status, database, error))
}

/// Returns the result of a run in the requested format.
///
/// # Errors
///
/// Fails when it cannot be represented as JSON.
pub(crate) fn draw_report(
    report: &RunReport,
    globals: &Globals,
    database: &Database,
) -> Result<String, CliError> {
    match globals.output {
        Output::Text => Ok(summary::draw(report, database, globals.stdout)),
        Output::Json => to_json(report),
        // No event is printed for it.
        Output::Jsonl => left_line(&LeftRun {
            run: report.run.clone(),
            name: report.name.clone(),
            status: report.status,
            reason: report.reason.clone(),
            resume: report.resume.clone(),
        }),
        // The formats for diagnostics were refused before the run began.
        Output::Sarif | Output::Github => Ok(String::new()),
    }
}
