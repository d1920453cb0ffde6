//! Runs the tests of a generated project with pytest, in the sandbox.
//!
//! The result must not be the code's to choose. Before any code of the project runs, the runner reads the test files, lists
//! their tests and compiles them so that the frame of each test confirms its own return. It sends records to the host over
//! a channel with a secret, and the host decides: a test has passed only if its frame confirms it and pytest reports it.
//! Tests that are declared and do not run are failures. [`Proof`] says what such a result is worth.

mod records;
mod settings;
mod verdict;

use std::{collections::BTreeSet, time::Duration};

use serde_json::json;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

pub use self::settings::{Allowed, Proof, TestSettings};
use self::verdict::{Counts, Verdict, judge};
use super::{
    error::SandboxError,
    job::{Finished, FixedFile, Job, Limits},
    probe::Sandbox,
    python::PythonEnvironment,
    source_file::SourceFile,
};

/// The folder of the runner's own files inside, below `/graphrun`.
const BOOT: &str = "boot";
/// The folder of the fixed tests inside.
const FIXED: &str = "/graphrun/fixed";
/// The parts of the runner that run inside.
const PARTS: [(&str, &str); 7] = [
    ("boot.py", include_str!("boot.py")),
    ("expected.py", include_str!("expected.py")),
    ("isolation.py", include_str!("isolation.py")),
    ("names.py", include_str!("names.py")),
    ("plugin.py", include_str!("plugin.py")),
    ("seal.py", include_str!("seal.py")),
    ("watch.py", include_str!("watch.py")),
];
/// The settings of pytest in the place of the project's. Test files are named one by one, so no folder is left out.
const PYTEST_SETTINGS: &str = "[pytest]\nnorecursedirs = .none\n";

/// How many characters of the output a repair gets to see: the summary and the last failures.
const ERROR_CHARACTERS_MAX: usize = 3000;

/// How a test run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PytestOutcome {
    /// All tests passed, and there is at least one.
    Passed,
    /// Tests failed or did not run, or pytest itself failed.
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
    /// The process ended before the runner had finished: by a signal, or because the code ended it.
    Crashed,
    /// Something replaced a part of the runner, a test file or a record of the runner.
    Tampered,
}

/// The result of a test run.
#[derive(Debug, Clone)]
pub struct PytestReport {
    /// How the run ended.
    pub outcome: PytestOutcome,
    /// Pytest's exit code, unless the run was stopped.
    pub exit_code: Option<i32>,
    /// What the result proves.
    pub proof: Proof,
    /// All tests; a module that could not be loaded counts as one.
    pub total: u32,
    /// Tests that passed.
    pub passed: u32,
    /// Tests that failed or did not run, errors included.
    pub failed: u32,
    /// Tests that were skipped, or expected to fail.
    pub skipped: u32,
    /// The output, cleaned; see [`Finished::output`]. Below it, the reasons that pytest does not print.
    pub output: String,
    /// The last 3,000 characters of the output; empty if the run passed.
    pub error_output: String,
    /// Time of the run.
    pub wall: Duration,
}

impl PytestReport {
    /// Whether all tests passed, with the required proof.
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

/// Runs the tests of a project, and the fixed ones of a person.
///
/// The files lie in the work folder, where pytest starts; the folder and its `src` are on the search path. The project's
/// own settings of pytest are ignored unless [`Allowed::Config`] is set.
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
    settings: &TestSettings,
    limits: &Limits,
    cancel: &CancellationToken,
) -> Result<PytestReport, PytestError> {
    if !environment.has_module("pytest") {
        return Err(PytestError::NotInstalled);
    }
    let secret = rand::random::<[u8; 32]>().to_vec();
    let (files, left_out): (Vec<SourceFile>, Vec<SourceFile>) = files
        .iter()
        .cloned()
        .partition(|it| settings.allows(Allowed::Conftest) || !is_conftest(&it.path));
    let argv = ["-I", "-S", "-B", "/graphrun/boot/boot.py"].map(str::to_owned);
    let job = Job {
        argv: [environment.python().to_owned()].into_iter().chain(argv).collect(),
        fixed: fixed_files(&files, settings, limits),
        files,
        read_only: environment.mounts().to_vec(),
        limits: limits.clone(),
        channel: Some(secret.clone()),
        ..Job::default()
    };
    let finished = sandbox.run(&job, cancel).await?;
    let records = records::read(&finished.records, &secret);
    let mut verdict = judge(finished.outcome, records.as_deref(), settings);
    if verdict.outcome != PytestOutcome::Passed && !left_out.is_empty() {
        let reason = "conftest.py is not loaded; a workflow loads it with `allow: [conftest]`";
        verdict.reasons.push(reason.to_owned());
    }
    Ok(report(finished, verdict))
}

