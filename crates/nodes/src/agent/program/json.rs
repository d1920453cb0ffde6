//! The protocol of any other command: the last JSON value that it prints is the answer.
//!
//! Beside the keys of the answer, the value may have `usage` with `input_tokens`, `cached_input_tokens`, `output_tokens`,
//! `cost_usd` and `model`, and the `session_id` that a later visit continues. For a text, the value is a string, or has the text in `answer`; an output without JSON is the
//! text itself.

use graphrun_core::state::{plain_text, read_json_bytes};
use graphrun_models::{OutputSchema, StatedUsage, TokenUsage};
use serde_json::Value;

use super::output::{Reading, count, part};
use crate::agent::session::is_id;

/// The most lines from which a value over several lines is tried to begin.
const STARTS_MAX: usize = 1_000;

/// Reads a whole output. `output` is the requested form, if it is no text.
pub(super) fn read(text: &[u8], output: Option<&OutputSchema>) -> Reading {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Reading::default();
    }
    let Some(mut value) = last_value(text) else {
        // For a form, the reader of answers lists the problems, and the program can mend them.
        let answer = Some(String::from_utf8_lossy(text).into_owned());
        return Reading { answer, ..Reading::default() };
    };
    let usage = take(&mut value, output, "usage", Value::is_object);
    let session = take(&mut value, output, "session_id", Value::is_string);
    let answer = match (&value, output) {
        (Value::Object(parts), None) => parts.get("answer").map(plain_text),
        _ => None,
    };
    let counts = usage.as_ref();
    let session = session.and_then(|id| id.as_str().filter(|it| is_id(it)).map(str::to_owned));
    let mut reading = Reading {
        session,
        answer: Some(answer.unwrap_or_else(|| plain_text(&value))),
        model: counts.and_then(|it| Some(it.get("model")?.as_str()?.to_owned())),
        ..Reading::default()
    };
    if let Some(counts) = counts {
        if counts.get("input_tokens").is_some() {
            reading.take_usage(|stated| token_usage(stated, counts));
        }
        reading.take_cost(counts, "cost_usd");
    }
    reading
}

/// Returns the value that the whole text is, or the one on its last lines.
fn last_value(text: &[u8]) -> Option<Value> {
    if let Ok(value) = read_json_bytes(text) {
        return Some(value);
    }
    let lines: Vec<&[u8]> = text.split(|it| *it == b'\n').collect();
    let last = lines.iter().rev().find_map(|it| read_json_bytes(it).ok().filter(is_answer));
    // A value over several lines may have a value on its last line, so it comes first.
    let mut start = 0;
    let mut starts = Vec::new();
    for line in &lines {
        if matches!(line.first(), Some(b'{' | b'[')) {
            starts.push(start);
        }
        start += line.len() + 1;
    }
    let whole =
        starts.iter().rev().take(STARTS_MAX).find_map(|it| read_json_bytes(&text[*it..]).ok());
    whole.or(last)
}

/// Returns whether a value on one line among others may be an answer. A number may just as well be progress.
fn is_answer(value: &Value) -> bool {
    matches!(value, Value::Object(_) | Value::Array(_) | Value::String(_))
}

/// Takes a part out of a value, unless the part belongs to the requested form.
fn take(
    value: &mut Value,
    output: Option<&OutputSchema>,
    name: &str,
    fits: fn(&Value) -> bool,
) -> Option<Value> {
    let properties = output.and_then(|it| it.schema.get("properties"));
    let is_requested = properties.is_some_and(|it| it.get(name).is_some());
    let is_there = value.get(name).is_some_and(fits) && !is_requested;
    is_there.then(|| value.as_object_mut()?.shift_remove(name)).flatten()
}

fn token_usage(stated: &mut StatedUsage, counts: &Value) -> TokenUsage {
    TokenUsage {
        input_tokens: count(stated, counts, "input_tokens"),
        cached_input_tokens: part(stated, counts, "cached_input_tokens"),
        output_tokens: count(stated, counts, "output_tokens"),
        ..TokenUsage::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(text: &str) -> Option<String> {
        read(text.as_bytes(), None).answer
    }

    #[test]
    fn the_last_value_is_the_answer() {
        for (text, expected) in [
            (r#""done""#, "done"),
            ("{\"a\": 1}\n{\"a\": 2}\n", r#"{"a":2}"#),
            ("reading…\n[1, 2]\nall done\n", "[1,2]"),
            ("reading…\n{\n  \"a\": [\n    \"x\"\n  ]\n}\n", r#"{"a":["x"]}"#),
            ("{\n  \"a\": 1\n}\n", r#"{"a":1}"#),
            ("7\n{\"answer\": \"done\", \"note\": 1}\n8\n", "done"),
            ("plain words\n", "plain words"),
            ("{\"a\": 1", "{\"a\": 1"),
        ] {
            assert_eq!(answer(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(answer(" \n"), None);
    }

    #[test]
    fn a_session_beside_the_answer_is_taken_out() {
        let reading = read(br#"{"answer": "done", "session_id": "s-1"}"#, None);
        assert_eq!(
            (reading.answer.as_deref(), reading.session.as_deref()),
            (Some("done"), Some("s-1"))
        );
        assert_eq!(read(br#"{"answer": "done", "session_id": "--x"}"#, None).session, None);
        let schema = json!({"properties": {"session_id": {}}});
        let form = OutputSchema { name: "n".into(), schema };
        assert_eq!(read(br#"{"session_id": "s-1"}"#, Some(&form)).session, None);
    }

    #[test]
    fn numbers_that_cannot_be_right_count_as_not_stated() {
        let reading =
            |usage: &str| read(format!(r#"{{"a": 1, "usage": {usage}}}"#).as_bytes(), None);
        let negative = reading(r#"{"input_tokens": 7, "output_tokens": 2, "cost_usd": -100}"#);
        assert_eq!((negative.usage.unwrap().input_tokens, negative.cost_usd), (7, None));
        let warning = negative.stated.warning("`x`").unwrap();
        assert!(warning.ends_with("ignored: `cost_usd` -100"), "{warning}");
        for counts in [
            r#"{"input_tokens": "many", "output_tokens": -5}"#,
            r#"{"input_tokens": 1e30, "output_tokens": 5}"#,
            r#"{"input_tokens": 18446744073709551615}"#,
        ] {
            assert_eq!(reading(counts).usage, None, "{counts}");
        }
        let huge = reading(r#"{"input_tokens": 7, "cost_usd": -1e308}"#);
        assert_eq!(huge.cost_usd, None);
    }

    #[test]
    fn usage_beside_the_answer_is_taken_out() {
        let text = br#"{"a": 1, "usage": {"input_tokens": 7, "output_tokens": 2, "cost_usd": 0.5, "model": "m"}}"#;
        let form = |schema| OutputSchema { name: "n".into(), schema };
        let reading = read(text, Some(&form(json!({"properties": {"a": {}}}))));
        assert_eq!(reading.answer.as_deref(), Some(r#"{"a":1}"#));
        let usage = reading.usage.unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens, usage.calls), (7, 2, 1));
        assert_eq!((reading.cost_usd, reading.model.as_deref()), (Some(0.5), Some("m")));
        let reading = read(text, Some(&form(json!({"properties": {"a": {}, "usage": {}}}))));
        assert!(reading.usage.is_none() && reading.answer.unwrap().contains("usage"));
    }
}
