//! A question to a person.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::state::{measure, validator_for};

/// A question that pauses the run until it is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Tells the questions of one run apart; an answer names it.
    pub key: String,
    /// What is asked.
    pub prompt: String,
    /// The JSON Schema of an answer; `true` takes anything, null included.
    pub schema: Value,
    /// What the person should see to decide.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub show: Value,
    /// When it is too late for an answer: the node fails as `timeout` then. Counted while the run
    /// rests, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
}

impl Question {
    /// A question that any answer fits.
    pub fn new(key: impl Into<String>, prompt: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            prompt: prompt.into(),
            schema: Value::Bool(true),
            show: Value::Null,
            deadline: None,
        }
    }

    /// Says when it is too late for an answer.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Timestamp) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Says what fits as an answer.
    #[must_use]
    pub fn with_schema(mut self, schema: Value) -> Self {
        self.schema = schema;
        self
    }

    /// Checks an answer.
    ///
    /// # Errors
    ///
    /// Names every place where it does not fit, or the limit that it reaches.
    pub fn check(&self, answer: &Value) -> Result<(), Vec<String>> {
        measure(answer).map_err(|reached| vec![format!("it is {reached}")])?;
        let validator = validator_for(&self.schema).map_err(|error| vec![error.to_string()])?;
        let problems: Vec<String> =
            validator.iter_errors(answer).map(|error| error.to_string()).collect();
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}
