//! Test runs of generated projects, with the pytest of a prepared environment.

#![expect(clippy::unwrap_used, reason = "a test fails where its setup fails")]

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, time::Duration};

use graphrun::sandbox::{
    Allowed, Limits, Project, PytestError, PythonEnvironment, Sandbox, SourceFile, TestOutcome,
    TestReport, TestSettings, run_pytest,
};
use tokio_util::sync::CancellationToken;

/// A cache that outlives the tests, so that packages are fetched once, and that `nobody` can read.
fn cache() -> PathBuf {
    let cache = std::env::temp_dir().join(format!("graphrun-tests-{}", nix::unistd::geteuid()));
    fs::create_dir_all(&cache).unwrap();
    fs::set_permissions(&cache, PermissionsExt::from_mode(0o755)).unwrap();
    cache
}

async fn environment() -> PythonEnvironment {
    match PythonEnvironment::prepare(&["pytest".to_owned()], &cache()).await {
        Ok(environment) => environment,
        Err(error) => {
            panic!("these tests need pytest: {error}; {}", error.hint().unwrap_or_default())
        }
    }
}

fn files(files: &[(&str, &str)]) -> Vec<SourceFile> {
    files
        .iter()
        .map(|(path, content)| SourceFile {
            path: (*path).to_owned(),
            content: (*content).to_owned(),
        })
        .collect()
}

async fn run_with(settings: &TestSettings, limits: Limits, project: &[(&str, &str)]) -> TestReport {
    let sandbox = Sandbox::probe().unwrap();
    let environment = environment().await;
    let files = files(project);
    let cancel = CancellationToken::new();
    let project = Project { files, ..Project::default() };
    run_pytest(&sandbox, &environment, &project, settings, &limits, &cancel).await.unwrap()
}

async fn run_within(limits: Limits, project: &[(&str, &str)]) -> TestReport {
    run_with(&TestSettings::default(), limits, project).await
}

async fn run(project: &[(&str, &str)]) -> TestReport {
    run_within(Limits { wall: Duration::from_secs(30), ..Limits::default() }, project).await
}

const CALCULATOR: &str = "def add(a, b):\n    return a + b\n";

#[tokio::test]
async fn a_project_that_works_passes() {
    let allow = [Allowed::Skip].into();
    let settings = TestSettings { allow, ..TestSettings::default() };
    let project = [
        ("app/__init__.py", ""),
        ("app/calculator.py", CALCULATOR),
        (
            "tests/test_app.py",
            "import pytest\nfrom app.calculator import add\n\n@pytest.mark.parametrize('a', [1, 2])\ndef test_add(a):\n    assert add(a, 1) == a + 1\n\n@pytest.mark.skip\ndef test_later():\n    assert False\n",
        ),
    ];
    let report = run_with(&settings, Limits::default(), &project).await;
    assert_eq!(report.outcome, TestOutcome::Passed, "{}", report.output);
    assert!(report.is_passed());
    assert_eq!((report.total, report.passed, report.failed, report.skipped), (3, 2, 0, 1));
    assert_eq!((report.exit_code, report.error_output.as_str()), (Some(0), ""));
}

#[tokio::test]
async fn modules_are_found_beside_the_tests_at_the_top_and_in_src() {
    for path in ["calculator.py", "src/calculator.py", "tests/calculator.py"] {
        let test = "from calculator import add\n\ndef test_add():\n    assert add(1, 2) == 3\n";
        let report = run(&[(path, CALCULATOR), ("tests/test_calculator.py", test)]).await;
        assert_eq!(report.outcome, TestOutcome::Passed, "{path}: {}", report.output);
    }
    let test = "from src.calculator import add\n\ndef test_add():\n    assert add(1, 2) == 3\n";
    let report =
        run(&[("src/calculator.py", CALCULATOR), ("tests/test_calculator.py", test)]).await;
    assert_eq!(report.outcome, TestOutcome::Passed, "{}", report.output);
}

#[tokio::test]
async fn a_failure_shows_the_compared_values() {
    let test = "from calculator import add\n\ndef test_add():\n    assert add(1, 2) == 4\n\ndef test_fine():\n    pass\n";
    let report = run(&[("calculator.py", CALCULATOR), ("test_calculator.py", test)]).await;
    assert_eq!(report.outcome, TestOutcome::Failed);
    assert_eq!((report.total, report.passed, report.failed, report.exit_code), (2, 1, 1, Some(1)));
    assert!(report.error_output.contains("assert 3 == 4"), "{}", report.error_output);
    assert!(report.error_output.contains("test_calculator.py:4"), "{}", report.error_output);
    assert!(report.error_output.chars().count() <= 3000);
}

#[tokio::test]
async fn a_module_that_does_not_load_is_a_failure_to_be_seen() {
    for (project, shown) in [
        ([("test_a.py", "import nonexistent_module\n"), ("b.py", "")], "nonexistent_module"),
        ([("test_a.py", "def test_a(:\n"), ("b.py", "")], "SyntaxError"),
        ([("conftest.py", "1 / 0\n"), ("test_a.py", "def test_a(): pass\n")], "ZeroDivisionError"),
    ] {
        let report = run(&project).await;
        assert_eq!(report.outcome, TestOutcome::CollectionFailed, "{}", report.output);
        assert!(report.error_output.contains(shown), "{shown}: {}", report.error_output);
    }
}

