//! How answers of models become the types of a software team: one file of cases for each type.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use graphrun::{
    nodes::TestResult,
    state::ReadLeniently,
    team::{
        CodeArtifact, CodeFile, Decision, FailureReport, Review, TeamState, TechnicalSpec,
        TestSuite, UserStory,
    },
};
use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// One file of cases: answers that differ from a good one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    base: Map<String, Value>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    about: String,
    /// The whole answer, instead of changes to the base.
    #[serde(default, deserialize_with = "present")]
    answer: Option<Value>,
    #[serde(default)]
    change: Map<String, Value>,
    #[serde(default)]
    without: Vec<String>,
    /// What the value must contain; none when the answer must be refused.
    value: Option<Value>,
    #[serde(default)]
    warnings: Vec<String>,
    #[serde(default)]
    problems: Vec<String>,
}

/// Tells `"answer": null` from no answer.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

fn check<T: ReadLeniently + Serialize + JsonSchema>(file: &str) {
    let Cases { base, cases } = serde_json::from_str(file).unwrap();
    let schema = jsonschema::validator_for(schema_for!(T).as_value()).unwrap();
    for case in cases {
        let about = &case.about;
        let answer = case.answer.unwrap_or_else(|| {
            let mut answer = base.clone();
            answer.extend(case.change);
            case.without
                .iter()
                .for_each(|name| assert!(answer.remove(name).is_some(), "{about}: no {name}"));
            Value::Object(answer)
        });
        match (T::read_leniently(answer), case.value) {
            (Ok(reading), Some(expected)) => {
                let value = serde_json::to_value(&reading.value).unwrap();
                assert!(contains(&value, &expected), "{about}: {expected} is not in {value}");
                assert_eq!(reading.warnings, case.warnings, "{about}");
                assert!(schema.is_valid(&value), "{about}: {value} does not fit its own schema");
            }
            (Err(error), None) => assert_eq!(error.problems, case.problems, "{about}"),
            (Ok(reading), None) => panic!("{about}: accepted as {}", json!(reading.value)),
            (Err(error), Some(_)) => panic!("{about}: refused, {error}"),
        }
    }
}

/// Whether a value has all fields of another; other values must be equal.
fn contains(value: &Value, expected: &Value) -> bool {
    match (value, expected) {
        (Value::Object(value), Value::Object(expected)) => expected
            .iter()
            .all(|(name, expected)| value.get(name).is_some_and(|value| contains(value, expected))),
        (Value::Array(value), Value::Array(expected)) => {
            value.len() == expected.len()
                && value.iter().zip(expected).all(|(value, expected)| contains(value, expected))
        }
        _ => value == expected,
    }
}

#[test]
fn user_stories_are_read_by_their_rules() {
    check::<UserStory>(include_str!("team/user_story.json"));
    check::<Vec<UserStory>>(include_str!("team/user_stories.json"));
}

#[test]
fn test_suites_are_read_by_their_rules() {
    check::<TestSuite>(include_str!("team/test_suite.json"));
}

#[test]
fn technical_specs_are_read_by_their_rules() {
    check::<TechnicalSpec>(include_str!("team/technical_spec.json"));
}

#[test]
fn code_artifacts_are_read_by_their_rules() {
    check::<CodeArtifact>(include_str!("team/code_artifact.json"));
    check::<CodeFile>(include_str!("team/code_file.json"));
}

#[test]
fn reviews_are_read_by_their_rules() {
    check::<Review>(include_str!("team/review.json"));
}

#[test]
fn failure_reports_are_read_by_their_rules() {
    check::<FailureReport>(include_str!("team/failure_report.json"));
}

#[test]
fn computed_fields_are_in_the_schema_and_marked_read_only() {
    assert_eq!(read_only(&schema_for!(FailureReport)), ["routing"]);
    assert_eq!(
        read_only(&schema_for!(CodeArtifact)),
        ["implementation_files", "test_files", "stories_covered", "attempt_number", "test_result"]
    );
    for schema in [
        schema_for!(Review),
        schema_for!(TestSuite),
        schema_for!(TechnicalSpec),
        schema_for!(UserStory),
    ] {
        assert!(read_only(&schema).is_empty());
    }
}

fn read_only(schema: &Schema) -> Vec<&str> {
    let properties = schema.get("properties").and_then(Value::as_object).unwrap();
    let marked = properties.iter().filter(|(_, property)| property["readOnly"] == json!(true));
    marked.map(|(name, _)| name.as_str()).collect()
}

#[test]
fn an_empty_state_has_no_fields_at_all() {
    assert_eq!(serde_json::to_value(TeamState::default()).unwrap(), json!({}));
    assert_eq!(serde_json::from_value::<TeamState>(json!({})).unwrap(), TeamState::default());
}

#[test]
fn the_state_does_not_take_fields_it_does_not_know() {
    let error = serde_json::from_value::<TeamState>(json!({ "breif": "a" })).unwrap_err();
    assert!(error.to_string().contains("unknown field `breif`"), "{error}");
}

#[test]
fn an_absent_field_of_the_state_is_not_null_and_not_required() {
    let schema = schema_for!(TeamState);
    let validator = jsonschema::validator_for(schema.as_value()).unwrap();
    assert!(validator.is_valid(&json!({})));
    assert!(
        validator
            .is_valid(&json!({ "brief": "a", "sse_attempts": 2, "sse_status": "needs_review" }))
    );
    assert!(!validator.is_valid(&json!({ "brief": null })));
    for (name, property) in schema.get("properties").and_then(Value::as_object).unwrap() {
        assert!(property.get("default").is_none(), "{name} has a default");
        assert!(
            property.get("type").is_none_or(Value::is_string),
            "{name} may be null: {property}"
        );
    }
}

#[test]
fn only_the_best_attempt_has_a_reducer() {
    let schema = schema_for!(TeamState);
    let properties = schema.get("properties").and_then(Value::as_object).unwrap();
    let reduced: Vec<_> = properties
        .iter()
        .filter_map(|(name, property)| Some((name, property.get("x-merge")?)))
        .collect();
    assert_eq!(
        reduced,
        [(&"code_artifact".to_owned(), &json!({ "best": "test_result.passed_count" }))]
    );
}

#[test]
fn a_tested_artifact_survives_storage() {
    let files = vec![CodeFile {
        file_path: "a.py".to_owned(),
        file_type: graphrun::team::FileType::Implementation,
        content: "VALUE = 1\n".to_owned(),
        description: String::new(),
        story_ids: vec!["US-001".to_owned()],
    }];
    let result =
        TestResult { total_tests: 24, passed_count: 20, failed_count: 4, ..TestResult::default() };
    let artifact = CodeArtifact::new("CODE-001".to_owned(), files)
        .tested(2, result.with_output("4 failed, 20 passed"));
    let state = TeamState { code_artifact: Some(artifact), ..TeamState::default() };
    let stored = serde_json::to_value(&state).unwrap();
    assert_eq!(stored["code_artifact"]["test_result"]["passed_count"], 20);
    assert_eq!(stored["code_artifact"]["attempt_number"], 2);
    assert!(jsonschema::is_valid(schema_for!(TeamState).as_value(), &stored));
    assert_eq!(serde_json::from_value::<TeamState>(stored).unwrap(), state);
}

#[test]
fn a_person_decides_with_or_without_a_comment() {
    for decision in
        [json!({ "choice": "go_on" }), json!({ "choice": "stop", "comment": "too dear" })]
    {
        let read: Decision = serde_json::from_value(decision.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), decision);
    }
}
