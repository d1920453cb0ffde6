use std::{collections::BTreeSet, fs, path::PathBuf};

use graphrun_core::graph::ErrorKind;
use serde_json::Value;

use crate::{
    cache::CACHE_KEYS,
    case_file::{
        CALL_KEYS, CASE_KEYS as TEST_CASE_KEYS, CASES_KEYS, EXPECT_KEYS, FAIL_KEYS,
        NODE_USAGE_KEYS, USAGE_KEYS,
    },
    declarations::JOIN_KEYS,
    folders::FOLDER_KEYS,
    format::{NODE, cases_json_schema, schema_of, sections::WorkflowFile},
    hosts::HOST_KEYS,
    lower,
    mcp::MCP_KEYS,
    memory::TIER_KEYS,
    policies::{COMMON, NODE_LIMITS_KEYS, RETRY_KEYS, TIMEOUT_KEYS},
    reports::REPORT_KEYS,
    sections::{
        AGENT_KEYS, DEFAULTS_KEYS, FILES_KEYS, LIMITS_KEYS, PYTHON_KEYS, SANDBOX_KEYS,
        TEMPLATE_KEYS, TOOL_USE_KEYS, TOOLS_KEYS,
    },
    then::{CASE_KEYS, MATCH_KEYS},
    tools::{HEADER_KEYS, REQUEST_KEYS, TOOL_KEYS},
    types::{BEST_KEYS, RECORD_KEYS, SPEC_KEYS},
};

/// The schema's pointer to each section, and the keys that the reader takes there.
const SECTIONS: &[(&str, &[&str])] = &[
    ("", lower::KEYS),
    ("/properties/agents/additionalProperties", AGENT_KEYS),
    ("/properties/agents/additionalProperties/properties/system", TEMPLATE_KEYS),
    ("/properties/agents/additionalProperties/properties/tools/items", TOOL_USE_KEYS),
    ("/properties/sandboxes/additionalProperties", SANDBOX_KEYS),
    ("/properties/sandboxes/additionalProperties/properties/python", PYTHON_KEYS),
    ("/properties/folders/additionalProperties", FOLDER_KEYS),
    ("/properties/hosts/additionalProperties", HOST_KEYS),
    ("/properties/mcp/additionalProperties", MCP_KEYS),
    ("/properties/mcp/additionalProperties/properties/headers/additionalProperties", HEADER_KEYS),
    ("/properties/memory/additionalProperties", TIER_KEYS),
    ("/properties/memory/additionalProperties/properties/type", RECORD_KEYS),
    ("/properties/tools", TOOLS_KEYS),
    ("/properties/tools/properties/fs", FILES_KEYS),
    ("/properties/tools/additionalProperties", TOOL_KEYS),
    ("/properties/tools/additionalProperties/properties/input", RECORD_KEYS),
    ("/properties/tools/additionalProperties/properties/output", RECORD_KEYS),
    ("/properties/tools/additionalProperties/properties/http", REQUEST_KEYS),
    (
        "/properties/tools/additionalProperties/properties/http/properties/headers/additionalProperties",
        HEADER_KEYS,
    ),
    ("/properties/reports/additionalProperties", REPORT_KEYS),
    ("/properties/reports/additionalProperties/properties/render", TEMPLATE_KEYS),
    ("/properties/limits", LIMITS_KEYS),
    ("/properties/defaults", DEFAULTS_KEYS),
    ("/properties/defaults/properties/retry", RETRY_KEYS),
    ("/properties/defaults/properties/timeout", TIMEOUT_KEYS),
    ("/properties/types/additionalProperties", RECORD_KEYS),
    ("/properties/state/additionalProperties", SPEC_KEYS),
    ("/properties/state/additionalProperties/then", SPEC_KEYS),
    ("/properties/state/additionalProperties/then/properties/merge", BEST_KEYS),
    ("/properties/nodes/additionalProperties/properties/retry", RETRY_KEYS),
    ("/properties/nodes/additionalProperties/properties/timeout", TIMEOUT_KEYS),
    ("/properties/nodes/additionalProperties/properties/limits", NODE_LIMITS_KEYS),
    ("/properties/nodes/additionalProperties/properties/cache", CACHE_KEYS),
    ("/properties/nodes/additionalProperties/properties/join", JOIN_KEYS),
    ("/properties/nodes/additionalProperties/properties/then", MATCH_KEYS),
    ("/properties/nodes/additionalProperties/properties/then/items", CASE_KEYS),
];

/// The same for files of test cases.
const CASES_SECTIONS: &[(&str, &[&str])] = &[
    ("", CASES_KEYS),
    ("/properties/cases/items", TEST_CASE_KEYS),
    ("/properties/cases/items/properties/expect", EXPECT_KEYS),
    ("/properties/cases/items/properties/usage", USAGE_KEYS),
    (
        "/properties/cases/items/properties/usage/properties/nodes/additionalProperties",
        NODE_USAGE_KEYS,
    ),
];

/// Pointers to scripted answers: for a node, for a visit, for an attempt.
const ANSWERS: &[&str] = &[
    "/properties/nodes/additionalProperties",
    "/properties/nodes/additionalProperties/items",
    "/properties/nodes/additionalProperties/items/items",
];

/// The schema of the format without the keys of kinds: those have one source, a struct beside each
/// kind, so there is nothing to compare.
fn schema() -> Value {
    schema_of::<WorkflowFile>()
}

/// Pointers to mappings whose keys are kinds of errors.
const CATCHES: &[&str] = &[
    "/properties/defaults/properties/catch",
    "/properties/nodes/additionalProperties/properties/catch",
];

