//! Values with parts at a path.

use serde_json::{Map, Value};

/// Returns a value with another one placed at a path; missing fields are completed later.
pub(super) fn placed(base: Option<Value>, path: &[String], value: Value) -> Value {
    let Some((first, rest)) = path.split_first() else { return value };
    let mut fields = match base {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let inner = fields.shift_remove(first);
    fields.insert(first.clone(), placed(inner, rest, value));
    Value::Object(fields)
}
