//! The protocol of Claude Code: `claude -p --output-format stream-json --verbose`, or `json`.
//!
//! Each line is an event with a `type`: `system`, then `assistant` and `user` with the messages of the conversation, and
//! at the end `result` with the answer, the usage and the cost. With `json`, `result` comes alone.

use graphrun_core::state::plain_text;
use graphrun_models::{StatedUsage, TokenUsage};
use serde_json::Value;

use super::output::{Activity, Reading, count, text};

pub(super) fn read(event: &Value, reading: &mut Reading) -> Vec<Activity> {
    match text(event, "type") {
        "system" => read_start(event, reading),
        "assistant" | "user" => return blocks(event).iter().filter_map(activity).collect(),
        "result" => read_result(event, reading),
        _ => {}
    }
    Vec::new()
}

fn read_start(event: &Value, reading: &mut Reading) {
    if text(event, "subtype") == "init" {
        reading.note_session(event, "session_id");
    }
    if let Some(model) = event.get("model").and_then(Value::as_str) {
        reading.model = Some(model.to_owned());
    }
}

fn blocks(event: &Value) -> &[Value] {
    let blocks = event.pointer("/message/content").and_then(Value::as_array);
    blocks.map_or(&[], Vec::as_slice)
}

fn activity(block: &Value) -> Option<Activity> {
    Some(match text(block, "type") {
        "text" => Activity::Text(format!("{}\n", text(block, "text"))),
        "thinking" => Activity::Reasoning(format!("{}\n", text(block, "thinking"))),
        "tool_use" => Activity::Call {
            id: text(block, "id").to_owned(),
            tool: text(block, "name").to_owned(),
            input: block.get("input").map(plain_text).unwrap_or_default(),
        },
        "tool_result" => {
            let failed = block.get("is_error").and_then(Value::as_bool).unwrap_or(false);
            let error = failed.then(|| block.get("content").map(plain_text).unwrap_or_default());
            Activity::Result { id: text(block, "tool_use_id").to_owned(), error }
        }
        _ => return None,
    })
}

fn read_result(event: &Value, reading: &mut Reading) {
    reading.stated = StatedUsage::default();
    if let Some(usage) = event.get("usage") {
        reading.take_usage(|stated| {
            // The counts of the cache are not part of `input_tokens`.
            let cached = count(stated, usage, "cache_read_input_tokens");
            let written = count(stated, usage, "cache_creation_input_tokens");
            let input = count(stated, usage, "input_tokens");
            TokenUsage {
                input_tokens: input.saturating_add(cached).saturating_add(written),
                cached_input_tokens: cached,
                cache_write_input_tokens: written,
                output_tokens: count(stated, usage, "output_tokens"),
                ..TokenUsage::default()
            }
        });
    }
    reading.take_cost(event, "total_cost_usd");
    let result = event.get("result").filter(|it| !it.is_null()).map(plain_text);
    let subtype = text(event, "subtype");
    let failed = event.get("is_error").and_then(Value::as_bool).unwrap_or(false);
    if failed || subtype.starts_with("error") {
        let stated = event.get("errors").and_then(Value::as_array);
        let stated = stated.map(|it| it.iter().map(plain_text).collect::<Vec<_>>().join("; "));
        let stated = result.or(stated).filter(|it| !it.is_empty());
        // Only the subtype tells that a limit of the program ended it.
        reading.error = Some(match stated {
            Some(stated) if subtype.starts_with("error_max") => format!("{subtype}: {stated}"),
            Some(stated) => stated,
            None if subtype.is_empty() || subtype == "success" => "no reason is given".to_owned(),
            None => subtype.to_owned(),
        });
        return;
    }
    // Without a stream, it is stated only here. A result with an error may name a session that never began.
    if reading.session.is_none() {
        reading.note_session(event, "session_id");
    }
    let structured = event.get("structured_output").filter(|it| !it.is_null());
    reading.answer = structured.map(plain_text).or(result);
    reading.error = None;
}

#[cfg(test)]
mod tests {
    use graphrun_core::event::Report;
    use graphrun_workflow::ProgramProtocol::Claude;

    use super::{super::output::tests::read, *};

