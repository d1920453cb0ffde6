//! Runs the tests of a generated project with pytest, in the sandbox.
//!
//! Tests and tested code share one process, so the report is theirs to forge. It counts only together with the exit code,
//! and where they differ the run has failed. What is certain is the other direction: no failure is reported for code
//! that did not run, because what keeps it from running is an error of the sandbox, not an outcome.

use std::time::Duration;

use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::{
    error::SandboxError,
    job::{Finished, Job, Limits, Outcome},
    junit::Counts,
    probe::Sandbox,
    python::PythonEnvironment,
    source_file::SourceFile,
};

/// What is kept of the output for whoever has to mend the code: the summary and the last failures.
const ERROR_CHARACTERS_MAX: usize = 3000;

/// How a test run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PytestOutcome {
    /// All tests that ran passed, and at least one ran.
    Passed,
    /// Tests failed, or pytest itself did, or exit code and report contradict each other.
    Failed,
    /// There was no test, or all were skipped.
    NoTests,
    /// Test modules could not be loaded.
    CollectionFailed,
    /// The run was stopped at the end of its time.
    TimedOut,
    /// The run was stopped because it used too much memory.
    OutOfMemory,
    /// The run was stopped because it wrote too much output.
    OutputLimit,
    /// The run ended before its report was written: by a signal, or because the code ended the process.
    Crashed,
}

/// The result of a test run.
#[derive(Debug, Clone)]
pub struct PytestReport {
    /// How the run ended.
    pub outcome: PytestOutcome,
    /// Pytest's exit code, unless the run was stopped.
    pub exit_code: Option<i32>,
    /// Tests in the report; a module that could not be loaded counts as one.
    pub total: u32,
    /// Tests that passed.
    pub passed: u32,
    /// Tests that failed, errors included.
    pub failed: u32,
    /// Tests that were skipped, or expected to fail.
    pub skipped: u32,
    /// What was printed, cleaned; see [`Finished::output`].
    pub output: String,
    /// The last 3,000 characters of the output; empty if the run passed.
    pub error_output: String,
    /// Time of the run.
    pub wall: Duration,
}

impl PytestReport {
    /// Whether the tests passed: exit code and report say so, and at least one test ran.
    pub fn is_passed(&self) -> bool {
        self.outcome == PytestOutcome::Passed
    }
}

/// Why tests could not be run. None of these is the fault of the code under test.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PytestError {
    /// The environment was prepared without pytest.
    #[error("pytest is not installed in the Python environment")]
    NotInstalled,
    /// The sandbox failed, or the run was cancelled.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

/// Runs all tests of a project.
///
/// The files lie in the work folder, where pytest starts; the folder and its `src` are on the search path. The project's
/// own settings apply, less its `addopts`.
///
/// # Errors
/// When the sandbox could not run pytest, and when `cancel` fired. Everything the code does is in the report.
///
/// # Cancel safety
/// As [`Sandbox::run`].
pub async fn run_pytest(
    sandbox: &Sandbox,
    environment: &PythonEnvironment,
    files: &[SourceFile],
    limits: &Limits,
    cancel: &CancellationToken,
) -> Result<PytestReport, PytestError> {
    if !environment.has_module("pytest") {
        return Err(PytestError::NotInstalled);
    }
    // A name that cannot be guessed when the code is written: forging the report takes more than a line.
    let report_path = format!("report-{}.xml", ulid::Ulid::new());
    let job = Job {
        argv: arguments(environment, &report_path, limits),
        files: files.to_vec(),
        read_only: environment.mounts().to_vec(),
        limits: limits.clone(),
        collect: vec![report_path.clone()],
        ..Job::default()
    };
    let finished = sandbox.run(&job, cancel).await?;
    let counts = finished.collected.get(&report_path).and_then(|report| Counts::read(report));
    Ok(report(finished, counts))
}

fn arguments(environment: &PythonEnvironment, report_path: &str, limits: &Limits) -> Vec<String> {
    // A test that hangs is shown with its stack, shortly before the whole run is stopped.
    let stack_option =
        format!("--override-ini=faulthandler_timeout={:.1}", limits.wall.as_secs_f64() * 0.8);
    let report_option = format!("--junitxml={report_path}");
    let arguments = [
        environment.python(),
        "-m",
        "pytest",
        "-q",
        "--tb=short",
        "--color=no",
        "--rootdir=/box",
        "--override-ini=addopts=",
        "--override-ini=junit_family=xunit2",
        &stack_option,
        // Every run sees the same order and writes nothing beside the report.
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        &report_option,
    ];
    arguments.map(str::to_owned).into()
}

