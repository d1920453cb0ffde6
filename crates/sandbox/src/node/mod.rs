//! Runs the tests of a generated project with the test runner of node, in the sandbox.
//!
//! Each test file runs in a new sandbox with another secret, so no file can change the result of another one. Before
//! any code of the project runs, the runner inside locks the functions that tests depend on, replaces the hook where
//! `node:test` makes its tests, and lists the tests that the file declares. The host judges as it does for pytest.

mod private;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::{
    error::SandboxError,
    folder_file::Project,
    job::{Channel, FixedFile, Job, JobResult, Limits, Mount, ProgramEnd},
    launch::SHELL,
    probe::Sandbox,
    test_item::TestItem,
    test_run::{Counts, Proof, TestOutcome, TestReport, TestSettings, Verdict, judge},
};

/// The program of the sandbox that runs the tests.
const NODE: &str = "node";
/// Finds the options of this version of node, and starts it.
const START: &str = include_str!("start.sh");
/// The exit code of a runner that this version of node cannot run. No code of the project has run then.
const UNSUPPORTED: i32 = 125;
/// The parts of the runner that run inside, below `/graphrun`.
const PARTS: [(&str, &str); 5] = [
    ("boot.cjs", include_str!("boot.cjs")),
    ("declared.cjs", include_str!("declared.cjs")),
    ("lock.cjs", include_str!("lock.cjs")),
    ("seal.cjs", include_str!("seal.cjs")),
    ("watch.cjs", include_str!("watch.cjs")),
];

/// Runs the tests of a project, and the fixed ones of a person, with the test runner of node.
///
/// The files lie in the work folder, where node starts, and `mounts` can have packages. The time of `limits` is that of
/// all test files together.
///
/// # Errors
/// When the sandbox has no node that can run the tests, and when `cancel` fired. Everything the code does is in the report.
///
/// # Cancel safety
/// As [`Sandbox::run`].
pub async fn run_node(
    sandbox: &Sandbox,
    mounts: &[Mount],
    project: &Project,
    settings: &TestSettings,
    limits: &Limits,
    cancel: &CancellationToken,
) -> Result<TestReport, SandboxError> {
    let start = Instant::now();
    let mut run = Run::default();
    for path in test_files(project, settings) {
        let wall = limits.wall.saturating_sub(start.elapsed());
        if wall.is_zero() {
            run.outcomes.insert(TestOutcome::TimedOut);
            run.reasons.push(format!("{path}: the time of the sandbox is over"));
            break;
        }
        let secret = rand::random::<[u8; 32]>().to_vec();
        let limits = Limits { wall, ..limits.clone() };
        let job = job(&path, project, settings, limits, secret.clone());
        let job = Job { read_only: mounts.to_vec(), ..job };
        let finished = sandbox.run(&job, cancel).await?;
        if finished.records.is_empty() && finished.end == ProgramEnd::Exited(UNSUPPORTED) {
            return Err(SandboxError::Setup { detail: finished.output });
        }
        let verdict = judge(&finished, &secret, settings);
        run.add(&path, &finished, verdict, settings);
    }
    Ok(run.into_report(start.elapsed()))
}

fn job(
    path: &str,
    project: &Project,
    settings: &TestSettings,
    limits: Limits,
    secret: Vec<u8>,
) -> Job {
    let part = |name: &str, content| FixedFile { path: format!("boot/{name}"), content };
    let parts = PARTS.map(|(name, content)| part(name, content.as_bytes().to_vec()));
    let library = part("private.so", private::library());
    let fixed = settings.fixed.iter().map(|file| FixedFile {
        path: format!("fixed/{}", file.path),
        content: file.content.clone(),
    });
    Job {
        argv: [SHELL, "-c", START, NODE, path].map(str::to_owned).into(),
        required: vec![NODE.to_owned()],
        fixed: parts.into_iter().chain([library]).chain(fixed).collect(),
        folder: Arc::clone(&project.folder),
        files: project.files.clone(),
        limits,
        channel: Channel::with_secret(secret),
        ..Job::default()
    }
}

/// Returns the paths of the test files inside, in their order.
fn test_files(project: &Project, settings: &TestSettings) -> BTreeSet<String> {
    let fixed = settings.fixed.iter().map(|it| ("/graphrun/fixed", it.path.as_str()));
    let generated = project.paths().map(|it| ("/box", it));
    fixed
        .chain(generated)
        .filter(|(_, path)| is_script(path) && (is_named_as_test(path) || is_in_test_folder(path)))
        .map(|(folder, path)| format!("{folder}/{path}"))
        .collect()
}

/// Returns whether node can run a file as a script.
fn is_script(path: &str) -> bool {
    stem(path).is_some() && !path.split('/').any(|it| it == "node_modules")
}

