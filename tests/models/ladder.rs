//! Forms of structured output: the client goes down by itself where a provider rejects one, and remembers.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use graphrun::llm::{ChatModel, ChatRequest, ErrorKind, OutputSchema};
use serde_json::{Value, json};

use crate::peer::{Peer, Seen, completion, request};

fn form(seen: &Seen) -> &str {
    seen.body.pointer("/response_format/type").and_then(Value::as_str).unwrap_or("prompted")
}

fn forms(peer: &Peer) -> Vec<String> {
    peer.seen().iter().map(|seen| form(seen).to_owned()).collect()
}

fn rejected(message: &str) -> Response {
    let body = json!({"error": {"message": message, "type": "invalid_request_error"}});
    (StatusCode::BAD_REQUEST, body.to_string()).into_response()
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
        _ => completion(r#"{"colour":"teal"}"#),
    })
    .await;
    let client = peer.client();
    for _ in 0..2 {
        let reply = client.chat(&colour_request()).await.unwrap();
        assert_eq!(reply.text, r#"{"colour":"teal"}"#);
    }
    assert_eq!(forms(&peer), ["json_schema", "json_object", "prompted", "prompted"]);
    let keys =
        peer.seen().iter().map(|seen| seen.headers["idempotency-key"].clone()).collect::<Vec<_>>();
    let prompted = "run-1/3/painter/prompted";
    assert_eq!(keys, ["run-1/3/painter", "run-1/3/painter/json_object", prompted, prompted]);
    let asked = peer.seen()[3].body["messages"].to_string();
    assert!(asked.contains("JSON Schema") && asked.contains("colour"), "{asked}");
    assert!(!asked.contains("passed"), "a computed property was asked for: {asked}");
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
    assert_eq!(error.kind(), ErrorKind::BadRequest);
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
