//! What the tech lead thinks of the code.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::state::{Choice, ReadLeniently, Reader};

/// A review of code that passes its tests, or advice on code that does not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Review {
    /// What is to happen next.
    pub verdict: Verdict,
    /// What must change before the code can be accepted: file, place, what is wrong. Empty when
    /// approved.
    pub blocking_issues: Vec<String>,
    /// What an attacker or a careless user could do.
    pub security: String,
    /// What gets slow with much data.
    pub performance: String,
    /// Naming, structure, ease of reading.
    pub quality: String,
    /// Which test cases the tests cover, and which they only seem to.
    pub coverage: String,
    /// For the engineer's next round: the cause, and what to do differently. Empty when approved.
    pub guidance: String,
}

/// What is to happen next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The code goes on to QA.
    Approved,
    /// The engineer gets another round, with guidance.
    Rework,
    /// A person must decide.
    #[default]
    Stuck,
}

/// The verdict decides where the run goes, so an unknown one is a problem rather than a guess.
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
