//! What a user wants, as the business analyst writes it down.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::state::{Choice, ReadLeniently, Reader};

/// One wish of a user, with what must be true for it to be fulfilled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UserStory {
    /// A short id, such as US-001, that test cases and files refer to.
    pub story_id: String,
    /// A few words.
    pub title: String,
    /// Who wants it: "person with many errands".
    pub as_a: String,
    /// What they want to do.
    pub i_want: String,
    /// What it is good for.
    pub so_that: String,
    /// Statements that can be checked, each by itself.
    pub acceptance_criteria: Vec<String>,
    /// How much it matters.
    pub priority: Priority,
}

/// How much something matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Nothing works without it.
    Critical,
    /// Most people need it.
    High,
    /// Some people need it; also what is read when an answer names no known priority.
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
