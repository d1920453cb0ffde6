//! Forms of requests: the client leaves out what a provider rejects, and remembers.

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use graphrun::models::{
    ChatModel, ChatRequest, Message, ModelErrorKind, OutputMode, OutputSchema, Parameter, Profile,
    Protocol, ProviderClient, ProviderSettings, Providers, RequestSettings, ToolChoice, ToolSpec,
};
use serde_json::{Value, json};

use crate::models::{
    matrix::{call_with, reply_with},
    peer::{self, KEY, Peer, Seen, completion, request},
};

fn form(seen: &Seen) -> &str {
    match seen.body.pointer("/response_format/type").and_then(Value::as_str) {
        Some(form) => form,
        None if tools(seen).contains(&"Colour") => "tool",
        None => "prompted",
    }
}

/// Returns the names of the tools that a request offers.
fn tools(seen: &Seen) -> Vec<&str> {
    let tools = seen.body["tools"].as_array().into_iter().flatten();
    tools.filter_map(|it| it["function"]["name"].as_str()).collect()
}

fn forms(peer: &Peer) -> Vec<String> {
    peer.seen().iter().map(|seen| form(seen).to_owned()).collect()
}

fn rejected(message: &str) -> Response {
    let body = json!({"error": {"message": message, "type": "invalid_request_error"}});
    (StatusCode::BAD_REQUEST, body.to_string()).into_response()
}

/// Rejects both forms of `response_format`.
fn rejected_format(seen: &Seen) -> Option<Response> {
    seen.body.get("response_format").map(|_| rejected("Invalid parameter: response_format"))
}

/// Answers with the call of a tool.
fn called(name: &str, arguments: &Value) -> Response {
    call_with(Protocol::Chat, name, arguments).to_string().into_response()
}

fn teal() -> Value {
    json!({"colour": "teal"})
}

/// Returns the request of an agent that may look first.
fn looking() -> ChatRequest {
    let schema = json!({"type": "object", "properties": {"at": {"type": "integer"}}});
    let look = ToolSpec { name: "look".into(), description: "Looks.".into(), schema };
    ChatRequest { tools: vec![look], ..colour_request() }
}

fn colour_request() -> ChatRequest {
    let schema = json!({
        "type": "object",
        "properties": {"colour": {"type": "string", "minLength": 3}, "passed": {"type": "boolean", "readOnly": true}},
        "required": ["colour", "passed"]
    });
    ChatRequest {
        output: Some(OutputSchema { name: "Colour".into(), schema }),
        ..request("Which colour?")
    }
}

