//! Values of replies as texts and numbers, from any type of JSON.

use graphrun_core::state::plain_text;
use serde_json::Value;

/// Returns a value as text: a string as it is, other JSON in its JSON notation.
pub(super) fn text_of(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(value) => plain_text(value),
    }
}

/// Joins the texts of a content part and of the parts inside it.
pub(super) fn parts_text(part: &Value) -> String {
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

/// Returns whether a value is a part of content that stands alone, and no answer in JSON.
pub(super) fn is_content_part(value: &Value) -> bool {
    let kind = value.get("type").and_then(Value::as_str);
    matches!(kind, Some("text" | "output_text" | "thinking" | "reasoning" | "refusal"))
        && !parts_text(value).is_empty()
}

/// Takes `12`, `12.0` and `"12"`.
pub(super) fn whole_number(value: &Value) -> Option<u64> {
    let text = text_of(Some(value));
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, "0"));
    let is_whole = !fraction.is_empty() && fraction.bytes().all(|it| it == b'0');
    whole.parse().ok().filter(|_| is_whole)
}
