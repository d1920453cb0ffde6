//! Classifies the error replies of providers.
//!
//! Error bodies come as OpenAI's `{"error": {"message", "code"}}`, with the code as a number, with
//! a text or a list in place of the object, as `{"detail": …}`, `{"object": "error", …}`, HTML, or
//! nothing at all. The status decides first; the text decides where one status has several
//! meanings.

use std::time::Duration;

use graphrun_guard::redact::{redact, redact_value};
use serde_json::Value;

use super::{
    ChatReply, Finish, ModelError, Protocol, TokenUsage, lenient::text_of,
    retry_after::read_retry_delay,
};

/// The longest message: an HTML page has no more information after its first lines.
const MESSAGE_CHARS_MAX: usize = 500;

/// A reply other than 2xx, unchanged.
#[derive(Debug, Clone, Copy)]
pub struct ErrorReply<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The wait that the provider asks for.
    pub after: Option<Duration>,
    /// The body.
    pub body: &'a str,
}

impl ErrorReply<'_> {
    /// Returns the failure as an error.
    ///
    /// A provider that checks the model's output itself and rejects it (Groq) puts the output into
    /// its error. That is an invalid answer like any other, and returned as a reply.
    ///
    /// # Errors
    /// Returns the classified error in all other cases.
    pub fn classify(self) -> Result<ChatReply, ModelError> {
        let mut body = serde_json::from_str::<Value>(self.body).ok();
        if let Some(body) = &mut body {
            // A server may put the key of the request into its error, also escaped.
            redact_value(body);
        }
        if let Some(text) = body.as_ref().and_then(failed_generation) {
            return Ok(ChatReply {
                usage: TokenUsage::estimate(0, text.chars().count()),
                text,
                finish: Finish::failed_generation(),
                ..ChatReply::default()
            });
        }
        let error_text =
            body.as_ref().map_or_else(|| ErrorText::of_text(self.body), ErrorText::of_json);
        Err(self.error(&error_text))
    }

    fn error(self, error_text: &ErrorText) -> ModelError {
        let Self { status, .. } = self;
        let after = self.after.or(error_text.after);
        let message = error_text.message(status);
        match status {
            // Before the classes of the same status: no other model and no other key is the answer to a refusal.
            400 | 403 | 422 if error_text.is_refusal() => {
                ModelError::Refused { text: message, usage: TokenUsage::default() }
            }
            401 | 403 => ModelError::Auth { message },
            402 => ModelError::Quota { message },
            _ if error_text.is_quota() => ModelError::Quota { message },
            413 => overflow(message),
            429 => ModelError::RateLimited { after, message },
            // llama.cpp answers 500, and an error inside a reply has no status.
            400 | 422 | 500.. if error_text.is_context_overflow() => overflow(message),
            // Google answers 400, not 401, to a wrong key.
            400 if error_text.has("api key not valid") || error_text.has("invalid api key") => {
                ModelError::Auth { message }
            }
            404 | 410 => ModelError::NotFound { message },
            400 | 422 if error_text.is_unknown_model() => ModelError::NotFound { message },
            408 | 409 | 425 => ModelError::Transient { after, message },
            503 | 529 => ModelError::Overloaded { after, message },
            500.. if error_text.has("overloaded") => ModelError::Overloaded { after, message },
            500.. => ModelError::Transient { after, message },
            300..400 => ModelError::BadRequest {
                status,
                message: "the address redirects, and redirects are not followed".to_owned(),
            },
            _ => ModelError::BadRequest { status, message },
        }
    }
}

fn overflow(message: String) -> ModelError {
    ModelError::ContextOverflow { message, usage: TokenUsage::default() }
}

/// Classifies the body of a 200 that is no reply of its protocol: an error in disguise, or the answer of another service.
pub(super) fn not_a_reply(body: &Value, protocol: Protocol) -> ModelError {
    not_a(body, &format!("one of the protocol `{}`", protocol.as_str()))
}

/// Classifies the body of a 200 that has something else than the request asks for.
pub(super) fn not_a(body: &Value, wanted: &str) -> ModelError {
    let error = body.get("error").filter(|_| has_error(body));
    let Some(error) = error.or_else(|| is_error(body).then_some(body)) else {
        let keys: Vec<&str> =
            body.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).take(8).collect();
        let message = format!(
            "the reply is not {wanted} (it has {keys:?}); check `base_url` and `protocol` of the provider"
        );
        return ModelError::Transient { after: None, message };
    };
    let error_text = ErrorText::of_json(body);
    let code = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let code = code.filter(|code| (400..600).contains(code));
    let words = ["code", "type", "status"].map(|it| error.get(it).and_then(Value::as_str));
    let by_word = || words.into_iter().flatten().find_map(status_of);
    // No status to go by: taken as a fault of the gateway, which it is when it says 200.
    let unstated = if error_text.is_refusal() { 400 } else { 502 };
    let status = code.or_else(by_word).unwrap_or(unstated);
    ErrorReply { status, after: None, body: "" }.error(&error_text)
}