#[tokio::test]
async fn a_provider_that_knows_schemas_gets_a_strict_one() {
    let peer = Peer::start(|_| completion(r#"{"colour":"teal"}"#)).await;
    peer.client().chat(&colour_request()).await.unwrap();
    assert_eq!(
        peer.seen()[0].body["response_format"],
        json!({"type": "json_schema", "json_schema": {"name": "Colour", "strict": true, "schema": {
            "type": "object",
            "properties": {"colour": {"type": "string", "description": "(minLength: 3)"}},
            "additionalProperties": false,
            "required": ["colour"]
        }}})
    );
}

#[tokio::test]
async fn a_rejected_form_is_replaced_by_the_next_and_not_tried_again() {
    let peer = Peer::start(|seen| match form(seen) {
        "json_schema" => rejected("'response_format' of type 'json_schema' is not supported"),
        "json_object" => rejected("Invalid parameter: response_format"),
        "tool" => rejected("small does not support tools"),
        _ => completion(r#"{"colour":"teal"}"#),
    })
    .await;
    // Another client of the same account knows it, too.
    for _ in 0..2 {
        let reply = peer.client().chat(&colour_request()).await.unwrap();
        assert_eq!(reply.text, r#"{"colour":"teal"}"#);
    }
    assert_eq!(forms(&peer), ["json_schema", "json_object", "tool", "prompted", "prompted"]);
    let keys =
        peer.seen().iter().map(|seen| seen.headers["idempotency-key"].clone()).collect::<Vec<_>>();
    let expected = ["", "/json_object", "/tool", "/prompted", "/prompted"];
    assert_eq!(keys, expected.map(|it| format!("run-1/3/painter{it}")));
    let asked = peer.seen()[4].body["messages"].to_string();
    assert!(asked.contains("JSON Schema") && asked.contains("colour"), "{asked}");
    assert!(!asked.contains("passed"), "a computed property was asked for: {asked}");
}

#[tokio::test]
async fn a_model_without_formats_answers_by_a_call() {
    let answer = |seen: &Seen| rejected_format(seen).unwrap_or_else(|| called("Colour", &teal()));
    let peer = Peer::start(answer).await;
    for _ in 0..2 {
        let reply = peer.client().chat(&colour_request()).await.unwrap();
        assert_eq!((reply.text, reply.tool_calls.len()), (teal().to_string(), 0));
        assert_eq!((reply.usage.input_tokens, reply.usage.output_tokens), (11, 7));
    }
    assert_eq!(forms(&peer), ["json_schema", "json_object", "tool", "tool"]);
    let Seen { body, .. } = &peer.seen()[3];
    let schema = json!({
        "type": "object", "required": ["colour"],
        "properties": {"colour": {"type": "string", "description": "(minLength: 3)"}}
    });
    let description =
        "Takes your complete answer as its arguments. Call it once, when you need no other tool.";
    let function = json!({"name": "Colour", "description": description, "parameters": schema});
    assert_eq!(body["tools"], json!([{"type": "function", "function": function}]));
    let choice = json!({"type": "function", "function": {"name": "Colour"}});
    assert_eq!(body["tool_choice"], choice);
    assert_eq!(body["messages"], json!([{"role": "user", "content": "Which colour?"}]));
}

#[tokio::test]
async fn a_text_in_place_of_the_call_is_read_and_the_schema_is_prompted_next() {
    let answer = |seen: &Seen| rejected_format(seen).unwrap_or_else(|| completion("It is teal."));
    let peer = Peer::start(answer).await;
    for _ in 0..2 {
        assert_eq!(peer.client().chat(&colour_request()).await.unwrap().text, "It is teal.");
    }
    assert_eq!(forms(&peer), ["json_schema", "json_object", "tool", "prompted"]);
}

#[tokio::test]
async fn the_tools_of_an_agent_stay_callable_beside_its_answer() {
    let peer = Peer::start(|seen| {
        let has_looked = seen.body["messages"].to_string().contains("\"tool_call_id\"");
        rejected_format(seen).unwrap_or_else(|| {
            if has_looked { called("Colour", &teal()) } else { called("look", &json!({"at": 3})) }
        })
    })
    .await;
    let reply = peer.client().chat(&looking()).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.tool_calls[0].name.as_str()), ("", "look"));
    let id = reply.tool_calls[0].id.clone();
    let looked = [Message::calls(reply), Message::tool(id, "It is teal.")];
    let messages = [looking().messages, looked.to_vec()].concat();
    let next = ChatRequest { messages, ..looking() };
    let last = ChatRequest { tool_choice: ToolChoice::None, ..next.clone() };
    let forced = ChatRequest { tool_choice: ToolChoice::Tool("look".into()), ..looking() };
    for request in [&next, &last] {
        assert_eq!(peer.client().chat(request).await.unwrap().text, teal().to_string());
    }
    assert_eq!(peer.client().chat(&forced).await.unwrap().tool_calls.len(), 1);
    let forced_call = |name: &str| json!({"type": "function", "function": {"name": name}});
    let seen = peer.seen();
    let asked: Vec<_> = seen[2..].iter().map(|it| (tools(it), &it.body["tool_choice"])).collect();
    let both = || vec!["look", "Colour"];
    assert_eq!(
        asked,
        [
            (both(), &json!("required")),
            (both(), &json!("required")),
            (both(), &forced_call("Colour")),
            (vec!["look"], &forced_call("look")),
        ]
    );
}

#[tokio::test]
async fn a_refused_choice_leaves_the_call_to_the_model() {
    let refuses = Peer::start(|seen| {
        let message = "`tool_choice` is not supported when thinking is enabled";
        let choice = seen.body.get("tool_choice").map(|_| rejected(message));
        rejected_format(seen).or(choice).unwrap_or_else(|| called("Colour", &teal()))
    })
    .await;
    let knows = Peer::start(|_| called("Colour", &teal())).await;
    let profile = Profile {
        output: OutputMode::Tool,
        unsupported: [Parameter::ToolChoice].into(),
        ..Profile::default()
    };
    for (peer, client, requests) in
        [(&refuses, refuses.client(), 4), (&knows, peer::client(&knows.base_url, profile), 1)]
    {
        let reply = client.chat(&colour_request()).await.unwrap();
        assert_eq!(reply.text, teal().to_string());
        let seen = peer.seen();
        let last = seen.last().unwrap();
        assert_eq!((seen.len(), form(last)), (requests, "tool"));
        assert_eq!(last.body.get("tool_choice"), None);
        let asked = last.body["messages"].to_string();
        assert!(asked.contains("by a call of the tool `Colour`"), "{asked}");
    }
}

#[tokio::test]
async fn a_rejected_tool_is_replaced_by_the_schema_in_the_prompt() {
    for (status, message) in [
        (StatusCode::BAD_REQUEST, "lab/small does not support tools"),
        (StatusCode::NOT_FOUND, "No endpoints found that support tool use."),
        (StatusCode::UNPROCESSABLE_ENTITY, "Invalid schema for function 'Colour': no"),
    ] {
        let peer = Peer::start(move |seen| match form(seen) {
            "prompted" => completion(r#"{"colour":"teal"}"#),
            _ => (status, json!({"error": {"message": message}}).to_string()).into_response(),
        })
        .await;
        let profile = Profile { output: OutputMode::Tool, ..Profile::default() };
        let client = peer::client(&peer.base_url, profile);
        let reply = client.chat(&colour_request()).await.unwrap();
        assert_eq!(reply.text, teal().to_string(), "{message}");
        client.chat(&colour_request()).await.unwrap();
        let seen = forms(&peer);
        assert_eq!(seen[..2], ["tool", "prompted"], "{message}");
        // A bad schema does not cost the others their form.
        let is_schema = status == StatusCode::UNPROCESSABLE_ENTITY;
        assert_eq!(seen[2], if is_schema { "tool" } else { "prompted" }, "{message}");
    }
}

#[tokio::test]
async fn each_protocol_can_begin_with_the_tool() {
    for protocol in Protocol::ALL.iter().copied() {
        let text =
            |protocol: Protocol, _: &str, value: &Value| reply_with(protocol, &value.to_string());
        for answer in [call_with as fn(Protocol, &str, &Value) -> Value, text] {
            let body = answer(protocol, "Colour", &teal());
            let peer = Peer::start(move |_| body.to_string().into_response()).await;
            let profile = Profile { protocol, output: OutputMode::Tool, ..Profile::default() };
            let client = peer::client(&peer.base_url, profile);
            let reply = client.chat(&colour_request()).await.unwrap();
            let read: Value = serde_json::from_str(&reply.text).unwrap();
            assert_eq!((read, reply.tool_calls.len()), (teal(), 0), "{protocol:?}");
            let [Seen { body, .. }] = &peer.seen()[..] else { panic!("{protocol:?}") };
            let tools = body["tools"].to_string();
            assert!(tools.contains("Takes your complete answer"), "{protocol:?}: {body}");
            let choice = ["tool_choice", "toolConfig"].iter().find_map(|it| body.get(*it));
            let choice = choice.map(Value::to_string).unwrap_or_default();
            assert!(choice.contains("Colour"), "{protocol:?}: {choice}");
        }
    }
}

#[tokio::test]
async fn a_list_is_the_argument_of_the_call() {
    let peer = Peer::start(|_| called("Colours", &json!({"answer": ["teal", "jade"]}))).await;
    let schema = json!({"type": "array", "items": {"type": "string"}});
    let output = Some(OutputSchema { name: "Colours".into(), schema });
    let profile = Profile { output: OutputMode::Tool, ..Profile::default() };
    let client = peer::client(&peer.base_url, profile);
    let reply = client.chat(&ChatRequest { output, ..request("Which?") }).await.unwrap();
    assert_eq!(reply.text, r#"["teal","jade"]"#);
}

#[tokio::test]
async fn one_bad_schema_does_not_cost_the_others_their_form() {
    let peer = Peer::start(|seen| {
        let bad = seen.body.to_string().contains("Which shape?");
        match form(seen) {
            "json_schema" if bad => rejected("Invalid schema for response_format 'Colour': no"),
            _ => completion(r#"{"colour":"teal"}"#),
        }
    })
    .await;
    let client = peer.client();
    let shape = ChatRequest { messages: request("Which shape?").messages, ..colour_request() };
    client.chat(&shape).await.unwrap();
    client.chat(&colour_request()).await.unwrap();
    assert_eq!(forms(&peer), ["json_schema", "json_object", "json_schema"]);
}

#[tokio::test]
async fn another_bad_request_is_not_tried_in_another_form() {
    let peer = Peer::start(|_| rejected("Unsupported value: 'temperature'")).await;
    let error = peer.client().chat(&colour_request()).await.unwrap_err();
    assert_eq!(error.kind(), ModelErrorKind::BadRequest);
    assert_eq!(forms(&peer), ["json_schema"]);
}

#[tokio::test]
async fn a_list_is_asked_for_in_an_object_and_handed_out_as_a_list() {
    let peer = Peer::start(|_| completion(r#"{"answer":["teal","jade"]}"#)).await;
    let schema = json!({"type": "array", "items": {"type": "string"}});
    let output = Some(OutputSchema { name: "Colours".into(), schema });
    let reply = peer.client().chat(&ChatRequest { output, ..request("Which?") }).await.unwrap();
    assert_eq!(reply.text, r#"["teal","jade"]"#);
    assert_eq!(
        peer.seen()[0].body.pointer("/response_format/json_schema/schema/type"),
        Some(&json!("object"))
    );
}

#[tokio::test]
async fn a_parameter_rejected_by_name_is_left_out_later() {
    let peer = Peer::start(|seen| {
        if seen.body.get("temperature").is_some() {
            return rejected("Unsupported value: 'temperature' does not support 0.5 with this model.");
        }
        if seen.body.get("max_tokens").is_some() {
            return rejected("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.");
        }
        completion("Teal.")
    })
    .await;
    let asked = ChatRequest {
        settings: RequestSettings {
            temperature: Some(0.5),
            max_tokens: Some(9),
            ..RequestSettings::default()
        },
        ..request("Which colour?")
    };
    peer.client().chat(&asked).await.unwrap();
    assert_eq!(peer.seen().len(), 3);
    // Another client of the same account knows it, too.
    peer.client().chat(&asked).await.unwrap();
    let last = &peer.seen()[3];
    assert_eq!(peer.seen().len(), 4);
    assert_eq!((last.body.get("temperature"), last.body.get("max_tokens")), (None, None));
    assert_eq!(last.body["max_completion_tokens"], 9);
    let keys: Vec<_> = peer.seen().iter().map(|it| it.headers["idempotency-key"].clone()).collect();
    assert_eq!(keys[1], "run-1/3/painter/without-temperature");
    assert_eq!(keys[2], keys[3]);
    // Another model of the account may accept it.
    let other = ChatRequest { model: Some("other".into()), ..asked };
    peer.client().chat(&other).await.unwrap();
    assert_eq!(peer.seen()[4].body["temperature"], 0.5);
}

#[tokio::test]
async fn a_rejection_that_names_nothing_sent_is_final() {
    let peer = Peer::start(|_| rejected("Unsupported parameter: 'seed'")).await;
    let asked = ChatRequest {
        settings: RequestSettings { temperature: Some(0.5), ..RequestSettings::default() },
        ..request("Which colour?")
    };
    assert_eq!(peer.client().chat(&asked).await.unwrap_err().kind(), ModelErrorKind::BadRequest);
    assert_eq!(peer.seen().len(), 1);
}

#[tokio::test]
async fn a_provider_gets_its_headers_and_the_key_in_its_own_one() {
    let peer = Peer::start(|_| completion("Teal.")).await;
    let mut providers = Providers::default();
    let settings = ProviderSettings {
        base_url: Some(peer.base_url.clone()),
        key_variable: Some("LAB_KEY".into()),
        key_header: Some("x-lab-key".into()),
        headers: Some([("x-team".to_owned(), "a".to_owned())].into()),
        ..ProviderSettings::default()
    };
    providers.add("lab", settings);
    let variable = |name: &str| (name == "LAB_KEY").then(|| KEY.to_owned());
    let config = providers.config("lab/small", &variable).unwrap();
    ProviderClient::new(config).unwrap().chat(&request("Hi")).await.unwrap();
    let headers = &peer.seen()[0].headers;
    assert_eq!(
        (&headers["x-lab-key"], &headers["x-team"]),
        (&KEY.parse().unwrap(), &"a".parse().unwrap())
    );
    assert!(!headers.contains_key("authorization"));
}
