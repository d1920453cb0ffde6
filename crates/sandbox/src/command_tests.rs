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
    output::clean_text,
    probe::Sandbox,
    report_error::ReportError,
    tap,
    test_item::{Tally, TestCounts, TestItem},
    test_run::Allowed,
};

/// The largest report that is read.
const REPORT_BYTES_MAX: usize = 4 << 20;
/// The most characters of the reason why a report cannot be read. It may contain a part of the report.
const REASON_CHARACTERS_MAX: usize = 200;
/// The most failures of no test that are named.
const NAMED_MAX: usize = 5;

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

    fn read(self, report: &[u8]) -> Result<Tally, ReportError> {
        if report.len() > REPORT_BYTES_MAX {
            return Err(ReportError::TooLarge);
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
    let tally = read_report(&finished, command);
    let problem = problem(finished.end, &tally, command.allow.contains(&Allowed::Skip));
    let mut output = finished.output;
    if let Some(problem) = &problem {
        output.extend(["not passed: ", clean_text(problem).as_str(), "\n"]);
    }
    let (counts, items) = tally.ok().map(|it| (it.counts, it.items)).unzip();
    let items = items.unwrap_or_default();
    CommandReport { is_passed: problem.is_none(), counts, items, output, wall: finished.wall }
}

/// Reads the report of a command, or returns why it cannot be read.
fn read_report(finished: &JobResult, command: &TestCommand) -> Result<Tally, String> {
    let form = command.report.as_str();
    let shown = |error: ReportError| -> String {
        error.to_string().chars().take(REASON_CHARACTERS_MAX).collect()
    };
    let Some(path) = &command.report_path else {
        return command.report.read(finished.output.as_bytes()).map_err(|error| {
            let error = shown(error);
            let help = if finished.is_output_cut {
                "; it is too long to be kept: write the report to a file, and name that with `report_path`"
            } else {
                ""
            };
            format!("the command printed no `{form}` report that can be read: {error}{help}")
        });
    };
    let read = match finished.collected.get(path) {
        Some(report) => command.report.read(report),
        None if finished.is_too_large => Err(ReportError::TooLarge),
        None => return Err(format!("the command left no file `{path}` with a report")),
    };
    read.map_err(|error| {
        format!("`{path}` is no `{form}` report that can be read: {}", shown(error))
    })
}

/// Why a result is no pass.
fn problem(end: ProgramEnd, tally: &Result<Tally, String>, allows_skips: bool) -> Option<String> {
    match (end, tally) {
        (ProgramEnd::TimedOut, _) => Some("the time of the sandbox is over".to_owned()),
        (ProgramEnd::OutOfMemory, _) => Some("the memory of the sandbox is used up".to_owned()),
        (ProgramEnd::OutputLimit, _) => Some("the command printed too much".to_owned()),
        (_, Err(reason)) => Some(reason.clone()),
        (ProgramEnd::Signaled(signal), _) => Some(format!("signal {signal} ended the command")),
        (ProgramEnd::Exited(0), Ok(Tally { counts, other_failures, .. })) => {
            let TestCounts { passed, failed, skipped } = *counts;
            if failed > 0 {
                let others = other_failures.iter().take(NAMED_MAX).map(|it| format!("; {it}"));
                Some(format!("the report has failures{}", others.collect::<String>()))
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
        let counts = |passed, failed, skipped| {
            let counts = TestCounts { passed, failed, skipped };
            Ok(Tally { counts, ..Tally::default() })
        };
        assert_eq!(problem(ProgramEnd::Exited(0), &counts(1, 0, 0), false), None);
        assert_eq!(problem(ProgramEnd::Exited(0), &counts(1, 0, 1), true), None);
        for (end, tally) in [
            (ProgramEnd::Exited(0), Err("no report".to_owned())),
            (ProgramEnd::Exited(0), counts(0, 0, 0)),
            (ProgramEnd::Exited(0), counts(1, 1, 0)),
            (ProgramEnd::Exited(0), counts(1, 0, 1)),
            (ProgramEnd::Exited(1), counts(1, 0, 0)),
            (ProgramEnd::Signaled(9), counts(1, 0, 0)),
            (ProgramEnd::TimedOut, counts(1, 0, 0)),
        ] {
            assert!(problem(end, &tally, false).is_some(), "{end:?} {tally:?}");
        }
        let stopped = problem(ProgramEnd::TimedOut, &Err("no report".to_owned()), false);
        assert_eq!(stopped.unwrap(), "the time of the sandbox is over");
    }

    /// A command that ended with 0.
    fn finished(output: &str, is_output_cut: bool, file: Option<&str>) -> JobResult {
        let collected = file.map(|it| ("r.xml".to_owned(), it.as_bytes().to_vec()));
        JobResult {
            output: output.to_owned(),
            is_output_cut,
            collected: collected.into_iter().collect(),
            ..JobResult::of(ProgramEnd::Exited(0))
        }
    }

    #[test]
    fn a_report_that_cannot_be_read_is_named_with_its_reason() {
        let of = |form, path: Option<&str>, finished| {
            let report_path = path.map(str::to_owned);
            let command =
                TestCommand { argv: Vec::new(), report: form, report_path, allow: BTreeSet::new() };
            report(finished, &command).output
        };
        for (form, path, finished, expected) in [
            (
                ReportForm::Tap,
                None,
                finished("1..2\nok 1\n", false, None),
                "the command printed no `tap` report that can be read: it plans 2 tests, and reports 1\n",
            ),
            (
                ReportForm::Libtest,
                None,
                finished("", true, None),
                "result of a test program; it is too long to be kept: write the report to a file, and name that with \
                 `report_path`\n",
            ),
            (
                ReportForm::Junit,
                Some("r.xml"),
                finished("", false, None),
                "the command left no file `r.xml` with a report\n",
            ),
            (
                ReportForm::Junit,
                Some("r.xml"),
                finished("", false, Some("<html/>")),
                "`r.xml` is no `junit` report that can be read: its root element is no `testsuites` or `testsuite`\n",
            ),
            (
                ReportForm::Junit,
                Some("r.xml"),
                finished("", false, Some("<testsuite name='s' errors='1'><testcase/></testsuite>")),
                "not passed: the report has failures; the suite `s` states failures or errors that no test of it shows\n",
            ),
        ] {
            let output = of(form, path, finished);
            assert!(output.ends_with(expected), "{output}");
        }
    }

    #[test]
    fn a_report_that_is_too_large_counts_nothing() {
        let filled = |bytes: usize| format!("1..1\nok 1\n{}", " ".repeat(bytes)).into_bytes();
        assert!(ReportForm::Tap.read(&filled(9)).is_ok());
        let read = ReportForm::Tap.read(&filled(REPORT_BYTES_MAX));
        assert!(matches!(read, Err(ReportError::TooLarge)), "{read:?}");
    }
}
