//! The end of the output for a run that this process leaves without an event.

use super::{json::to_json, terminal::print_result};
use crate::{
    cli::{arguments::globals::Output, error::CliError},
    event::{DeltaLine, LeftRun},
};

/// Prints the end of the output for the run that an error is about, if a program reads the output.
///
/// # Errors
///
/// Fails when stdout cannot be written.
pub(crate) fn print_left(error: &CliError, output: Output) -> Result<(), CliError> {
    let Some(left) = error.left() else { return Ok(()) };
    let text = match output {
        Output::Json => to_json(left)?,
        Output::Jsonl => left_line(left)?,
        Output::Text | Output::Sarif | Output::Github => return Ok(()),
    };
    print_result(&text).map_err(CliError::write)
}

/// Returns the line that ends the output.
///
/// # Errors
///
/// Fails when it cannot be represented as JSON.
pub(super) fn left_line(left: &LeftRun) -> Result<String, CliError> {
    let line = serde_json::to_string(&DeltaLine::Left(left.clone()));
    Ok(line.map_err(|error| CliError::write(error.into()))? + "\n")
}