/// Returns the status that a provider answers with when an error of this code or type is not inside a reply.
fn status_of(word: &str) -> Option<u16> {
    Some(match word.to_ascii_lowercase().as_str() {
        "rate_limit_error" | "rate_limit_exceeded" | "rate_limited" | "resource_exhausted" => 429,
        "overloaded_error" | "server_overloaded" | "unavailable" => 529,
        "api_error" | "server_error" | "internal" | "internal_server_error" => 500,
        "timeout_error" | "deadline_exceeded" => 504,
        "authentication_error" | "unauthenticated" | "invalid_api_key" => 401,
        "permission_error" | "permission_denied" => 403,
        "billing_error" | "insufficient_quota" => 402,
        "not_found_error" | "not_found" | "model_not_found" => 404,
        "request_too_large" => 413,
        "invalid_request_error" | "invalid_argument" | "invalid_prompt" => 400,
        // Some gateways write the status as a text.
        number => return number.parse().ok().filter(|it| (400..600).contains(it)),
    })
}

/// Returns whether a body or a choice contains an error. Some servers send an empty one beside each answer.
pub(super) fn has_error(body: &Value) -> bool {
    match body.get("error") {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.trim().is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        Some(Value::Object(error)) => !error.is_empty(),
        Some(Value::Bool(true) | Value::Number(_)) => true,
    }
}

/// Returns whether a body is an error by its own words.
pub(super) fn is_error(body: &Value) -> bool {
    ["type", "object"].iter().any(|it| body.get(*it).and_then(Value::as_str) == Some("error"))
}

/// Reads the body of a 200. Bytes that are not UTF-8 were replaced: one broken character is no
/// reason to pay for the whole answer again.
///
/// A server may put the key of a request anywhere into its reply, also escaped. So keys are removed
/// here, after decoding and before anything is read, truncated or saved.
#[cfg(feature = "openai")]
pub(super) fn read_body(text: &str) -> Result<Value, ModelError> {
    read_value(text, |text| {
        serde_json::from_str(text).or_else(|error| {
            // What follows the reply is no reason to pay for it again, either.
            let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
            values.next().and_then(Result::ok).filter(Value::is_object).ok_or(error)
        })
    })
}

/// Reads the data of an event in the same way. Nothing may follow it: that would be another event, which would be lost.
#[cfg(feature = "openai")]
pub(super) fn read_json(text: &str) -> Result<Value, ModelError> {
    read_value(text, |text| serde_json::from_str(text))
}

#[cfg(feature = "openai")]
fn read_value(
    text: &str,
    parse: impl Fn(&str) -> serde_json::Result<Value>,
) -> Result<Value, ModelError> {
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.is_empty() {
        return Err(ModelError::EmptyResponse { usage: TokenUsage::default() });
    }
    let parsed = parse(text).or_else(|error| {
        let whole = with_whole_characters(text);
        let finite = without_other_numbers(whole.as_deref().unwrap_or(text));
        finite.or(whole).map_or(Err(error), |text| parse(&text))
    });
    let mut body: Value = parsed.map_err(|error| {
        let start: String = redact(text).chars().take(80).collect();
        let message = format!("the reply is not JSON ({error}); it begins with {start:?}");
        ModelError::Transient { after: None, message: readable(&message) }
    })?;
    redact_value(&mut body);
    Ok(body)
}

