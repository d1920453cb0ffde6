//! Tools on the wire: how they are offered, how calls come back in a dozen forms, and how both are recorded.

use std::sync::Arc;

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use graphrun::models::{
    ChatModel, ChatReply, ChatRequest, ClientConfig, Finish, Message, OutputSchema, ProviderClient,
    Providers, Recorder, Replay, Secret, ToolCall, ToolChoice, ToolSpec,
};
use serde_json::{Value, json};

use crate::models::peer::{KEY, Peer, completion, request};

fn weather() -> ToolSpec {
    let schema = json!({
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]
    });
    ToolSpec { name: "weather.now".into(), description: "Tells the weather.".into(), schema }
}

fn asking() -> ChatRequest {
    ChatRequest { tools: vec![weather()], ..request("Is it raining in Paris?") }
}

/// A reply with a message of that form.
fn reply(message: &Value, finish: &str) -> Response {
    let choice = json!({"message": message, "finish_reason": finish});
    let usage = json!({"prompt_tokens": 11, "completion_tokens": 7});
    let body = json!({"model": "small-1", "choices": [choice], "usage": usage});
    (StatusCode::OK, body.to_string()).into_response()
}

fn paris(id: &str) -> ToolCall {
    let arguments = r#"{"city":"Paris"}"#.to_owned();
    ToolCall { id: id.into(), name: "weather.now".into(), arguments, extra: None }
}

#[tokio::test]
async fn tools_are_offered_and_their_results_sent_back() {
    let message = json!({"role": "assistant", "content": null, "tool_calls": [{
        "id": "call_1", "type": "function",
        "function": {"name": "weather_now", "arguments": "{\"city\":\"Paris\"}"}
    }]});
    let peer = Peer::start(move |seen| match seen.body["messages"].as_array() {
        Some(messages) if messages.len() == 1 => reply(&message, "tool_calls"),
        _ => completion("Yes."),
    })
    .await;
    let called = peer.client().chat(&asking()).await.unwrap();
    assert_eq!((called.text.as_str(), &called.finish), ("", &Finish::ToolCalls));
    assert_eq!(called.tool_calls, [paris("call_1")]);

    let mut second = asking();
    second.messages.extend([Message::calls(called), Message::tool("call_1", "rain")]);
    second.tool_choice = ToolChoice::None;
    let answer = peer.client().chat(&second).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.tool_calls.len()), ("Yes.", 0));

    let [first, second] = peer.seen().try_into().unwrap();
    let function = json!({
        "name": "weather_now", "description": "Tells the weather.", "parameters": weather().schema
    });
    assert_eq!(first.body["tools"], json!([{"type": "function", "function": function}]));
    assert_eq!(
        (&first.body["tool_choice"], &second.body["tool_choice"]),
        (&json!("auto"), &json!("none"))
    );
    assert_eq!(second.body["tools"], first.body["tools"]);
    let call = json!({
        "id": "call_1", "type": "function",
        "function": {"name": "weather_now", "arguments": "{\"city\":\"Paris\"}"}
    });
    assert_eq!(
        second.body["messages"],
        json!([
            {"role": "user", "content": "Is it raining in Paris?"},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "content": "rain", "tool_call_id": "call_1"},
        ])
    );
    let plain = Peer::start(|_| completion("Yes.")).await;
    plain.client().chat(&request("Is it?")).await.unwrap();
    let body = &plain.seen()[0].body;
    assert!(body.get("tools").is_none() && body.get("tool_choice").is_none(), "{body}");
}

/// What some provider rejects a request for: `format`, `$schema`, an object without `properties`.
#[tokio::test]
async fn arguments_are_described_in_a_form_that_every_provider_takes() {
    let peer = Peer::start(|_| completion("Yes.")).await;
    let lines = json!({"type": ["integer", "null"], "format": "uint", "minimum": 0, "description": "How many."});
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Read", "type": "object",
        "properties": {"lines": lines, "parts": {"type": "array", "items": {"$ref": "#/$defs/Part"}}},
        "$defs": {"Part": {"type": "string", "maxLength": 3}}, "required": ["parts"]
    });
    let tools = vec![
        ToolSpec { schema, ..weather() },
        ToolSpec { schema: json!({"type": "object"}), ..weather() },
    ];
    peer.client().chat(&ChatRequest { tools, ..request("?") }).await.unwrap();
    let body = &peer.seen()[0].body;
    assert_eq!(
        body["tools"][0]["function"]["parameters"],
        json!({
            "type": "object",
            "properties": {
                "lines": {"type": ["integer", "null"], "description": "How many. (format: uint, minimum: 0)"},
                "parts": {"type": "array", "items": {"$ref": "#/$defs/Part"}},
            },
            "$defs": {"Part": {"type": "string", "description": "(maxLength: 3)"}}, "required": ["parts"]
        })
    );
    assert_eq!(
        body["tools"][1]["function"]["parameters"],
        json!({"type": "object", "properties": {}})
    );
}