fn keys_at(schema: &Value, pointer: &str) -> BTreeSet<String> {
    let section = schema.pointer(pointer).unwrap_or_else(|| panic!("no schema at {pointer}"));
    let properties = section["properties"].as_object();
    properties.into_iter().flatten().map(|(key, _)| key.clone()).collect()
}

fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    words.into_iter().map(str::to_owned).collect()
}

#[test]
fn the_schema_has_the_keys_that_the_reader_takes() {
    let schema = schema();
    for (pointer, keys) in SECTIONS {
        let taken = words(keys.iter().copied());
        assert_eq!(keys_at(&schema, pointer), taken, "schema and reader differ at {pointer}");
    }
    let taken = words(COMMON.iter().copied());
    assert_eq!(keys_at(&schema, NODE), taken, "schema and reader differ about nodes");
    let kinds = words(ErrorKind::ALL.map(ErrorKind::as_str).into_iter().chain(["any"]));
    for pointer in CATCHES {
        assert_eq!(keys_at(&schema, pointer), kinds, "{pointer}");
    }
}

#[test]
fn the_schema_of_cases_has_the_keys_that_the_reader_takes() {
    let schema = cases_json_schema();
    for (pointer, keys) in CASES_SECTIONS {
        let taken = words(keys.iter().copied());
        assert_eq!(keys_at(&schema, pointer), taken, "schema and reader differ at {pointer}");
    }
    let answer = words(FAIL_KEYS.iter().copied().chain(["answer", "calls"]));
    let mut known = words(CASES_SECTIONS.iter().map(|(pointer, _)| *pointer));
    for place in ["", "/properties/cases/items"] {
        for pointer in ANSWERS {
            let pointer = format!("{place}{pointer}");
            assert_eq!(keys_at(&schema, &pointer), answer, "{pointer}");
            for call in ["/properties/calls/items", "/properties/calls/items/items"] {
                let call = format!("{pointer}{call}");
                assert_eq!(keys_at(&schema, &call), words(CALL_KEYS.iter().copied()), "{call}");
                known.insert(call);
            }
            known.insert(pointer);
        }
    }
    let mut found = BTreeSet::new();
    collect_sections(&schema, "", &mut found);
    assert_eq!(found, known);
}

#[test]
fn every_section_of_the_schema_is_compared_with_the_reader() {
    let mut found = BTreeSet::new();
    collect_sections(&schema(), "", &mut found);
    let compared = SECTIONS.iter().map(|(pointer, _)| *pointer);
    let compared = words(compared.chain([NODE]).chain(CATCHES.iter().copied()));
    assert_eq!(found, compared);
}

/// Every constant of the reader with the keys of a section is in the table above.
#[test]
fn every_section_of_the_reader_is_compared_with_the_schema() {
    let here = include_str!("tests.rs");
    let mut calls = 0;
    for (path, source) in sources() {
        for (at, _) in source.match_indices("Section::read(") {
            let arguments = &source[at + "Section::read".len()..];
            let keys = last_argument(arguments);
            calls += 1;
            let compared = keys == "KEYS" || keys.ends_with("_KEYS") && here.contains(keys);
            // The keys of a node are those of its kind and `COMMON`; those of a `parallel` are some
            // of them. `known` are the keys of an item, which a kind gives.
            let of_a_node = ["&known", "known", "PARALLEL_KEYS"].contains(&keys);
            // An answer of a person has one key, which is compared with the other keys of answers.
            let of_a_node = of_a_node || keys == r#"&["answer"]"#;
            assert!(
                compared || of_a_node,
                "{}: give the keys `{keys}` a constant `…_KEYS`, and the table of \
                 `workflow/format/tests.rs` a row with it",
                path.display()
            );
        }
    }
    assert!(calls > 10, "only {calls} calls were found");
}

#[test]
fn every_key_has_a_hover_text() {
    for schema in [schema(), cases_json_schema()] {
        let mut sections = BTreeSet::new();
        collect_sections(&schema, "", &mut sections);
        for pointer in sections {
            let section = schema.pointer(&pointer).unwrap();
            for (key, value) in section["properties"].as_object().unwrap() {
                let about = value["description"].as_str().unwrap_or_default();
                assert!(about.ends_with('.'), "`{key}` at {pointer}: {about:?}");
            }
        }
    }
}

/// With `oneOf` by kind of node, a language server marks the wrong key.
#[test]
fn the_schema_is_flat() {
    let text = format!("{}{}", schema(), cases_json_schema());
    for word in ["oneOf", "anyOf", "allOf", "$ref", "null"] {
        assert!(!text.contains(&format!("\"{word}\"")), "{word}");
    }
}

fn collect_sections(schema: &Value, pointer: &str, found: &mut BTreeSet<String>) {
    let Value::Object(keywords) = schema else { return };
    if keywords.contains_key("properties") {
        found.insert(pointer.to_owned());
    }
    for (keyword, value) in keywords {
        let pointer = format!("{pointer}/{keyword}");
        match (keyword.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                for (key, value) in properties {
                    collect_sections(value, &format!("{pointer}/{key}"), found);
                }
            }
            ("items" | "additionalProperties" | "then", value) => {
                collect_sections(value, &pointer, found);
            }
            _ => (),
        }
    }
}

/// The sources of `workflow` but these.
fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::from("src")];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("format") {
                open.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                found.push((path.clone(), fs::read_to_string(path).unwrap()));
            }
        }
    }
    found
}

/// The last argument of a call, from its opening parenthesis on.
fn last_argument(call: &str) -> &str {
    let (mut depth, mut start) = (0, 0);
    for (at, char) in call.char_indices() {
        match char {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 1 => start = at + 1,
            _ => (),
        }
        if depth == 0 {
            return call[start..at].trim();
        }
    }
    ""
}
