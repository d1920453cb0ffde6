//! What the calls of tools leave in a conversation and in events: their results and arguments, in a bounded length.

use graphrun_guard::redact::redact;
use graphrun_workflow::tool::ToolError;
use serde_json::Value;

/// The beginning of a result that is an error.
pub(super) const ERROR_PREFIX: &str = "error: ";
/// The most characters of a result in the conversation.
pub(super) const RESULT_CHARACTERS_MAX: usize = 60_000;
/// The most characters of an error in the conversation.
const ERROR_CHARACTERS_MAX: usize = 4_000;
/// The most characters of arguments in an event.
pub(super) const INPUT_CHARACTERS_MAX: usize = 200;

/// Returns the result of a call for the model.
pub(super) fn result_text(outcome: Result<Value, ToolError>) -> String {
    match outcome {
        Ok(Value::String(text)) => cut(&text, RESULT_CHARACTERS_MAX),
        Ok(value) => cut(&value.to_string(), RESULT_CHARACTERS_MAX),
        Err(error) => {
            let hint = if error.transient { "; it may work at another time" } else { "" };
            let error = cut(&error.to_string(), ERROR_CHARACTERS_MAX);
            format!("{ERROR_PREFIX}{error}{hint}")
        }
    }
}

/// Truncates a text. Keys are removed first, because a part of a key would not be recognised.
pub(super) fn cut(text: &str, characters_max: usize) -> String {
    let text = redact(text);
    match text.char_indices().nth(characters_max) {
        None => text.into_owned(),
        Some((end, _)) => {
            let more = text[end..].chars().count();
            format!("{}… ({more} more characters)", &text[..end])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_a_bounded_length_and_no_key() {
        let key = format!("ghp_{}", "a1B2c3D4e5F6".repeat(3));
        let told = result_text(Err(ToolError::permanent(format!("{key} {}", "x".repeat(5_000)))));
        assert!(told.starts_with("error: ") && !told.contains(&key), "{told}");
        assert!(told.chars().count() < 4_100, "{}", told.chars().count());
        let told = result_text(Err(ToolError::transient("busy")));
        assert_eq!(told, "error: busy; it may work at another time");
    }
}
