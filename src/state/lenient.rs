//! Reading what a model wrote into a type, with allowances that are counted.

use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

/// A type that a model's answer can be read as.
pub trait ReadLeniently: Sized {
    /// Reads a model's answer.
    ///
    /// # Errors
    ///
    /// Names every place where the answer cannot be read as this type.
    fn read_leniently(answer: Value) -> Result<Reading<Self>, ReadError>;
}

/// A value, and what had to be overlooked to read it.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading<T> {
    /// The value.
    pub value: T,
    /// One line for each allowance that was made.
    pub warnings: Vec<String>,
}

/// An answer could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", problems.join("; "))]
pub struct ReadError {
    /// Each problem with its path, such as `files[0].content: at least 10 characters, got 3`.
    pub problems: Vec<String>,
}

/// Reads an answer as `T` and gives it back in its normal form.
///
/// # Errors
///
/// Names every place where the answer cannot be read as `T`.
pub fn read_as<T: ReadLeniently + Serialize>(answer: Value) -> Result<Reading<Value>, ReadError> {
    let Reading { value, warnings } = T::read_leniently(answer)?;
    let value = serde_json::to_value(value)
        .map_err(|error| ReadError { problems: vec![error.to_string()] })?;
    Ok(Reading { value, warnings })
}
