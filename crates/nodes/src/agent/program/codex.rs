//! The protocol of Codex: `codex exec --json`.
//!
//! Each line is an event: `thread.started`, `turn.started`, `item.started`, `item.completed`, and at the end
//! `turn.completed` with the usage, or `turn.failed`. The last item `agent_message` is the answer.

use graphrun_core::state::plain_text;
use graphrun_models::TokenUsage;
use serde_json::Value;

use super::output::{Activity, Reading, count, part, text};

pub(super) fn read(event: &Value, reading: &mut Reading) -> Vec<Activity> {
    match text(event, "type") {
        "thread.started" => reading.note_session(event, "thread_id"),
        "item.started" => return event.get("item").and_then(call).into_iter().collect(),
        "item.completed" => {
            return event.get("item").map(|it| read_item(it, reading)).unwrap_or_default();
        }
        "turn.completed" => read_end(event, reading),
        "turn.failed" => {
            let message = event.pointer("/error/message").map(plain_text);
            reading.error = Some(message.unwrap_or_else(|| "the turn failed".to_owned()));
        }
        // A connection that was lost is one, too. The end of the turn shows that the work continued.
        "error" => reading.error = Some(text(event, "message").to_owned()),
        _ => {}
    }
    Vec::new()
}

fn read_end(event: &Value, reading: &mut Reading) {
    if let Some(usage) = event.get("usage") {
        reading.take_usage(|stated| TokenUsage {
            // The counts of the cache and of the reasoning are part of the others.
            input_tokens: count(stated, usage, "input_tokens"),
            cached_input_tokens: part(stated, usage, "cached_input_tokens"),
            output_tokens: count(stated, usage, "output_tokens"),
            reasoning_output_tokens: part(stated, usage, "reasoning_output_tokens"),
            ..TokenUsage::default()
        });
    }
    reading.answer = Some(std::mem::take(&mut reading.last_text));
    reading.error = None;
}

fn read_item(item: &Value, reading: &mut Reading) -> Vec<Activity> {
    match kind(item) {
        "agent_message" | "assistant_message" => {
            text(item, "text").clone_into(&mut reading.last_text);
            vec![Activity::Text(format!("{}\n", reading.last_text))]
        }
        "reasoning" => vec![Activity::Reasoning(format!("{}\n", text(item, "text")))],
        _ => {
            // Some items come only when they are completed. A second call with the same id changes nothing else.
            let result = Activity::Result { id: text(item, "id").to_owned(), error: error(item) };
            let starts = !matches!(kind(item), "command_execution" | "mcp_tool_call");
            let call = call(item).filter(|_| starts);
            call.into_iter().chain([result]).collect()
        }
    }
}

/// Older releases name the kind of an item `item_type`.
fn kind(item: &Value) -> &str {
    match text(item, "type") {
        "" => text(item, "item_type"),
        kind => kind,
    }
}

fn call(item: &Value) -> Option<Activity> {
    let (tool, input) = match kind(item) {
        "command_execution" => ("command".to_owned(), text(item, "command").to_owned()),
        "file_change" => ("file_change".to_owned(), item.get("changes").map(plain_text)?),
        "web_search" => ("web_search".to_owned(), text(item, "query").to_owned()),
        "mcp_tool_call" => (
            format!("{}.{}", text(item, "server"), text(item, "tool")),
            item.get("arguments").map(plain_text).unwrap_or_default(),
        ),
        _ => return None,
    };
    Some(Activity::Call { id: text(item, "id").to_owned(), tool, input })
}

fn error(item: &Value) -> Option<String> {
    let stated = item.pointer("/error/message").map(plain_text);
    let code = item.get("exit_code").and_then(Value::as_i64).filter(|it| *it != 0);
    let status = text(item, "status");
    let failed = matches!(status, "failed" | "declined").then(|| status.to_owned());
    stated.or(code.map(|it| format!("exit code {it}"))).or(failed)
}

#[cfg(test)]
mod tests {
    use graphrun_core::event::Report;
    use graphrun_workflow::ProgramProtocol::Codex;

    use super::super::output::tests::read;

    const STREAM: &str = r#"
{"type":"thread.started","thread_id":"0199a213"}
{"type":"turn.started"}
{"type":"item.completed","item":{"id":"item_0","type":"reasoning","text":"**Look**"}}
{"type":"item.started","item":{"id":"item_1","type":"command_execution","command":"bash -lc make","aggregated_output":"","status":"in_progress"}}
{"type":"item.completed","item":{"id":"item_1","type":"command_execution","command":"bash -lc make","aggregated_output":"no","exit_code":2,"status":"failed"}}
{"type":"item.completed","item":{"id":"item_2","type":"file_change","changes":[{"path":"a.py","kind":"update"}],"status":"completed"}}
{"type":"item.completed","item":{"id":"item_3","type":"agent_message","text":"I am at it."}}
{"type":"error","message":"Reconnecting... 1/5"}
{"type":"item.completed","item":{"id":"item_4","type":"agent_message","text":"It is mended."}}
{"type":"turn.completed","usage":{"input_tokens":24763,"cached_input_tokens":24448,"output_tokens":122}}
"#;

    #[test]
    fn the_last_message_is_the_answer_and_the_turn_has_the_usage() {
        let (reading, reports) = read(Codex, STREAM);
        assert_eq!(reading.answer.as_deref(), Some("It is mended."));
        assert_eq!((reading.error, reading.cost_usd), (None, None));
        assert_eq!(reading.session.as_deref(), Some("0199a213"));
        let usage = reading.usage.unwrap();
        assert_eq!((usage.input_tokens, usage.cached_input_tokens), (24763, 24448));
        assert_eq!((usage.output_tokens, usage.calls), (122, 1));
        let [
            Report::ToolCall { tool, input, error, .. },
            Report::ToolCall { tool: second, error: none, .. },
        ] = &reports[..]
        else {
            panic!("{reports:?}")
        };
        assert_eq!((tool.as_str(), input.as_str()), ("command", "bash -lc make"));
        assert_eq!(
            (error.as_deref(), second.as_str(), none),
            (Some("exit code 2"), "file_change", &None)
        );
    }

    #[test]
    fn a_turn_that_fails_or_does_not_end_has_no_answer() {
        let failed = STREAM.replace(
            "turn.completed\",\"usage\"",
            "turn.failed\",\"error\":{\"message\":\"quota\"},\"x\"",
        );
        let (reading, _) = read(Codex, &failed);
        assert_eq!((reading.answer, reading.error.as_deref()), (None, Some("quota")));
        let (reading, _) = read(Codex, STREAM.split("{\"type\":\"error\"").next().unwrap());
        assert_eq!((reading.answer, reading.error), (None, None));
    }
}
