//! The tests of a run by name, and their comparison with those of an earlier run.
//!
//! A change can make tests pass by letting them disappear: by other settings of the runner, by a removed function, or by a
//! skip. The numbers of two runs do not show that, so each test is compared by its name.

use std::collections::{BTreeMap, BTreeSet};

use graphrun_sandbox::{Allowed, ItemOutcome, TestItem};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TestResult;
use crate::changes::first_names;

/// The most tests that a reason names.
const NAMED_MAX: usize = 10;

/// A test of a run, for the comparison with a later run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BaselineTest {
    /// The file of the test in the tested files; empty if the runner does not name it.
    pub file: String,
    /// The name of the test in its file, or among all tests.
    pub name: String,
    /// How it ended.
    pub outcome: BaselineOutcome,
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BaselineOutcome {
    /// It passed.
    Passed,
    /// It failed, or did not run.
    Failed,
    /// It was skipped, or is expected to fail.
    Skipped,
}

/// How the tests of a run differ from those of its baseline, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TestDifference {
    /// Tests that are gone, although their file is there or the runner does not name it.
    pub missing: Vec<String>,
    /// Tests that are gone with their file.
    pub removed: Vec<String>,
    /// Tests that are skipped or expected to fail, and were not in the baseline.
    pub newly_skipped: Vec<String>,
}

impl BaselineTest {
    /// Returns a test. A file that is none of the tested ones is a part of its name.
    pub(super) fn of(item: TestItem, files: &BTreeSet<String>) -> Self {
        let TestItem { file, name, outcome } = item;
        let outcome = match outcome {
            ItemOutcome::Passed => BaselineOutcome::Passed,
            ItemOutcome::Failed => BaselineOutcome::Failed,
            ItemOutcome::Skipped => BaselineOutcome::Skipped,
        };
        if file.is_empty() || files.contains(&file) {
            return Self { file, name, outcome };
        }
        Self { file: String::new(), name: format!("{file}::{name}"), outcome }
    }

    fn key(&self) -> (&str, &str) {
        (&self.file, &self.name)
    }

    /// Returns the test without parameters. A run that does not reach the parameters of a test knows only that.
    fn bare_key(&self) -> (&str, &str) {
        (&self.file, self.name.split('[').next().unwrap_or_default())
    }

    fn shown(&self) -> String {
        let Self { file, name, .. } = self;
        if file.is_empty() { name.clone() } else { format!("{file}::{name}") }
    }
}

impl TestDifference {
    /// Compares the tests of a run with those before it.
    pub(super) fn between(
        before: &[BaselineTest],
        now: &[BaselineTest],
        files: &BTreeSet<String>,
    ) -> Self {
        let known: BTreeMap<_, _> = before.iter().map(|it| (it.key(), it.outcome)).collect();
        let found: BTreeSet<_> = now.iter().flat_map(|it| [it.key(), it.bare_key()]).collect();
        let is_gone = |it: &&BaselineTest| !found.contains(&it.key());
        let (missing, removed): (Vec<_>, Vec<_>) = before
            .iter()
            .filter(is_gone)
            .partition(|it| it.file.is_empty() || files.contains(&it.file));
        let was_skipped = |test: &BaselineTest| {
            let outcome = known.get(&test.key()).or_else(|| known.get(&test.bare_key()));
            outcome == Some(&BaselineOutcome::Skipped)
        };
        let newly_skipped =
            now.iter().filter(|it| it.outcome == BaselineOutcome::Skipped && !was_skipped(it));
        let names = |tests: Vec<&BaselineTest>| -> Vec<String> {
            let names: BTreeSet<String> = tests.into_iter().map(BaselineTest::shown).collect();
            names.into_iter().collect()
        };
        Self {
            missing: names(missing),
            removed: names(removed),
            newly_skipped: names(newly_skipped.collect()),
        }
    }

    /// Takes a pass away from a run whose difference is not allowed, and adds the reasons to its output.
    pub(super) fn judge(&self, result: TestResult, allow: &BTreeSet<Allowed>) -> TestResult {
        let reasons = [
            (Allowed::Missing, &self.missing, "of the baseline are gone"),
            (Allowed::Skip, &self.newly_skipped, "are skipped or expected to fail, and were not"),
        ];
        let refused = reasons
            .into_iter()
            .filter(|(allowed, names, _)| !names.is_empty() && !allow.contains(allowed));
        refused.fold(result, |result, (_, names, what)| {
            let named = first_names(names.iter().cloned(), NAMED_MAX);
            refuse(result, &format!("tests {what}: {named}"))
        })
    }
}

/// Takes a pass away from a run whose tests cannot be compared with a baseline, because the report does not name them.
pub(super) fn refuse_unnamed(
    result: TestResult,
    tests: &[BaselineTest],
    allow: &BTreeSet<Allowed>,
) -> TestResult {
    let skipped = tests.iter().filter(|it| it.outcome == BaselineOutcome::Skipped).count();
    let skipped = u32::try_from(skipped).unwrap_or(u32::MAX);
    let unnamed = result.skipped_count.saturating_sub(skipped);
    if tests.is_empty() {
        refuse(result, "the report names no test, so none can be compared with the baseline")
    } else if unnamed > 0 && !allow.contains(&Allowed::Skip) {
        let reason = format!(
            "{unnamed} skipped tests have no name in the report, so they cannot be compared with the baseline"
        );
        refuse(result, &reason)
    } else {
        result
    }
}

