//! Programs of the host for building environments.

use std::{process::Stdio, time::Duration};

use tokio::process::Command;

use super::{
    output::clean,
    python_error::{PythonError, io_error},
};

/// The longest duration of one step of a build, with its download.
const STEP_TIME_MAX: Duration = Duration::from_secs(600);

/// Runs a program of the operator to its end and returns its standard output.
pub(super) async fn run_tool(
    attempt: &'static str,
    mut command: Command,
) -> Result<String, PythonError> {
    // The environment is inherited on purpose, because it configures pip. The process group is not:
    // a terminal sends it Ctrl-C, and a tool ended by that would look like one that does not work.
    let running = command.process_group(0).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(STEP_TIME_MAX, running)
        .await
        .map_err(|_| PythonError::Tool { attempt, detail: "it took too long".to_owned() })?
        .map_err(io_error(attempt))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = clean(&output.stderr);
    let mut last: Vec<&str> =
        stderr.lines().rev().filter(|line| !line.trim().is_empty()).take(5).collect();
    last.reverse();
    Err(PythonError::Tool { attempt, detail: last.join("; ") })
}