/// Returns the name of a script without its suffix.
fn stem(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next().unwrap_or_default();
    [".js", ".cjs", ".mjs"].iter().find_map(|it| name.strip_suffix(it))
}

/// Returns whether node treats a file as a test file by its name.
fn is_named_as_test(path: &str) -> bool {
    stem(path).is_some_and(|stem| {
        stem == "test"
            || stem.starts_with("test-")
            || [".test", "-test", "_test"].iter().any(|end| stem.ends_with(end))
    })
}

/// Returns whether node treats a file as a test file by its folder. Helpers are there too, so it need not have any
/// tests.
fn is_in_test_folder(path: &str) -> bool {
    path.rsplit_once('/').is_some_and(|(folders, _)| folders.split('/').any(|it| it == "test"))
}

/// The combined result of the test files so far.
#[derive(Debug, Default)]
struct Run {
    outcomes: BTreeSet<TestOutcome>,
    counts: Counts,
    items: Vec<TestItem>,
    /// The weakest proof of a file.
    proof: Option<Proof>,
    output: String,
    reasons: Vec<String>,
    code: Option<i32>,
}

impl Run {
    fn add(&mut self, path: &str, finished: &JobResult, verdict: Verdict, settings: &TestSettings) {
        let Verdict { outcome, counts, items, proof, reasons } = verdict;
        self.items.extend(items);
        self.output.push_str(&finished.output);
        self.reasons.extend(reasons.into_iter().map(|it| format!("{path}: {it}")));
        let code = finished.end.exit_code();
        if outcome == TestOutcome::NoTests {
            // The rest of the files can pass, so the reasons of this one count by themselves.
            let mut reasons = counts.refusals(settings);
            let is_all_skipped = counts.skipped > 0 || counts.expected_to_fail > 0;
            if let Some(code @ 1..) = code {
                reasons.push(format!("the process ended with {code}"));
            } else if !is_all_skipped && is_named_as_test(path) {
                reasons.push("no test ran".to_owned());
            }
            if !reasons.is_empty() {
                self.outcomes.insert(TestOutcome::Failed);
            }
            self.reasons.extend(reasons.into_iter().map(|it| format!("{path}: {it}")));
        } else {
            self.outcomes.insert(outcome);
        }
        let Counts { passed, failed, skipped, expected_to_fail } = counts;
        self.counts.passed += passed;
        self.counts.failed += failed;
        self.counts.skipped += skipped;
        self.counts.expected_to_fail += expected_to_fail;
        self.proof = Some(self.proof.map_or(proof, |it| it.min(proof)));
        self.code = if self.code.unwrap_or(0) == 0 { code } else { self.code };
    }

