//! Small values that fit a JSON Schema: whole values, and the missing parts of a value.
//!
//! Tests use them for unspecified values, and so does the trial of outcomes. The result is checked against
//! the schema, so an unsupported keyword ends in an error that names it, never in a value that does not fit.

mod scalar;

use std::cell::Cell;

use serde_json::{Map, Value};

use self::scalar::{count, number, text, whole_number};

/// The maximum depth of a schema; a deeper one refers to itself.
const DEPTH_MAX: usize = 24;
/// The maximum length of a generated text or list.
const LENGTH_MAX: usize = 4_096;
/// The maximum number of parts that are generated or tried.
const PARTS_MAX: usize = 100_000;

/// Returns the smallest value that this module can find for a schema: empty texts and lists, zero, the first
/// value of an enum, only the required fields.
///
/// ```
/// use graphrun_core::state::smallest;
/// use serde_json::json;
///
/// let id = json!({"type": "string", "pattern": "^CODE-[0-9]{3}$"});
/// assert_eq!(smallest(&id), Ok(json!("CODE-000")));
/// ```
///
/// # Errors
///
/// Describes the part of the schema that it could not satisfy.
pub fn smallest(schema: &Value) -> Result<Value, String> {
    let value = Sampling::of(schema).make(schema, 0)?;
    fits(schema, &value)?;
    Ok(value)
}

/// Adds the missing required parts to a value, at any depth.
///
/// `may_guess` gets the path of every field that is about to be added. If it returns false, the path is
/// listed instead. The result is not checked: the given parts of the value may not fit.
///
/// # Errors
///
/// Describes the part of the schema that it could not satisfy.
pub fn complete(
    schema: &Value,
    value: Value,
    may_guess: &mut dyn FnMut(&[String]) -> bool,
) -> Result<Value, String> {
    Sampling::of(schema).complete(schema, value, &mut Vec::new(), may_guess)
}

/// A schema whose references point into a root.
struct Sampling<'a> {
    root: &'a Value,
    /// The number of parts that may still be generated or tried.
    parts_left: Cell<usize>,
}

impl<'a> Sampling<'a> {
    fn of(root: &'a Value) -> Self {
        Self { root, parts_left: Cell::new(PARTS_MAX) }
    }

    fn spend(&self, parts: usize) -> Result<(), String> {
        let left = self.parts_left.get().checked_sub(parts);
        self.parts_left.set(left.ok_or_else(|| {
            format!("a value that fits has, or may have, more than {PARTS_MAX} parts")
        })?);
        Ok(())
    }

