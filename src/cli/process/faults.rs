//! Fault injection for tests: `GRAPHRUN_FAIL` names the points of a run that fail, and how.

use std::env;

use crate::{cli::error::CliError, fault};

/// The plan, for example `task.in_tx=abort@3`.
const VARIABLE: &str = "GRAPHRUN_FAIL";

/// Activates the plan, if there is one.
///
/// # Errors
///
/// Fails when the variable cannot be parsed.
pub(crate) fn plan() -> Result<(), CliError> {
    let Some(plan) = env::var(VARIABLE).ok().filter(|it| !it.is_empty()) else { return Ok(()) };
    fault::plan(&plan)
        .map_err(|error| CliError::usage(format!("{VARIABLE} names no faults")).because(error))
}
