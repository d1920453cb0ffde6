//! Faults on purpose, for tests: `GRAPHRUN_FAIL` says at which points of a run what happens.

use std::env;

use super::error::CliError;
use crate::fault;

/// The plan, as in `task.in_tx=abort@3`.
const VARIABLE: &str = "GRAPHRUN_FAIL";

/// Follows the plan from now on, if there is one.
///
/// # Errors
///
/// Fails when the variable cannot be understood.
pub(super) fn plan() -> Result<(), CliError> {
    let Some(plan) = env::var(VARIABLE).ok().filter(|it| !it.is_empty()) else { return Ok(()) };
    fault::plan(&plan)
        .map_err(|error| CliError::usage(format!("{VARIABLE} names no faults")).because(error))
}
