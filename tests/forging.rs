//! Results of tests that programs try to forge, and honest projects in unusual layouts.
//!
//! The programs are data: `tests/forging` and `tests/honest`.

#![expect(clippy::unwrap_used, reason = "a test fails where its setup fails")]

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    os::unix::{
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    },
    path::Path,
    process::Command,
    time::Duration,
};

use futures_util::{StreamExt, stream};
use graphrun::sandbox::{
    Allowed, FixedFile, Limits, Project, Proof, PythonEnvironment, Sandbox, SourceFile, TestReport,
    TestSettings, run_node, run_pytest,
};
use tokio_util::sync::CancellationToken;

use crate::support::{cache_dir, copy_own_program, some_of, test_name};

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

/// A runner with its environment.
enum Runner {
    Pytest(PythonEnvironment),
    Node,
}

impl Runner {
    /// The runner of a file of programs.
    async fn of(path: &str) -> Self {
        if path.ends_with("/javascript.txt") {
            return Self::Node;
        }
        Self::Pytest(
            PythonEnvironment::prepare(&["pytest".to_owned()], &cache_dir()).await.unwrap(),
        )
    }

    async fn run(&self, sandbox: &Sandbox, program: Program, limits: &Limits) -> TestReport {
        let Program { name, files, settings } = program;
        let cancel = CancellationToken::new();
        let project = Project { files, ..Project::default() };
        match self {
            Self::Pytest(environment) => {
                let ran = run_pytest(sandbox, environment, &project, &settings, limits, &cancel);
                ran.await.unwrap_or_else(|error| panic!("{name}: {error}"))
            }
            Self::Node => {
                let ran = run_node(sandbox, &[], &project, &settings, limits, &cancel).await;
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

/// Adds the failing test to programs that have none.
fn with_failing_test(path: &str, mut program: Program) -> Program {
    let Program { name, files, settings } = &mut program;
    match path {
        "forging/javascript.txt" => {
            if !files.iter().any(|it| it.path.contains(".test.")) {
                files.push(file("a.test.js", FAILING_TEST_OF_NODE));
            }
        }
        "forging/isolated_javascript.txt" => {
            settings.fixed.push(test_that_starts("'node', 'app.js'", ""));
        }
        "forging/rust.txt" | "honest/rust.txt" => {
            files.push(file("app.hex", &compiled(name, &files[0].content)));
            settings.fixed.push(test_that_starts(
                "'/box/app'",
                "program = pathlib.Path('/box/app')\n\
                 program.write_bytes(bytes.fromhex(pathlib.Path('/box/app.hex').read_text()))\n\
                 program.chmod(0o755)\n",
            ));
        }
        _ if settings.proof == Proof::Isolated => {
            if settings.fixed.is_empty() {
                settings.fixed.push(test_that_starts("sys.executable, 'app.py'", ""));
            }
        }
        _ => {
            let has_own = |file: &SourceFile| {
                file.path == "test_a.py" || file.content.contains("def test_a(")
            };
            if !files.iter().any(has_own) {
                files.push(file("test_a.py", "def test_a():\n    assert False\n"));
            }
        }
    }
    program
}

/// A test of a person that expects 3 from a program. `prepare` stands at the top of its file.
fn test_that_starts(command: &str, prepare: &str) -> FixedFile {
    let text = format!(
        "import pathlib, subprocess, sys\n\n{prepare}\ndef test_app():\n    printed = subprocess.run(\
         [{command}], capture_output=True, text=True, timeout=5).stdout\n    assert printed.strip() == '3'\n"
    );
    FixedFile { path: "acceptance/test_app.py".to_owned(), content: text.into() }
}

const FAILING_TEST_OF_NODE: &str = "const test = require('node:test');
const assert = require('node:assert');
const app = require('./app.js');
test('a', () => assert.strictEqual(app.add?.(1, 2) ?? 4, 3));
";

fn file(path: &str, content: &str) -> SourceFile {
    SourceFile { path: path.to_owned(), content: content.to_owned() }
}

/// A folder with programs that another user has compiled.
const COMPILED: &str = "tests/compiled";

/// Compiles a program with the compiler of these tests, and writes it as text.
fn compiled(name: &str, source: &str) -> String {
    if let Ok(text) = fs::read_to_string(Path::new(COMPILED).join(name)) {
        return text;
    }
    let folder = tempfile::tempdir().unwrap();
    let [from, to] = ["app.rs", "app"].map(|it| folder.path().join(it));
    fs::write(&from, source).unwrap();
    let compiler = Path::new(env!("CARGO")).with_file_name("rustc");
    let options =
        ["--edition=2021", "-Copt-level=z", "-Cstrip=symbols", "-Cpanic=abort", "-Awarnings", "-o"];
    let done = Command::new(&compiler).args(options).arg(&to).arg(&from).output();
    let done =
        done.unwrap_or_else(|error| panic!("these tests need {}: {error}", compiler.display()));
    assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
    fs::read(&to).unwrap().iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Runs programs, a few at a time.
async fn run_all(path: &str, programs: Vec<Program>, wall: Duration) -> Vec<(String, TestReport)> {
    let sandbox = &Sandbox::probe().unwrap();
    let runner = &Runner::of(path).await;
    let limits = &Limits { wall, ..Limits::default() };
    let runs = programs.into_iter().map(|program| async move {
        (program.name.clone(), runner.run(sandbox, program, limits).await)
    });
    stream::iter(runs).buffered(WIDTH).collect().await
}

async fn assert_none_passes(path: &str, proof: Proof) {
    assert_no_result_is_forged(path, some_of(3, programs(path, proof))).await;
}

async fn assert_no_result_is_forged(path: &str, programs: Vec<Program>) {
    let programs = programs.into_iter();
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
    let programs = some_of(3, programs(path, proof));
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

#[tokio::test]
async fn no_program_in_rust_forges_a_result_of_isolated_tests() {
    assert_none_passes("forging/rust.txt", Proof::Isolated).await;
}

#[tokio::test]
async fn no_program_in_javascript_forges_a_result_of_isolated_tests() {
    assert_none_passes("forging/isolated_javascript.txt", Proof::Isolated).await;
}

#[tokio::test]
async fn an_honest_program_in_rust_passes_isolated_tests() {
    assert_all_pass("honest/rust.txt", Proof::Isolated).await;
}

/// The programs that an ordinary user runs.
const FORGED: [(&str, Proof); 5] = [
    ("forging/in_process.txt", Proof::InProcess),
    ("forging/isolated.txt", Proof::Isolated),
    ("forging/javascript.txt", Proof::InProcess),
    ("forging/isolated_javascript.txt", Proof::Isolated),
    ("forging/rust.txt", Proof::Isolated),
];
const HONEST: [(&str, Proof); 4] = [
    ("honest/projects.txt", Proof::InProcess),
    ("honest/isolated.txt", Proof::Isolated),
    ("honest/javascript.txt", Proof::InProcess),
    ("honest/rust.txt", Proof::Isolated),
];

/// The other tests run as the user that started them. Where that is root, this test runs itself again as an ordinary user, who
/// makes the sandbox with other rights; elsewhere it runs the programs at once. A few of the programs are enough each
/// time.
#[tokio::test]
async fn an_ordinary_user_gets_no_forged_result() {
    if nix::unistd::geteuid().is_root() {
        run_again_as_an_ordinary_user("an_ordinary_user_gets_no_forged_result").await;
        return;
    }
    for (path, proof) in FORGED {
        assert_no_result_is_forged(path, some_of(6, programs(path, proof))).await;
    }
    for (path, proof) in HONEST {
        assert_all_pass(path, proof).await;
    }
}

/// Starts one test of this program as the user `nobody`, in a folder that this user can read.
async fn run_again_as_an_ordinary_user(test: &str) {
    const NOBODY: u32 = 65534;
    // The user finds the packages here, and installs none.
    Runner::of("forging/isolated.txt").await;
    let folder = tempfile::tempdir().unwrap();
    let [program, home, data] = ["forging", "home", "tests"].map(|it| folder.path().join(it));
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    copy_own_program(&program);
    fs::create_dir(&home).unwrap();
    chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
    let compiled_folder = folder.path().join(COMPILED);
    fs::create_dir_all(&compiled_folder).unwrap();
    for (path, proof) in FORGED.into_iter().chain(HONEST) {
        fs::create_dir_all(data.join(path).parent().unwrap()).unwrap();
        fs::copy(Path::new("tests").join(path), data.join(path)).unwrap();
        // The compiler may lie in the home of this user.
        for Program { name, files, .. } in programs(path, proof) {
            if path.ends_with("/rust.txt") {
                let text = compiled(&name, &files[0].content);
                fs::write(compiled_folder.join(name), text).unwrap();
            }
        }
    }
    let done = Command::new(program)
        .args([&test_name(module_path!(), test), "--exact", "--nocapture"])
        .current_dir(folder.path())
        .uid(NOBODY)
        .gid(NOBODY)
        .env("HOME", home)
        .env("XDG_CACHE_HOME", cache_dir().parent().unwrap())
        .output()
        .unwrap();
    let printed = [done.stdout, done.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    assert!(done.status.success(), "{}", printed.concat());
    assert!(printed[0].contains("1 passed"), "the test did not run again: {}", printed.concat());
}