fn report(finished: Finished, counts: Option<Counts>) -> PytestReport {
    let outcome = judge(finished.outcome, counts);
    let counts = counts.unwrap_or_default();
    let error_output = if outcome == PytestOutcome::Passed {
        String::new()
    } else {
        last(&finished.output, ERROR_CHARACTERS_MAX)
    };
    PytestReport {
        outcome,
        exit_code: finished.outcome.exit_code(),
        total: counts.total(),
        passed: counts.passed,
        failed: counts.failed,
        skipped: counts.skipped,
        output: finished.output,
        error_output,
        wall: finished.wall,
    }
}

/// Puts exit code and report together. Only one combination is a pass.
fn judge(outcome: Outcome, counts: Option<Counts>) -> PytestOutcome {
    match (outcome, counts) {
        (Outcome::Passed, Some(counts)) if counts.failed == 0 && counts.passed > 0 => {
            PytestOutcome::Passed
        }
        (Outcome::Passed, Some(counts)) if counts.failed == 0 => PytestOutcome::NoTests,
        (Outcome::Failed(5), Some(counts)) if counts.total() == 0 => PytestOutcome::NoTests,
        // Pytest calls a run interrupted that it gave up because modules could not be loaded.
        (Outcome::Failed(2), Some(_)) => PytestOutcome::CollectionFailed,
        // A `conftest.py` that cannot be loaded, or settings that make no sense: there is no report yet.
        (Outcome::Failed(4), None) => PytestOutcome::CollectionFailed,
        (Outcome::Passed | Outcome::Failed(_), Some(_)) => PytestOutcome::Failed,
        (Outcome::Passed | Outcome::Failed(_), None) | (Outcome::Signaled(_), _) => {
            PytestOutcome::Crashed
        }
        (Outcome::TimedOut, _) => PytestOutcome::TimedOut,
        (Outcome::OutOfMemory, _) => PytestOutcome::OutOfMemory,
        (Outcome::OutputLimit, _) => PytestOutcome::OutputLimit,
    }
}

/// The last characters of a text.
fn last(text: &str, characters: usize) -> String {
    let start =
        text.char_indices().rev().nth(characters.saturating_sub(1)).map_or(0, |(index, _)| index);
    text[start..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREEN: Counts = Counts { passed: 2, failed: 0, skipped: 1 };
    const RED: Counts = Counts { passed: 2, failed: 1, skipped: 0 };
    const EMPTY: Counts = Counts { passed: 0, failed: 0, skipped: 0 };
    const SKIPPED: Counts = Counts { passed: 0, failed: 0, skipped: 3 };

    #[test]
    fn a_run_passes_only_when_exit_code_and_report_agree_and_a_test_ran() {
        let outcomes = [
            Outcome::Passed,
            Outcome::Failed(1),
            Outcome::Failed(2),
            Outcome::Failed(5),
            Outcome::Signaled(9),
            Outcome::TimedOut,
            Outcome::OutOfMemory,
            Outcome::OutputLimit,
        ];
        for outcome in outcomes {
            for counts in [None, Some(GREEN), Some(RED), Some(EMPTY), Some(SKIPPED)] {
                let passed = judge(outcome, counts) == PytestOutcome::Passed;
                assert_eq!(
                    passed,
                    outcome == Outcome::Passed && counts == Some(GREEN),
                    "{outcome:?} {counts:?}"
                );
            }
        }
    }

    #[test]
    fn runs_without_tests_are_told_from_failing_ones() {
        assert_eq!(judge(Outcome::Failed(5), Some(EMPTY)), PytestOutcome::NoTests);
        assert_eq!(judge(Outcome::Passed, Some(SKIPPED)), PytestOutcome::NoTests);
        assert_eq!(judge(Outcome::Failed(5), Some(GREEN)), PytestOutcome::Failed);
        assert_eq!(judge(Outcome::Failed(2), Some(RED)), PytestOutcome::CollectionFailed);
        assert_eq!(judge(Outcome::Passed, None), PytestOutcome::Crashed);
    }

    #[test]
    fn the_end_of_a_text_is_cut_between_characters() {
        assert_eq!(last("aé☃", 2), "é☃");
        assert_eq!(last("aé☃", 3), "aé☃");
        assert_eq!(last("aé☃", 9), "aé☃");
        assert_eq!(last("", 9), "");
    }
}
