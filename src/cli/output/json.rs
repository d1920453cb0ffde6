//! Results as JSON.

use std::fmt::Display;

use super::words::clean_to;
use crate::cli::error::CliError;

/// The most characters of a wrong value in a message.
const FOUND_CHARACTERS_MAX: usize = 40;

/// Returns a value as formatted JSON.
///
/// # Errors
///
/// Fails when the value cannot be represented as JSON.
pub(crate) fn to_json(value: &impl serde::Serialize) -> Result<String, CliError> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| CliError::write(error.into()))?;
    Ok(text + "\n")
}

/// Returns the problem of a text that is not JSON. The words of the parser help only inside of a value that begins as
/// JSON does.
pub(crate) fn not_json(text: &str, error: &impl Display) -> String {
    if text.trim_start().starts_with(['{', '[', '"']) {
        return format!("expected JSON: {error}");
    }
    format!("expected JSON, found: `{}`", clean_to(text, FOUND_CHARACTERS_MAX))
}
