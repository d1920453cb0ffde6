//! Reads a chat completion as real providers write it.
//!
//! It requires only the minimum: one choice with a text, or a call's name. Everything else may be
//! missing, null, of another type or unknown. It also classifies a reply without an answer
//! (refused, truncated, empty, an error in disguise), before any caller parses the text.

use serde_json::Value;

use super::calls::read_calls;
use super::failure;
use super::{ChatReply, Finish, ModelError, TokenUsage, ToolCall};

/// Reads the body of a successful reply. Calls are those that the provider names, offered or not.
///
/// # Errors
/// Returns [`ModelError::Refused`], [`ModelError::Truncated`] or [`ModelError::EmptyResponse`] for
/// a reply without a usable answer, and a classified error for a body that is no chat completion.
pub fn read_reply(body: &Value) -> Result<ChatReply, ModelError> {
    let Some(choices) = body.get("choices").and_then(Value::as_array) else {
        return Err(failure::not_a_completion(body));
    };
    let usage = read_usage(body.get("usage"));
    let Some(choice) = choices.first() else {
        return Err(body
            .get("error")
            .filter(|error| !error.is_null())
            .map_or(ModelError::EmptyResponse { usage }, |_| failure::not_a_completion(body)));
    };
    let answer = Answer::read(choice);
    let finish = read_finish(choice.get("finish_reason"));

    if let Some(text) = answer.refusal {
        return Err(ModelError::Refused { text, usage });
    }
    // A provider that fails during the answer puts the error into the choice (OpenRouter does).
    if choice.get("error").is_some_and(Value::is_object) {
        return Err(failure::not_a_completion(choice));
    }
    if let Finish::Other(word) = &finish {
        match word.as_str() {
            "content_filter" => {
                let text =
                    or(answer.text, || "stopped by the provider's content filter".to_owned());
                return Err(ModelError::Refused { text, usage });
            }
            "length" | "max_tokens" => {
                return Err(ModelError::Truncated { text: answer.text, usage });
            }
            _ => {}
        }
    }
    if answer.text.trim().is_empty() && answer.tool_calls.is_empty() {
        return Err(ModelError::EmptyResponse { usage });
    }
    Ok(ChatReply {
        text: answer.text,
        tool_calls: answer.tool_calls,
        reasoning: answer.reasoning,
        usage,
        finish,
        model: text_of(body.get("model")),
    })
}

/// The content of one choice.
struct Answer {
    text: String,
    reasoning: Option<String>,
    refusal: Option<String>,
    tool_calls: Vec<ToolCall>,
}

impl Answer {
    fn read(choice: &Value) -> Self {
        // Some servers put the text beside the message, as in the older completions API.
        let message = choice.get("message").unwrap_or(choice);
        let mut answer = match message {
            Value::String(text) => Self::of_content(Some(&Value::String(text.clone()))),
            _ => Self::of_content(message.get("content").or_else(|| message.get("text"))),
        };
        let told = ["reasoning_content", "reasoning", "thinking"]
            .iter()
            .map(|name| text_of(message.get(*name)))
            .find(|text| !text.is_empty())
            .or_else(|| message.get("reasoning_details").map(parts_text));
        answer.reasoning = answer.reasoning.or(told).filter(|text| !text.is_empty());
        answer.refusal = Some(text_of(message.get("refusal")))
            .filter(|text| !text.is_empty())
            .or(answer.refusal);
        answer.tool_calls = read_calls(message);
        answer
    }

    /// Reads a text, or a list of parts, some of which are reasoning or refusals.
    fn of_content(content: Option<&Value>) -> Self {
        let mut answer =
            Self { text: String::new(), reasoning: None, refusal: None, tool_calls: Vec::new() };
        let Some(Value::Array(parts)) = content else {
            (answer.text, answer.reasoning) = split_thoughts(&text_of(content));
            return answer;
        };
        let mut thoughts = String::new();
        for part in parts {
            match part.get("type").and_then(Value::as_str) {
                Some("thinking" | "reasoning") => thoughts.push_str(&parts_text(part)),
                Some("refusal") => answer.refusal = Some(parts_text(part)),
                _ => answer.text.push_str(&parts_text(part)),
            }
        }
        answer.reasoning = Some(thoughts).filter(|thoughts| !thoughts.is_empty());
        answer
    }
}

/// Splits a leading `<think>` block into the answer and the reasoning.
pub(super) fn split_thoughts(text: &str) -> (String, Option<String>) {
    for (open, close) in [("<think>", "</think>"), ("<thinking>", "</thinking>")] {
        if let Some(rest) = text.trim_start().strip_prefix(open)
            && let Some((thoughts, answer)) = rest.split_once(close)
        {
            return (answer.trim_start().to_owned(), Some(thoughts.trim().to_owned()));
        }
    }
    (text.to_owned(), None)
}

/// Returns a value as text: a string as it is, other JSON in its JSON notation.
fn text_of(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Joins the texts of a content part and of the parts inside it.
fn parts_text(part: &Value) -> String {
    match part {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(parts_text).collect(),
        Value::Object(part) => ["text", "thinking", "refusal", "reasoning", "summary", "content"]
            .iter()
            .find_map(|name| part.get(*name))
            .map(parts_text)
            .unwrap_or_default(),
        _ => String::new(),
    }
}

fn read_finish(finish: Option<&Value>) -> Finish {
    match finish {
        None | Some(Value::Null) => Finish::Stop,
        Some(word) => match word.as_str() {
            Some("stop") => Finish::Stop,
            Some("tool_calls" | "function_call") => Finish::ToolCalls,
            _ => Finish::Other(text_of(finish)),
        },
    }
}

/// Reads the counts of tokens. A call without counts still counts as a call.
fn read_usage(usage: Option<&Value>) -> TokenUsage {
    let count = |names: [&str; 2]| {
        names.iter().find_map(|name| usage?.get(name)).and_then(whole_number).unwrap_or(0)
    };
    // OpenAI and most others put it into the details, DeepSeek beside the other counts.
    let details = ["prompt_tokens_details", "input_tokens_details"];
    let detail = details.iter().find_map(|it| usage?.get(it)?.get("cached_tokens"));
    let cached = detail.or_else(|| usage?.get("prompt_cache_hit_tokens"));
    TokenUsage {
        input_tokens: count(["prompt_tokens", "input_tokens"]),
        cached_input_tokens: cached.and_then(whole_number).unwrap_or(0),
        output_tokens: count(["completion_tokens", "output_tokens"]),
        calls: 1,
        estimated: false,
    }
}

/// Takes `12`, `12.0` and `"12"`.
fn whole_number(value: &Value) -> Option<u64> {
    let text = text_of(Some(value));
    text.split_once('.').map_or(text.as_str(), |(whole, _)| whole).parse().ok()
}

fn or(text: String, otherwise: impl FnOnce() -> String) -> String {
    if text.trim().is_empty() { otherwise() } else { text }
}
