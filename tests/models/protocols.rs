//! The requests of each protocol, and what a later request repeats of a reply.

use axum::response::{IntoResponse as _, Response};
use graphrun::models::{
    ChatModel as _, ChatRequest, Message, OutputSchema, Parameter, Profile, Protocol,
    ProviderClient, ProviderSettings, Providers, RequestSettings, ToolChoice, ToolSpec,
};
use serde_json::{Value, json};

use super::peer::{KEY, Peer, client, request};

fn reply(body: &Value) -> Response {
    body.to_string().into_response()
}

fn look() -> ToolSpec {
    let schema =
        json!({"type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]});
    ToolSpec { name: "fs.look".into(), description: "Looks.".into(), schema }
}

/// A request with each part whose form depends on the protocol.
fn whole() -> ChatRequest {
    let schema = json!({"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]});
    ChatRequest {
        messages: vec![
            Message::system("Be brief."),
            Message::user("Which colour?"),
            Message::assistant("It was red."),
            Message::user("Look again."),
        ],
        output: Some(OutputSchema { name: "Colour".into(), schema }),
        tools: vec![look()],
        settings: RequestSettings {
            temperature: Some(0.25),
            top_p: Some(0.5),
            seed: Some(7),
            stop: vec!["END".into()],
            effort: Some("low".into()),
            max_tokens: Some(50),
            cache_prompt: true,
            headers: [("x-team".to_owned(), "a".to_owned())].into(),
            extra_body: json!({"labels": {"team": "a"}}).as_object().unwrap().clone(),
            ..RequestSettings::default()
        },
        ..request("")
    }
}

fn strict() -> Value {
    json!({
        "type": "object",
        "properties": {"colour": {"type": "string"}},
        "additionalProperties": false,
        "required": ["colour"]
    })
}

fn arguments() -> Value {
    look().schema
}

/// Asks, and continues after a call of the tool. Returns both requests as the server has seen them.
async fn conversation(
    protocol: Protocol,
    model: &str,
    called: Value,
    answered: Value,
) -> (Peer, Vec<Value>) {
    let replies = [called, answered];
    let count = std::sync::atomic::AtomicUsize::new(0);
    let peer = Peer::start(move |_| {
        reply(&replies[count.fetch_add(1, std::sync::atomic::Ordering::SeqCst)])
    })
    .await;
    let client = client(&peer.base_url, Profile { protocol, ..Profile::default() });
    let first = ChatRequest { model: Some(model.to_owned()), ..whole() };
    let called = client.chat(&first).await.unwrap();
    let call = called.tool_calls[0].clone();
    assert_eq!((call.name.as_str(), call.arguments.as_str()), ("fs.look", r#"{"at":1}"#));
    // A provider without ids of calls gets one from graphrun.
    let id = if call.id.is_empty() { "call00001".to_owned() } else { call.id.clone() };
    let mut message = Message::calls(called);
    message.tool_calls[0].id.clone_from(&id);
    let mut second = ChatRequest { tool_choice: ToolChoice::None, ..first };
    second.messages.extend([message, Message::tool(id, "teal")]);
    let answer = client.chat(&second).await.unwrap();
    assert_eq!(answer.text, r#"{"colour":"teal"}"#);
    let seen = peer.seen();
    assert!(seen.iter().all(|it| it.headers["x-team"] == "a"), "{seen:?}");
    let bodies = seen.iter().map(|it| it.body.clone()).collect();
    (peer, bodies)
}

#[tokio::test]
async fn anthropic_gets_blocks_and_its_signed_reasoning_back() {
    let thinking = json!({"type": "thinking", "thinking": "Sea.", "signature": "c2ln"});
    let call = json!({"type": "tool_use", "id": "toolu_1", "name": "fs_look", "input": {"at": 1}});
    let called = json!({"content": [thinking, call], "stop_reason": "tool_use", "usage": {"input_tokens": 1}});
    let answer = json!({"type": "text", "text": r#"{"colour":"teal"}"#});
    let answered = json!({"content": [answer], "stop_reason": "end_turn"});
    let (peer, bodies) = conversation(Protocol::Anthropic, "claude-1", called, answered).await;
    let text = |text: &str| json!({"type": "text", "text": text});
    let kept = |mut block: Value| {
        block["cache_control"] = json!({"type": "ephemeral"});
        block
    };
    let turns = |last: Value| {
        json!([
            {"role": "user", "content": [text("Which colour?")]},
            {"role": "assistant", "content": [text("It was red.")]},
            {"role": "user", "content": [last]},
        ])
    };
    let expected = json!({
        "model": "claude-1",
        "max_tokens": 50,
        "system": [kept(text("Be brief."))],
        "messages": turns(kept(text("Look again."))),
        "tools": [{"name": "fs_look", "description": "Looks.", "input_schema": arguments()}],
        "tool_choice": {"type": "auto"},
        "stop_sequences": ["END"],
        // The provider takes no temperature and no top_p beside thinking.
        "thinking": {"type": "adaptive"},
        "output_config": {"format": {"type": "json_schema", "schema": strict()}, "effort": "low"},
        "labels": {"team": "a"},
        "stream": true
    });
    assert_eq!(bodies[0], expected);
    let mut messages = turns(text("Look again."));
    let result = json!({"type": "tool_result", "tool_use_id": "toolu_1", "content": "teal"});
    messages.as_array_mut().unwrap().extend([
        json!({"role": "assistant", "content": [thinking, call]}),
        json!({"role": "user", "content": [kept(result)]}),
    ]);
    assert_eq!(bodies[1]["messages"], messages);
    assert_eq!(bodies[1]["tool_choice"], json!({"type": "none"}));
    let seen = &peer.seen()[0];
    assert_eq!(seen.path, "/v1/messages");
    assert_eq!(seen.headers["x-api-key"], KEY);
    assert_eq!(seen.headers["anthropic-version"], "2023-06-01");
    assert_eq!(seen.headers["content-type"], "application/json");
    assert!(!seen.headers.contains_key("authorization"));
}

#[tokio::test]
async fn responses_get_items_and_their_encrypted_reasoning_back() {
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "eHg=", "status": null});
    let call = json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "fs_look", "arguments": "{\"at\":1}"});
    let called = json!({"status": "completed", "output": [reasoning, call]});
    let text = json!({"type": "output_text", "text": r#"{"colour":"teal"}"#});
    let answered =
        json!({"status": "completed", "output": [{"type": "message", "content": [text]}]});
    let (peer, bodies) = conversation(Protocol::Responses, "gpt-5-mini", called, answered).await;
    let format =
        json!({"type": "json_schema", "name": "Colour", "strict": true, "schema": strict()});
    let expected = json!({
        "model": "gpt-5-mini",
        "store": false,
        "text": {"format": format},
        "input": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Which colour?"},
            {"role": "assistant", "content": "It was red."},
            {"role": "user", "content": "Look again."}
        ],
        "tools": [{"type": "function", "name": "fs_look", "description": "Looks.", "parameters": arguments(), "strict": false}],
        "tool_choice": "auto",
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low"},
        "max_output_tokens": 50,
        "labels": {"team": "a"},
        "stream": true
    });
    assert_eq!(bodies[0], expected, "a reasoning model takes no temperature");
    let added = json!([
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "eHg="},
        {"type": "function_call", "call_id": "call_1", "name": "fs_look", "arguments": "{\"at\":1}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "teal"}
    ]);
    assert_eq!(bodies[1]["input"].as_array().unwrap()[4..], *added.as_array().unwrap());
    let seen = &peer.seen()[0];
    assert_eq!(seen.path, "/v1/responses");
    assert_eq!(seen.headers["authorization"], format!("Bearer {KEY}"));
}

#[tokio::test]
async fn gemini_gets_parts_and_the_signature_of_a_call_back() {
    let call =
        json!({"functionCall": {"name": "fs_look", "args": {"at": 1}}, "thoughtSignature": "c2ln"});
    let candidate = |part: Value| json!({"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}]});
    let answered = candidate(json!({"text": r#"{"colour":"teal"}"#}));
    let (peer, bodies) =
        conversation(Protocol::Gemini, "gemini-3", candidate(call.clone()), answered).await;
    let turn = |role: &str, part: Value| json!({"role": role, "parts": [part]});
    let expected = json!({
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            turn("user", json!({"text": "Which colour?"})),
            turn("model", json!({"text": "It was red."})),
            turn("user", json!({"text": "Look again."})),
        ],
        "tools": [{"functionDeclarations": [{"name": "fs_look", "description": "Looks.", "parametersJsonSchema": arguments()}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
        "generationConfig": {
            "responseMimeType": "application/json",
            "responseJsonSchema": strict(),
            "temperature": 0.25,
            "topP": 0.5,
            "seed": 7,
            "stopSequences": ["END"],
            "thinkingConfig": {"thinkingLevel": "low"},
            "maxOutputTokens": 50
        },
        "labels": {"team": "a"}
    });
    assert_eq!(bodies[0], expected);
    let response = json!({"functionResponse": {"name": "fs_look", "response": {"result": "teal"}}});
    let added = json!([turn("model", call), turn("user", response)]);
    assert_eq!(bodies[1]["contents"].as_array().unwrap()[3..], *added.as_array().unwrap());
    let seen = &peer.seen()[0];
    assert_eq!(seen.path, "/v1/models/gemini-3:streamGenerateContent");
    assert_eq!(seen.query.as_deref(), Some("alt=sse"));
    assert_eq!(seen.headers["x-goog-api-key"], KEY);
    assert!(!seen.headers.contains_key("authorization"));
}

#[tokio::test]
async fn gemini_gets_ids_and_signed_parts_back() {
    let call = json!({"functionCall": {"id": "q1", "name": "fs_look", "args": {"at": 1}}});
    let signed = json!({"text": "", "thoughtSignature": "c2ln"});
    let candidate = |parts: Value| json!({"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]});
    let answered = candidate(json!([{"text": r#"{"colour":"teal"}"#}]));
    for parts in [json!([call, signed]), json!([signed, call])] {
        let called = candidate(parts.clone());
        let (_, bodies) =
            conversation(Protocol::Gemini, "gemini-3", called, answered.clone()).await;
        let response = json!({"id": "q1", "name": "fs_look", "response": {"result": "teal"}});
        let added = json!([
            {"role": "model", "parts": parts},
            {"role": "user", "parts": [{"functionResponse": response}]}
        ]);
        assert_eq!(bodies[1]["contents"].as_array().unwrap()[3..], *added.as_array().unwrap());
    }
}

#[test]
fn a_signature_in_a_later_piece_of_a_text_is_kept() {
    let piece = |part: Value| json!({"candidates": [{"content": {"parts": [part]}}]});
    let events = [
        piece(json!({"text": "Te"})),
        piece(json!({"text": "al.", "thoughtSignature": "c2ln"})),
        json!({"candidates": [{"finishReason": "STOP"}]}),
    ];
    let lines: Vec<String> = events.iter().map(|it| format!("data: {it}\n\n")).collect();
    let reply = Protocol::Gemini.read_text(&lines.concat()).unwrap();
    assert_eq!(reply.text, "Teal.");
    assert_eq!(reply.thinking[0]["part"], json!({"text": "", "thoughtSignature": "c2ln"}));
}

#[tokio::test]
async fn responses_get_the_messages_before_a_call_back() {
    let text = |text: &str| json!([{"type": "output_text", "text": text}]);
    let before = json!({"type": "message", "phase": "commentary", "content": text("I look.")});
    let call = json!({"type": "function_call", "call_id": "call_1", "name": "fs_look", "arguments": "{\"at\":1}"});
    let called = json!({"status": "completed", "output": [before, call]});
    let answer = json!({"type": "message", "content": text(r#"{"colour":"teal"}"#)});
    let answered = json!({"status": "completed", "output": [answer]});
    let (_, bodies) = conversation(Protocol::Responses, "gpt-5", called, answered).await;
    let kept = json!({"type": "message", "role": "assistant", "phase": "commentary", "content": "I look."});
    assert_eq!(bodies[1]["input"].as_array().unwrap()[4..6], [kept, call]);
}

#[tokio::test]
async fn the_schema_is_in_the_prompt_without_structured_output() {
    let refusals = [
        (Protocol::Anthropic, "output_config.format: Extra inputs are not permitted", "system"),
        (
            Protocol::Responses,
            "Invalid parameter: 'text.format' of type 'json_schema' is not supported with this model.",
            "input",
        ),
        (
            Protocol::Gemini,
            "Unknown name \"responseJsonSchema\" at 'generation_config': Cannot find field.",
            "systemInstruction",
        ),
    ];
    for (protocol, message, place) in refusals {
        let peer = Peer::start(move |seen| {
            let body = seen.body.to_string();
            if body.contains("json_schema") || body.contains("responseJsonSchema") {
                let error = json!({"error": {"message": message}});
                return (axum::http::StatusCode::BAD_REQUEST, error.to_string()).into_response();
            }
            let text = r#"{"colour":"teal"}"#;
            reply(&json!({
                "content": [{"type": "text", "text": text}],
                "output": [{"type": "message", "content": [{"type": "output_text", "text": text}]}],
                "candidates": [{"content": {"parts": [{"text": text}]}}]
            }))
        })
        .await;
        let client = client(&peer.base_url, Profile { protocol, ..Profile::default() });
        for _ in 0..2 {
            let answer = client.chat(&whole()).await.unwrap();
            assert_eq!(answer.text, r#"{"colour":"teal"}"#, "{protocol:?}");
        }
        let seen = peer.seen();
        assert_eq!(seen.len(), 3, "{protocol:?} remembers the refusal");
        assert!(seen[2].body[place].to_string().contains("JSON Schema"), "{:?}", seen[2].body);
    }
}

#[tokio::test]
async fn the_most_tokens_of_a_model_are_learnt() {
    let peer = Peer::start(|seen| {
        if seen.body["max_tokens"].as_u64() > Some(8192) {
            let message = "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens";
            let body = json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
            return (axum::http::StatusCode::BAD_REQUEST, body.to_string()).into_response();
        }
        reply(&json!({"content": [{"type": "text", "text": "Teal."}], "stop_reason": "end_turn"}))
    })
    .await;
    let client = peer.client_with(Protocol::Anthropic);
    for _ in 0..2 {
        assert_eq!(client.chat(&request("Which colour?")).await.unwrap().text, "Teal.");
    }
    let asked: Vec<u64> =
        peer.seen().iter().map(|it| it.body["max_tokens"].as_u64().unwrap()).collect();
    assert_eq!(asked, [32_000, 8192, 8192]);
}

/// Returns the part of a request about calls of tools.
async fn sent_choice(protocol: Protocol, choice: ToolChoice, effort: Option<&str>) -> Value {
    let peer = Peer::start(|_| reply(&json!({}))).await;
    let client = client(&peer.base_url, Profile { protocol, ..Profile::default() });
    let mut request = ChatRequest { tool_choice: choice, output: None, ..whole() };
    request.settings.parallel_tools = Some(false);
    request.settings.effort = effort.map(str::to_owned);
    client.chat(&request).await.expect_err("the reply is empty");
    let body = peer.seen()[0].body.clone();
    let of = |name: &str| body.get(name).cloned().unwrap_or_default();
    json!([of("tool_choice"), of("parallel_tool_calls"), of("toolConfig")])
}

#[tokio::test]
async fn a_forced_call_has_the_form_of_its_protocol() {
    let gemini = |config: Value| json!([null, null, {"functionCallingConfig": config}]);
    let tool = || ToolChoice::Tool("fs.look".into());
    let cases = [
        (Protocol::Chat, ToolChoice::Required, json!(["required", false, null])),
        (
            Protocol::Chat,
            tool(),
            json!([{"type": "function", "function": {"name": "fs_look"}}, false, null]),
        ),
        (Protocol::Responses, ToolChoice::Required, json!(["required", false, null])),
        (
            Protocol::Responses,
            tool(),
            json!([{"type": "function", "name": "fs_look"}, false, null]),
        ),
        (
            Protocol::Anthropic,
            ToolChoice::Required,
            json!([{"type": "any", "disable_parallel_tool_use": true}, null, null]),
        ),
        (
            Protocol::Anthropic,
            tool(),
            json!([{"type": "tool", "name": "fs_look", "disable_parallel_tool_use": true}, null, null]),
        ),
        (Protocol::Gemini, ToolChoice::Required, gemini(json!({"mode": "ANY"}))),
        (
            Protocol::Gemini,
            tool(),
            gemini(json!({"mode": "ANY", "allowedFunctionNames": ["fs_look"]})),
        ),
    ];
    for (protocol, choice, expected) in cases {
        assert_eq!(sent_choice(protocol, choice, None).await, expected, "{protocol:?}");
    }
}

#[tokio::test]
async fn anthropic_forces_no_call_of_a_model_that_thinks() {
    for (effort, expected) in [("low", "auto"), ("none", "any")] {
        let sent = sent_choice(Protocol::Anthropic, ToolChoice::Required, Some(effort)).await;
        assert_eq!(sent[0]["type"], expected);
    }
}

#[tokio::test]
async fn each_shipped_provider_is_sent_its_own_key_alone() {
    let peer = Peer::start(|_| reply(&json!({}))).await;
    let providers = Providers::built_in();
    assert!(providers.names().count() > 10);
    for (name, provider) in providers.iter() {
        let own = provider.key_variable.clone().unwrap();
        let key = format!("key-of-{name}");
        let variable = |variable: &str| match variable {
            it if it == own => Some(key.clone()),
            it if it == Providers::address_variable(name) => Some(peer.base_url.clone()),
            it => it.contains("KEY").then(|| "key-of-another".to_owned()),
        };
        let config = providers.config(&format!("{name}/m"), &variable).unwrap();
        // The empty reply is no answer.
        ProviderClient::new(config).unwrap().chat(&request("Which colour?")).await.unwrap_err();
        let headers = peer.seen().pop().unwrap().headers;
        let values = headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap()));
        let keys: Vec<_> = values.filter(|(_, value)| value.contains("key-of-")).collect();
        let bearer = format!("Bearer {key}");
        let expected = match name {
            "anthropic" => ("x-api-key", key.as_str()),
            "azure" => ("api-key", key.as_str()),
            _ => ("authorization", bearer.as_str()),
        };
        assert_eq!(keys, [expected], "{name}");
    }
}

/// Returns the request with each setting that a provider of this name is sent.
async fn sent_to(providers: &Providers, model: &str) -> Value {
    let peer = Peer::start(|_| reply(&json!({}))).await;
    let (provider, _) = model.split_once('/').unwrap();
    let address = Providers::address_variable(provider);
    let variable = |name: &str| match name {
        it if it == address => Some(peer.base_url.clone()),
        it => it.contains("KEY").then(|| KEY.to_owned()),
    };
    let config = providers.config(model, &variable).unwrap();
    let asked = ChatRequest { tool_choice: ToolChoice::Required, ..whole() };
    // The empty reply is no answer.
    ProviderClient::new(config).unwrap().chat(&asked).await.unwrap_err();
    peer.seen().remove(0).body
}

#[tokio::test]
async fn each_shipped_provider_is_sent_what_its_table_names() {
    let mut providers = Providers::built_in().clone();
    let settings = ProviderSettings {
        key_variable: Some("LAB_KEY".into()),
        unsupported: Some([Parameter::ToolChoice, Parameter::Seed].into()),
        ..ProviderSettings::default()
    };
    providers.add("lab", settings);
    let usual = [
        "max_tokens",
        "response_format/json_schema",
        "seed",
        "stop",
        "stream_options",
        "temperature",
        "tool_choice",
        "top_p",
    ];
    // The sent parameters that differ, each with the one in its place.
    let most = ("max_tokens", Some("max_completion_tokens"));
    let deviations = |model: &str| match model {
        "azure/m" | "groq/m" => vec![most],
        // It rejects `max_tokens`, which the client then replaces.
        "openai/gpt-5" => vec![("temperature", None), ("top_p", None)],
        "mistral/m" => vec![("seed", Some("random_seed")), ("stream_options", None)],
        "deepseek/m" => {
            vec![("response_format/json_schema", Some("response_format/json_object"))]
        }
        "xai/grok-4" => vec![("stop", None)],
        "lab/m" => vec![("tool_choice", None), ("seed", None)],
        _ => Vec::new(),
    };
    let names: Vec<String> = providers.names().map(|it| format!("{it}/m")).collect();
    let others = ["openai/gpt-5", "xai/grok-4"].map(str::to_owned);
    // Anthropic has no address with chat completions; its own requests have other tests.
    for model in names.iter().chain(&others).filter(|it| !it.starts_with("anthropic/")) {
        let body = sent_to(&providers, model).await;
        let mut found: Vec<String> = [&usual[..], &["max_completion_tokens", "random_seed"]]
            .concat()
            .into_iter()
            .filter(|it| body.get(*it).is_some())
            .map(str::to_owned)
            .collect();
        let format = body["response_format"]["type"].as_str().unwrap();
        found.push(format!("response_format/{format}"));
        found.sort();
        let deviations = deviations(model);
        let mut expected: Vec<&str> = usual
            .into_iter()
            .filter_map(|name| {
                deviations.iter().find(|it| it.0 == name).map_or(Some(name), |it| it.1)
            })
            .collect();
        expected.sort_unstable();
        assert_eq!(found, expected, "{model}");
    }
}
