//! The parts of the schema of an argument that are no part of its type, such as the length of a text: a constant is checked
//! against them when the workflow is loaded.

use graphrun_core::{
    diagnostic::Diagnostic,
    state::{schema_problem, validator_for},
};
use graphrun_workflow::{
    kind::{Entry, NodeReader},
    tool::ToolSignature,
};
use jsonschema::error::ValidationErrorKind;
use serde_json::{Map, Value, json};

/// The keys of a schema to which others refer.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// Reports a constant argument that does not fit its schema.
pub(super) fn check_constant(
    reader: &mut NodeReader<'_>,
    tool: &ToolSignature,
    Entry { key, value: yaml }: &Entry,
    value: &Value,
) {
    let Some(problem) = problem_of(&tool.input, &key.text, value) else { return };
    let message = format!("the argument `{}` does not fit `{}`: {problem}", key.text, tool.name);
    let span = reader.report().span(&yaml.range);
    let diagnostic = Diagnostic::error("GR114", message).at(span, "refused in each run");
    reader.report().push(diagnostic.help("change the value, or the schema of the tool"));
}

/// Returns why an argument does not fit the schema of the input.
fn problem_of(input: &Value, name: &str, value: &Value) -> Option<String> {
    let property = input.get("properties")?.get(name)?;
    let known = |key: &&str| input.get(key).map(|it| ((*key).to_owned(), it.clone()));
    let mut schema: Map<String, Value> = DEFINITIONS.iter().filter_map(known).collect();
    schema.insert("allOf".to_owned(), json!([property]));
    let schema = Value::from(schema);
    // A schema that refers to the whole input cannot be used alone, and is left to the run.
    if schema.to_string().contains(r##""$ref":"#""##) {
        return None;
    }
    let validator = validator_for(&schema).ok()?;
    let decides = |error: &jsonschema::ValidationError<'_>| {
        !matches!(
            error.kind(),
            ValidationErrorKind::BacktrackLimitExceeded { .. }
                | ValidationErrorKind::RegexEngineFailure { .. }
        )
    };
    let error = validator.iter_errors(value).find(decides)?;
    Some(schema_problem(&error))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_constant_is_checked_against_the_whole_schema() {
        let input = json!({
            "$defs": { "Name": { "type": "string", "maxLength": 3 } },
            "properties": {
                "name": { "$ref": "#/$defs/Name" },
                "code": { "type": "string", "pattern": "^[A-Z]+$" },
                "tags": { "type": "array", "minItems": 1, "items": { "minLength": 1 } },
                "whole": { "$ref": "#" },
            },
        });
        let fits = |name, value: Value| problem_of(&input, name, &value).is_none();
        assert!(
            fits("name", json!("abc")) && fits("code", json!("AB")) && fits("tags", json!(["a"]))
        );
        assert!(!fits("name", json!("abcd")) && !fits("code", json!("ab")));
        assert!(!fits("tags", json!([])));
        assert!(fits("other", json!("x")) && fits("whole", json!("x")));
        let problem = problem_of(&input, "tags", &json!(["a", ""])).unwrap();
        assert!(problem.starts_with("/1: "), "{problem}");
    }
}
