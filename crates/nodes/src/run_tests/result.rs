//! The results of the test runner. Models do not write them.

use graphrun_sandbox::Proof;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The result of one run of the tests. Only the runner sets it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TestResult {
    /// Whether all tests passed, with the proof that the workflow requires.
    pub passed: bool,
    /// The number of all tests found.
    pub total_tests: u32,
    /// The number of tests that passed.
    pub passed_count: u32,
    /// The number of tests that failed, including errors.
    pub failed_count: u32,
    /// The number of tests that were skipped or are expected to fail.
    pub skipped_count: u32,
    /// Empty if the tests passed, else the end of the runner's output.
    pub error_output: String,
    /// The duration in seconds.
    pub duration_seconds: f64,
    /// The level of proof of the result.
    pub proof: TestProof,
}

/// A level of proof about the code under test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TestProof {
    /// Nothing: the code under test can write the report itself.
    #[default]
    Unproven,
    /// Tests and code share one process, which checks itself.
    InProcess,
    /// The tests are a person's and start the code as another program.
    Isolated,
}

/// Whether the tests of an attempt passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TestStatus {
    /// All tests passed.
    Passed,
    /// Some tests failed.
    NeedsReview,
}

impl TestProof {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Unproven => "unproven",
            Self::InProcess => "in_process",
            Self::Isolated => "isolated",
        }
    }
}

impl From<Proof> for TestProof {
    fn from(proof: Proof) -> Self {
        match proof {
            Proof::Unproven => Self::Unproven,
            Proof::InProcess => Self::InProcess,
            Proof::Isolated => Self::Isolated,
        }
    }
}

impl TestResult {
    /// The maximum length of the kept output: enough for about twenty failures, and short enough
    /// for a prompt.
    pub const ERROR_OUTPUT_CHARACTERS_MAX: usize = 3_000;

    /// Returns the result with the kept part of the runner's output: none if the tests passed, else
    /// the last [3,000 characters](Self::ERROR_OUTPUT_CHARACTERS_MAX), because runners print their
    /// summary last.
    #[must_use]
    pub fn with_output(self, output: &str) -> Self {
        let kept = if self.passed {
            ""
        } else {
            last_characters(output, Self::ERROR_OUTPUT_CHARACTERS_MAX)
        };
        Self { error_output: kept.to_owned(), ..self }
    }
}

fn last_characters(text: &str, count_max: usize) -> &str {
    let dropped = text.chars().count().saturating_sub(count_max);
    let start = text.char_indices().nth(dropped).map_or(text.len(), |(index, _)| index);
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passed_run_keeps_no_output() {
        let result =
            TestResult { passed: true, ..TestResult::default() }.with_output("24 passed in 0.03s");
        assert_eq!(result.error_output, "");
    }

    #[test]
    fn a_failed_run_keeps_the_last_3000_characters_not_bytes() {
        let output = format!("start{}FAILED tests/test_ü.py", "ä".repeat(4_000));
        let kept = TestResult::default().with_output(&output).error_output;
        assert_eq!(kept.chars().count(), 3_000);
        assert!(kept.starts_with('ä') && kept.ends_with("FAILED tests/test_ü.py"));
    }

    #[test]
    fn a_short_output_is_kept_whole() {
        assert_eq!(
            TestResult::default().with_output("E   assert 1 == 2").error_output,
            "E   assert 1 == 2"
        );
        assert_eq!(last_characters("", 3), "");
        assert_eq!(last_characters("äöü", 3), "äöü");
        assert_eq!(last_characters("äöü", 0), "");
    }
}