/// Replaces escaped halves of a character in UTF-16 by U+FFFD, as broken bytes are: some servers cut a text between them. `None`
/// if there are none.
#[cfg(feature = "openai")]
fn with_whole_characters(text: &str) -> Option<String> {
    let mut whole = String::new();
    let mut rest = text;
    let mut has_halves = false;
    while let Some(at) = rest.find('\\') {
        whole.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = match (unit(rest), rest.get(6..).and_then(unit)) {
            (Some(0xD800..0xDC00), Some(0xDC00..0xE000)) => 12,
            (Some(0xD800..0xE000), _) => {
                has_halves = true;
                whole.push_str("\\ufffd");
                rest = &rest[6..];
                continue;
            }
            // The character after the backslash is no beginning of another escape.
            _ => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
        };
        whole.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    whole.push_str(rest);
    has_halves.then_some(whole)
}

/// Replaces the numbers that JSON does not have, `NaN` and infinite ones, by `null`: some servers write them as counts and probabilities.
/// `None` if there are none.
#[cfg(feature = "openai")]
fn without_other_numbers(text: &str) -> Option<String> {
    let is_of_word = |it: char| it.is_ascii_alphanumeric() || matches!(it, '+' | '-' | '.');
    let mut replaced = String::new();
    let mut rest = text;
    let mut has_others = false;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => length_of_string(rest),
            _ if is_of_word(first) => rest.find(|it| !is_of_word(it)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (part, after) = rest.split_at(length);
        // Rust reads the words for these numbers, too.
        let is_other = part.parse::<f64>().is_ok_and(|it| !it.is_finite());
        has_others |= is_other;
        replaced.push_str(if is_other { "null" } else { part });
        rest = after;
    }
    has_others.then_some(replaced)
}

/// Returns the length of the string that a text begins with, quotes included.
#[cfg(feature = "openai")]
fn length_of_string(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text[1..].find(|it| {
        let is_end = it == '"' && !is_escaped;
        is_escaped = it == '\\' && !is_escaped;
        is_end
    });
    end.map_or(text.len(), |end| end + 2)
}

/// Returns the unit of UTF-16 of an escape that a text begins with.
#[cfg(feature = "openai")]
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    let is_hex = digits.bytes().all(|it| it.is_ascii_hexdigit());
    is_hex.then(|| u16::from_str_radix(digits, 16).ok()).flatten()
}

/// Returns the text cut to a readable length and free of keys.
pub(super) fn readable(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let redacted = redact(&text);
    match redacted.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &redacted[..end]),
        None => redacted.into_owned(),
    }
}

fn failed_generation(body: &Value) -> Option<String> {
    let text = body.get("error")?.get("failed_generation")?.as_str()?;
    (!text.trim().is_empty()).then(|| text.to_owned())
}

/// The text and the codes of a provider's error.
struct ErrorText {
    text: String,
    /// The text and the codes in lower case, for searching.
    folded: String,
    /// The wait in the body, which Google sends instead of a header.
    after: Option<Duration>,
}

impl ErrorText {
    fn of_text(text: &str) -> Self {
        let text = without_tags(text);
        Self { folded: text.to_lowercase(), text, after: None }
    }

    fn of_json(body: &Value) -> Self {
        // Google wraps its error in a list.
        let body = body.get(0).unwrap_or(body);
        let error = body.get("error").filter(|error| !error.is_null()).unwrap_or(body);
        let words = ["message", "detail", "error", "msg", "title", "error_description"]
            .iter()
            .find_map(|name| {
                // Around an error in words, `message` may be that of the model.
                let around = || body.get(*name).filter(|it| !it.is_object());
                error.get(*name).or_else(around)
            })
            .unwrap_or(error);
        // The error of the provider behind a gateway is more specific than "Provider returned
        // error".
        let behind =
            error.pointer("/metadata/raw").and_then(Value::as_str).map(|raw| format!(": {raw}"));
        let text = text_of(Some(words)) + &behind.unwrap_or_default();
        let codes = ["code", "type", "status"].map(|name| text_of(error.get(name)));
        let folded = format!("{text} {}", codes.join(" ")).to_lowercase();
        Self { folded, text, after: retry_info(error) }
    }

    fn message(&self, status: u16) -> String {
        match readable(&self.text) {
            text if text.is_empty() => format!("status {status} without a message"),
            text => text,
        }
    }

    fn has(&self, words: &str) -> bool {
        self.folded.contains(words)
    }

    fn is_quota(&self) -> bool {
        [
            "insufficient_quota",
            "insufficient balance",
            "credit balance is too low",
            "billing_hard_limit",
        ]
        .iter()
        .any(|words| self.has(words))
    }

    /// Returns whether the provider, or a filter before the model, declines the content of the request.
    fn is_refusal(&self) -> bool {
        // Each with a provider that uses it.
        [
            // Azure and some gateways filter the request instead of the reply.
            "content_filter",
            "content management policy",
            // OpenAI.
            "invalid_prompt",
            "prompt was flagged",
            // OpenAI of images, LiteLLM.
            "content_policy_violation",
            "contentpolicyviolation",
            // OpenRouter.
            "input was flagged",
            // xAI.
            "violates usage guidelines",
            // Anthropic.
            "content filtering policy",
            // DeepSeek.
            "content exists risk",
            // Alibaba.
            "data_inspection_failed",
        ]
        .iter()
        .any(|words| self.has(words))
    }

    fn is_unknown_model(&self) -> bool {
        ["model_not_found", "model not found", "model not exist", "invalid model", "invalid_model"]
            .iter()
            .chain(&["not a valid model", "unknown model", "unknown_model", "no such model"])
            .any(|words| self.has(words))
    }

