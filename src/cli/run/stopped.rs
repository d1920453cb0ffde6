//! A run that stopped or suspended in this process, and what the program prints about it.

use crate::{
    cli::{
        arguments::globals::{Globals, Output},
        error::CliError,
        exit::Exit,
        output::{
            report::RunReport, run_result::print_new_report, summary, terminal::print_message,
        },
        settings::database::Database,
    },
    event::Status,
};

/// A run that stopped or suspended in this process.
#[derive(Debug)]
pub(crate) struct StoppedRun {
    pub(crate) report: RunReport,
    pub(crate) exit: Exit,
    pub(super) database: Database,
    /// Whether this process has done something with the run.
    pub(super) is_driven: bool,
}

impl StoppedRun {
    /// Prints the result, and the command to resume the run if it can continue. Returns the exit code. That of a signal
    /// stays if the result cannot be written: the signal may be the end of the terminal.
    ///
    /// # Errors
    ///
    /// Fails when stdout cannot be written.
    pub(crate) fn print(&self, globals: &Globals) -> Result<Exit, CliError> {
        // With events, the last one contains the status of the run.
        let is_shown = self.is_driven && globals.output == Output::Jsonl;
        let printed =
            if is_shown { Ok(()) } else { print_new_report(&self.report, globals, &self.database) };
        self.print_next(globals);
        let is_signal = matches!(self.exit, Exit::Interrupted | Exit::Terminated);
        printed.map(|()| self.exit).map_err(|error| match self.exit {
            exit if is_signal => error.with_exit(exit),
            _ => error,
        })
    }

    /// Prints the open questions, or the command to resume the run, for people.
    pub(crate) fn print_next(&self, globals: &Globals) {
        let Self { report, database, .. } = self;
        let paint = globals.stderr;
        if !report.questions.is_empty() {
            print_message(summary::draw_questions(report, database, paint).trim_end());
        } else if report.status != Status::Done
            && globals.output != Output::Text
            && let Some(command) = &report.resume
        {
            print_message(&format!(
                "{}; continue with: {}",
                report.status.as_str(),
                paint.command(command)
            ));
        }
    }
}
