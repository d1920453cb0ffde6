//! The state of a software team's run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CodeArtifact, FailureReport, Review, TechnicalSpec, TestResult, TestSuite, UserStory};
use crate::state::{Schema, read_as};

/// What the team knows. Every field is absent until somebody writes it; absent is not null.
///
/// A field whose schema has `x-merge` is folded by that reducer; the others are replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TeamState {
    /// What the customer asked for, in their words.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub brief: Option<String>,
    /// The brief without its gaps: what is in, what is out, what was assumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub clarified_requirements: Option<String>,
    /// What the users want.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<UserStory>", length(min = 1))]
    pub user_stories: Option<Vec<UserStory>>,
    /// What must be tested.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TestSuite")]
    pub test_suite: Option<TestSuite>,
    /// The design.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TechnicalSpec")]
    pub technical_spec: Option<TechnicalSpec>,
    /// The code of the last attempt, before it is tested.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CodeArtifact")]
    pub candidate: Option<CodeArtifact>,
    /// What the test runner found in the last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TestResult")]
    pub test_result: Option<TestResult>,
    /// The best attempt so far: most tests passing, and of two equal ones the earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CodeArtifact", extend("x-merge" = { "best": "test_result.passed_count" }))]
    pub code_artifact: Option<CodeArtifact>,
    /// How the engineer's last attempt ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SseStatus")]
    pub sse_status: Option<SseStatus>,
    /// How many attempts the engineer has made in this round.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub sse_attempts: Option<u32>,
    /// The tech lead's opinion.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Review")]
    pub review: Option<Review>,
    /// What a person decided when the team was stuck.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Decision")]
    pub decision: Option<Decision>,
    /// QA's report.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "FailureReport")]
    pub failure_report: Option<FailureReport>,
}

impl TeamState {
    /// The schema of the state, with how each field reads a model's answer.
    pub fn schema() -> Schema {
        let schema = Schema::of::<Self>()
            .and_then(|it| it.with_reader("user_stories", read_as::<Vec<UserStory>>))
            .and_then(|it| it.with_reader("test_suite", read_as::<TestSuite>))
            .and_then(|it| it.with_reader("technical_spec", read_as::<TechnicalSpec>))
            .and_then(|it| it.with_reader("candidate", read_as::<CodeArtifact>))
            .and_then(|it| it.with_reader("review", read_as::<Review>))
            .and_then(|it| it.with_reader("failure_report", read_as::<FailureReport>));
        schema.expect("every field above is one of the struct, and its reducers are built in")
    }
}

/// How the engineer's last attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SseStatus {
    /// All tests passed.
    Passed,
    /// Some did not.
    NeedsReview,
}

/// What a person decided when the team was stuck.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    /// What to do.
    pub choice: DecisionChoice,
    /// Why, or what to mind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub comment: Option<String>,
}

/// What to do when the team is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecisionChoice {
    /// Go on with the best attempt.
    GoOn,
    /// End the run and save what was learnt.
    Stop,
}
