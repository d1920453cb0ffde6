//! The rounds of a structured answer: accepted values, repairs, and usage.

use std::{collections::VecDeque, sync::Mutex};

use async_trait::async_trait;
use graphrun::models::{
    ChatModel, ChatReply, ChatRequest, Message, ModelError, OutputSchema, RequestSettings,
    SchemaCheck, StructuredAnswer, StructuredChat, StructuredError, TokenUsage, strict_schema,
};
use serde_json::{Value, json};

use crate::models::peer::request;

/// Answers in the given order, and remembers its requests.
#[derive(Debug)]
struct Scripted {
    replies: Mutex<VecDeque<Result<ChatReply, ModelError>>>,
    asked: Mutex<Vec<ChatRequest>>,
}

impl Scripted {
    fn new(replies: impl IntoIterator<Item = Result<ChatReply, ModelError>>) -> Self {
        Self { replies: Mutex::new(replies.into_iter().collect()), asked: Mutex::default() }
    }

    fn asked(&self) -> Vec<ChatRequest> {
        self.asked.lock().expect("no round panics").clone()
    }
}

#[async_trait]
impl ChatModel for Scripted {
    async fn chat(&self, request: &ChatRequest) -> Result<ChatReply, ModelError> {
        self.asked.lock().expect("no round panics").push(request.clone());
        self.replies
            .lock()
            .expect("no round panics")
            .pop_front()
            .expect("asked more often than scripted")
    }

    fn name(&self) -> &'static str {
        "scripted/1"
    }
}

const ROUND: TokenUsage = TokenUsage {
    input_tokens: 10,
    output_tokens: 5,
    calls: 1,
    estimated: false,
    cached_input_tokens: 0,
    cache_write_input_tokens: 0,
    reasoning_output_tokens: 0,
    context_tokens: None,
    context_window: None,
};

#[expect(clippy::unnecessary_wraps, reason = "stands in lists beside failures")]
fn says(text: &str) -> Result<ChatReply, ModelError> {
    Ok(ChatReply { text: text.into(), usage: ROUND, ..ChatReply::default() })
}

fn colour_schema() -> OutputSchema {
    let schema = json!({
        "type": "object",
        "properties": {
            "colour": {"type": "string", "minLength": 3},
            "tags": {"type": "array", "items": {"type": "string"}},
            "passed": {"type": "boolean", "readOnly": true}
        },
        "required": ["colour", "tags", "passed"]
    });
    OutputSchema { name: "Colour".into(), schema }
}

/// Asks with the schema as the check.
async fn ask(
    model: &Scripted,
    request: ChatRequest,
    repairs_max: u32,
) -> Result<StructuredAnswer<Value>, StructuredError> {
    let schema = colour_schema();
    let check = SchemaCheck::new(&schema.schema).expect("the schema is valid");
    let check = |answer| check.check(answer);
    let chat = StructuredChat { model, schema: &schema, check: &check, repairs_max };
    chat.ask(request).await
}

#[tokio::test]
async fn a_good_answer_takes_one_round() {
    let model = Scripted::new([says("```json\n{\"colour\": \"teal\", \"tags\": [],}\n```")]);
    let outcome = ask(&model, request("Which colour?"), 2).await;
    let answer = outcome.unwrap();
    assert_eq!(answer.value, json!({"colour": "teal", "tags": []}));
    assert_eq!((answer.repairs, answer.usage), (0, ROUND));
    assert_eq!(answer.warnings, ["trailing commas were removed"]);
    assert_eq!(model.asked()[0].output, Some(colour_schema()));
}

