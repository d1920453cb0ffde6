//! `graphrun resume --due`: resumes what can continue by itself.

use jiff::Timestamp;
use serde::Serialize;

use crate::{
    checkpoint::{self, CheckpointError, Checkpointer, RunSummary},
    cli::{
        arguments::globals::{Globals, Output},
        error::CliError,
        exit::Exit,
        output::{
            json::to_json,
            left::print_left,
            report::RunReport,
            run_result::draw_report,
            terminal::{columns, print_message, print_result},
        },
        process::runtime::block_on,
        run::stopped::StoppedRun,
    },
    event::Status,
    id::RunId,
};

/// Whether a run can continue by itself now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DueCheck {
    Due,
    /// It was left as it is; this is the exit code.
    NotDue(Exit),
}

/// The result of `resume --due`, as JSON.
#[derive(Debug, Serialize)]
struct DueReport {
    runs: Vec<DueLine>,
}

/// One due run.
#[derive(Debug, Serialize)]
struct DueLine {
    run: RunId,
    name: String,
    outcome: DueOutcome,
    /// The exit code of `resume` for this run alone.
    exit: u8,
    error: Option<String>,
    /// The report of a resumed run.
    report: Option<RunReport>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum DueOutcome {
    Resumed,
    /// Another process owns the run, or has resumed it meanwhile.
    Skipped,
    /// The run could not be resumed.
    Refused,
}

/// Checks whether a run is due. One that is not is reported.
///
/// # Errors
///
/// Fails when there is no such run, or the database cannot be read.
pub(super) fn check(run: &str, globals: &Globals) -> Result<DueCheck, CliError> {
    let database = globals.database()?;
    block_on(async {
        let checkpointer = database.open_for(run)?;
        let found = checkpointer.find(run).await?;
        let due = next_due(checkpointer.as_ref(), &found).await?;
        if due.is_some_and(|it| it <= Timestamp::now()) {
            return Ok(DueCheck::Due);
        }
        let name = &found.info.name;
        let status = found.status.as_str();
        print_message(&match due {
            Some(due) => format!("run {name} waits until {due:.0}"),
            None => format!("run {name} is {status} and waits for no time"),
        });
        if matches!(globals.output, Output::Json | Output::Jsonl) {
            let report = RunReport::read(checkpointer.as_ref(), &found.info.id, &database).await?;
            let text = draw_report(&report, globals, &database)?;
            print_result(&text).map_err(CliError::write)?;
        }
        Ok(DueCheck::NotDue(Exit::of(found.status)))
    })
}

/// Resumes every due run, the oldest first. A run that cannot be resumed does not keep the others from it. Returns the
/// worst exit code.
///
/// # Errors
///
/// Fails when the database cannot be read, or the result cannot be written.
pub(super) fn resume_all(
    globals: &Globals,
    mut resume: impl FnMut(&str) -> Result<StoppedRun, CliError>,
) -> Result<Exit, CliError> {
    let runs = find_all(globals)?;
    let mut lines = Vec::new();
    let mut worst = Exit::Done;
    for found in runs {
        let line = if is_still_due(globals, &found.info.id)? {
            DueLine::of(found, &mut resume, globals)
        } else {
            (DueLine::resumed_elsewhere(found), Exit::Done)
        };
        worst = worst.worse(line.1);
        lines.push(line.0);
        if matches!(worst, Exit::Interrupted | Exit::Terminated) {
            break;
        }
    }
    if globals.output == Output::Json {
        print_result(&to_json(&DueReport { runs: lines })?).map_err(CliError::write)?;
    }
    Ok(worst)
}

impl DueLine {
    /// A run that another process has resumed while this one was at work on those before it.
    fn resumed_elsewhere(found: RunSummary) -> Self {
        let run = found.info.id;
        let name = found.info.name;
        print_message(&format!("run {name} is skipped: another process has resumed it"));
        let outcome = DueOutcome::Skipped;
        let exit = Exit::Done as u8;
        Self { run, name, outcome, exit, error: None, report: None }
    }

