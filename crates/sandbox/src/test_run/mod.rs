//! The common parts of test runners: their settings, the records that they send from inside, and
//! the decision.
//!
//! A runner inside the sandbox reports over a channel with a secret, and the host decides.
//! [`Proof`] describes what such a result proves.

mod records;
mod settings;
mod verdict;

use std::time::Duration;

pub use self::settings::{Allowed, Proof, TestSettings};
pub(super) use self::verdict::{Counts, Verdict};
use super::{job::JobResult, test_item::TestItem};

/// The most characters of the output for a repair: the summary and the last failures.
const ERROR_CHARACTERS_MAX: usize = 3000;

/// How a test run ended, ordered from the least to the most informative outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TestOutcome {
    /// All tests passed, and there is at least one.
    Passed,
    /// There was no test, or all were skipped.
    NoTests,
    /// Tests failed or did not run, or the runner itself failed.
    Failed,
    /// Test files could not be loaded.
    CollectionFailed,
    /// The process ended before the runner had finished: by a signal, or because the code ended it.
    Crashed,
    /// The run was stopped because it wrote too much output.
    OutputLimit,
    /// The run was stopped because it used too much memory.
    OutOfMemory,
    /// The run was stopped at the end of its time.
    TimedOut,
    /// Something replaced a part of the runner, a test file or a record of the runner.
    Tampered,
}

/// The result of a test run.
#[derive(Debug, Clone)]
pub struct TestReport {
    /// How the run ended.
    pub outcome: TestOutcome,
    /// The runner's exit code, unless the run was stopped.
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
    /// The tests by name, also those that did not run.
    pub items: Vec<TestItem>,
    /// The output, cleaned; see [`JobResult::output`]. Below it, the reasons that the runner does not print.
    pub output: String,
    /// The last 3,000 characters of the output; empty if the run passed.
    pub error_output: String,
    /// Time of the run.
    pub wall: Duration,
}

impl TestReport {
    /// Returns whether all tests passed, with the required proof.
    pub fn is_passed(&self) -> bool {
        self.outcome == TestOutcome::Passed
    }

    /// Adds the reasons below the output of the runner.
    pub(super) fn of(
        mut output: String,
        exit_code: Option<i32>,
        wall: Duration,
        verdict: Verdict,
    ) -> Self {
        let Verdict { outcome, counts, items, proof, mut reasons } = verdict;
        if outcome == TestOutcome::NoTests && reasons.is_empty() {
            reasons.push("no test ran".to_owned());
        }
        for reason in reasons {
            output.extend(["not passed: ", reason.as_str(), "\n"]);
        }
        let error_output = if outcome == TestOutcome::Passed {
            String::new()
        } else {
            last(&output, ERROR_CHARACTERS_MAX)
        };
        let Counts { passed, failed, skipped, expected_to_fail } = counts;
        Self {
            outcome,
            exit_code,
            proof,
            total: passed + failed + skipped + expected_to_fail,
            passed,
            failed,
            skipped: skipped + expected_to_fail,
            items,
            output,
            error_output,
            wall,
        }
    }
}

/// Judges a run by the records on its channel and its end.
pub(super) fn judge(finished: &JobResult, secret: &[u8], settings: &TestSettings) -> Verdict {
    let records = records::read(&finished.records, secret);
    verdict::judge(finished.end, records.as_deref(), settings)
}

/// Returns the last characters of a text.
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
}