#[tokio::test]
async fn a_project_without_tests_does_not_pass() {
    assert_eq!(run(&[("app.py", CALCULATOR)]).await.outcome, TestOutcome::NoTests);
    let skipped = "import pytest\n\n@pytest.mark.skip\ndef test_a():\n    pass\n";
    assert_eq!(run(&[("test_a.py", skipped)]).await.outcome, TestOutcome::NoTests);
    let deselecting = "[tool.pytest.ini_options]\naddopts = \"-k nothing\"\n";
    let failing = "def test_a():\n    assert False\n";
    let report = run(&[("pyproject.toml", deselecting), ("test_a.py", failing)]).await;
    assert_eq!(report.outcome, TestOutcome::Failed, "{}", report.output);
}

#[tokio::test]
async fn errors_before_and_after_a_test_are_failures() {
    let test = "import pytest\n\n@pytest.fixture\ndef broken():\n    yield\n    raise ValueError('late')\n\ndef test_a(broken):\n    pass\n";
    let report = run(&[("test_a.py", test)]).await;
    assert_eq!((report.outcome, report.exit_code), (TestOutcome::Failed, Some(1)));
    assert!(report.failed >= 1, "{report:?}");
}

#[tokio::test]
async fn cheating_does_not_pass() {
    let forged = "<testsuites><testsuite><testcase name=\"a\"/></testsuite></testsuites>";
    let overwrite = format!(
        "import atexit, glob, os\n\ndef test_a():\n    assert False\n\ndef forge():\n    for path in glob.glob('report*.xml') + ['report.xml']:\n        open(path, 'w').write('{forged}')\n\natexit.register(forge)\n"
    );
    for (test, outcome) in [
        ("import os\nos._exit(0)\n", TestOutcome::Crashed),
        ("import os\n\ndef test_a():\n    os._exit(0)\n", TestOutcome::Crashed),
        ("import sys\nsys.exit(0)\n", TestOutcome::Failed),
        (overwrite.as_str(), TestOutcome::Failed),
    ] {
        let report = run(&[("test_a.py", test), ("report.xml", forged)]).await;
        assert!(!report.is_passed(), "{test}");
        let is_expected =
            report.outcome == outcome || report.outcome == TestOutcome::CollectionFailed;
        assert!(is_expected, "{test}: {:?} {}", report.outcome, report.output);
    }
}

#[tokio::test]
async fn endless_tests_are_stopped_and_shown() {
    let limits = Limits { wall: Duration::from_secs(8), ..Limits::default() };
    let test =
        "import time\n\ndef test_fine():\n    pass\n\ndef test_endless():\n    time.sleep(60)\n";
    let report = run_within(limits, &[("test_a.py", test)]).await;
    assert_eq!((report.outcome, report.exit_code), (TestOutcome::TimedOut, None));
    assert!(report.error_output.contains("test_endless"), "{}", report.error_output);
    assert!(report.wall < Duration::from_secs(9), "{:?}", report.wall);
}

#[tokio::test]
async fn an_environment_without_pytest_is_no_failure_of_the_code() {
    let environment = PythonEnvironment::prepare(&[], &cache()).await.unwrap();
    let sandbox = Sandbox::probe().unwrap();
    let files = files(&[("test_a.py", "def test_a(): pass\n")]);
    let project = Project { files, ..Project::default() };
    let settings = TestSettings::default();
    let limits = Limits::default();
    let cancel = CancellationToken::new();
    let result = run_pytest(&sandbox, &environment, &project, &settings, &limits, &cancel).await;
    assert!(matches!(result, Err(PytestError::NotInstalled)), "{result:?}");
}

#[tokio::test]
async fn the_environment_cannot_be_changed_by_a_run() {
    let test = "import pathlib, pytest, sys\n\ndef test_a():\n    for path in [pathlib.Path(pytest.__file__), pathlib.Path(sys.prefix, 'evil.pth')]:\n        with pytest.raises(OSError):\n            path.open('a')\n    assert sys.prefix == '/env'\n";
    let report = run(&[("test_a.py", test)]).await;
    assert_eq!(report.outcome, TestOutcome::Passed, "{}", report.output);
}

#[tokio::test]
async fn packages_are_precompiled_under_their_sandbox_paths() {
    let environment = environment().await;
    let compiled = find(environment.folder(), "main.cpython").expect("no compiled file");
    let content = fs::read(compiled).unwrap();
    let contains = |text: &str| content.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(contains("/env/lib/python"), "the path inside is not in the compiled file");
    assert!(
        !contains(environment.folder().to_str().unwrap()),
        "a path of the host is in the compiled file"
    );
}

fn find(folder: &std::path::Path, start: &str) -> Option<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()).find_map(|entry| {
        if entry.file_type().unwrap().is_dir() {
            return find(&entry.path(), start);
        }
        entry.file_name().to_string_lossy().starts_with(start).then(|| entry.path())
    })
}