/// Takes a pass away, and adds the reason to the output.
fn refuse(result: TestResult, reason: &str) -> TestResult {
    let mut output = result.error_output.clone();
    if !output.is_empty() && !output.ends_with('\n') {
        output.push('\n');
    }
    output.extend(["not passed: ", reason]);
    TestResult { passed: false, ..result }.with_output(&output)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests(all: &[(&str, &str, BaselineOutcome)]) -> Vec<BaselineTest> {
        let of = |(file, name, outcome): &(&str, &str, BaselineOutcome)| BaselineTest {
            file: (*file).to_owned(),
            name: (*name).to_owned(),
            outcome: *outcome,
        };
        all.iter().map(of).collect()
    }

    #[test]
    fn a_test_is_gone_with_its_file_or_without_it() {
        use BaselineOutcome::{Failed, Passed};
        let before = tests(&[
            ("a.py", "kept", Passed),
            ("a.py", "gone", Failed),
            ("a.py", "one[1]", Passed),
            ("a.py", "one[2]", Passed),
            ("a.py", "unread", Failed),
            ("b.py", "gone", Passed),
            ("", "pkg.TestGone", Passed),
        ]);
        let now = tests(&[
            ("a.py", "kept", Failed),
            ("a.py", "one[2]", Passed),
            ("a.py", "unread[x]", Passed),
            ("a.py", "new", Passed),
        ]);
        let files = ["a.py".to_owned()].into();
        let difference = TestDifference::between(&before, &now, &files);
        assert_eq!(difference.missing, ["a.py::gone", "a.py::one[1]", "pkg.TestGone"]);
        assert_eq!(difference.removed, ["b.py::gone"]);
        assert!(difference.newly_skipped.is_empty());
    }

    #[test]
    fn a_skip_counts_unless_the_same_test_was_skipped() {
        use BaselineOutcome::{Failed, Passed, Skipped};
        let before = tests(&[
            ("a.py", "old", Skipped),
            ("a.py", "module", Skipped),
            ("a.py", "broken", Failed),
            ("a.py", "fine", Passed),
        ]);
        let now = tests(&[
            ("a.py", "old", Skipped),
            ("a.py", "module[1]", Skipped),
            ("a.py", "broken", Skipped),
            ("a.py", "fine", Passed),
            ("a.py", "new", Skipped),
        ]);
        let difference = TestDifference::between(&before, &now, &["a.py".to_owned()].into());
        assert_eq!(difference.newly_skipped, ["a.py::broken", "a.py::new"]);
        assert!(difference.missing.is_empty() && difference.removed.is_empty());
    }

    #[test]
    fn a_pass_names_the_tests_that_a_baseline_compares() {
        use BaselineOutcome::{Passed, Skipped};
        let named = tests(&[("", "a", Passed), ("", "b", Skipped)]);
        let passed = |skipped_count| TestResult {
            passed: true,
            passed_count: 1,
            skipped_count,
            ..TestResult::default()
        };
        let judged = refuse_unnamed(passed(0), &[], &[Allowed::Skip, Allowed::Missing].into());
        assert!(judged.error_output.contains("names no test") && !judged.passed, "{judged:?}");
        assert_eq!(refuse_unnamed(passed(1), &named, &[].into()), passed(1));
        let judged = refuse_unnamed(passed(3), &named, &[].into());
        assert!(judged.error_output.contains("2 skipped tests") && !judged.passed, "{judged:?}");
        assert_eq!(refuse_unnamed(passed(3), &named, &[Allowed::Skip].into()), passed(3));
    }

    #[test]
    fn a_difference_takes_a_pass_away_unless_it_is_allowed() {
        let difference = TestDifference {
            missing: (0..12).map(|it| format!("t{it}")).collect(),
            removed: vec!["fine".to_owned()],
            newly_skipped: vec!["s".to_owned()],
        };
        let passed = TestResult { passed: true, ..TestResult::default() };
        let judged = difference.judge(passed.clone(), &[Allowed::Skip].into());
        assert!(!judged.passed);
        let named = "not passed: tests of the baseline are gone: t0, t1,";
        assert!(judged.error_output.starts_with(named), "{}", judged.error_output);
        assert!(judged.error_output.ends_with("t9, 2 more"), "{}", judged.error_output);
        let judged = difference.judge(passed.clone(), &[Allowed::Missing].into());
        assert!(judged.error_output.ends_with("and were not: s"), "{}", judged.error_output);
        let allow = [Allowed::Missing, Allowed::Skip].into();
        assert_eq!(difference.judge(passed.clone(), &allow), passed);
    }
}
