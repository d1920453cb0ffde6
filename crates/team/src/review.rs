//! The review of the code by the tech lead.

use graphrun_core::state::{Choice, ReadLeniently, Reader};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A review of code that passes its tests, or advice on code that does not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Review {
    /// The next action.
    pub verdict: Verdict,
    /// The changes that are required for acceptance: file, place, problem. Empty when approved.
    pub blocking_issues: Vec<String>,
    /// The possible damage by an attacker or a careless user.
    pub security: String,
    /// The parts that get slow with much data.
    pub performance: String,
    /// Naming, structure, readability.
    pub quality: String,
    /// The test cases that the tests cover, and those that they only seem to cover.
    pub coverage: String,
    /// For the engineer's next round: the cause, and a different approach. Empty when approved.
    pub guidance: String,
}

/// The next action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// QA examines the code.
    Approved,
    /// The engineer gets another round, with guidance.
    Rework,
    /// A person must decide.
    #[default]
    Stuck,
}

/// The verdict decides where the run continues, so an unknown one is an error instead of a guess.
impl ReadLeniently for Review {
    fn read(answer: Value, reader: &mut Reader) -> Self {
        reader.object(answer, |review| Self {
            verdict: review.required_choice("verdict"),
            blocking_issues: review.texts("blocking_issues"),
            security: review.text("security"),
            performance: review.text("performance"),
            quality: review.text("quality"),
            coverage: review.text("coverage"),
            guidance: review.text("guidance"),
        })
    }
}

impl Choice for Verdict {
    const WORDS: &'static [&'static str] = &["approved", "rework", "stuck"];
}