    /// Resumes a run and prints its result, except for a part of a JSON document. Also returns the exit code that counts
    /// for all runs.
    fn of(
        found: RunSummary,
        resume: impl FnOnce(&str) -> Result<StoppedRun, CliError>,
        globals: &Globals,
    ) -> (Self, Exit) {
        let run = found.info.id;
        let name = found.info.name;
        let stopped = resume(run.as_str()).and_then(|stopped| {
            if globals.output == Output::Json {
                stopped.print_next(globals);
            } else {
                stopped.print(globals)?;
            }
            Ok(stopped)
        });
        match stopped {
            Ok(StoppedRun { report, exit, .. }) => {
                let outcome = DueOutcome::Resumed;
                let report = Some(report);
                (Self { run, name, outcome, exit: exit as u8, error: None, report }, exit)
            }
            Err(error) => {
                let (outcome, counts) = if error.is_owned_elsewhere() {
                    print_message(&format!("run {name} is skipped: {}", error.message()));
                    (DueOutcome::Skipped, Exit::Done)
                } else {
                    print_message(&format!("run {name} cannot be resumed:"));
                    print_message(&error.draw(globals.stderr, columns()));
                    // As JSON, the run is a part of the report.
                    let is_line = globals.output == Output::Jsonl;
                    let left = if is_line { print_left(&error, Output::Jsonl) } else { Ok(()) };
                    (DueOutcome::Refused, left.map_or_else(|it| it.exit(), |()| error.exit()))
                };
                let exit = error.exit() as u8;
                let message = error.message().to_owned();
                (Self { run, name, outcome, exit, error: Some(message), report: None }, counts)
            }
        }
    }
}

/// Returns the paused runs whose wait is over, the oldest first.
fn find_all(globals: &Globals) -> Result<Vec<RunSummary>, CliError> {
    let database = globals.database()?;
    block_on(async {
        let now = Timestamp::now();
        let Some(checkpointer) = database.open()? else {
            print_message(&database.absence());
            return Ok(Vec::new());
        };
        let mut runs = Vec::new();
        for id in checkpointer.ids().await? {
            match find_due(checkpointer.as_ref(), &id, now).await {
                Ok(found) => runs.extend(found),
                // A damaged run cannot continue, and must not keep others from it.
                Err(error @ CheckpointError::Damaged { .. }) => {
                    print_message(&format!("run {id} is skipped: {error}"));
                }
                // Another process removed it meanwhile.
                Err(CheckpointError::UnknownRun(_)) => (),
                Err(error) => return Err(error.into()),
            }
        }
        if runs.is_empty() {
            print_message("no run is due");
        }
        runs.reverse();
        Ok(runs)
    })
}

/// Returns whether a run that was due a while ago still is.
fn is_still_due(globals: &Globals, run: &RunId) -> Result<bool, CliError> {
    let database = globals.database()?;
    block_on(async {
        let Some(checkpointer) = database.open()? else { return Ok(false) };
        match find_due(checkpointer.as_ref(), run, Timestamp::now()).await {
            Ok(found) => Ok(found.is_some()),
            Err(CheckpointError::UnknownRun(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    })
}

/// Returns a run if it is due.
async fn find_due(
    checkpointer: &dyn Checkpointer,
    run: &RunId,
    now: Timestamp,
) -> Result<Option<RunSummary>, CheckpointError> {
    let found = checkpointer.find(run.as_str()).await?;
    let due = next_due(checkpointer, &found).await?;
    Ok(due.is_some_and(|it| it <= now).then_some(found))
}

/// Returns when a run can continue by itself, if it is paused.
async fn next_due(
    checkpointer: &dyn Checkpointer,
    found: &RunSummary,
) -> Result<Option<Timestamp>, CheckpointError> {
    if found.status != Status::Paused {
        return Ok(None);
    }
    // The records of the open step: those of earlier steps have other waits, which are over.
    Ok(checkpoint::next_due(&checkpointer.load(&found.info.id).await?.records))
}