    fn make(&self, schema: &'a Value, depth: usize) -> Result<Value, String> {
        self.spend(1)?;
        if depth > DEPTH_MAX {
            return Err("the schema refers to itself without an end".to_owned());
        }
        let Value::Object(object) = self.target(schema)? else { return Ok(Value::Null) };
        if let Some(value) = object.get("const").or(object.get("default")) {
            return Ok(value.clone());
        }
        if let Some(Value::Array(values)) = object.get("enum") {
            return values.first().cloned().ok_or_else(|| "an enum has no value".to_owned());
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Value::Array(options)) = object.get(key) {
                return self.make_first(options, depth);
            }
        }
        if let Some(Value::Array(parts)) = object.get("allOf") {
            return self.make_all(object, parts, depth);
        }
        match type_of(object) {
            Some("boolean") => Ok(Value::Bool(false)),
            Some("integer") => whole_number(object),
            Some("number") => number(object),
            Some("string") => text(object),
            Some("array") => self.list(object, depth),
            Some("object") => self.object(object, depth),
            _ => Ok(Value::Null),
        }
    }

    /// Returns null where it is allowed, else a value for the first satisfiable option.
    fn make_first(&self, options: &'a [Value], depth: usize) -> Result<Value, String> {
        if options.iter().any(is_null) {
            return Ok(Value::Null);
        }
        let mut problem = "a choice has no options".to_owned();
        for option in options {
            match self.make(option, depth + 1) {
                Ok(value) => return Ok(value),
                Err(error) => problem = error,
            }
            self.spend(1)?;
        }
        Err(problem)
    }

    fn make_all(
        &self,
        object: &'a Map<String, Value>,
        parts: &'a [Value],
        depth: usize,
    ) -> Result<Value, String> {
        if let ([only], false) = (parts, object.contains_key("type")) {
            return self.make(only, depth + 1);
        }
        let mut whole = match type_of(object) {
            Some("object") => self.object(object, depth)?,
            _ => Value::Object(Map::new()),
        };
        for part in parts {
            match (&mut whole, self.make(part, depth + 1)?) {
                (Value::Object(whole), Value::Object(part)) => whole.extend(part),
                _ => return Err("`allOf` is met for records only".to_owned()),
            }
        }
        Ok(whole)
    }

    fn list(&self, object: &'a Map<String, Value>, depth: usize) -> Result<Value, String> {
        let length = count(object, "minItems");
        if length == 0 {
            return Ok(Value::Array(Vec::new()));
        }
        if length > LENGTH_MAX {
            return Err(format!("a list of {length} items is too long to make"));
        }
        let item = object.get("items").unwrap_or(&Value::Bool(true));
        let before = self.parts_left.get();
        let made = self.make(item, depth + 1)?;
        let parts = before - self.parts_left.get();
        self.spend(parts.saturating_mul(length - 1))?;
        Ok(Value::Array(vec![made; length]))
    }

    fn object(&self, object: &'a Map<String, Value>, depth: usize) -> Result<Value, String> {
        let mut made = Map::new();
        for (name, schema) in required(object) {
            made.insert(name.to_owned(), self.make(schema, depth + 1)?);
        }
        Ok(Value::Object(made))
    }

    fn complete(
        &self,
        schema: &'a Value,
        value: Value,
        path: &mut Vec<String>,
        may_guess: &mut dyn FnMut(&[String]) -> bool,
    ) -> Result<Value, String> {
        if path.len() > DEPTH_MAX {
            return Ok(value);
        }
        let Value::Object(object) = self.target(schema)? else { return Ok(value) };
        for key in ["anyOf", "oneOf"] {
            if let Some(Value::Array(options)) = object.get(key) {
                let mut others = options.iter().filter(|it| !is_null(it));
                return match (others.next(), others.next()) {
                    (Some(only), None) if !value.is_null() => {
                        self.complete(only, value, path, may_guess)
                    }
                    _ => Ok(value),
                };
            }
        }
        match value {
            Value::Object(fields) => {
                self.complete_fields(object, fields, path, may_guess).map(Value::Object)
            }
            Value::Array(items) => {
                let Some(item) = object.get("items") else { return Ok(Value::Array(items)) };
                let completed =
                    items.into_iter().map(|it| self.complete(item, it, path, may_guess));
                completed.collect::<Result<_, _>>().map(Value::Array)
            }
            other => Ok(other),
        }
    }

    fn complete_fields(
        &self,
        object: &'a Map<String, Value>,
        mut fields: Map<String, Value>,
        path: &mut Vec<String>,
        may_guess: &mut dyn FnMut(&[String]) -> bool,
    ) -> Result<Map<String, Value>, String> {
        for (name, value) in &mut fields {
            let Some(schema) = object.get("properties").and_then(|it| it.get(name)) else {
                continue;
            };
            path.push(name.clone());
            let whole = self.complete(schema, value.take(), path, may_guess);
            path.pop();
            *value = whole?;
        }
        for (name, schema) in required(object) {
            if fields.contains_key(name) {
                continue;
            }
            path.push(name.to_owned());
            let may = may_guess(path);
            path.pop();
            if may {
                let made = self.make(schema, path.len()).map_err(|it| format!("{name}: {it}"))?;
                fields.insert(name.to_owned(), made);
            }
        }
        Ok(fields)
    }

    /// Returns the schema behind references.
    fn target(&self, mut schema: &'a Value) -> Result<&'a Value, String> {
        for _ in 0..DEPTH_MAX {
            let Some(reference) = schema.get("$ref").and_then(Value::as_str) else {
                return Ok(schema);
            };
            let found = reference.strip_prefix('#').and_then(|it| self.root.pointer(it));
            schema = found.ok_or_else(|| format!("the reference `{reference}` leads nowhere"))?;
        }
        Err("a reference leads to itself".to_owned())
    }
}

/// Checks the generated value against the schema itself.
fn fits(schema: &Value, value: &Value) -> Result<(), String> {
    let validator = super::validator_for(schema).map_err(|error| error.to_string())?;
    match validator.iter_errors(value).next() {
        Some(error) => Err(format!("no value was found that fits: {error}")),
        None => Ok(()),
    }
}

