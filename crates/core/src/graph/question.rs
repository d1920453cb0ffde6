//! A question to a person.

use jiff::Timestamp;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    id::{NodeName, RunId, TaskId},
    state::{measure, validator_for},
};

/// A question that pauses the run until it is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The key of the question, unique in the run; an answer names it.
    pub key: String,
    /// The text of the question.
    pub prompt: String,
    /// The JSON Schema of an answer; `true` accepts any value, also null.
    pub schema: Value,
    /// Values to show to the person for the decision.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub show: Value,
    /// The deadline for an answer; after it the node fails with the kind `timeout`. Time counts
    /// also while the run is suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// The node that asks, if it is one of a nested run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nested: Option<NestedAsker>,
}

/// The task of a nested run that asks a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NestedAsker {
    /// The nested run.
    pub run: RunId,
    /// The task in it.
    pub task: TaskId,
    /// The node, with the name of the node that runs its graph before it: `review.approve`.
    pub node: NodeName,
    /// When the nested run continues without an answer: a wait of it ends, or a deadline of another question passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Timestamp>,
}

impl Question {
    /// Makes a question that accepts any answer.
    pub fn new(key: impl Into<String>, prompt: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            prompt: prompt.into(),
            schema: Value::Bool(true),
            show: Value::Null,
            deadline: None,
            nested: None,
        }
    }

    /// Sets the deadline for an answer.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Timestamp) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Returns when its task continues without an answer.
    pub fn due(&self) -> Option<Timestamp> {
        let nested = self.nested.as_ref().and_then(|it| it.due);
        self.deadline.into_iter().chain(nested).min()
    }

    /// Sets the JSON Schema of an answer.
    #[must_use]
    pub fn with_schema(mut self, schema: Value) -> Self {
        self.schema = schema;
        self
    }

    /// Gives a question without a schema the one of a type.
    pub(super) fn for_type<T: JsonSchema>(mut self) -> Self {
        if self.schema == Value::Bool(true) {
            let settings = SchemaSettings::draft2020_12().for_deserialize();
            let schema = settings.into_generator().into_root_schema_for::<T>();
            self.schema = schema.to_value();
            // Neither is part of the form of an answer.
            if let Some(schema) = self.schema.as_object_mut() {
                schema.retain(|key, _| key != "$schema" && key != "title");
            }
            limit_floats(&mut self.schema);
        }
        self
    }

    /// Checks an answer against the schema.
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

/// Gives numbers of 32 bits the range of their type: a larger one would be read as infinity.
fn limit_floats(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("format").and_then(Value::as_str) == Some("float") {
                for (key, bound) in [("minimum", f32::MIN), ("maximum", f32::MAX)] {
                    fields.entry(key).or_insert_with(|| Value::from(f64::from(bound)));
                }
            }
            fields.values_mut().for_each(limit_floats);
        }
        Value::Array(items) => items.iter_mut().for_each(limit_floats),
        _ => (),
    }
}
