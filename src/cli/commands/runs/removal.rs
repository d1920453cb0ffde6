//! The result of commands that remove runs.

use serde::Serialize;

use crate::{
    checkpoint::{CheckpointError, RunInfo},
    cli::{
        arguments::globals::{Globals, Output},
        error::CliError,
        output::{json::to_json, terminal::print_result, words::count},
    },
    event::Status,
    id::RunId,
};

/// The runs that a command has removed so far.
#[derive(Debug)]
pub(super) struct Removal<'a> {
    globals: &'a Globals,
    report: RemovalReport,
}

/// The result as JSON.
#[derive(Debug, Serialize)]
struct RemovalReport {
    removed: Vec<RemovedRun>,
    /// Whether they would only be removed without `--dry-run`.
    dry_run: bool,
}

/// A removed run.
#[derive(Debug, Serialize)]
struct RemovedRun {
    run: RunId,
    name: String,
    status: Status,
    created: String,
}

impl<'a> Removal<'a> {
    pub(super) fn new(globals: &'a Globals, dry_run: bool) -> Self {
        Self { globals, report: RemovalReport { removed: Vec::new(), dry_run } }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.report.removed.is_empty()
    }

    /// Adds a run. As text, it is printed at once, since its removal is final.
    ///
    /// # Errors
    ///
    /// Fails when stdout cannot be written.
    pub(super) fn add(&mut self, info: &RunInfo, status: Status) -> Result<(), CliError> {
        let created = info.created.clone();
        if self.globals.output == Output::Text {
            let day = created.get(..10).unwrap_or(&created);
            let line = format!("{} {} ({}, {day})\n", self.verb(), info.name, status.as_str());
            print_result(&line).map_err(CliError::write)?;
        }
        let run = info.id.clone();
        let name = info.name.clone();
        self.report.removed.push(RemovedRun { run, name, status, created });
        Ok(())
    }

    /// Passes on the result of a removal. Before an error, it prints the runs that have been removed.
    ///
    /// # Errors
    ///
    /// Fails with the error.
    pub(super) fn check(&self, result: Result<(), CheckpointError>) -> Result<(), CliError> {
        if result.is_err() {
            self.close()?;
        }
        Ok(result?)
    }

    /// Prints the result: as text, how many there are.
    ///
    /// # Errors
    ///
    /// Fails when stdout cannot be written.
    pub(super) fn close(&self) -> Result<(), CliError> {
        let text = match self.globals.output {
            Output::Json => to_json(&self.report)?,
            _ => format!("{} {}\n", self.verb(), count(self.report.removed.len() as u64, "run")),
        };
        print_result(&text).map_err(CliError::write)
    }

    fn verb(&self) -> &'static str {
        if self.report.dry_run { "would remove" } else { "removed" }
    }
}
