//! Results as JSON.

use super::error::CliError;

/// A value as JSON that people can read, too.
///
/// # Errors
///
/// Fails when it cannot be said in JSON.
pub(super) fn to_json(value: &impl serde::Serialize) -> Result<String, CliError> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| CliError::write(error.into()))?;
    Ok(text + "\n")
}
