//! Schemas of answers: the form for the model, the form that a provider can force, and the check of answers.

use std::cell::Cell;

use graphrun_guard::redact::redact;
use serde_json::{Map, Value, json};

/// Longer messages of the schema check are cut; they quote the value that does not fit.
const MESSAGE_CHARS_MAX: usize = 300;

/// Returns the schema without its `readOnly` properties: these are computed, so the model is not asked for them.
///
/// ```
/// use serde_json::json;
///
/// let schema = json!({
///     "type": "object",
///     "properties": {"code": {"type": "string"}, "passed": {"type": "boolean", "readOnly": true}},
///     "required": ["code", "passed"]
/// });
/// let asked = graphrun_models::answer_schema(&schema);
/// assert_eq!(asked["required"], json!(["code"]));
/// assert!(asked["properties"].get("passed").is_none());
/// ```
pub fn answer_schema(schema: &Value) -> Value {
    let mut schema = schema.clone();
    prune(&mut schema);
    schema
}

fn prune(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    let mut pruned = Vec::new();
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        properties.retain(|name, property| {
            let computed = property.get("readOnly") == Some(&Value::Bool(true));
            if computed {
                pruned.push(name.clone());
            }
            !computed
        });
    }
    if let Some(Value::Array(required)) = object.get_mut("required") {
        required.retain(|name| !pruned.iter().any(|pruned| name == pruned));
    }
    each_subschema(object, &mut prune);
}

/// Returns the schema in the form that strict modes take, or `None` where it cannot be expressed (maps with free keys,
/// and values of any shape).
///
/// All keys are required and no others allowed; optional ones may be null instead. Keywords that providers reject are
/// moved into the description, so that the model still sees them.
pub fn strict_schema(schema: &Value) -> Option<Value> {
    let mut strict = schema.clone();
    make_strict(&mut strict)?;
    Some(strict)
}

/// Returns the instruction to answer by a schema, for a model that nothing else forces to do so.
pub fn answer_instruction(schema: &Value) -> String {
    format!(
        "Answer with one JSON value and nothing else: no explanation, no code fence. It must match this JSON \
         Schema:\n{schema:#}"
    )
}

/// Returns the schema of a tool's arguments in a form that every provider accepts: keywords that some reject are moved
/// into the description. Calls are still checked against the whole schema.
#[cfg(feature = "openai")]
pub(crate) fn tool_schema(schema: &Value) -> Value {
    fn describe(schema: &mut Value) {
        if let Some(object) = schema.as_object_mut() {
            describe_dropped(object);
            each_subschema(object, &mut describe);
        }
    }
    let mut schema = answer_schema(schema);
    describe(&mut schema);
    if let Some(object) = schema.as_object_mut() {
        // The type is required, even for a tool without arguments.
        object.entry("type").or_insert_with(|| "object".into());
        object.entry("properties").or_insert_with(|| json!({}));
    }
    schema
}

fn make_strict(schema: &mut Value) -> Option<()> {
    let object = schema.as_object_mut()?;
    // A reference cannot have siblings; the target has its own description.
    if let Some(reference) = object.get("$ref").cloned() {
        let definitions: Vec<_> = ["$defs", "definitions"]
            .iter()
            .filter_map(|name| Some((*name, object.remove(*name)?)))
            .collect();
        object.clear();
        object.insert("$ref".into(), reference);
        for (name, definition) in definitions {
            object.insert(name.into(), definition);
        }
    }
    describe_dropped(object);
    if let Some(branches) = object.remove("oneOf") {
        object.insert("anyOf".into(), branches);
    }
    if let Some(Value::Array(mut all)) = object.remove("allOf") {
        // Generators write one part to put a description beside a reference; several parts cannot be expressed.
        let part = (all.len() == 1).then(|| all.remove(0))?;
        object.extend(part.as_object()?.clone());
    }
    if let Some(constant) = object.remove("const") {
        object.insert("enum".into(), json!([constant]));
    }
    let values = object.get("enum").and_then(Value::as_array);
    if !object.contains_key("type") && values.is_some_and(|all| all.iter().all(Value::is_string)) {
        object.insert("type".into(), "string".into());
    }
    let is_object = object.get("type").and_then(Value::as_str) == Some("object");
    if is_object || object.contains_key("properties") {
        strict_object(object)?;
    }
    let says_something =
        ["type", "$ref", "anyOf", "enum"].iter().any(|name| object.contains_key(*name));
    if !says_something
        || (object.get("type") == Some(&json!("array")) && !object.contains_key("items"))
    {
        return None;
    }
    let mut result = Some(());
    each_subschema(object, &mut |inner| {
        if make_strict(inner).is_none() {
            result = None;
        }
    });
    result
}

