//! Results of tests that programs try to forge, and honest projects in unusual layouts.
//!
//! The programs are data: `tests/forging` and `tests/honest`.

#![expect(clippy::unwrap_used, reason = "a test ends where what it needs is missing")]

mod support;

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use futures_util::{StreamExt, stream};
use graphrun::sandbox::{
    Allowed, FixedFile, Limits, Proof, PythonEnvironment, Sandbox, SourceFile, TestReport,
    TestSettings, run_node, run_pytest,
};
use support::cache_dir;
use tokio_util::sync::CancellationToken;

/// How many sandboxes run side by side.
const WIDTH: usize = 2;
/// The time of a program that forges: some wait for their own end.
const FORGING_TIME: Duration = Duration::from_secs(15);
/// The time of an honest program, also on a busy machine.
const HONEST_TIME: Duration = Duration::from_secs(60);

/// A program of the corpus.
struct Program {
    name: String,
    files: Vec<SourceFile>,
    settings: TestSettings,
}

/// A runner with what it needs.
enum Runner {
    Pytest(PythonEnvironment),
    Node,
}

impl Runner {
    /// The runner of a file of programs.
    async fn of(path: &str) -> Self {
        if path.ends_with("javascript.txt") {
            return Self::Node;
        }
        Self::Pytest(
            PythonEnvironment::prepare(&["pytest".to_owned()], &cache_dir()).await.unwrap(),
        )
    }

    async fn run(&self, sandbox: &Sandbox, program: Program, limits: &Limits) -> TestReport {
        let Program { name, files, settings } = program;
        let cancel = CancellationToken::new();
        match self {
            Self::Pytest(environment) => {
                let ran = run_pytest(sandbox, environment, &files, &settings, limits, &cancel);
                ran.await.unwrap_or_else(|error| panic!("{name}: {error}"))
            }
            Self::Node => {
                let ran = run_node(sandbox, &files, &settings, limits, &cancel).await;
                ran.unwrap_or_else(|error| panic!("{name}: {error}"))
            }
        }
    }
}

/// Reads the programs of one file.
fn programs(path: &str, proof: Proof) -> Vec<Program> {
    let text = fs::read_to_string(Path::new("tests").join(path)).unwrap();
    let parts = text.split("\n=== ").skip(1);
    parts.map(|part| program(part, proof)).collect()
}

fn program(text: &str, proof: Proof) -> Program {
    let mut lines = text.lines();
    let name = lines.next().unwrap().to_owned();
    let mut settings = TestSettings { proof, ..TestSettings::default() };
    let mut files: Vec<(bool, String, String)> = Vec::new();
    for line in lines {
        if let Some(words) = line.strip_prefix("allow: ").filter(|_| files.is_empty()) {
            settings.allow = words.split(' ').map(allowed).collect();
        } else if let Some(path) = line.strip_prefix("--- ") {
            files.push((false, path.to_owned(), String::new()));
        } else if let Some(path) = line.strip_prefix("+++ ") {
            files.push((true, path.to_owned(), String::new()));
        } else if let Some((_, _, content)) = files.last_mut() {
            content.push_str(line);
            content.push('\n');
        }
    }
    let (fixed, generated): (Vec<_>, Vec<_>) = files.into_iter().partition(|(fixed, ..)| *fixed);
    let fixed = fixed.into_iter().map(|(_, path, text)| FixedFile { path, content: text.into() });
    settings.fixed = fixed.collect();
    let generated = generated.into_iter().map(|(_, path, content)| SourceFile { path, content });
    Program { name, files: generated.collect(), settings }
}

fn allowed(word: &str) -> Allowed {
    Allowed::ALL.into_iter().find(|it| it.as_str() == word).unwrap()
}

/// Adds the test that fails to programs without one of their own.
fn with_failing_test(path: &str, mut program: Program) -> Program {
    if path == "forging/javascript.txt" {
        if !program.files.iter().any(|it| it.path.contains(".test.")) {
            let content =
                "const test = require('node:test');\nconst assert = require('node:assert');\n\
                           const app = require('./app.js');\n\
                           test('a', () => assert.strictEqual(app.add?.(1, 2) ?? 4, 3));\n"
                    .to_owned();
            program.files.push(SourceFile { path: "a.test.js".to_owned(), content });
        }
        return program;
    }
    let has_own = |it: &SourceFile| it.path == "test_a.py" || it.content.contains("def test_a(");
    if program.settings.proof == Proof::Isolated {
        if program.settings.fixed.is_empty() {
            let text = "import subprocess, sys\n\ndef test_app():\n    printed = subprocess.run(\
                        [sys.executable, 'app.py'], capture_output=True, text=True).stdout\n    \
                        assert printed.strip() == '3'\n";
            let path = "acceptance/test_app.py".to_owned();
            program.settings.fixed.push(FixedFile { path, content: text.into() });
        }
    } else if !program.files.iter().any(has_own) {
        let content = "def test_a():\n    assert False\n".to_owned();
        program.files.push(SourceFile { path: "test_a.py".to_owned(), content });
    }
    program
}

/// Runs programs, a few at a time.
async fn run_all(path: &str, programs: Vec<Program>, wall: Duration) -> Vec<(String, TestReport)> {
    let (sandbox, runner) = (&Sandbox::probe().unwrap(), &Runner::of(path).await);
    let limits = &Limits { wall, ..Limits::default() };
    let runs = programs.into_iter().map(|program| async move {
        (program.name.clone(), runner.run(sandbox, program, limits).await)
    });
    stream::iter(runs).buffered(WIDTH).collect().await
}

async fn assert_none_passes(path: &str, proof: Proof) {
    let programs = programs(path, proof).into_iter();
    let programs: Vec<Program> = programs.map(|it| with_failing_test(path, it)).collect();
    let names: BTreeSet<&str> = programs.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names.len(), programs.len(), "two programs have one name");
    let forged: Vec<String> = run_all(path, programs, FORGING_TIME)
        .await
        .into_iter()
        .filter(|(_, report)| report.is_passed())
        .map(|(name, report)| format!("{name}: {}", report.output))
        .collect();
    assert!(forged.is_empty(), "{}", forged.join("\n"));
}

async fn assert_all_pass(path: &str, proof: Proof) {
    let programs = programs(path, proof);
    let programs = if proof == Proof::Isolated {
        programs.into_iter().map(|it| with_failing_test(path, it)).collect()
    } else {
        programs
    };
    let refused: Vec<String> = run_all(path, programs, HONEST_TIME)
        .await
        .into_iter()
        .filter(|(_, report)| !report.is_passed() || report.proof != proof)
        .map(|(name, report)| format!("{name}: {:?} {}", report.outcome, report.output))
        .collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[tokio::test]
async fn no_program_forges_a_result_in_the_process_of_its_tests() {
    assert_none_passes("forging/in_process.txt", Proof::InProcess).await;
}

#[tokio::test]
async fn no_program_forges_a_result_of_isolated_tests() {
    assert_none_passes("forging/isolated.txt", Proof::Isolated).await;
}

#[tokio::test]
async fn honest_projects_pass_in_unusual_layouts() {
    assert_all_pass("honest/projects.txt", Proof::InProcess).await;
}

#[tokio::test]
async fn honest_programs_pass_isolated_tests() {
    assert_all_pass("honest/isolated.txt", Proof::Isolated).await;
}

#[tokio::test]
async fn no_program_forges_a_result_of_node() {
    assert_none_passes("forging/javascript.txt", Proof::InProcess).await;
}

#[tokio::test]
async fn honest_projects_pass_with_node() {
    assert_all_pass("honest/javascript.txt", Proof::InProcess).await;
}
