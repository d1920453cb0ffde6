//! What a call counts if its provider counts little, late or not at all.

use axum::response::{IntoResponse as _, Response};
use graphrun::models::{
    ChatModel as _, ChatRequest, Message, ModelError, Protocol, TokenUsage, ToolCall, ToolSpec,
};
use serde_json::{Value, json};

use super::peer::{Peer, request};

/// Returns a stream of these events. A text that begins a reply decides that it is one.
fn stream(events: &[Value]) -> String {
    let lines: Vec<String> = events.iter().map(|it| format!("data: {it}\n\n")).collect();
    lines.concat() + "data: [DONE]\n\n"
}

/// Asks a question of 35 characters, 10 tokens.
async fn ask(protocol: Protocol, body: String) -> Result<(TokenUsage, Option<f64>), ModelError> {
    let peer = Peer::start(move |_| -> Response { body.clone().into_response() }).await;
    let schema = json!({"type": "object"});
    let tools = vec![ToolSpec { name: "look".into(), description: "Looks.".into(), schema }];
    let request = ChatRequest { tools, ..request(&"What? ".repeat(6)[..35]) };
    let reply = peer.client_with(protocol).chat(&request).await?;
    Ok((reply.usage, reply.cost_usd))
}

fn delta(delta: &Value, finish: Option<&str>) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

#[tokio::test]
async fn an_error_in_the_choice_keeps_usage_and_cost() {
    let usage = json!({"prompt_tokens": 5000, "completion_tokens": 100, "cost": 0.3});
    let error = json!({"code": 502, "message": "up"});
    let mut piece = delta(&json!({"content": "par"}), Some("error"));
    piece["choices"][0]["error"] = error.clone();
    let message = json!({"role": "assistant", "content": "par"});
    let choice = json!({"index": 0, "message": message, "finish_reason": "error", "error": error});
    let whole = json!({"choices": [choice], "usage": usage});
    let last = json!({"choices": [], "usage": usage});
    let beside = json!({"error": error, "choices": [], "usage": usage});
    for body in [whole.to_string(), stream(&[piece, last]), stream(&[beside])] {
        let error = ask(Protocol::Chat, body).await.unwrap_err();
        assert!(matches!(error.reason(), ModelError::Transient { .. }), "{error:?}");
        let TokenUsage { input_tokens, output_tokens, calls, .. } = error.usage();
        assert_eq!((input_tokens, output_tokens, calls), (5000, 100, 1), "{error:?}");
        assert_eq!(error.cost_usd(), Some(0.3), "{error:?}");
    }
}

#[tokio::test]
async fn an_error_event_keeps_what_was_counted_before() {
    let started = json!({"type": "message_start", "message": {"usage": {"input_tokens": 150_000, "output_tokens": 1}}});
    let failed =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "later"}});
    let chunk = json!({
        "candidates": [{"content": {"parts": [{"text": "Hel"}]}}],
        "usageMetadata": {"promptTokenCount": 150_000, "candidatesTokenCount": 1}
    });
    let unavailable = json!({"error": {"code": 503, "message": "later", "status": "UNAVAILABLE"}});
    let counted =
        json!({"choices": [], "usage": {"prompt_tokens": 150_000, "completion_tokens": 1}});
    let overloaded = json!({"error": {"code": 503, "message": "later"}});
    let response = json!({
        "error": {"code": "server_overloaded", "message": "later"},
        "output": [],
        "usage": {"input_tokens": 150_000, "output_tokens": 1}
    });
    for (protocol, events) in [
        (Protocol::Anthropic, vec![started, failed.clone()]),
        (Protocol::Gemini, vec![chunk, unavailable]),
        (Protocol::Chat, vec![counted, overloaded]),
        (Protocol::Responses, vec![json!({"type": "response.failed", "response": response})]),
    ] {
        let error = ask(protocol, stream(&events)).await.unwrap_err();
        assert!(matches!(error.reason(), ModelError::Overloaded { .. }), "{protocol:?} {error:?}");
        let TokenUsage { input_tokens, output_tokens, calls, .. } = error.usage();
        assert_eq!((input_tokens, output_tokens, calls), (150_000, 1, 1), "{protocol:?}");
    }
    // Data that cannot be read ends a stream, too.
    let started = json!({"type": "message_start", "message": {"usage": {"input_tokens": 150_000, "output_tokens": 1}}});
    let garbage = format!("data: {started}\n\ndata: {{oh\n\n");
    let error = ask(Protocol::Anthropic, garbage).await.unwrap_err();
    assert_eq!(error.usage().input_tokens, 150_000, "{error:?}");
    // An error before the answer costs nothing.
    let error = ask(Protocol::Anthropic, stream(&[failed])).await.unwrap_err();
    assert_eq!(error.usage(), TokenUsage::default());
}

