//! Secrets: texts that are never printed, and that this process removes from everything it saves or
//! shows.

use std::fmt;

use graphrun_guard::redact;

/// A key or token. Its `Debug` shows nothing of it, and there is no `Display`.
///
/// ```
/// let key = graphrun_models::Secret::new("sk-very-secret");
/// assert_eq!(format!("{key:?}"), "Secret([redacted])");
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Creates a secret, which is redacted from now on; an empty text means that there is none.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        redact::learn(&text);
        Self(text)
    }

    /// Returns whether there is no secret.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the secret itself, only for the header of a request.
    #[cfg(feature = "openai")]
    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "Secret(none)" } else { "Secret([redacted])" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphrun_guard::redact::redact;
    #[test]
    fn a_secret_is_known_from_its_beginning() {
        let _secret = Secret::new("hunter2-hunter2");
        assert_eq!(redact("key hunter2-hunter2 is wrong"), "key [redacted] is wrong");
    }
}
