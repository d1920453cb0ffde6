//! Reads an answer by a JSON Schema, whose lenient parts accept forms with one meaning.

use serde_json::{Map, Number, Value};

use super::{
    LenientFields, LenientValue, ReadError, ReadLeniently, Reader, basic::read_list, quoted, shown,
};
use crate::state::part::{Part, resolve};

/// The keyword of a schema that makes its values, and all values in them, lenient.
pub const LENIENT: &str = "x-lenient";

/// Returns whether a part of a schema is lenient.
pub(in crate::state) fn is_lenient(schema: &Value) -> bool {
    match schema {
        Value::Object(object) => {
            object.get(LENIENT) == Some(&Value::Bool(true)) || object.values().any(is_lenient)
        }
        Value::Array(items) => items.iter().any(is_lenient),
        _ => false,
    }
}

/// Reads an answer by a schema. Outside of the parts with [`LENIENT`] it stays as it is.
///
/// In a lenient part, unknown fields are dropped, a word of an enum is recognised in any case and spacing, a number may be
/// a text, and a single value a list of one. A missing, null or unknown value becomes the `default` of its schema, or
/// null where that is allowed. The result is not checked further: ranges and patterns are left to the schema.
///
/// ```
/// use graphrun_core::state::read_by_schema;
/// use serde_json::json;
///
/// let schema = json!({
///     "type": "object",
///     "properties": {"verdict": {"enum": ["pass", "needs_work"]}, "score": {"type": "integer"}},
///     "required": ["verdict", "score"],
///     "x-lenient": true,
/// });
/// let answer = json!({"verdict": "Needs work.", "score": "7", "mood": "good"});
/// let reading = read_by_schema(&schema, answer).unwrap();
/// assert_eq!(reading.value, json!({"verdict": "needs_work", "score": 7}));
/// assert_eq!(reading.warnings.len(), 3);
/// ```
///
/// # Errors
///
/// Names every place of a lenient part where the answer has no meaning.
pub fn read_by_schema(schema: &Value, answer: Value) -> Result<LenientValue<Value>, ReadError> {
    let mut reader = Reader::default();
    let value = SchemaReader { root: schema }.read(schema, answer, &mut reader);
    reader.finish(value)
}

struct SchemaReader<'s> {
    root: &'s Value,
}

impl<'s> SchemaReader<'s> {
    /// Looks for the lenient parts.
    fn read(&self, schema: &'s Value, answer: Value, reader: &mut Reader) -> Value {
        let Some(Part { schema: part, is_optional }) = resolve(self.root, schema) else {
            return answer;
        };
        if part.get(LENIENT) == Some(&Value::Bool(true)) {
            return self.read_leniently(schema, Some(answer), reader);
        }
        match answer {
            Value::Null if is_optional => Value::Null,
            Value::Array(items) => {
                let Some(item) = part.get("items") else { return Value::Array(items) };
                read_list(Value::Array(items), reader, |it, reader| self.read(item, it, reader))
                    .into()
            }
            // A list of lenient values may be given as a single one.
            Value::Object(_) if part.get("items").is_some_and(|it| self.begins_lenient(it)) => {
                let item = &part["items"];
                read_list(answer, reader, |it, reader| self.read(item, it, reader)).into()
            }
            // A growing list takes an item as it is. The check refuses it for another list.
            Value::Object(_) if part.get("items").is_some() => {
                self.read(&part["items"], answer, reader)
            }
            Value::Object(fields) => {
                let read = |(name, value): (String, Value)| {
                    let value = match field(part, &name) {
                        Some(schema) => {
                            reader.inside(&name, |reader| self.read(schema, value, reader))
                        }
                        None => value,
                    };
                    (name, value)
                };
                fields.into_iter().map(read).collect::<Map<_, _>>().into()
            }
            other => other,
        }
    }

    fn begins_lenient(&self, schema: &'s Value) -> bool {
        let part = resolve(self.root, schema);
        part.is_some_and(|it| it.schema.get(LENIENT) == Some(&Value::Bool(true)))
    }

