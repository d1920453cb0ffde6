//! Limits the steps and bytes of an evaluation, so that no expression uses up time or memory.

use graphrun_core::state::{FIELD_MEMORY, PART_MEMORY, RECORD_MEMORY, text_memory};
use graphrun_guard::data_limit::{DataLimit, DataLimitReached};
use serde_json::Value;

/// The bytes of a text that count as one step.
const BYTES_PER_STEP: usize = 32;

/// The steps and bytes of one evaluation so far.
#[derive(Debug, Default)]
pub(super) struct ExpressionMeter {
    steps: u64,
    memory: u64,
}

impl ExpressionMeter {
    /// Counts a visited part of the expression or of a value.
    pub(super) fn step(&mut self) -> Result<(), DataLimitReached> {
        self.steps(1)
    }

    pub(super) fn steps(&mut self, steps: u64) -> Result<(), DataLimitReached> {
        self.steps = self.steps.saturating_add(steps);
        DataLimit::ExpressionSteps.check(self.steps)
    }

    /// Counts a text that is read.
    pub(super) fn look_at(&mut self, text: &str) -> Result<(), DataLimitReached> {
        self.steps((text.len() / BYTES_PER_STEP) as u64 + 1)
    }

    /// Counts a new value other than a text.
    pub(super) fn make(&mut self) -> Result<(), DataLimitReached> {
        self.take(PART_MEMORY)
    }

    /// Counts a new text of this length in bytes.
    pub(super) fn make_text(&mut self, length: usize) -> Result<(), DataLimitReached> {
        self.take(text_memory(length as u64))
    }

    /// Counts a new record.
    pub(super) fn make_record(&mut self) -> Result<(), DataLimitReached> {
        self.take(PART_MEMORY + RECORD_MEMORY)
    }

    /// Counts the name of a new field.
    pub(super) fn make_field(&mut self, name: &str) -> Result<(), DataLimitReached> {
        self.take(FIELD_MEMORY + name.len() as u64)
    }

    fn take(&mut self, memory: u64) -> Result<(), DataLimitReached> {
        self.memory = self.memory.saturating_add(memory);
        DataLimit::ExpressionMemory.check(self.memory)
    }

    /// Counts the memory of a copy, then copies the value.
    pub(super) fn copy(&mut self, value: &Value) -> Result<Value, DataLimitReached> {
        self.count(value)?;
        Ok(value.clone())
    }

    /// Counts the memory of a copy.
    pub(super) fn count(&mut self, value: &Value) -> Result<(), DataLimitReached> {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.make(),
            Value::String(text) => self.make_text(text.len()),
            Value::Array(items) => {
                self.make()?;
                items.iter().try_for_each(|it| self.count(it))
            }
            Value::Object(fields) => {
                self.make_record()?;
                fields.iter().try_for_each(|(name, value)| {
                    self.make_field(name)?;
                    self.count(value)
                })
            }
        }
    }
}
