//! What must be tested, as quality control writes it down: Given, When, Then.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Priority;
use crate::state::{Choice, ReadLeniently, Reader};

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
    /// What is claimed, in a few words.
    pub title: String,
    /// How much of the program the case exercises.
    pub test_type: TestType,
    /// What is the case before.
    pub given: Vec<String>,
    /// What is done.
    pub when: Vec<String>,
    /// What must be true after.
    #[schemars(length(min = 1))]
    pub then: Vec<String>,
    /// How much it matters.
    pub priority: Priority,
    /// The id of the user story that the case covers.
    pub story_id: String,
}

/// How much of the program a case exercises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TestType {
    /// One unit by itself; also what is read when an answer names no known type.
    #[default]
    Unit,
    /// Several units together.
    Integration,
    /// The whole program, as a user meets it.
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