    /// Reads a value of a lenient part; `None` is an absent field.
    fn read_leniently(
        &self,
        schema: &'s Value,
        answer: Option<Value>,
        reader: &mut Reader,
    ) -> Value {
        let Some(part) = resolve(self.root, schema) else { return answer.unwrap_or_default() };
        let default = schema.get("default").or_else(|| part.schema.get("default"));
        let fallback = default.or(part.is_optional.then_some(&Value::Null));
        let takes_null = part.is_optional || part.schema.get("type").is_none();
        let answer = match answer {
            Some(Value::Null) if default.is_none() && takes_null => return Value::Null,
            Some(answer) if !answer.is_null() => answer,
            absent => {
                let got = if absent.is_some() { "null" } else { "nothing" };
                return or_fallback(fallback, got, "a value", reader);
            }
        };
        let part = part.schema;
        let ty = part.get("type").and_then(Value::as_str);
        let (read, wanted): (Option<Value>, String) = if let Some(words) = words(part) {
            let word = reader.word(&answer, &words).map(Value::from);
            (word, format!("one of {}", words.join(", ")))
        } else {
            match ty {
                Some("boolean") => {
                    (flag(&answer, reader).map(Value::from), "true or false".to_owned())
                }
                Some("integer") => {
                    (number(&answer, true, reader).map(Value::from), "a whole number".to_owned())
                }
                Some("number") => {
                    (number(&answer, false, reader).map(Value::from), "a number".to_owned())
                }
                Some("string") => return String::read(answer, reader).into(),
                _ => return self.read_inner(part, answer, reader),
            }
        };
        read.unwrap_or_else(|| or_fallback(fallback, &shown(&answer), &wanted, reader))
    }

    /// Reads a list, a record or a map of a lenient part.
    fn read_inner(&self, part: &'s Value, answer: Value, reader: &mut Reader) -> Value {
        match part.get("type").and_then(Value::as_str) {
            Some("array") => {
                let item = part.get("items");
                let read = |it, reader: &mut Reader| match item {
                    Some(item) => self.read_leniently(item, Some(it), reader),
                    None => it,
                };
                read_list(answer, reader, read).into()
            }
            Some("object") if part.get("properties").is_some() => {
                reader.object(answer, |fields| self.record(part, fields))
            }
            Some("object") => match (answer, part.get("additionalProperties")) {
                (Value::Object(values), Some(value @ Value::Object(_))) => {
                    let read = |(name, it): (String, Value)| {
                        let read =
                            |reader: &mut Reader| self.read_leniently(value, Some(it), reader);
                        (name.clone(), reader.inside(&name, read))
                    };
                    values.into_iter().map(read).collect::<Map<_, _>>().into()
                }
                (other, _) => other,
            },
            _ => answer,
        }
    }

    fn record(&self, part: &'s Value, fields: &mut LenientFields<'_>) -> Value {
        let required = part.get("required").and_then(Value::as_array);
        let is_required =
            |name: &str| required.is_some_and(|names| names.iter().any(|it| it == name));
        let mut values = Map::new();
        for (name, schema) in
            part.get("properties").and_then(Value::as_object).into_iter().flatten()
        {
            let has_default = schema.get("default").is_some();
            if !fields.has(name) && !is_required(name) && !has_default {
                continue;
            }
            let read = |answer, reader: &mut Reader| self.read_leniently(schema, answer, reader);
            values.insert(name.clone(), fields.take(name, read));
        }
        values.into()
    }
}

/// Returns the schema of a field of an object.
fn field<'s>(part: &'s Value, name: &str) -> Option<&'s Value> {
    let property = part.get("properties").and_then(|it| it.get(name));
    property.or_else(|| part.get("additionalProperties").filter(|it| it.is_object()))
}

/// Returns the words of an enum of texts.
fn words(part: &Value) -> Option<Vec<&str>> {
    part.get("enum")?.as_array()?.iter().map(Value::as_str).collect()
}

/// Returns the value in place of one without a meaning, with a warning, or refuses it.
fn or_fallback(fallback: Option<&Value>, got: &str, wanted: &str, reader: &mut Reader) -> Value {
    match fallback {
        Some(value) => {
            reader.warn(&format!("{wanted} was wanted, got {got}; it was read as {value}"));
        }
        None => reader.refuse(&format!("{wanted} is required, got {got}")),
    }
    fallback.cloned().unwrap_or_default()
}

/// Reads a yes or no without the fallback of [`Option<bool>`].
fn flag(answer: &Value, reader: &mut Reader) -> Option<bool> {
    match answer {
        Value::Bool(flag) => Some(*flag),
        other => reader.word(other, &["true", "false"]).map(|it| it == "true"),
    }
}

/// Reads a number, also as a text.
fn number(answer: &Value, is_whole: bool, reader: &mut Reader) -> Option<Number> {
    let number = match answer {
        Value::Number(number) => number.clone(),
        Value::String(text) => {
            let number = text.trim().parse().ok()?;
            reader.warn(&format!("the text {} was read as a number", quoted(text)));
            number
        }
        _ => return None,
    };
    let fits = !is_whole || number.as_f64().is_some_and(|it| it.fract() == 0.0);
    fits.then_some(number)
}
