//! Results as JSON.

use super::error::CliError;

/// Returns a value as formatted JSON.
///
/// # Errors
///
/// Fails when the value cannot be represented as JSON.
pub(super) fn to_json(value: &impl serde::Serialize) -> Result<String, CliError> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| CliError::write(error.into()))?;
    Ok(text + "\n")
}
