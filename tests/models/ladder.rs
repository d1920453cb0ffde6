//! Forms of requests: the client leaves out what a provider rejects, and remembers.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use graphrun::models::{
    ChatModel, ChatRequest, ModelErrorKind, OutputSchema, ProviderClient, ProviderSettings,
    Providers, RequestSettings,
};
use serde_json::{Value, json};

use crate::models::peer::{KEY, Peer, Seen, completion, request};

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
    // Another client of the same account knows it, too.
    for _ in 0..2 {
        let reply = peer.client().chat(&colour_request()).await.unwrap();
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
