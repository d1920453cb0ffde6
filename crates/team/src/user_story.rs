//! The wishes of users, as the business analyst writes them.

use graphrun_core::state::{Choice, ReadLeniently, Reader};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A wish of a user, with its acceptance criteria.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UserStory {
    /// A short id, such as US-001; test cases and files refer to it.
    pub story_id: String,
    /// A title of a few words.
    pub title: String,
    /// The kind of user: "person with many errands".
    pub as_a: String,
    /// The wish.
    pub i_want: String,
    /// The benefit.
    pub so_that: String,
    /// Statements that can be checked independently.
    pub acceptance_criteria: Vec<String>,
    /// Its priority.
    pub priority: Priority,
}

/// The priority of a story or a test case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// The product is useless without it.
    Critical,
    /// Most users need it.
    High,
    /// Some users need it; also the default for an answer without a known priority.
    #[default]
    Medium,
    /// Nice to have.
    Low,
}

impl ReadLeniently for UserStory {
    fn read(answer: Value, reader: &mut Reader) -> Self {
        reader.object(answer, |story| Self {
            story_id: story.required_text("story_id"),
            title: story.required_text("title"),
            as_a: story.text("as_a"),
            i_want: story.required_text("i_want"),
            so_that: story.text("so_that"),
            acceptance_criteria: story.texts("acceptance_criteria"),
            priority: story.choice("priority").unwrap_or_default(),
        })
    }
}

impl Choice for Priority {
    const WORDS: &'static [&'static str] = &["critical", "high", "medium", "low"];
}