fn strict_object(object: &mut Map<String, Value>) -> Option<()> {
    if object.get("additionalProperties").is_some_and(|extra| extra != &Value::Bool(false)) {
        return None;
    }
    object.insert("additionalProperties".into(), false.into());
    let required = object.remove("required").unwrap_or_default();
    let properties = object.get_mut("properties")?.as_object_mut()?;
    for (name, property) in &mut *properties {
        let is_required =
            required.as_array().is_some_and(|names| names.iter().any(|known| known == name));
        if !is_required && !admits_null(property) {
            *property = json!({"anyOf": [property.take(), {"type": "null"}]});
        }
    }
    let names = properties.keys().map(|name| Value::String(name.clone())).collect();
    object.insert("required".into(), Value::Array(names));
    Some(())
}

/// Keywords that strict modes of at least one provider reject.
const DROPPED: &[&str] = &[
    "format",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
];

/// Moves dropped keywords into the description, and removes those that mean nothing to a model.
fn describe_dropped(object: &mut Map<String, Value>) {
    let dropped: Vec<String> = DROPPED
        .iter()
        .filter_map(|name| Some(format!("{name}: {}", plain(&object.remove(*name)?))))
        .collect();
    object.retain(|name, _| {
        let kept = [
            "type",
            "properties",
            "required",
            "additionalProperties",
            "items",
            "anyOf",
            "oneOf",
            "allOf",
            "enum",
            "const",
            "description",
            "$ref",
            "$defs",
            "definitions",
        ];
        kept.contains(&name.as_str())
    });
    if !dropped.is_empty() {
        let dropped = format!("({})", dropped.join(", "));
        let description = match object.get("description").and_then(Value::as_str) {
            Some(description) => format!("{description} {dropped}"),
            None => dropped,
        };
        object.insert("description".into(), description.into());
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn admits_null(schema: &Value) -> bool {
    let is_null = |value: &Value| value == "null";
    match schema.get("type") {
        Some(Value::Array(types)) => types.iter().any(is_null),
        Some(one) => is_null(one),
        None => {
            let branches =
                ["anyOf", "oneOf"].iter().filter_map(|name| schema.get(*name)?.as_array());
            branches.flatten().any(admits_null)
                || schema
                    .get("enum")
                    .and_then(Value::as_array)
                    .is_some_and(|all| all.contains(&Value::Null))
        }
    }
}

fn each_subschema(object: &mut Map<String, Value>, visit: &mut dyn FnMut(&mut Value)) {
    for name in ["properties", "$defs", "definitions", "patternProperties"] {
        if let Some(Value::Object(schemas)) = object.get_mut(name) {
            schemas.values_mut().for_each(&mut *visit);
        }
    }
    for name in ["anyOf", "oneOf", "allOf", "prefixItems"] {
        if let Some(Value::Array(schemas)) = object.get_mut(name) {
            schemas.iter_mut().for_each(&mut *visit);
        }
    }
    for name in ["items", "additionalProperties"] {
        if let Some(schema @ Value::Object(_)) = object.get_mut(name) {
            visit(schema);
        }
    }
}

/// Checks answers against a schema and reports every problem.
#[derive(Debug)]
pub struct SchemaCheck {
    schema: Value,
    validator: jsonschema::Validator,
}

impl SchemaCheck {
    /// Prepares the check of a schema. The check does not expect `readOnly` properties in an answer.
    ///
    /// # Errors
    /// Returns the problem with the schema.
    pub fn new(schema: &Value) -> Result<Self, String> {
        let schema = answer_schema(schema);
        let validator = jsonschema::validator_for(&schema).map_err(|error| error.to_string())?;
        Ok(Self { schema, validator })
    }

    /// Returns every place of the answer that does not fit, as in `files[0].content: "x" is shorter than 10
    /// characters`.
    pub fn problems(&self, answer: &Value) -> Vec<String> {
        self.validator
            .iter_errors(answer)
            .map(|error| {
                let path = readable_path(error.instance_path().as_str());
                let message = error.to_string();
                let message: String = redact(&message).chars().take(MESSAGE_CHARS_MAX).collect();
                if path.is_empty() { message } else { format!("{path}: {message}") }
            })
            .collect()
    }

    /// Returns the answer if it fits: the check for [`StructuredChat`](super::StructuredChat) if there is only a
    /// schema.
    ///
    /// # Errors
    /// Returns all problems.
    pub fn check(&self, answer: Value) -> Result<Value, Vec<String>> {
        let problems = self.problems(&answer);
        if problems.is_empty() { Ok(answer) } else { Err(problems) }
    }

    /// Removes the nulls that strict modes write for omitted optional properties.
    pub(super) fn drop_placeholder_nulls(&self, answer: &mut Value) {
        let walk = Walk { root: &self.schema, visits_left: Cell::new(VISITS_MAX) };
        walk.drop_nulls(answer, &self.schema, NESTING_MAX);
    }
}

/// The depth to which schemas are followed. A definition that refers only to itself has no end.
const NESTING_MAX: u32 = 64;

/// The most pairs of a value and a schema that are visited. Alternatives that refer to each other double with each
/// level of the answer. A null that remains after the limit is a problem of the answer.
const VISITS_MAX: u32 = 1_000_000;

/// A walk through an answer and the schema beside it.
struct Walk<'a> {
    root: &'a Value,
    visits_left: Cell<u32>,
}

impl Walk<'_> {
    fn drop_nulls(&self, answer: &mut Value, schema: &Value, nesting: u32) {
        let (Some(nesting), Some(left)) =
            (nesting.checked_sub(1), self.visits_left.get().checked_sub(1))
        else {
            return;
        };
        self.visits_left.set(left);
        let schema = resolve(schema, self.root);
        for name in ["anyOf", "oneOf", "allOf"] {
            for branch in schema.get(name).and_then(Value::as_array).into_iter().flatten() {
                self.drop_nulls(answer, branch, nesting);
            }
        }
        match answer {
            Value::Object(object) => {
                let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
                    return;
                };
                let required = schema.get("required").and_then(Value::as_array);
                object.retain(|name, value| {
                    let Some(property) = properties.get(name).filter(|_| value.is_null()) else {
                        return true;
                    };
                    required.is_some_and(|names| names.iter().any(|known| known == name))
                        || admits_null(resolve(property, self.root))
                });
                for (name, value) in object {
                    if let Some(property) = properties.get(name) {
                        self.drop_nulls(value, property, nesting);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = schema.get("items") {
                    for item in items {
                        self.drop_nulls(item, schema, nesting);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Follows one reference into the same document. Generators write chains that end in a schema without a reference;
/// other schemas are left unchanged.
fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    schema
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|reference| root.pointer(reference.strip_prefix('#')?))
        .unwrap_or(schema)
}

/// Turns the pointer `/files/0/content` into `files[0].content`.
fn readable_path(pointer: &str) -> String {
    let mut path = String::new();
    for step in pointer.split('/').skip(1) {
        if step.bytes().all(|byte| byte.is_ascii_digit()) && !step.is_empty() {
            path.extend(["[", step, "]"]);
        } else {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&step.replace("~1", "/").replace("~0", "~"));
        }
    }
    path
}