#[tokio::test]
async fn a_bad_answer_is_sent_back_with_its_problems_and_a_new_key() {
    let model = Scripted::new([
        says(r#"{"colour": "x", "tags": [1]}"#),
        says(r#"{"colour":"teal","tags":[]}"#),
    ]);
    let asking = ChatRequest {
        settings: RequestSettings { temperature: Some(0.8), ..RequestSettings::default() },
        ..request("Which colour?")
    };
    let outcome = ask(&model, asking, 2).await;
    let answer = outcome.unwrap();
    assert_eq!((answer.repairs, answer.usage), (1, ROUND + ROUND));

    let [first, second] = model.asked().try_into().unwrap();
    assert_eq!(
        (first.key.as_str(), second.key.as_str()),
        ("run-1/3/painter", "run-1/3/painter/repair-1")
    );
    assert_eq!((first.settings.temperature, second.settings.temperature), (Some(0.8), Some(0.0)));
    assert_eq!(second.messages[0], Message::user("Which colour?"));
    assert_eq!(second.messages[1], Message::assistant(r#"{"colour": "x", "tags": [1]}"#));
    let repair = &second.messages[2].content;
    assert!(repair.contains("\n- colour: ") && repair.contains("\n- tags[0]: "), "{repair}");
    assert!(!repair.contains("passed"), "a computed property is not asked for: {repair}");
}

#[tokio::test]
async fn repairs_are_bounded_and_keep_answer_and_usage() {
    let model = Scripted::new([says("Teal."), says("Really, teal."), says("Teal!")]);
    let outcome = ask(&model, request("Which colour?"), 2).await;
    let StructuredError::InvalidOutput { raw, problems, usage } = outcome.unwrap_err() else {
        panic!("the model answered every time");
    };
    assert_eq!(raw, "Teal!");
    assert_eq!(problems, ["the answer contains no JSON"]);
    assert_eq!(
        usage,
        TokenUsage { input_tokens: 30, output_tokens: 15, calls: 3, ..TokenUsage::default() }
    );
    // Each round starts from the question: two bad answers would only teach the model more of them.
    assert_eq!(model.asked()[2].messages.len(), 3);
}

#[tokio::test]
async fn a_failure_of_the_model_counts_the_usage_of_earlier_rounds() {
    let failure = ModelError::Refused { text: "No.".into(), usage: ROUND };
    let model = Scripted::new([says("Teal."), Err(failure.clone())]);
    let outcome = ask(&model, request("Which colour?"), 2).await;
    assert_eq!(
        outcome.unwrap_err(),
        StructuredError::Model { error: failure, usage: ROUND + ROUND }
    );
}

#[tokio::test]
async fn a_truncated_answer_gets_twice_the_tokens_and_is_not_read() {
    let cut = || {
        Err(ModelError::Truncated {
            text: r#"{"colour":"teal","tags":[]}"#.into(),
            usage: ROUND,
            tokens_max: None,
        })
    };
    let model = Scripted::new([cut(), says(r#"{"colour":"jade","tags":[]}"#)]);
    let asking = ChatRequest {
        settings: RequestSettings { max_tokens: Some(100), ..RequestSettings::default() },
        ..request("Which colour?")
    };
    let outcome = ask(&model, asking, 1).await;
    assert_eq!(outcome.unwrap().value["colour"], "jade");
    assert_eq!(model.asked()[1].settings.max_tokens, Some(200));
    assert_eq!(model.asked()[1].messages, model.asked()[0].messages);

    let outcome = ask(&Scripted::new([cut()]), request("Which colour?"), 1).await;
    assert!(matches!(
        outcome,
        Err(StructuredError::Model { error: ModelError::Truncated { .. }, .. })
    ));
}

#[tokio::test]
async fn the_first_value_that_fits_is_the_answer() {
    let draft = r#"{"colour": "x"}"#;
    let model = Scripted::new([says(&format!(
        "Draft: {draft}\nAnswer: {{\"colour\":\"teal\",\"tags\":[]}} or {{\"colour\":\"jade\",\"tags\":[]}}"
    ))]);
    let outcome = ask(&model, request("Which colour?"), 0).await;
    let answer = outcome.unwrap();
    assert_eq!(answer.value["colour"], "teal");
    let warning =
        "the answer contains several JSON values that differ; only the first that fits is used";
    assert_eq!(answer.warnings, [warning]);

    // If none fits, the problems are those of the first.
    let model = Scripted::new([says(&format!("{draft} or {{\"tags\": 3}}"))]);
    let outcome = ask(&model, request("Which colour?"), 0).await;
    let StructuredError::InvalidOutput { problems, .. } = outcome.unwrap_err() else {
        panic!("no value fits");
    };
    assert!(problems.iter().any(|it| it.starts_with("colour: ")), "{problems:?}");

    // A check may accept less than the schema does.
    let model = Scripted::new([says(r#"{"colour":"teal","tags":[]} {"colour":"jade","tags":[]}"#)]);
    let check = |answer: Value| match answer["colour"].as_str() {
        Some("jade") => Ok(answer),
        _ => Err(vec!["not jade".to_owned()]),
    };
    let schema = colour_schema();
    let chat = StructuredChat { model: &model, schema: &schema, check: &check, repairs_max: 0 };
    let answer = chat.ask(request("Which colour?")).await.unwrap();
    assert_eq!(answer.value["colour"], "jade");
}

#[tokio::test]
async fn a_lenient_check_turns_misfits_into_warnings() {
    let model = Scripted::new([says(r#"{"colour": "TEAL", "tags": "one"}"#)]);
    let lenient = |answer: Value| {
        answer["colour"].as_str().map(str::to_lowercase).ok_or_else(|| vec!["no colour".to_owned()])
    };
    let schema = colour_schema();
    let chat = StructuredChat { model: &model, schema: &schema, check: &lenient, repairs_max: 0 };
    let answer = chat.ask(request("?")).await.unwrap();
    assert_eq!(answer.value, "teal");
    assert_eq!(answer.deviations, [r#"tags: "one" is not of type "array""#]);
    assert!(answer.warnings.is_empty(), "{:?}", answer.warnings);
}

#[test]
fn every_place_that_does_not_fit_is_named_at_once() {
    let schema = json!({
        "type": "object",
        "properties": {"files": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/File"}}},
        "required": ["files", "id"],
        "$defs": {"File": {"type": "object", "required": ["path"], "properties": {
            "path": {"type": "string"}, "content": {"type": "string", "minLength": 10}}}}
    });
    let check = SchemaCheck::new(&schema).unwrap();
    let problems = check.problems(
        &json!({"files": [{"path": "a", "content": "short"}, {"content": "long enough"}]}),
    );
    assert_eq!(problems.len(), 3, "{problems:?}");
    for start in ["files[0].content: ", "files[1]: ", "\"id\" is a required property"] {
        assert!(problems.iter().any(|problem| problem.starts_with(start)), "{start}: {problems:?}");
    }
    assert!(SchemaCheck::new(&json!({"type": "objekt"})).is_err());
}

#[test]
fn a_strict_schema_keeps_its_meaning() {
    let strict = strict_schema(&json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Artifact",
        "type": "object",
        "properties": {
            "id": {"type": "string", "pattern": "^CODE-\\d{3}$", "description": "Names it."},
            "note": {"type": "string", "maxLength": 200, "default": ""},
            "seen": {"type": ["string", "null"], "format": "date"},
            "kind": {"oneOf": [{"const": "test", "description": "A test."}, {"enum": ["config"]}]},
            "first": {"$ref": "#/$defs/File", "description": "The first one."},
            "files": {"type": "array", "minItems": 1, "items": {"allOf": [{"$ref": "#/$defs/File"}]}}
        },
        "required": ["id", "first", "files", "kind"],
        "$defs": {"File": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}
    }));
    insta::assert_snapshot!(format!("{:#}", strict.unwrap()));
    for free in [
        json!({"type": "object"}),
        json!({"type": "object", "properties": {"any": true}}),
        json!({"type": "object", "properties": {"map": {"type": "object", "additionalProperties": {"type": "string"}}}}),
    ] {
        assert_eq!(strict_schema(&free), None, "{free}");
    }
}

#[tokio::test]
async fn nulls_of_optional_properties_are_read_as_absent() {
    let schema = json!({
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "note": {"type": "string"},
            "seen": {"type": ["string", "null"]},
            "files": {"type": "array", "items": {"$ref": "#/$defs/File"}}
        },
        "required": ["id"],
        "$defs": {"File": {"type": "object", "properties": {"path": {"type": "string"}, "size": {"type": "integer"}}}}
    });
    let answer =
        r#"{"id": null, "note": null, "seen": null, "files": [{"path": "a", "size": null}]}"#;
    let model = Scripted::new([says(answer)]);
    let schema = OutputSchema { name: "Thing".into(), schema };
    let chat = StructuredChat { model: &model, schema: &schema, check: &Ok, repairs_max: 0 };
    let answer = chat.ask(request("?")).await.unwrap();
    assert_eq!(answer.value, json!({"id": null, "seen": null, "files": [{"path": "a"}]}));
    assert_eq!(answer.deviations, [r#"id: null is not of type "string""#]);
}
