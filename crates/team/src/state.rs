//! The state of a software team's run.

use graphrun_core::state::{Schema, read_as};
use graphrun_nodes::{TestResult, TestStatus};
use graphrun_workflow::Registry;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CodeArtifact, FailureReport, Review, TechnicalSpec, TestSuite, UserStory};

/// The state of the team. Every field is absent until it is written; absent is not null.
///
/// A field whose schema has `x-merge` is folded by that reducer; the others are replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TeamState {
    /// The requirements in the customer's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub brief: Option<String>,
    /// The brief with its gaps filled: scope, exclusions and assumptions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub clarified_requirements: Option<String>,
    /// The wishes of the users.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<UserStory>", length(min = 1))]
    pub user_stories: Option<Vec<UserStory>>,
    /// The test cases.
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
    /// The result of the test runner for the last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TestResult")]
    pub test_result: Option<TestResult>,
    /// The best attempt so far: the one with the most passing tests; of equal ones, the earliest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CodeArtifact", extend("x-merge" = { "best": "test_result.passed_count" }))]
    pub code_artifact: Option<CodeArtifact>,
    /// The result of the engineer's last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TestStatus")]
    pub sse_status: Option<TestStatus>,
    /// The number of the engineer's attempts in this round.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub sse_attempts: Option<u32>,
    /// The tech lead's review.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Review")]
    pub review: Option<Review>,
    /// The decision of a person when the team was stuck.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Decision")]
    pub decision: Option<Decision>,
    /// QA's report.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "FailureReport")]
    pub failure_report: Option<FailureReport>,
}

impl TeamState {
    /// Returns the schema of the state, with the reader of each field that a model writes.
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

/// Makes the state known to workflows, as `state: TeamState`. Any crate can do the same with its own.
pub fn register(registry: Registry) -> Registry {
    registry.state("TeamState", TeamState::schema)
}

/// The decision of a person when the team was stuck.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    /// The choice.
    pub choice: DecisionChoice,
    /// The reason, or advice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub comment: Option<String>,
}

/// The choices when the team is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecisionChoice {
    /// Continue with the best attempt.
    GoOn,
    /// End the run and save the lessons.
    Stop,
}

#[cfg(test)]
mod tests {
    use graphrun_core::state::smallest;

    use super::*;

    #[test]
    fn every_field_has_a_smallest_value() {
        for channel in TeamState::schema().channels() {
            let value = smallest(channel.schema()).unwrap_or_else(|it| panic!("{channel:?}: {it}"));
            assert_eq!(channel.validate(&value), Ok(()), "{channel:?}");
        }
    }
}