    fn into_report(self, wall: Duration) -> TestReport {
        let Self { outcomes, counts, items, proof, output, reasons, code } = self;
        // The outcomes are ordered from the least to the most informative.
        let worst = outcomes.into_iter().next_back().unwrap_or(TestOutcome::NoTests);
        let is_empty = counts.passed == 0 && counts.failed == 0;
        let outcome = match worst {
            TestOutcome::Passed | TestOutcome::Failed if is_empty => TestOutcome::NoTests,
            other => other,
        };
        let verdict = Verdict { outcome, counts, items, proof: proof.unwrap_or_default(), reasons };
        TestReport::of(output, code, wall, verdict)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

    use super::*;
    use crate::test_run::Allowed;

    /// Runs the start script next to a fake `node`. Returns its exit code and its output.
    fn started(version: &str) -> (Option<i32>, String) {
        started_with(version, "$@")
    }

    /// Runs it with a fake `node` that prints `shown`, and with the search path of a program in an environment.
    fn started_with(version: &str, shown: &str) -> (Option<i32>, String) {
        let folder = tempfile::tempdir().unwrap();
        let node = folder.path().join(NODE);
        let text =
            format!("#!/bin/sh\n[ \"$1\" = --version ] && echo {version} || echo \"{shown}\"\n");
        fs::write(&node, text).unwrap();
        fs::set_permissions(&node, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new("/usr/bin/bash");
        command
            .args(["-c", START, NODE, "/box/a.test.js"])
            .env("PATH", format!("/env/bin:{}", folder.path().display()));
        let done = command.output().unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap())
    }

    #[test]
    fn every_version_starts_with_its_permission_model() {
        for (version, option) in [
            ("v20.0.0", "--experimental-permission "),
            ("v22.1.0", "--experimental-permission "),
            ("v24.3.1", "--permission --allow-fs-read"),
            ("v26.0.0", "--permission --allow-net "),
        ] {
            let (code, printed) = started(version);
            assert_eq!(code, Some(0), "{version}: {printed}");
            assert!(printed.starts_with(option), "{version}: {printed}");
            assert!(printed.ends_with("/graphrun/boot/boot.cjs /box/a.test.js\n"), "{printed}");
        }
    }

    /// A package could otherwise bring a `node` that reads the secret of the records.
    #[test]
    fn the_shell_and_node_are_those_of_the_system() {
        let (code, printed) = started_with("v22.1.0", "$PATH");
        assert_eq!(code, Some(0), "{printed}");
        assert!(!printed.contains("/env/bin"), "{printed}");
        let project = (Project::default(), TestSettings::default());
        let job = job("/box/a.test.js", &project.0, &project.1, Limits::default(), Vec::new());
        assert_eq!(job.argv[0], SHELL);
    }

    #[test]
    fn a_version_without_a_permission_model_is_refused() {
        let (code, printed) = started("v18.20.4");
        assert_eq!(code, Some(UNSUPPORTED));
        assert!(printed.contains("node 20 or later, and the sandbox has v18.20.4"), "{printed}");
    }

    /// A helper in a folder of tests needs no test, but its process has to succeed.
    #[test]
    fn a_file_without_tests_that_fails_is_named() {
        let of = |code| {
            let end = ProgramEnd::Exited(code);
            let (outcome, proof) = (TestOutcome::NoTests, Proof::InProcess);
            let verdict = Verdict {
                outcome,
                proof,
                counts: Counts::default(),
                items: Vec::new(),
                reasons: Vec::new(),
            };
            let mut run = Run::default();
            run.add("/box/test/a.js", &JobResult::of(end), verdict, &TestSettings::default());
            run
        };
        let failed = of(7);
        assert_eq!(failed.reasons, ["/box/test/a.js: the process ended with 7"]);
        assert_eq!(failed.outcomes, [TestOutcome::Failed].into());
        assert!(of(0).outcomes.is_empty());
    }

    /// It counts like any other, although its name is that of a helper.
    #[test]
    fn a_file_of_skipped_tests_passes_only_if_each_kind_is_allowed() {
        let of = |skipped, expected_to_fail, allow: &[Allowed]| {
            let allow = allow.iter().copied().collect();
            let settings = TestSettings { allow, ..TestSettings::default() };
            let (items, reasons) = (Vec::new(), Vec::new());
            let counts = Counts { skipped, expected_to_fail, ..Counts::default() };
            let (outcome, proof) = (TestOutcome::NoTests, Proof::InProcess);
            let verdict = Verdict { outcome, counts, items, proof, reasons };
            let mut run = Run::default();
            let finished = JobResult::of(ProgramEnd::Exited(0));
            run.add("/box/test/a.js", &finished, verdict, &settings);
            // Another file has a test that passes.
            run.outcomes.insert(TestOutcome::Passed);
            run.counts.passed += 1;
            run.into_report(Duration::ZERO)
        };
        for (skipped, expected_to_fail, allow) in [
            (1, 0, &[][..]),
            (1, 0, &[Allowed::Xfail]),
            (0, 1, &[]),
            (0, 1, &[Allowed::Skip]),
            (1, 1, &[Allowed::Skip]),
            (1, 1, &[Allowed::Xfail]),
        ] {
            let report = of(skipped, expected_to_fail, allow);
            assert!(!report.is_passed(), "{skipped} {expected_to_fail} {allow:?}");
            assert!(report.output.contains("/box/test/a.js: 1 tests are "), "{}", report.output);
        }
        for (skipped, expected_to_fail, allow) in [
            (0, 0, &[][..]),
            (1, 0, &[Allowed::Skip]),
            (0, 1, &[Allowed::Xfail]),
            (1, 1, &[Allowed::Skip, Allowed::Xfail]),
        ] {
            let report = of(skipped, expected_to_fail, allow);
            assert!(report.is_passed(), "{skipped} {expected_to_fail} {allow:?}");
        }
    }

    #[test]
    fn a_sandbox_without_node_does_not_start() {
        let settings = TestSettings::default();
        let job =
            job("/box/a.test.js", &Project::default(), &settings, Limits::default(), Vec::new());
        assert_eq!(job.required, [NODE]);
    }

    #[test]
    fn test_files_are_those_that_node_looks_for() {
        for path in [
            "test.js",
            "a.test.mjs",
            "a-test.cjs",
            "a/a_test.js",
            "test-a.js",
            "test/deep/a.js",
            "a/test/b.mjs",
        ] {
            assert!(
                is_script(path) && (is_named_as_test(path) || is_in_test_folder(path)),
                "{path}"
            );
        }
        for path in [
            "tests.js",
            "a.tests.js",
            "tests/a.js",
            "a.test.ts",
            "a.test.json",
            "testa.js",
            "test",
            "node_modules/a/test.js",
            "atest.js",
        ] {
            assert!(
                !is_script(path) || !(is_named_as_test(path) || is_in_test_folder(path)),
                "{path}"
            );
        }
    }
}
