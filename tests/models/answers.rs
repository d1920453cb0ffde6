//! The JSON in answers of all kinds, a line of `answers.jsonl` each.

use graphrun::models::{ExpectedKind, extract_json};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    about: String,
    text: String,
    wanted: String,
    value: Option<Value>,
    #[serde(default)]
    warnings: Vec<String>,
    /// A part of the prompt that has no value.
    problem: Option<String>,
}

fn wanted(word: &str) -> ExpectedKind {
    match word {
        "object" => ExpectedKind::Object,
        "list" => ExpectedKind::List,
        "any" => ExpectedKind::Any,
        other => panic!("no such kind of value: {other}"),
    }
}

#[test]
fn the_json_is_found_wherever_it_is_and_never_made_up() {
    let cases: Vec<Case> = include_str!("answers.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect();
    assert!(cases.len() >= 30, "only {} cases", cases.len());
    for case in cases {
        let found = extract_json(&case.text, wanted(&case.wanted));
        match (found, case.problem) {
            (Ok(found), None) => {
                assert_eq!(Some(found.value), case.value, "{}", case.about);
                assert_eq!(found.warnings, case.warnings, "{}", case.about);
            }
            (Err(problem), Some(expected)) => {
                assert!(problem.contains(&expected), "{}: {problem}", case.about);
            }
            (found, problem) => {
                panic!("{}: {found:?}, expected the problem {problem:?}", case.about)
            }
        }
    }
}

#[test]
fn an_answer_of_brackets_is_read_in_linear_time() {
    for text in [
        "[".repeat(200_000),
        "{[".repeat(100_000),
        "[]".repeat(100_000),
        "[".repeat(5000) + &"]".repeat(5000),
    ] {
        // An object is found in none of them.
        assert!(
            extract_json(&text, ExpectedKind::Object).map_or(true, |found| found.value.is_array())
        );
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(".{0,8}", inner, 0..6)
                .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

proptest! {
    #[test]
    fn any_text_is_answered_without_a_panic(text in r#"([\[\]{},:"\\a0 \n]|```|<think>|.){0,200}"#) {
        let _ = extract_json(&text, ExpectedKind::Object);
    }

    #[test]
    fn any_object_comes_out_of_prose_and_fences_as_it_went_in(
        value in prop::collection::btree_map(".{0,8}", json_value(), 0..6),
        pretty: bool,
    ) {
        let value = Value::Object(value.into_iter().collect());
        let json = if pretty { format!("{value:#}") } else { value.to_string() };
        for text in [json.clone(), format!("Sure:\n```json\n{json}\n```\nDone."), format!("It is {json}")] {
            let found = extract_json(&text, ExpectedKind::Object).unwrap();
            prop_assert_eq!(&found.value, &value);
            prop_assert!(found.warnings.is_empty());
        }
    }
}