#[tokio::test]
async fn later_zeros_erase_no_counts() {
    let counted = json!({"prompt_tokens": 100, "completion_tokens": 5, "cost": 0.2, "prompt_tokens_details": {"cached_tokens": 7}});
    let zeros = json!({"prompt_tokens": 0, "completion_tokens": 0, "cost": 0, "prompt_tokens_details": {"cached_tokens": 0}});
    let chunk = |usage: &Value| json!({"choices": [], "usage": usage});
    let text = delta(&json!({"content": "Teal."}), Some("stop"));
    let events = [chunk(&zeros), text, chunk(&counted), chunk(&zeros)];
    let (usage, cost_usd) = ask(Protocol::Chat, stream(&events)).await.unwrap();
    let TokenUsage { input_tokens, cached_input_tokens, output_tokens, .. } = usage;
    assert_eq!((input_tokens, cached_input_tokens, output_tokens), (100, 7, 5));
    assert_eq!(cost_usd, Some(0.2));

    let chunk = |text: &str, tokens: u64| {
        json!({
            "candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": tokens, "candidatesTokenCount": tokens}
        })
    };
    let (usage, _) =
        ask(Protocol::Gemini, stream(&[chunk("Teal.", 9), chunk("", 0)])).await.unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens), (9, 9));
}

#[tokio::test]
async fn an_uncounted_answer_is_estimated_however_it_ends() {
    let text = "w".repeat(350);
    let content = json!({"content": text});
    for (content, finish) in [
        (&content, "length"),
        (&content, "content_filter"),
        (&content, "error"),
        (&content, "model_context_window_exceeded"),
        (&json!({"refusal": text}), "stop"),
        (&json!({"reasoning_content": text}), "stop"),
    ] {
        let events = [delta(content, None), delta(&json!({}), Some(finish))];
        let error = ask(Protocol::Chat, stream(&events)).await.unwrap_err();
        let TokenUsage { input_tokens, output_tokens, calls, estimated, .. } = error.usage();
        assert_eq!((input_tokens, output_tokens, calls, estimated), (10, 100, 1, true), "{finish}");
    }
    let message = json!({"content": [{"type": "text", "text": text}], "stop_reason": "refusal"});
    let error = ask(Protocol::Anthropic, message.to_string()).await.unwrap_err();
    assert_eq!((error.usage().input_tokens, error.usage().output_tokens), (10, 100));
}

#[tokio::test]
async fn a_count_that_is_missing_beside_another_is_estimated() {
    let choice = json!({"message": {"content": "z".repeat(350)}, "finish_reason": "stop"});
    for (usage, expected) in [
        (json!({"completion_tokens": 5}), (10, 5, true)),
        (json!({"prompt_tokens": 7}), (7, 100, true)),
        (json!({"prompt_tokens": 7, "completion_tokens": 5}), (7, 5, false)),
    ] {
        let body = json!({"choices": [choice], "usage": usage}).to_string();
        let (usage, _) = ask(Protocol::Chat, body).await.unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens, usage.estimated), expected);
    }
}

#[tokio::test]
async fn the_arguments_of_calls_are_estimated() {
    let arguments = json!({"at": "z".repeat(341)}).to_string();
    assert_eq!(arguments.len(), 350);
    let call = json!({"id": "a", "function": {"name": "look", "arguments": arguments}});
    let message = json!({"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"});
    let body = json!({"choices": [message]}).to_string();
    let (usage, _) = ask(Protocol::Chat, body).await.unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens, usage.estimated), (10, 100, true));

    // They are a part of the next request.
    let call = ToolCall { id: "a".into(), name: "look".into(), arguments, extra: None };
    let asked = Message { tool_calls: vec![call], ..Message::assistant("") };
    let request = ChatRequest { messages: vec![asked], ..request("") };
    let body = json!({"choices": [{"message": {"content": "Teal."}}]}).to_string();
    let peer = Peer::start(move |_| body.clone().into_response()).await;
    let usage = peer.client().chat(&request).await.unwrap().usage;
    assert_eq!((usage.input_tokens, usage.output_tokens), (100, 2));
}
