//! Reads JSON from outside, within the limits and without loss.
//!
//! The text is scanned once before it is parsed to a value, so that untrusted text determines neither the
//! depth of the stack nor the use of memory. `serde_json` then reports every syntax error.

use std::str::Utf8Error;

use graphrun_guard::data_limit::{DataLimit, DataLimitReached};
use serde_json::Value;
use thiserror::Error;

use super::{
    compact::Compact,
    measure::{FIELD_MEMORY, PART_MEMORY, RECORD_MEMORY},
};

/// A text cannot be read as JSON.
#[derive(Debug, Error)]
pub enum JsonError {
    /// It is not JSON.
    #[error(transparent)]
    Form(#[from] serde_json::Error),
    /// It is not text.
    #[error("it is not UTF-8: {0}")]
    Utf8(Utf8Error),
    /// It is too deep or too large.
    #[error("it is {0}")]
    Limit(DataLimitReached),
    /// A whole number needs more than 64 bits.
    #[error(
        "the whole number {0} does not fit into 64 bits; write it as a string, or with `.0` where \
         a float may be rounded"
    )]
    Number(String),
}

// The text of these variants has that of the error, so it is no source as well.
impl From<Utf8Error> for JsonError {
    fn from(error: Utf8Error) -> Self {
        Self::Utf8(error)
    }
}

impl From<DataLimitReached> for JsonError {
    fn from(reached: DataLimitReached) -> Self {
        Self::Limit(reached)
    }
}

impl JsonError {
    /// Returns whether the text is valid JSON beyond a limit.
    pub fn is_limit(&self) -> bool {
        match self {
            Self::Limit(_) | Self::Number(_) => true,
            Self::Form(_) | Self::Utf8(_) => false,
        }
    }
}

/// Reads one value.
///
/// # Errors
///
/// Fails when the text is not JSON, is deeper or larger than a value may be, or has a whole number that would
/// lose digits.
pub fn read_json(text: &str) -> Result<Value, JsonError> {
    scan(text, DataLimit::ValueDepth.value(), DataLimit::ValueMemory)?;
    Ok(serde_json::from_str::<Compact>(text)?.into_value())
}

/// Reads one value from bytes.
///
/// # Errors
///
/// Fails as [`read_json`] does, and when the bytes are not UTF-8.
pub fn read_json_bytes(bytes: &[u8]) -> Result<Value, JsonError> {
    read_json(str::from_utf8(bytes)?)
}

/// Reads a record of several values, each of which is checked later.
///
/// # Errors
///
/// Fails as [`read_json`] does; the size is that of a state.
pub fn read_json_fields<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, JsonError> {
    scan(text, DataLimit::ValueDepth.value() + 1, DataLimit::StateMemory)?;
    Ok(serde_json::from_str(text)?)
}

/// Checks the depth, the number of parts and the numbers of a text.
fn scan(text: &str, depth_max: u64, size: DataLimit) -> Result<(), JsonError> {
    let bytes = text.as_bytes();
    let mut depth = 0_u64;
    let mut memory = PART_MEMORY;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = end_of_string(bytes, at + 1),
            b'[' | b'{' => {
                depth += 1;
                if depth > depth_max {
                    let limit = DataLimit::ValueDepth;
                    return Err(DataLimitReached { limit, max: limit.value() }.into());
                }
                memory += PART_MEMORY + if byte == b'{' { RECORD_MEMORY } else { 0 };
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => memory += PART_MEMORY,
            b':' => memory += FIELD_MEMORY,
            b'-' | b'0'..=b'9' => {
                let end = end_of_number(bytes, at);
                check_number(&text[at..end])?;
                at = end;
                continue;
            }
            _ => (),
        }
        at += 1;
    }
    size.check(memory)?;
    Ok(())
}

/// Returns the index of the quote that ends a string, or the end of the text.
fn end_of_string(bytes: &[u8], mut at: usize) -> usize {
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn end_of_number(bytes: &[u8], at: usize) -> usize {
    let is_part = |it: &u8| matches!(it, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    bytes[at..].iter().position(|it| !is_part(it)).map_or(bytes.len(), |length| at + length)
}

/// Refuses a whole number beyond 64 bits: it would become a float and lose its last digits.
fn check_number(number: &str) -> Result<(), JsonError> {
    let digits = number.strip_prefix('-').unwrap_or(number);
    let is_whole = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
    if is_whole && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
        const SHOWN: usize = 40;
        let mut shown: String = number.chars().take(SHOWN).collect();
        if number.len() > SHOWN {
            shown.push('…');
        }
        return Err(JsonError::Number(shown));
    }
    Ok(())
}

/// Returns a value as text: a string as it is, another value in its JSON notation.
pub fn plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::with_causes;

    fn problem(text: &str) -> String {
        read_json(text).unwrap_err().to_string()
    }

    #[test]
    fn an_error_repeats_no_text_as_its_source() {
        let deep = "[".repeat(1000);
        for text in [&b"{"[..], b"\xff", deep.as_bytes(), b"99999999999999999999"] {
            let error = read_json_bytes(text).unwrap_err();
            assert_eq!(with_causes(&error), error.to_string());
        }
    }

    #[test]
    fn json_of_any_depth_is_refused_within_a_small_stack() {
        let max = usize::try_from(DataLimit::ValueDepth.value()).unwrap();
        let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(read_json(&nested(max)).is_ok());
        for text in [nested(max + 1), nested(128), nested(1_000_000), "{\"a\":".repeat(9_999)] {
            let problem = problem(&text);
            assert!(
                problem.contains("`value_depth` of 64; to raise it, set GRAPHRUN_LIMIT"),
                "{problem}"
            );
        }
        let fields = format!("{{\"a\": {}}}", nested(max));
        assert!(read_json_fields::<Value>(&fields).is_ok());
        assert!(read_json_fields::<Value>(&format!("[{fields}]")).is_err());
    }

    #[test]
    fn brackets_and_digits_in_strings_do_not_count() {
        for text in [
            format!(r#"["{}"]"#, "[".repeat(1_000)),
            format!(r#"["\"{}\\"]"#, "{".repeat(1_000)),
            r#"{"18446744073709551616": "99999999999999999999"}"#.to_owned(),
        ] {
            assert!(read_json(&text).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_whole_number_that_would_lose_digits_is_refused() {
        for text in ["18446744073709551616", "[1, -9223372036854775809]", &"9".repeat(400)] {
            assert!(problem(text).contains("does not fit into 64 bits"), "{text}");
        }
        for text in ["18446744073709551615", "-9223372036854775808", "1.5e300", "-0", "0.1"] {
            assert!(read_json(text).is_ok(), "{text}");
        }
        assert!(problem("1e400").contains("number out of range"), "{}", problem("1e400"));
    }

    #[test]
    fn many_small_parts_are_refused_before_they_take_memory() {
        let many = usize::try_from(DataLimit::ValueMemory.value() / PART_MEMORY).unwrap();
        let text = format!("[{}0]", "0,".repeat(many));
        assert!(problem(&text).contains("`value_memory`"));
    }

    #[test]
    fn text_that_is_not_json_keeps_its_place() {
        for text in ["", "[", "]", "{\"a\": \"", "\"\\", "--1", "tru", "[1,]", "1 2"] {
            assert!(problem(text).contains(" at line 1 column "), "{text}: {}", problem(text));
        }
    }
}
