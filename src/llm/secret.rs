//! Secrets: a text that does not show itself, and the removal of keys from texts that leave the process.

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Stands where a secret was.
pub(super) const REDACTED: &str = "[redacted]";

/// Shorter texts are not looked for: a key of `x` would blank out every message.
const SECRET_CHARS_MIN: usize = 8;

/// A key or token. Its `Debug` shows nothing of it, and there is no `Display`.
///
/// ```
/// let key = graphrun::llm::Secret::new("sk-very-secret");
/// assert_eq!(format!("{key:?}"), "Secret([redacted])");
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Creates a secret; an empty text means that there is none.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns whether there is no secret.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the secret itself. Its only reader is the request's header.
    #[cfg(feature = "openai")]
    pub(super) fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the text without this secret.
    pub fn remove_from<'a>(&self, text: Cow<'a, str>) -> Cow<'a, str> {
        if self.0.chars().count() >= SECRET_CHARS_MIN && text.contains(&self.0) {
            return text.replace(&self.0, REDACTED).into();
        }
        text
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "Secret(none)" } else { "Secret([redacted])" })
    }
}

/// Returns the text without anything that looks like a key of a known provider.
///
/// Meant for texts that are kept or shown. It knows the common forms and cannot know all.
pub fn scrub(text: &str) -> Cow<'_, str> {
    static KEYS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(concat!(
            r"\bsk-[A-Za-z0-9_-]{16,}", // OpenAI, Anthropic, OpenRouter, DeepSeek
            r"|\b(?:gsk|xai|hf|r8|csk)[_-][A-Za-z0-9]{16,}", // Groq, xAI, Hugging Face, Replicate, Cerebras
            r"|\b(?i:bearer) [A-Za-z0-9._-]{16,}",
            r"|\bAIza[A-Za-z0-9_-]{30,}", // Google
            r"|\bAKIA[A-Z0-9]{16}\b",     // AWS
            r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}",
            r"|\bxox[abprs]-[A-Za-z0-9-]{10,}", // Slack
            r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}", // JSON web tokens
            r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----",
        ))
        .expect("the pattern is a constant, compiled by the tests")
    });
    KEYS.replace_all(text, |found: &Captures<'_>| {
        // A random text of this length has a digit; `sk-loading-spinner-wide`, a style's name, has none.
        let has_digit = found[0].bytes().any(|byte| byte.is_ascii_digit());
        if has_digit || found[0].starts_with("-----") {
            REDACTED.into()
        } else {
            found[0].to_owned()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_known_forms_are_removed_and_words_are_kept() {
        let removed = [
            "sk-proj-abcdefghijklmnop0123",
            "gsk_abcdefghijklmnopqrstu5",
            "AIzaSyA1234567890abcdefghijklmnopqrstuvw",
            "ghp_abcdefghijklmnopqrstuvwxy5",
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
        ];
        for key in removed {
            assert_eq!(scrub(&format!("a {key} b")), "a [redacted] b");
        }
        for kept in ["task-sk-1", "ask-for-permission-2-in-a-long-name", "sk-loading-spinner-wide"]
        {
            assert_eq!(scrub(kept), kept);
        }
    }

    #[test]
    fn a_secret_of_no_known_form_is_removed_when_it_is_known() {
        let secret = Secret::new("hunter2-hunter2");
        assert_eq!(
            secret.remove_from("key hunter2-hunter2 is wrong".into()),
            "key [redacted] is wrong"
        );
        assert_eq!(Secret::new("x").remove_from("x marks".into()), "x marks");
    }
}