/// Everything that appears below `/graphrun`: the runner, its settings and the fixed tests.
fn fixed_files(files: &[SourceFile], settings: &TestSettings, limits: &Limits) -> Vec<FixedFile> {
    let text =
        |path: String, content: &str| FixedFile { path, content: content.as_bytes().to_vec() };
    let parts = PARTS.map(|(name, content)| text(format!("{BOOT}/{name}"), content));
    let runner_settings = json!({
        "proof": settings.proof.as_str(),
        "arguments": arguments(settings, limits),
        "tests": test_files(files, settings),
    });
    let fixed = settings.fixed.iter().map(|file| FixedFile {
        path: format!("fixed/{}", file.path),
        content: file.content.clone(),
    });
    parts
        .into_iter()
        .chain([
            text("settings.json".to_owned(), &runner_settings.to_string()),
            text("pytest.ini".to_owned(), PYTEST_SETTINGS),
        ])
        .chain(fixed)
        .collect()
}

/// The test files as they are called inside, in the order of their paths.
fn test_files(files: &[SourceFile], settings: &TestSettings) -> Vec<String> {
    let fixed = settings.fixed.iter().map(|it| (FIXED, it.path.as_str()));
    let generated = files.iter().map(|it| ("/box", it.path.as_str()));
    let generated = generated.filter(|_| settings.proof != Proof::Isolated);
    let all: BTreeSet<String> = fixed
        .chain(generated)
        .filter(|(_, path)| is_test_file(path))
        .map(|(folder, path)| format!("{folder}/{path}"))
        .collect();
    all.into_iter().collect()
}

/// Whether pytest takes a file for one with tests, by its name.
fn is_test_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.strip_suffix(".py").is_some_and(|it| it.starts_with("test_") || it.ends_with("_test"))
}

fn is_conftest(path: &str) -> bool {
    path.rsplit('/').next() == Some("conftest.py")
}

fn arguments(settings: &TestSettings, limits: &Limits) -> Vec<String> {
    // A test that hangs is shown with its stack, shortly before the whole run is stopped.
    let stack_option =
        format!("--override-ini=faulthandler_timeout={:.1}", limits.wall.as_secs_f64() * 0.8);
    let root = if settings.proof == Proof::Isolated { FIXED } else { "/box" };
    let root_option = format!("--rootdir={root}");
    let mut arguments = vec![
        "-q",
        "--tb=short",
        "--color=no",
        &root_option,
        "--override-ini=addopts=",
        "--import-mode=importlib",
        &stack_option,
        // Every run sees the same order and writes nothing beside the tests.
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
    ];
    if !settings.allows(Allowed::Config) {
        arguments.extend(["-c", "/graphrun/pytest.ini"]);
    }
    arguments.into_iter().map(str::to_owned).collect()
}

fn report(finished: Finished, verdict: Verdict) -> PytestReport {
    let Verdict { outcome, counts, proof, reasons } = verdict;
    let mut output = finished.output;
    for reason in reasons {
        output.extend(["not passed: ", reason.as_str(), "\n"]);
    }
    let error_output = if outcome == PytestOutcome::Passed {
        String::new()
    } else {
        last(&output, ERROR_CHARACTERS_MAX)
    };
    let Counts { passed, failed, skipped, expected_to_fail } = counts;
    PytestReport {
        outcome,
        exit_code: finished.outcome.exit_code(),
        proof,
        total: passed + failed + skipped + expected_to_fail,
        passed,
        failed,
        skipped: skipped + expected_to_fail,
        output,
        error_output,
        wall: finished.wall,
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

    #[test]
    fn the_end_of_a_text_is_cut_between_characters() {
        assert_eq!(last("aé☃", 2), "é☃");
        assert_eq!(last("aé☃", 3), "aé☃");
        assert_eq!(last("aé☃", 9), "aé☃");
        assert_eq!(last("", 9), "");
    }

    #[test]
    fn test_files_are_known_by_their_names() {
        for path in ["test_a.py", "a/b/test_.py", "a/b_test.py"] {
            assert!(is_test_file(path), "{path}");
        }
        for path in ["test.py", "tests/a.py", "test_a.txt", "conftest.py", "test_a.py/b.py"] {
            assert!(!is_test_file(path), "{path}");
        }
    }
}