/// Returns the required fields, each with its schema.
fn required(object: &Map<String, Value>) -> impl Iterator<Item = (&str, &Value)> {
    let names = object.get("required").and_then(Value::as_array).into_iter().flatten();
    let properties = object.get("properties");
    names.filter_map(Value::as_str).map(move |name| {
        (name, properties.and_then(|it| it.get(name)).unwrap_or(&Value::Bool(true)))
    })
}

fn is_null(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("null")
}

/// Returns the type of a schema; null if that is one of several.
fn type_of(object: &Map<String, Value>) -> Option<&str> {
    match object.get("type")? {
        Value::String(name) => Some(name),
        Value::Array(names) => {
            let mut names = names.iter().filter_map(Value::as_str);
            if names.clone().any(|it| it == "null") { Some("null") } else { names.next() }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bounds_are_met() {
        let cases = [
            (json!({"type": "integer", "minimum": 3}), json!(3)),
            (json!({"type": "integer", "exclusiveMinimum": 3}), json!(4)),
            (json!({"type": "integer", "maximum": -2}), json!(-2)),
            (json!({"type": "number", "minimum": 0.5}), json!(0.5)),
            (json!({"type": "string", "minLength": 3}), json!("xxx")),
            (json!({"type": "string", "pattern": "^(US|TC)-[0-9]{2,4}[a-z]*$"}), json!("US-00")),
            (json!({"type": "string", "format": "date"}), json!("2000-01-01")),
            (
                json!({"type": "array", "items": {"enum": ["b", "a"]}, "minItems": 2}),
                json!(["b", "b"]),
            ),
            (json!({"type": ["string", "null"]}), json!(null)),
            (json!({"oneOf": [{"const": "a"}, {"const": "b"}]}), json!("a")),
            (json!({"type": "boolean", "default": true}), json!(true)),
            (json!({}), json!(null)),
        ];
        for (schema, expected) in cases {
            assert_eq!(smallest(&schema), Ok(expected), "{schema}");
        }
    }

    #[test]
    fn unsatisfiable_schemas_are_reported() {
        let tree = json!({"$ref": "#/$defs/T", "$defs": {"T": {"type": "object",
            "required": ["t"], "properties": {"t": {"$ref": "#/$defs/T"}}}}});
        let lists = json!({"type": "array", "minItems": 4000, "items":
            {"type": "array", "minItems": 4000, "items": {"type": "string"}}});
        let part = json!({"type": "object", "required": ["t"],
            "properties": {"t": {"$ref": "#"}}});
        let choices = json!({"anyOf": [part, part, part]});
        let cases = [
            (json!({"type": "integer", "multipleOf": 7, "minimum": 1}), "not a multiple"),
            (
                json!({"type": "array", "items": {"type": "null"}, "minItems": 2, "uniqueItems": true}),
                "no value was found that fits",
            ),
            (tree, "refers to itself"),
            (json!({"type": "string", "minLength": 1_000_000}), "too long"),
            (lists, "more than 100000 parts"),
            (choices, "more than 100000 parts"),
        ];
        for (schema, expected) in cases {
            let problem = smallest(&schema).unwrap_err();
            assert!(problem.contains(expected), "{schema}: {problem}");
        }
    }

    #[test]
    fn a_value_is_completed_unless_guessing_is_refused() {
        let schema = json!({
            "type": "object", "required": ["verdict", "note", "items"],
            "properties": {
                "verdict": {"enum": ["yes", "no"]},
                "note": {"type": "string"},
                "items": {"type": "array", "items": {
                    "type": "object", "required": ["id", "size"],
                    "properties": {"id": {"type": "string"}, "size": {"type": "integer"}}}},
            },
        });
        let mut refused = Vec::new();
        let mut may_guess = |path: &[String]| {
            let may = path != ["verdict"];
            if !may {
                refused.push(path.join("."));
            }
            may
        };
        let value = complete(&schema, json!({"items": [{"id": "a"}]}), &mut may_guess).unwrap();
        assert_eq!(value, json!({"items": [{"id": "a", "size": 0}], "note": ""}));
        assert_eq!(refused, ["verdict"]);
    }
}
