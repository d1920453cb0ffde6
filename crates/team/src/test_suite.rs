//! The test cases, as quality control writes them: Given, When, Then.

use graphrun_core::state::{Choice, ReadLeniently, Reader};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Priority;

/// The test cases of a project.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TestSuite {
    /// At least one case for each acceptance criterion.
    #[schemars(length(min = 1))]
    pub test_cases: Vec<TestCase>,
}

/// One test case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TestCase {
    /// A short id, such as TC-001.
    pub test_id: String,
    /// The claim, in a few words.
    pub title: String,
    /// The part of the program that the case tests.
    pub test_type: TestType,
    /// The conditions before.
    pub given: Vec<String>,
    /// The actions.
    pub when: Vec<String>,
    /// The conditions that must be true after.
    #[schemars(length(min = 1))]
    pub then: Vec<String>,
    /// Its priority.
    pub priority: Priority,
    /// The id of the user story that the case covers.
    pub story_id: String,
}

/// The part of the program that a case tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TestType {
    /// A single unit; also the default for an answer without a known type.
    #[default]
    Unit,
    /// Several units together.
    Integration,
    /// The whole program, from a user's view.
    EndToEnd,
}

impl ReadLeniently for TestSuite {
    fn read(answer: Value, reader: &mut Reader) -> Self {
        reader.object(answer, |suite| Self { test_cases: suite.required_list("test_cases") })
    }
}

impl ReadLeniently for TestCase {
    fn read(answer: Value, reader: &mut Reader) -> Self {
        reader.object(answer, |case| Self {
            test_id: case.required_text("test_id"),
            title: case.required_text("title"),
            test_type: case.choice("test_type").unwrap_or_default(),
            given: case.texts("given"),
            when: case.texts("when"),
            then: case.required_list("then"),
            priority: case.choice("priority").unwrap_or_default(),
            story_id: case.required_text("story_id"),
        })
    }
}

impl Choice for TestType {
    const WORDS: &'static [&'static str] = &["unit", "integration", "end_to_end"];
}
