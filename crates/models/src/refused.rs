//! Parameters that a provider has rejected by name. The process remembers them for each account and model, so that
//! each costs one request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{LazyLock, Mutex, PoisonError};

use serde_json::Value;

use super::error::ModelError;
use super::provider::{Parameter, Profile, TokenLimit};

/// The most models whose rejections are remembered. Beyond it, all are forgotten, and learnt again.
const MODELS_MAX: usize = 1024;

/// The words of a message about a parameter that a provider does not take.
const REJECTIONS: [&str; 14] = [
    "not support",
    "unsupported",
    "not permitted",
    "not allowed",
    "forbidden",
    "unknown",
    "unrecognized",
    "unexpected",
    "cannot find field",
    "not available",
    "not a valid",
    "invalid parameter",
    "no longer",
    "deprecated",
];

static KNOWN: LazyLock<Mutex<BTreeMap<String, Refused>>> = LazyLock::new(Mutex::default);

/// What a model of an account rejects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Refused {
    parameters: BTreeSet<Parameter>,
    token_limits: BTreeSet<TokenLimit>,
}

impl Refused {
    /// Returns what the model of this name is known to reject.
    pub(super) fn known(name: &str) -> Self {
        let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(name).cloned().unwrap_or_default()
    }

    pub(super) fn has(&self, parameter: Parameter) -> bool {
        self.parameters.contains(&parameter)
    }

    /// Returns the name of the token limit that the provider accepts, if any.
    pub(super) fn token_limit(&self, first: TokenLimit) -> Option<TokenLimit> {
        [first, first.other()].into_iter().find(|it| !self.token_limits.contains(it))
    }

    /// Learns from a rejection of this request. Returns the part of the request to leave out from now on; `None` if the
    /// rejection names none.
    pub(super) fn learn(
        &mut self,
        name: &str,
        error: &ModelError,
        body: &Value,
        profile: &Profile,
    ) -> Option<&'static str> {
        let ModelError::BadRequest { status: 400 | 422, message } = error else { return None };
        let message = message.to_lowercase();
        if !REJECTIONS.iter().any(|it| message.contains(it)) {
            return None;
        }
        let names_sent = |name: &str| body.get(name).is_some() && has_word(&message, name);
        let limits = TokenLimit::ALL.iter().copied();
        // A message about one of the two names may recommend the other, and only one was sent.
        let learnt = if let Some(limit) = limits.into_iter().find(|it| names_sent(it.as_str())) {
            self.token_limits.insert(limit);
            limit.as_str()
        } else {
            let parameters = Parameter::ALL.iter().copied();
            let parameter = parameters.into_iter().find(|it| names_sent(profile.name_of(*it)))?;
            self.parameters.insert(parameter);
            parameter.as_str()
        };
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MODELS_MAX && !known.contains_key(name) {
            known.clear();
        }
        // Another request may have learnt something else in the meantime.
        let all = known.entry(name.to_owned()).or_default();
        all.parameters.extend(&self.parameters);
        all.token_limits.extend(&self.token_limits);
        Some(learnt)
    }

    /// Returns the rejected parameters as text: requests that differ in them have different keys.
    pub(super) fn key(&self) -> String {
        let parameters = self.parameters.iter().map(|it| it.as_str());
        let all = parameters.chain(self.token_limits.iter().map(|it| it.as_str()));
        all.flat_map(|it| ["/without-", it]).collect()
    }
}

/// Returns whether a text has a word that is not part of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_rejection_names_a_parameter_that_was_sent() {
        let body = json!({"temperature": 0.5, "seed": 7, "stream": true, "max_tokens": 5});
        for (message, expected) in [
            (
                "Unsupported value: 'temperature' does not support 0.5 with this model.",
                Some("temperature"),
            ),
            (
                "[{\"type\":\"extra_forbidden\",\"loc\":[\"body\",\"seed\"],\"msg\":\"Extra inputs are not permitted\"}]",
                Some("seed"),
            ),
            (
                "Invalid JSON payload received. Unknown name \"seed\": Cannot find field.",
                Some("seed"),
            ),
            (
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
                Some("max_tokens"),
            ),
            ("Streaming is not supported by this model: set stream to false", Some("stream")),
            ("Unsupported parameter: 'top_p'", None),
            ("stream_options is not supported", None),
            ("the seed of the discussion is a text", None),
        ] {
            let error = ModelError::BadRequest { status: 400, message: message.to_owned() };
            let learnt = Refused::default().learn(message, &error, &body, &Profile::default());
            assert_eq!(learnt, expected, "{message}");
        }
        let other = ModelError::BadRequest { status: 404, message: "unknown seed".into() };
        assert_eq!(Refused::default().learn("x", &other, &body, &Profile::default()), None);
    }

    #[test]
    fn a_rejected_token_limit_is_sent_under_its_other_name() {
        let mut refused = Refused::default();
        assert_eq!(refused.token_limit(TokenLimit::MaxTokens), Some(TokenLimit::MaxTokens));
        refused.token_limits.insert(TokenLimit::MaxTokens);
        assert_eq!(
            refused.token_limit(TokenLimit::MaxTokens),
            Some(TokenLimit::MaxCompletionTokens)
        );
        refused.token_limits.insert(TokenLimit::MaxCompletionTokens);
        assert_eq!(refused.token_limit(TokenLimit::MaxTokens), None);
    }
}
