//! What an evaluation may take: steps and bytes, so that no expression uses up time or memory.

use serde_json::Value;

use crate::data_limit::{DataLimit, DataLimitReached};

/// What a value takes besides its text.
const VALUE_BYTES: u64 = 32;
/// How many bytes of a text are looked at in one step.
const BYTES_PER_STEP: usize = 32;

/// What one evaluation has taken so far.
#[derive(Debug, Default)]
pub(super) struct Meter {
    steps: u64,
    bytes: u64,
}

impl Meter {
    /// Counts a part of the expression or of a value that is looked at.
    pub(super) fn step(&mut self) -> Result<(), DataLimitReached> {
        self.steps(1)
    }

    pub(super) fn steps(&mut self, steps: u64) -> Result<(), DataLimitReached> {
        self.steps = self.steps.saturating_add(steps);
        DataLimit::ExpressionSteps.check(self.steps)
    }

    /// Counts a text that is looked at.
    pub(super) fn look_at(&mut self, text: &str) -> Result<(), DataLimitReached> {
        self.steps((text.len() / BYTES_PER_STEP) as u64 + 1)
    }

    /// Counts a text that is made.
    pub(super) fn make(&mut self, bytes: usize) -> Result<(), DataLimitReached> {
        self.bytes = self.bytes.saturating_add(VALUE_BYTES + bytes as u64);
        DataLimit::ExpressionBytes.check(self.bytes)
    }

    /// Copies a value, after what the copy takes was counted.
    pub(super) fn copy(&mut self, value: &Value) -> Result<Value, DataLimitReached> {
        self.count(value)?;
        Ok(value.clone())
    }

    fn count(&mut self, value: &Value) -> Result<(), DataLimitReached> {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.make(0),
            Value::String(text) => self.make(text.len()),
            Value::Array(items) => {
                self.make(0)?;
                items.iter().try_for_each(|it| self.count(it))
            }
            Value::Object(fields) => {
                self.make(0)?;
                fields.iter().try_for_each(|(key, value)| {
                    self.make(key.len())?;
                    self.count(value)
                })
            }
        }
    }
}
