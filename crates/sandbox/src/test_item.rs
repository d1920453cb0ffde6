//! A test by its name, for the comparison of two runs.

/// A test that a runner found, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestItem {
    /// The file of the test, from the work folder; empty if the runner does not name it.
    pub file: String,
    /// Its name in the file; without a file, its name among all tests.
    pub name: String,
    /// How it ended.
    pub outcome: ItemOutcome,
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemOutcome {
    /// It passed.
    Passed,
    /// It failed, or did not run.
    Failed,
    /// It was skipped, or is expected to fail.
    Skipped,
}

/// The number of tests by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TestCounts {
    /// Tests that passed.
    pub passed: u32,
    /// Failures and errors.
    pub failed: u32,
    /// Skipped tests, and tests that are expected to fail.
    pub skipped: u32,
}

impl TestCounts {
    /// Returns all tests.
    pub fn total(self) -> u32 {
        self.passed.saturating_add(self.failed).saturating_add(self.skipped)
    }

    /// The sum of two counts, unless it overflows.
    pub(super) fn plus(self, other: Self) -> Option<Self> {
        Some(Self {
            passed: self.passed.checked_add(other.passed)?,
            failed: self.failed.checked_add(other.failed)?,
            skipped: self.skipped.checked_add(other.skipped)?,
        })
    }
}

/// The tests of a report.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Tally {
    /// The number of tests by outcome.
    pub(super) counts: TestCounts,
    /// The tests that the report names.
    pub(super) items: Vec<TestItem>,
    /// Failures of no test, as of a file or package that could not be loaded. They are counted, too.
    pub(super) other_failures: Vec<String>,
}

impl Tally {
    /// Counts a test.
    pub(super) fn add(&mut self, file: &str, name: impl Into<String>, outcome: ItemOutcome) {
        match outcome {
            ItemOutcome::Passed => self.counts.passed += 1,
            ItemOutcome::Failed => self.counts.failed += 1,
            ItemOutcome::Skipped => self.counts.skipped += 1,
        }
        self.items.push(TestItem { file: from_box(file), name: name.into(), outcome });
    }

    /// Counts a failure that is none of a test.
    pub(super) fn add_other_failure(&mut self, what: String) {
        self.counts.failed += 1;
        self.other_failures.push(what);
    }
}

/// Returns a path inside from the work folder.
pub(super) fn from_box(path: &str) -> String {
    path.strip_prefix("/box/").unwrap_or(path).to_owned()
}