/// The call is read even if a provider omits, renames or adds parts.
#[tokio::test]
async fn calls_are_read_in_every_form_they_come_in() {
    let function = json!({"name": "weather_now", "arguments": "{\"city\":\"Paris\"}"});
    let forms = [
        (
            "no type, another finish",
            json!({"content": "", "tool_calls": [{"id": "x", "function": function}]}),
            "stop",
        ),
        (
            "no content",
            json!({"tool_calls": [{"id": "x", "type": "function", "function": function}]}),
            "tool_calls",
        ),
        (
            "arguments as an object",
            json!({"content": null, "tool_calls": [{"id": "x", "function": {
            "name": "weather_now", "arguments": {"city": "Paris"}}}]}),
            "tool_calls",
        ),
        (
            "our own name",
            json!({"content": null, "tool_calls": [{"id": "x", "function": {
            "name": "weather.now", "arguments": "{\"city\":\"Paris\"}"}}]}),
            "tool_calls",
        ),
        (
            "no name besides",
            json!({"content": null, "tool_calls": [
            {"id": "y", "function": {"arguments": "{}"}}, {"id": "x", "function": function}]}),
            "tool_calls",
        ),
        ("the older form", json!({"content": null, "function_call": function}), "function_call"),
    ];
    for (about, message, finish) in forms {
        let id = if about == "the older form" { "" } else { "x" };
        let peer = Peer::start(move |_| reply(&message, finish)).await;
        let called = peer.client().chat(&asking()).await;
        assert_eq!(called.map(|it| it.tool_calls), Ok(vec![paris(id)]), "{about}");
    }
    let beside =
        json!({"content": "Let me look.", "tool_calls": [{"id": "x", "function": function}]});
    let peer = Peer::start(move |_| reply(&beside, "tool_calls")).await;
    let called = peer.client().chat(&asking()).await.unwrap();
    assert_eq!((called.text.as_str(), called.tool_calls.len()), ("Let me look.", 1));
}

