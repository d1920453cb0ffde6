//! The type of files, and how a text shows values: files without their contents, and whole numbers without a point.

use std::{borrow::Cow, sync::LazyLock};

use graphrun_core::state::{Type, with_whole_numbers};
use serde_json::{Value, json};

/// The name of the type of files.
pub const FILE: &str = "file";

/// The part of a file that has its content.
pub const CONTENT: &str = "data";

/// Returns the type of a file: its name, its media type, and its content in base64.
pub fn file_type() -> Type {
    static FILE_TYPE: LazyLock<Type> = LazyLock::new(|| Type::of_schema(&file_schema()));
    FILE_TYPE.clone()
}

/// Returns the JSON Schema of a file.
pub fn file_schema() -> Value {
    json!({
        "type": "object",
        "title": FILE,
        "properties": {
            "name": {"type": "string"},
            "media_type": {"type": "string"},
            "data": {"type": "string", "contentEncoding": "base64"},
        },
        "required": ["name", "media_type", "data"],
        "additionalProperties": false,
    })
}

/// Returns whether a type is that of a file.
pub fn is_file(ty: &Type) -> bool {
    *ty.required() == file_type()
}

/// Returns whether values of a type may contain files.
pub fn holds_files(ty: &Type) -> bool {
    match ty.required() {
        Type::List(item) | Type::Map(item) => holds_files(item),
        Type::Record(record) => is_file(ty) || record.fields.iter().any(|it| holds_files(&it.ty)),
        _ => false,
    }
}

/// Returns a value of a type as a text shows it.
///
/// Of files, there are the names and media types. JSON may write a whole number as `1.0`, and a template would take that
/// for a float.
pub fn as_shown<'v>(value: &'v Value, ty: &Type) -> Cow<'v, Value> {
    let is_other = holds_files(ty) || has_pointed_integer(value, ty);
    if is_other { Cow::Owned(shown(value, ty)) } else { Cow::Borrowed(value) }
}

/// Returns whether a whole number of the type is written with a point.
fn has_pointed_integer(value: &Value, ty: &Type) -> bool {
    match (ty.required(), value) {
        (Type::Int(_), Value::Number(number)) => number.is_f64(),
        (Type::List(item), Value::Array(items)) if may_hold_integers(item) => {
            items.iter().any(|it| has_pointed_integer(it, item))
        }
        (Type::Map(item), Value::Object(items)) if may_hold_integers(item) => {
            items.values().any(|it| has_pointed_integer(it, item))
        }
        (Type::Record(record), Value::Object(fields)) => record.fields.iter().any(|field| {
            fields.get(&field.name).is_some_and(|it| has_pointed_integer(it, &field.ty))
        }),
        _ => false,
    }
}

fn may_hold_integers(ty: &Type) -> bool {
    match ty.required() {
        Type::Int(_) => true,
        Type::List(item) | Type::Map(item) => may_hold_integers(item),
        Type::Record(record) => record.fields.iter().any(|it| may_hold_integers(&it.ty)),
        _ => false,
    }
}

fn shown(value: &Value, ty: &Type) -> Value {
    let ty = ty.required();
    match (ty, value) {
        (Type::Int(_), Value::Number(_)) => with_whole_numbers(value),
        (Type::List(item), Value::Array(items)) => items.iter().map(|it| shown(it, item)).collect(),
        (Type::Map(item), Value::Object(items)) => {
            items.iter().map(|(key, it)| (key.clone(), shown(it, item))).collect()
        }
        (Type::Record(_), Value::Object(fields)) if is_file(ty) => {
            let parts = fields.iter().filter(|(name, _)| *name != CONTENT);
            parts.map(|(name, it)| (name.clone(), it.clone())).collect()
        }
        (Type::Record(_), Value::Object(fields)) => {
            let of = |(name, value): (&String, &Value)| {
                let field = ty.field(name);
                (name.clone(), field.map_or_else(|| value.clone(), |it| shown(value, it)))
            };
            fields.iter().map(of).collect()
        }
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use graphrun_core::state::NumberRange;

    use super::*;

    #[test]
    fn a_whole_number_is_shown_without_a_point() {
        let list = |item: Type| Type::List(item.into());
        let map = |item: Type| Type::Map(item.into());
        let float = Type::Float(NumberRange::default());
        for (ty, value, expected) in [
            (Type::INT, json!(1.0), json!(1)),
            (Type::INT.optional(), json!(-0.0), json!(0)),
            (list(Type::INT), json!([1, 2.0]), json!([1, 2])),
            (map(list(Type::INT)), json!({"a": [3.0]}), json!({"a": [3]})),
            (list(float), json!([1.0]), json!([1.0])),
            (Type::Any, json!(1.0), json!(1.0)),
        ] {
            assert_eq!(*as_shown(&value, &ty), expected, "{ty}");
        }
        let value = json!([1, 2]);
        assert!(matches!(as_shown(&value, &list(Type::INT)), Cow::Borrowed(_)));
    }
}
