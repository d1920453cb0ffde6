//! Runs the tests of a generated project with pytest, in the sandbox.
//!
//! The code under test must not decide the result. Before any code of the project runs, the runner reads the test
//! files, lists their tests and compiles them so that the frame of each test confirms its own return. It sends records
//! to the host over a channel with a secret, and the host decides: a test has passed only if its frame confirms it and
//! pytest reports it. Declared tests that do not run are failures. [`Proof`] describes what such a result proves.

use std::collections::BTreeSet;

use serde_json::json;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::{
    error::SandboxError,
    folder_file::Project,
    job::{Channel, FixedFile, Job, Limits},
    probe::Sandbox,
    python::PythonEnvironment,
    test_run::{Allowed, Proof, TestOutcome, TestReport, TestSettings, judge},
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
/// The settings of pytest, instead of the project's. Test files are named one by one, so no folder is left out.
const PYTEST_SETTINGS: &str = "[pytest]\nnorecursedirs = .none\n";

/// The reason why tests could not be run. None of these is the fault of the code under test.
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
/// own settings of pytest are ignored unless [`Allowed::Config`] is set. Without [`Allowed::Conftest`], a project has no mounted
/// folder, because its `conftest.py` is left out.
///
/// # Errors
/// When the sandbox could not run pytest, and when `cancel` fired. Everything the code does is in the report.
///
/// # Cancel safety
/// As [`Sandbox::run`].
pub async fn run_pytest(
    sandbox: &Sandbox,
    environment: &PythonEnvironment,
    project: &Project,
    settings: &TestSettings,
    limits: &Limits,
    cancel: &CancellationToken,
) -> Result<TestReport, PytestError> {
    if !environment.has_module("pytest") {
        return Err(PytestError::NotInstalled);
    }
    let secret = rand::random::<[u8; 32]>().to_vec();
    let allows_conftest = settings.allows(Allowed::Conftest);
    debug_assert!(allows_conftest || project.mounted.is_none(), "nothing of it can be left out");
    let (project, has_left_out) = project.without(|it| !allows_conftest && is_conftest(it));
    let argv = ["-I", "-S", "-B", "/graphrun/boot/boot.py"].map(str::to_owned);
    let job = Job {
        argv: [environment.python().to_owned()].into_iter().chain(argv).collect(),
        fixed: fixed_files(&project, settings, limits),
        folder: project.folder,
        mounted: project.mounted,
        files: project.files,
        read_only: environment.mounts().to_vec(),
        limits: limits.clone(),
        channel: Channel::with_secret(secret.clone()),
        ..Job::default()
    };
    let finished = sandbox.run(&job, cancel).await?;
    let mut verdict = judge(&finished, &secret, settings);
    if verdict.outcome != TestOutcome::Passed && has_left_out {
        let reason = "conftest.py is not loaded; a workflow loads it with `allow: [conftest]`";
        verdict.reasons.push(reason.to_owned());
    }
    let code = finished.end.exit_code();
    Ok(TestReport::of(finished.output, code, finished.wall, verdict))
}

/// Everything that appears below `/graphrun`: the runner, its settings and the fixed tests.
fn fixed_files(project: &Project, settings: &TestSettings, limits: &Limits) -> Vec<FixedFile> {
    let text =
        |path: String, content: &str| FixedFile { path, content: content.as_bytes().to_vec() };
    let parts = PARTS.map(|(name, content)| text(format!("{BOOT}/{name}"), content));
    let runner_settings = json!({
        "proof": settings.proof.as_str(),
        "arguments": arguments(settings, limits),
        "tests": test_files(project, settings),
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

/// Returns the paths of the test files inside, in their order.
fn test_files(project: &Project, settings: &TestSettings) -> Vec<String> {
    let fixed = settings.fixed.iter().map(|it| (FIXED, it.path.as_str()));
    let generated = project.paths().map(|it| ("/box", it));
    let generated = generated.filter(|_| settings.proof != Proof::Isolated);
    let all: BTreeSet<String> = fixed
        .chain(generated)
        .filter(|(_, path)| is_test_file(path))
        .map(|(folder, path)| format!("{folder}/{path}"))
        .collect();
    all.into_iter().collect()
}

/// Returns whether pytest treats a file as a test file by its name.
fn is_test_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.strip_suffix(".py").is_some_and(|it| it.starts_with("test_") || it.ends_with("_test"))
}

fn is_conftest(path: &str) -> bool {
    path.rsplit('/').next() == Some("conftest.py")
}

fn arguments(settings: &TestSettings, limits: &Limits) -> Vec<String> {
    // The stack of a hanging test is printed shortly before the whole run is stopped.
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
        // Every run has the same order and writes nothing beside the tests.
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
    ];
    if settings.runs_rest {
        arguments.push("--continue-on-collection-errors");
    }
    if !settings.allows(Allowed::Config) {
        arguments.extend(["-c", "/graphrun/pytest.ini"]);
    }
    arguments.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