#[tokio::test]
async fn a_call_that_the_provider_rejects_itself_is_a_call() {
    let peer = Peer::start(|_| {
        let body = json!({"error": {
            "message": "tool call validation failed", "type": "invalid_request_error", "code": "tool_use_failed",
            "failed_generation": "{\"name\": \"weather_now\", \"arguments\": {\"town\": \"Paris\"}}",
        }});
        (StatusCode::BAD_REQUEST, body.to_string()).into_response()
    })
    .await;
    let called = peer.client().chat(&asking()).await.unwrap();
    assert_eq!(
        (called.text.as_str(), called.tool_calls[0].arguments.as_str()),
        ("", r#"{"town":"Paris"}"#)
    );
}

#[tokio::test]
async fn the_form_of_the_answer_may_be_called_like_a_tool() {
    let call =
        json!({"tool_calls": [{"function": {"name": "Sky", "arguments": "{\"sky\":\"grey\"}"}}]});
    let peer = Peer::start(move |_| reply(&call, "tool_calls")).await;
    let schema = json!({"type": "object", "properties": {"sky": {"type": "string"}}});
    let output = Some(OutputSchema { name: "Sky".into(), schema });
    let answer = peer.client().chat(&ChatRequest { output, ..asking() }).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.tool_calls.len()), (r#"{"sky":"grey"}"#, 0));
}

/// A form that a provider takes, but not beside tools, is kept where there are none.
#[tokio::test]
async fn a_refusal_with_tools_is_remembered_for_tools_only() {
    let peer = Peer::start(|seen| {
        let has = |name: &str| seen.body.get(name).is_some();
        if has("tools") && has("response_format") {
            let message =
                "Function calling with a response mime type: 'application/json' is unsupported";
            let body =
                json!([{"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}]);
            return (StatusCode::BAD_REQUEST, body.to_string()).into_response();
        }
        completion(r#"{"sky":"grey"}"#)
    })
    .await;
    let schema = json!({"type": "object", "properties": {"sky": {"type": "string"}}});
    let output = || Some(OutputSchema { name: "Sky".into(), schema: schema.clone() });
    let client = peer.client();
    for asked in [asking(), asking(), request("Is it raining?")] {
        client.chat(&ChatRequest { output: output(), ..asked }).await.unwrap();
    }
    let forms: Vec<bool> =
        peer.seen().iter().map(|it| it.body.get("response_format").is_some()).collect();
    assert_eq!(forms, [true, true, false, false, true]);
}

#[tokio::test]
async fn reasoning_before_a_call_is_sent_back_where_required() {
    let peer = Peer::start(|_| completion("Yes.")).await;
    let mut asked = asking();
    let thought =
        Message { reasoning: Some("Paris, then.".into()), ..Message::calls(ChatReply::default()) };
    asked.messages.push(Message { tool_calls: vec![paris("x")], ..thought });
    asked.messages.push(Message::tool("x", "rain"));
    for provider in ["deepseek", "groq"] {
        let provider = Providers::built_in().get(provider).unwrap();
        let config = ClientConfig {
            api_key: Secret::new(KEY),
            profile: provider.profile.clone(),
            ..ClientConfig::new(&peer.base_url, "m")
        };
        ProviderClient::new(config).unwrap().chat(&asked).await.unwrap();
    }
    let sent: Vec<Value> =
        peer.seen().iter().map(|it| it.body["messages"][1]["reasoning_content"].clone()).collect();
    assert_eq!(sent, [json!("Paris, then."), Value::Null]);
}

/// The ids are the provider's and differ from run to run; the requests do not.
#[tokio::test]
async fn an_exchange_with_calls_is_recorded_and_replayed() {
    let peer = Peer::start(|seen| match seen.body["messages"].as_array() {
        Some(messages) if messages.len() == 1 => {
            let function = json!({"name": "weather_now", "arguments": "{\"city\":\"Paris\"}"});
            let signed = json!({"google": {"thought_signature": "AVSo"}});
            let call = json!({"id": "call_1", "extra_content": signed, "function": function});
            reply(&json!({"content": null, "tool_calls": [call]}), "tool_calls")
        }
        _ => completion("Yes."),
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weather.jsonl");
    let recorder = Recorder::wrap(Arc::new(peer.client()), &file).unwrap();
    let ask = async |model: &dyn ChatModel, id: &str| {
        let called = model.chat(&asking()).await.unwrap();
        let mut second = asking();
        let mut turn = Message::calls(called.clone());
        turn.tool_calls[0].id = id.to_owned();
        second.messages.extend([turn, Message::tool(id, "rain")]);
        (called, model.chat(&second).await)
    };
    let recorded = ask(&recorder, "call_1").await;
    let replayed = ask(&Replay::load(&file).unwrap(), "another").await;
    assert_eq!(recorded, replayed);
    assert!(replayed.0.tool_calls[0].extra.is_some());
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!(lines[0]["request"]["tools"], json!(["weather.now"]));
    assert_eq!(lines[0]["reply"]["tool_calls"][0]["arguments"], json!({"city": "Paris"}));
    assert!(lines[0]["reply"].get("text").is_none(), "{}", lines[0]);

    // Another result of the tool is another request, and so are other tools.
    let replay = Replay::load(&file).unwrap();
    let mut other = asking();
    other.messages.extend([Message::calls(recorded.0), Message::tool("call_1", "sun")]);
    assert!(replay.chat(&other).await.is_err());
    assert!(replay.chat(&ChatRequest { tools: Vec::new(), ..asking() }).await.is_err());
}

#[tokio::test]
async fn calls_can_be_written_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("weather.jsonl");
    let call = json!({"name": "weather.now", "arguments": {"city": "Paris"}});
    let lines = [
        json!({"v": 1, "node": "painter", "when": {"lacks": ["rain in"]}, "reply": {"tool_calls": [call]}}),
        json!({"v": 1, "node": "painter", "when": {"contains": [r#"weather.now({"city":"Paris"})"#, "rain in"]},
               "reply": {"text": "Yes."}}),
    ];
    std::fs::write(&file, lines.map(|it| it.to_string() + "\n").concat()).unwrap();
    let replay = Replay::load(&file).unwrap();
    let called = replay.chat(&asking()).await.unwrap();
    assert_eq!(
        (called.tool_calls.as_slice(), &called.finish),
        ([paris("")].as_slice(), &Finish::ToolCalls)
    );
    let mut second = asking();
    second.messages.extend([Message::calls(called), Message::tool("x", "rain in Paris")]);
    assert_eq!(replay.chat(&second).await.unwrap().text, "Yes.");
    let both =
        json!({"v": 1, "node": "n", "when": {}, "reply": {"json": {}, "tool_calls": [call]}});
    std::fs::write(&file, both.to_string()).unwrap();
    let error = Replay::load(&file).unwrap_err().to_string();
    assert!(error.contains("exactly one of `text`, `json`, `tool_calls` and `error`"), "{error}");
}