    fn is_context_overflow(&self) -> bool {
        // Each with a provider or a server that uses it.
        [
            // OpenAI, Groq, vLLM, DeepSeek, Mistral, OpenRouter, LM Studio, Ollama.
            "context_length",
            "context length",
            "context window",
            // OpenAI: GPT-5, and a single message of more than a million characters.
            "input tokens exceed",
            "string_above_max_length",
            // Anthropic and Ollama.
            "prompt is too long",
            "prompt too long",
            // Google.
            "maximum number of tokens",
            // llama.cpp.
            "exceed_context_size",
            "available context size",
            // Anthropic, of a request with the tokens of its answer.
            "exceed context limit",
            // Bedrock.
            "input is too long",
            // xAI.
            "maximum prompt length",
            // Moonshot.
            "exceeded model token limit",
            // Z.ai.
            "prompt exceeds max length",
            // Text Generation Inference, Together.
            "tokens + `max_new_tokens` must be",
            "inputs tokens + max_new_tokens must be",
            // Groq.
            "reduce the length of the messages",
            // Cohere.
            "too many tokens",
        ]
        .iter()
        .any(|words| self.has(words))
    }
}

/// Returns the wait of a `google.rpc.RetryInfo` among the details of an error.
fn retry_info(error: &Value) -> Option<Duration> {
    let details = error.get("details")?.as_array()?;
    details.iter().find_map(|it| read_retry_delay(it.get("retryDelay")?))
}

/// Removes the tags of an HTML page, so that its title and its sentence remain.
fn without_tags(text: &str) -> String {
    if !text.trim_start().starts_with('<') {
        return text.to_owned();
    }
    let mut plain = String::new();
    let mut in_tag = false;
    for char in text.chars() {
        match char {
            '<' => in_tag = true,
            '>' => {
                in_tag = false;
                plain.push(' ');
            }
            _ if !in_tag => plain.push(char),
            _ => {}
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn overflows(status: u16, body: &str) -> bool {
        let failure = ErrorReply { status, after: None, body };
        matches!(failure.classify(), Err(ModelError::ContextOverflow { .. }))
    }

    #[test]
    fn the_words_of_servers_for_long_requests_are_known() {
        for message in [
            "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens (112946 in the messages, 10000 in the completion).",
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 334271 tokens.",
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            "prompt is too long: 214850 tokens > 200000 maximum",
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again",
            "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",
            "request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it",
            "Requested tokens (2285) exceed context window of 2048",
            "prompt too long; exceeded max context length by 12 tokens",
            "Input is too long for requested model.",
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
            "Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)",
            "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
            "Please reduce the length of the messages or completion.",
            "`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 4000 `inputs` tokens and 512 `max_new_tokens`",
        ] {
            let body = json!({"error": {"message": message}}).to_string();
            assert!(overflows(400, &body), "{message}");
            assert!(overflows(500, &body), "{message}");
            assert!(!overflows(429, &body), "a limit of the rate passes: {message}");
        }
    }

    #[test]
    fn a_refusal_is_one_with_any_status() {
        let refusal = |status: u16, body: &Value| {
            let body = body.to_string();
            match (ErrorReply { status, after: None, body: &body }).classify() {
                Err(ModelError::Refused { text, .. }) => Some(text),
                _ => None,
            }
        };
        let moderated = "m/1 requires moderation. Your input was flagged for \"harm\".";
        let unsafe_for_xai =
            "Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_BIO";
        let denied = "The caller does not have permission to execute the specified operation";
        let flagged = "Your prompt was flagged as potentially violating our usage policy.";
        for (status, message, body) in [
            (403, moderated, json!({"error": {"code": 403, "message": moderated}})),
            (403, unsafe_for_xai, json!({"code": denied, "error": unsafe_for_xai})),
            (400, flagged, json!({"error": {"code": "invalid_prompt", "message": flagged}})),
            (
                400,
                "Filtered.",
                json!({"error": {"code": "content_filter", "message": "Filtered."}}),
            ),
        ] {
            assert_eq!(refusal(status, &body).as_deref(), Some(message), "{body}");
            // An error in a reply with the status 200 may have no status.
            let inside = not_a_reply(&body, Protocol::Chat);
            assert!(matches!(inside, ModelError::Refused { .. }), "{inside:?}");
        }
        for (status, message) in [(403, denied), (401, flagged), (400, "messages: at least one")] {
            assert_eq!(refusal(status, &json!({"error": {"message": message}})), None, "{message}");
        }
    }

    #[test]
    fn other_rejections_are_no_overflow() {
        for message in [
            "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens",
            "Invalid schema for response_format: the context is missing",
            "messages: at least one message is required",
        ] {
            let body = json!({"error": {"message": message}}).to_string();
            assert!(!overflows(400, &body), "{message}");
        }
    }
}
