//! Programs of the host for building environments.

use std::{process::Stdio, time::Duration};

use tokio::process::Command;

use super::{
    output::clean,
    python_error::{PythonError, io_error},
};

/// The most lines of an error of a tool.
const LINES_MAX: usize = 5;
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
    Err(PythonError::Tool { attempt, detail: last_errors(&stderr) })
}

/// Returns the last lines of the errors of a tool. pip marks them among its warnings.
fn last_errors(stderr: &str) -> String {
    let mut last: Vec<&str> = stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    if last.iter().any(|it| it.starts_with("ERROR:")) {
        last.retain(|it| it.starts_with("ERROR:"));
    }
    last.split_off(last.len().saturating_sub(LINES_MAX)).join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_pip_stand_without_its_warnings() {
        let said = "WARNING: Retrying after a broken connection\nERROR: No matching distribution for x\n\nWARNING: a hint\n";
        assert_eq!(last_errors(said), "ERROR: No matching distribution for x");
        let lines = "1\n2\n\n3\n4\n5\n6\n";
        assert_eq!(last_errors(lines), "2; 3; 4; 5; 6");
    }
}
