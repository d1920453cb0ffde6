use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

/// Returns the schema of the format without the keys of kinds.
fn schema() -> Value {
    schema_of::<WorkflowKeys>()
}

/// The keys of fields with another name than the field, and those of a flattened struct, are keys like all others.
#[test]
fn the_reader_takes_the_keys_of_the_schema() {
    let schema = schema();
    let of_agents = &schema["properties"]["agents"]["additionalProperties"]["properties"];
    let described: Vec<&String> = of_agents.as_object().unwrap().keys().collect();
    assert_eq!(AgentKeys::keys(), described);
    for key in ["model", "in", "temperature", "extra_body"] {
        assert!(AgentKeys::keys().contains(&key), "{key}");
    }
    assert_eq!(JoinKeys::keys(), ["of", "count", "any"]);
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
