//! Limits the rendering of a template, so that none uses up time, memory or stack.
//!
//! The engine counts instructions, and one instruction may copy a text of any length. So each
//! operand of an operator or a filter, and each output, is counted by its size before, see
//! [`RenderMeter::count`]. New values are counted as well, and their nesting is bounded.

use graphrun_guard::data_limit::{DataLimit, DataLimitReached};
use minijinja::{Error, ErrorKind, State, Value, value::ValueKind};

/// The steps of each value.
const STEPS_PER_VALUE: u64 = 4;
/// The bytes of a text that count as one step.
const BYTES_PER_STEP: u64 = 8;
/// The deepest nesting of lists and mappings: printing and dropping a value recurse as deep.
const DEPTH_MAX: usize = 100;

/// The steps and bytes of one rendering so far.
#[derive(Debug, Default)]
pub(super) struct RenderMeter {
    steps: u64,
    written: u64,
}

/// Returns the meter of a rendering.
pub(super) fn meter<'s>(state: &'s mut State<'_, '_>) -> &'s mut RenderMeter {
    state.get_or_insert_extension(RenderMeter::default())
}

impl RenderMeter {
    /// Counts steps.
    pub(super) fn steps(&mut self, steps: u64) -> Result<(), Error> {
        self.steps = self.steps.saturating_add(steps);
        DataLimit::TemplateSteps.check(self.steps).map_err(limit_error)
    }

    /// Counts bytes that are read or made.
    pub(super) fn bytes(&mut self, bytes: usize) -> Result<(), Error> {
        self.steps(bytes as u64 / BYTES_PER_STEP + 1)
    }

    /// Counts a value with its content.
    pub(super) fn count(&mut self, value: &Value) -> Result<(), Error> {
        self.count_at(value, 0).map(drop)
    }

    /// Like [`Self::count`], for a value that is printed.
    pub(super) fn write(&mut self, value: &Value) -> Result<(), Error> {
        let bytes = self.count_at(value, 0)?;
        self.written = self.written.saturating_add(bytes);
        DataLimit::TemplateBytes.check(self.written).map_err(limit_error)
    }

    /// Counts a value, and returns its approximate bytes as a text.
    fn count_at(&mut self, value: &Value, depth: usize) -> Result<u64, Error> {
        if depth > DEPTH_MAX {
            let message = format!("a value is nested deeper than {DEPTH_MAX} levels");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
        self.steps(STEPS_PER_VALUE)?;
        match value.kind() {
            ValueKind::String | ValueKind::Bytes => {
                let bytes = value.as_bytes().map_or(0, <[u8]>::len) as u64;
                self.steps(bytes / BYTES_PER_STEP)?;
                Ok(bytes)
            }
            ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => self.count_items(value, depth),
            // A number has up to 40 digits.
            _ => Ok(STEPS_PER_VALUE),
        }
    }

    fn count_items(&mut self, value: &Value, depth: usize) -> Result<u64, Error> {
        let is_map = value.kind() == ValueKind::Map;
        let mut bytes = 0_u64;
        for item in value.try_iter()? {
            bytes = bytes.saturating_add(2 + self.count_at(&item, depth + 1)?);
            if is_map && let Ok(value) = value.get_item(&item) {
                bytes = bytes.saturating_add(2 + self.count_at(&value, depth + 1)?);
            }
        }
        Ok(bytes)
    }
}

/// Returns the error of the engine for a limit that is reached.
pub(super) fn limit_error(reached: DataLimitReached) -> Error {
    Error::new(ErrorKind::OutOfFuel, "a limit is reached").with_source(reached)
}
