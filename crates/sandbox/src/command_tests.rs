//! Runs a command that tests a generated project and writes a report, in the sandbox.
//!
//! The report lies where generated code can write, so the result proves nothing: it counts only together with the exit code.

use std::{collections::BTreeSet, sync::Arc};

use tokio_util::sync::CancellationToken;

use super::{
    error::SandboxError,
    folder_file::Project,
    go_test, jest,
    job::{Collect, Job, JobResult, ProgramEnd},
    junit, libtest,
    probe::Sandbox,
    tap,
    test_item::{Tally, TestCounts, TestItem},
    test_run::Allowed,
};

/// The largest report that is read.
const REPORT_BYTES_MAX: usize = 4 << 20;

/// The form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportForm {
    /// `JUnit` XML.
    Junit,
    /// The Test Anything Protocol.
    Tap,
    /// The output of `cargo test`.
    Libtest,
    /// The events of `go test -json`.
    Go,
    /// The report of `jest --json` and of `vitest --reporter=json`.
    Jest,
}

impl ReportForm {
    /// Every form.
    pub const ALL: [Self; 5] = [Self::Junit, Self::Tap, Self::Libtest, Self::Go, Self::Jest];

    /// Returns its name in workflows.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Junit => "junit",
            Self::Tap => "tap",
            Self::Libtest => "libtest",
            Self::Go => "go",
            Self::Jest => "jest",
        }
    }

    /// Returns whether the report is one document, so that it cannot be mixed with other output.
    pub fn needs_file(self) -> bool {
        matches!(self, Self::Junit | Self::Jest)
    }

    fn read(self, report: &[u8]) -> Option<Tally> {
        if report.len() > REPORT_BYTES_MAX {
            return None;
        }
        match self {
            Self::Junit => junit::read(report),
            Self::Tap => tap::read(report),
            Self::Libtest => libtest::read(report),
            Self::Go => go_test::read(report),
            Self::Jest => jest::read(report),
        }
    }
}

/// A command that tests a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestCommand {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The form of its report.
    pub report: ReportForm,
    /// The file of the report below the work folder; without one, the report is the output of the
    /// command.
    pub report_path: Option<String>,
    /// The exceptions that a pass may have: [`Allowed::Skip`].
    pub allow: BTreeSet<Allowed>,
}

/// The result of a test command.
#[derive(Debug, Clone)]
pub struct CommandReport {
    /// Whether the exit code is 0, at least one test passed, none failed, and none was skipped without [`Allowed::Skip`].
    pub is_passed: bool,
    /// The tests; `None` without a readable report.
    pub counts: Option<TestCounts>,
    /// The tests that the report names.
    pub items: Vec<TestItem>,
    /// The output, and below it the reason why the result is no pass.
    pub output: String,
    /// Time of the run.
    pub wall: std::time::Duration,
}

/// Runs a test command on the files of a project. The mounts, variables and limits are those of `job`.
///
/// # Errors
/// When the sandbox could not run the command, and when `cancel` fired.
///
/// # Cancel safety
/// As [`Sandbox::run`].
pub async fn run_test_command(
    sandbox: &Sandbox,
    job: Job,
    command: &TestCommand,
    project: &Project,
    cancel: &CancellationToken,
) -> Result<CommandReport, SandboxError> {
    let job = Job {
        argv: command.argv.clone(),
        required: command.argv.first().cloned().into_iter().collect(),
        folder: Arc::clone(&project.folder),
        mounted: project.mounted.clone(),
        files: project.files.clone(),
        collect: Collect {
            work: command.report_path.iter().cloned().collect(),
            ..Collect::default()
        },
        ..job
    };
    let finished = sandbox.run(&job, cancel).await?;
    Ok(report(finished, command))
}

fn report(finished: JobResult, command: &TestCommand) -> CommandReport {
    let tally = match &command.report_path {
        Some(path) => finished.collected.get(path).and_then(|it| command.report.read(it)),
        None => command.report.read(finished.output.as_bytes()),
    };
    let (counts, items) = tally.map(|it| (it.counts, it.items)).unzip();
    let problem = problem(finished.end, counts, command.allow.contains(&Allowed::Skip));
    let mut output = finished.output;
    if let Some(problem) = &problem {
        output.extend(["not passed: ", problem.as_str(), "\n"]);
    }
    let items = items.unwrap_or_default();
    CommandReport { is_passed: problem.is_none(), counts, items, output, wall: finished.wall }
}

/// Why a result is no pass.
fn problem(end: ProgramEnd, counts: Option<TestCounts>, allows_skips: bool) -> Option<String> {
    match (end, counts) {
        (ProgramEnd::TimedOut, _) => Some("the time of the sandbox is over".to_owned()),
        (ProgramEnd::OutOfMemory, _) => Some("the memory of the sandbox is used up".to_owned()),
        (ProgramEnd::OutputLimit, _) => Some("the command printed too much".to_owned()),
        (_, None) => Some("the command left no report that can be read".to_owned()),
        (ProgramEnd::Signaled(signal), _) => Some(format!("signal {signal} ended the command")),
        (ProgramEnd::Exited(0), Some(TestCounts { passed, failed, skipped })) => {
            if failed > 0 {
                Some("the report has failures".to_owned())
            } else if passed == 0 {
                Some("no test passed".to_owned())
            } else if skipped > 0 && !allows_skips {
                Some(format!("{skipped} tests were skipped"))
            } else {
                None
            }
        }
        (ProgramEnd::Exited(code), _) => Some(format!("the command ended with {code}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_passes_only_with_its_code_and_a_clean_report() {
        let counts = |passed, failed, skipped| Some(TestCounts { passed, failed, skipped });
        assert_eq!(problem(ProgramEnd::Exited(0), counts(1, 0, 0), false), None);
        assert_eq!(problem(ProgramEnd::Exited(0), counts(1, 0, 1), true), None);
        for (end, counts) in [
            (ProgramEnd::Exited(0), None),
            (ProgramEnd::Exited(0), counts(0, 0, 0)),
            (ProgramEnd::Exited(0), counts(1, 1, 0)),
            (ProgramEnd::Exited(0), counts(1, 0, 1)),
            (ProgramEnd::Exited(1), counts(1, 0, 0)),
            (ProgramEnd::Signaled(9), counts(1, 0, 0)),
            (ProgramEnd::TimedOut, counts(1, 0, 0)),
        ] {
            assert!(problem(end, counts, false).is_some(), "{end:?} {counts:?}");
        }
        let stopped = problem(ProgramEnd::TimedOut, None, false);
        assert_eq!(stopped.unwrap(), "the time of the sandbox is over");
    }

    #[test]
    fn a_report_that_is_too_large_counts_nothing() {
        let filled = |bytes: usize| format!("1..1\nok 1\n{}", " ".repeat(bytes)).into_bytes();
        assert!(ReportForm::Tap.read(&filled(9)).is_some());
        assert_eq!(ReportForm::Tap.read(&filled(REPORT_BYTES_MAX)), None);
    }
}
