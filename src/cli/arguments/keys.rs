//! Redacts API keys in typed text: they are saved as `[redacted]`, and a warning names the field.

use serde_json::Value;

use crate::{
    cli::output::terminal::print_message,
    redact::{REDACTED, redact_value},
};

/// Redacts keys in a given value, and prints a warning.
///
/// The value is accepted: a text that only looks like a key may be intended, and no message may
/// repeat it.
pub(crate) fn redact_given(name: &str, value: &mut Value) {
    if redact_value(value) {
        print_message(&format!(
            "warning: the value of `{name}` seems to contain a key; {REDACTED} replaces it, \
             because keys are neither saved nor shown"
        ));
    }
}
