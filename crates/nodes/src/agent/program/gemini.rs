//! The protocol of Gemini CLI: `--output-format stream-json`, or `json`.
//!
//! Each line is an event with a `type`: `init`, `message` with pieces of a text, `tool_use`, `tool_result`, and at the
//! end `result` with the usage. The text after the last call of a tool is the answer. With `json`, one value has the
//! answer in `response`.

use graphrun_core::state::plain_text;
use graphrun_models::{StatedUsage, TokenUsage};
use serde_json::Value;

use super::output::{Activity, Reading, count, part, text};

pub(super) fn read(event: &Value, reading: &mut Reading) -> Vec<Activity> {
    match text(event, "type") {
        "init" => {
            reading.model = event.get("model").map(plain_text);
            reading.note_session(event, "session_id");
        }
        "message" if text(event, "role") == "assistant" => {
            let content = text(event, "content");
            if !event.get("delta").and_then(Value::as_bool).unwrap_or(false) {
                reading.last_text.clear();
            }
            reading.last_text.push_str(content);
            return vec![Activity::Text(content.to_owned())];
        }
        "tool_use" => {
            reading.last_text.clear();
            return vec![Activity::Call {
                id: text(event, "tool_id").to_owned(),
                tool: text(event, "tool_name").to_owned(),
                input: event.get("parameters").map(plain_text).unwrap_or_default(),
            }];
        }
        "tool_result" => {
            let failed = text(event, "status") == "error";
            let error = failed.then(|| message_of(event).unwrap_or_else(|| "error".to_owned()));
            return vec![Activity::Result { id: text(event, "tool_id").to_owned(), error }];
        }
        "result" => {
            if let Some(stats) = event.get("stats") {
                reading.take_usage(|stated| stream_usage(stated, stats));
            }
            if text(event, "status") == "error" {
                let message = message_of(event);
                reading.error = Some(message.unwrap_or_else(|| "the work failed".to_owned()));
            } else {
                reading.answer = Some(std::mem::take(&mut reading.last_text));
            }
        }
        "" => read_whole(event, reading),
        _ => {}
    }
    Vec::new()
}

fn message_of(event: &Value) -> Option<String> {
    event.pointer("/error/message").map(plain_text)
}

/// Reads the form without a stream.
fn read_whole(value: &Value, reading: &mut Reading) {
    let models = value.pointer("/stats/models").and_then(Value::as_object);
    if let Some(models) = models {
        let tokens = models.values().filter_map(|it| it.get("tokens"));
        reading.take_usage(|stated| tokens.map(|it| model_usage(stated, it)).sum());
        // Small models do side work; the last one of the list need not have answered.
        reading.model = models.keys().next().cloned().filter(|_| models.len() == 1);
    }
    reading.error = message_of(value);
    if reading.error.is_none() {
        reading.note_session(value, "session_id");
        reading.answer = value.get("response").map(plain_text);
    }
}

/// The total also has the tokens of reasoning, which are no part of the output otherwise.
fn usage_of(total: u64, input: u64, output: u64, cached: u64) -> TokenUsage {
    TokenUsage {
        input_tokens: input,
        cached_input_tokens: cached,
        output_tokens: total.saturating_sub(input).max(output),
        ..TokenUsage::default()
    }
}

fn stream_usage(stated: &mut StatedUsage, stats: &Value) -> TokenUsage {
    let [total, input, output] =
        ["total_tokens", "input_tokens", "output_tokens"].map(|it| count(stated, stats, it));
    usage_of(total, input, output, part(stated, stats, "cached"))
}

fn model_usage(stated: &mut StatedUsage, tokens: &Value) -> TokenUsage {
    let [total, input, output] =
        ["total", "prompt", "candidates"].map(|it| count(stated, tokens, it));
    usage_of(total, input, output, part(stated, tokens, "cached"))
}

#[cfg(test)]
mod tests {
    use graphrun_core::event::Report;
    use graphrun_workflow::ProgramProtocol::Gemini;

    use super::super::output::tests::read;

    const STREAM: &str = r#"
{"type":"init","timestamp":"2026-01-01T00:00:00Z","session_id":"s","model":"gemini-2.5-pro"}
{"type":"message","timestamp":"2026-01-01T00:00:00Z","role":"user","content":"Mend it."}
{"type":"message","timestamp":"2026-01-01T00:00:01Z","role":"assistant","content":"I look.","delta":true}
{"type":"tool_use","timestamp":"2026-01-01T00:00:02Z","tool_name":"read_file","tool_id":"r1","parameters":{"path":"a.py"}}
{"type":"tool_result","timestamp":"2026-01-01T00:00:02Z","tool_id":"r1","status":"success","output":"x = 1"}
{"type":"message","timestamp":"2026-01-01T00:00:03Z","role":"assistant","content":"It is ","delta":true}
{"type":"message","timestamp":"2026-01-01T00:00:03Z","role":"assistant","content":"mended.","delta":true}
{"type":"result","timestamp":"2026-01-01T00:00:04Z","status":"success","stats":{"total_tokens":1500,"input_tokens":1200,"output_tokens":100,"cached":300,"input":900,"duration_ms":9,"tool_calls":1}}
"#;

    #[test]
    fn the_text_after_the_last_tool_is_the_answer() {
        let (reading, reports) = read(Gemini, STREAM);
        assert_eq!(reading.answer.as_deref(), Some("It is mended."));
        assert_eq!(reading.model.as_deref(), Some("gemini-2.5-pro"));
        assert_eq!(reading.session.as_deref(), Some("s"));
        let usage = reading.usage.unwrap();
        assert_eq!((usage.input_tokens, usage.cached_input_tokens), (1200, 300));
        assert_eq!((usage.output_tokens, usage.calls), (300, 1));
        let [Report::ToolCall { tool, input, error: None, .. }] = &reports[..] else {
            panic!("{reports:?}")
        };
        assert_eq!((tool.as_str(), input.as_str()), ("read_file", r#"{"path":"a.py"}"#));
    }

    #[test]
    fn an_error_is_no_answer() {
        let failed = STREAM.replace(
            r#""status":"success","stats""#,
            r#""status":"error","error":{"type":"E","message":"quota"},"stats""#,
        );
        let (reading, _) = read(Gemini, &failed);
        assert_eq!((reading.answer, reading.error.as_deref()), (None, Some("quota")));
        assert_eq!(reading.usage.unwrap().input_tokens, 1200);
    }

    #[test]
    fn the_form_without_a_stream_is_read_too() {
        let whole = r#"{
  "session_id": "s",
  "response": "It is mended.",
  "stats": {"models": {
    "gemini-2.5-pro": {"tokens": {"prompt": 1000, "candidates": 50, "total": 1100, "cached": 10, "thoughts": 50, "tool": 0}},
    "gemini-2.5-flash": {"tokens": {"prompt": 20, "candidates": 5, "total": 25, "cached": 0, "thoughts": 0, "tool": 0}}
  }}
}"#;
        let (reading, _) = read(Gemini, whole);
        assert_eq!(reading.answer.as_deref(), Some("It is mended."));
        let usage = reading.usage.unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens, usage.calls), (1020, 105, 1));
        let failed =
            "{\n\"error\": {\"type\": \"Error\", \"message\": \"no key\", \"code\": 41}\n}";
        let (reading, _) = read(Gemini, failed);
        assert_eq!((reading.answer, reading.error.as_deref()), (None, Some("no key")));
    }
}
