//! Keys in what people type: they are saved as `[redacted]`, and the warning names the field.

use serde_json::Value;

use super::terminal::say;
use crate::redact::{REDACTED, redact_value};

/// Removes keys from a value that a person gave, and warns of it.
///
/// The value is not refused: what only looks like a key may be meant, and no message may repeat it.
pub(super) fn redact_given(name: &str, value: &mut Value) {
    if redact_value(value) {
        say(&format!(
            "warning: the value of `{name}` contains what looks like a key; it is replaced by {REDACTED}, as \
             keys are neither saved nor shown"
        ));
    }
}
