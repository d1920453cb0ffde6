//! Why an expression has no value in a state.

use graphrun_guard::data_limit::DataLimitReached;
use serde_json::Value;
use thiserror::Error;

/// An expression has no value in a state.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EvaluateError {
    /// A value is unassigned, absent or null.
    #[error("`{0}` is not there")]
    Absent(String),
    /// A value does not have the type that an operator needs.
    #[error("`{operator}` needs {needed}, got `{got}`")]
    Kind {
        /// The operator.
        operator: &'static str,
        /// The type that the operation needs.
        needed: &'static str,
        /// The value it received, shortened.
        got: String,
    },
    /// A number left its range.
    #[error("`{0}` leaves the range of numbers")]
    Range(&'static str),
    /// Division by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// The evaluation exceeds a limit on steps or memory.
    #[error("the evaluation is {0}")]
    Limit(DataLimitReached),
}

/// An expression failed in a state.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{reason} (in `{expression}`)")]
pub struct ExpressionError {
    /// The expression, or its first characters.
    pub expression: String,
    /// The reason.
    pub reason: EvaluateError,
}

impl From<DataLimitReached> for EvaluateError {
    fn from(reached: DataLimitReached) -> Self {
        Self::Limit(reached)
    }
}

/// Returns the error for a value of the wrong kind.
pub(super) fn kind(operator: &'static str, needed: &'static str, got: &Value) -> EvaluateError {
    EvaluateError::Kind { operator, needed, got: start_of(got) }
}

/// Returns the first characters of a value as JSON; the whole may have millions.
fn start_of(value: &Value) -> String {
    const CHARACTERS_MAX: usize = 40;
    // A character has four bytes at most.
    let mut start = [0; 4 * CHARACTERS_MAX];
    let mut rest = start.as_mut_slice();
    // Writing fails once the slice is full.
    let _ = serde_json::to_writer(&mut rest, value);
    let unused = rest.len();
    let written = &start[..start.len() - unused];
    let whole = written.utf8_chunks().next().map_or("", |it| it.valid());
    whole.chars().take(CHARACTERS_MAX).collect()
}