    const STREAM: &str = r#"
{"type":"system","subtype":"init","cwd":"/repo","session_id":"s1","tools":["Bash"],"model":"claude-sonnet-4-5","permissionMode":"default"}
{"type":"assistant","message":{"id":"m1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"thinking","thinking":"Look first."},{"type":"text","text":"I look at it."},{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"ls"}}],"usage":{"input_tokens":4,"output_tokens":8}},"parent_tool_use_id":null,"session_id":"s1"}
{"type":"user","message":{"role":"user","content":[{"tool_use_id":"t1","type":"tool_result","content":"no such folder","is_error":true}]},"session_id":"s1"}
{"type":"result","subtype":"success","is_error":false,"duration_ms":1542,"num_turns":2,"result":"It is mended.","session_id":"s1","total_cost_usd":0.0123,"usage":{"input_tokens":5,"cache_creation_input_tokens":100,"cache_read_input_tokens":20,"output_tokens":9}}
"#;

    #[test]
    fn the_result_has_the_answer_the_usage_and_the_cost() {
        let (reading, reports) = read(Claude, STREAM);
        assert_eq!(reading.answer.as_deref(), Some("It is mended."));
        assert_eq!((reading.cost_usd, reading.error), (Some(0.0123), None));
        assert_eq!(reading.model.as_deref(), Some("claude-sonnet-4-5"));
        assert_eq!(reading.session.as_deref(), Some("s1"));
        let usage = reading.usage.unwrap();
        assert_eq!((usage.input_tokens, usage.cached_input_tokens), (125, 20));
        assert_eq!((usage.output_tokens, usage.calls, usage.estimated), (9, 1, false));
        let [Report::ToolCall { tool, input, error, .. }] = &reports[..] else {
            panic!("{reports:?}")
        };
        assert_eq!((tool.as_str(), input.as_str()), ("Bash", r#"{"command":"ls"}"#));
        assert_eq!(error.as_deref(), Some("no such folder"));
    }

    #[test]
    fn messages_and_thoughts_are_shown() {
        let events: Vec<Value> =
            STREAM.lines().filter_map(|it| serde_json::from_str(it).ok()).collect();
        let shown = super::read(&events[1], &mut Reading::default());
        assert_eq!(shown[0], Activity::Reasoning("Look first.\n".into()));
        assert_eq!(shown[1], Activity::Text("I look at it.\n".into()));
    }

    #[test]
    fn a_stream_that_stops_before_the_result_has_no_answer() {
        let lines: Vec<&str> = STREAM.lines().collect();
        let (reading, _) = read(Claude, &lines[..lines.len() - 1].join("\n"));
        assert_eq!((reading.answer, reading.error), (None, None));
    }

    #[test]
    fn a_failure_is_an_error_that_still_has_its_cost() {
        let limit = r#"{"type":"result","subtype":"error_max_turns","is_error":false,"num_turns":9,"total_cost_usd":0.5,"usage":{"input_tokens":7,"output_tokens":1}}"#;
        let (reading, _) = read(Claude, limit);
        assert_eq!((reading.answer, reading.error.as_deref()), (None, Some("error_max_turns")));
        assert_eq!((reading.cost_usd, reading.usage.unwrap().input_tokens), (Some(0.5), 7));
        let login = r#"{"type":"result","subtype":"success","is_error":true,"result":"Invalid API key · Please run /login","total_cost_usd":0}"#;
        let (reading, _) = read(Claude, login);
        assert_eq!(reading.error.as_deref(), Some("Invalid API key · Please run /login"));
    }

    #[test]
    fn the_forms_without_a_stream_are_read_too() {
        let silent = r#"{"type":"result","subtype":"success","is_error":true,"result":null}"#;
        let (reading, _) = read(Claude, silent);
        assert_eq!(reading.error.as_deref(), Some("no reason is given"));

        let turns =
            r#"{"type":"result","subtype":"error_max_turns","is_error":true,"result":"Stopped"}"#;
        let (reading, _) = read(Claude, turns);
        assert_eq!(reading.error.as_deref(), Some("error_max_turns: Stopped"));

        let gone = r#"{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"s2","errors":["No such conversation"]}"#;
        let (reading, _) = read(Claude, gone);
        assert_eq!(
            (reading.session, reading.error.as_deref()),
            (None, Some("No such conversation"))
        );
        let stated = r#"{"type":"result","subtype":"success","result":"done","session_id":"s3"}"#;
        assert_eq!(read(Claude, stated).0.session.as_deref(), Some("s3"));
        let one = "{\n  \"type\": \"result\",\n  \"subtype\": \"success\",\n  \"result\": \"done\",\n  \"structured_output\": {\"a\": 1}\n}\n";
        assert_eq!(read(Claude, one).0.answer.as_deref(), Some(r#"{"a":1}"#));
        let list = r#"[{"type":"system","model":"m"},{"type":"result","result":"done"}]"#;
        assert_eq!(read(Claude, list).0.answer.as_deref(), Some("done"));
    }
}
