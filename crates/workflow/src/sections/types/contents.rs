//! The contents of files, which no text shows.

use std::borrow::Cow;

use graphrun_core::state::Type;
use serde_json::Value;

use super::file_type;

/// The part of a file that has its content.
pub(crate) const CONTENT: &str = "data";

/// Returns whether a type is that of a file.
pub(crate) fn is_file(ty: &Type) -> bool {
    *ty.required() == file_type()
}

/// Returns whether values of a type may contain files.
pub(crate) fn holds_files(ty: &Type) -> bool {
    match ty.required() {
        Type::List(item) | Type::Map(item) => holds_files(item),
        Type::Record(record) => is_file(ty) || record.fields.iter().any(|it| holds_files(&it.ty)),
        _ => false,
    }
}

/// Returns a value of a type with the names and media types of its files, and without their contents.
pub(crate) fn without_contents<'v>(value: &'v Value, ty: &Type) -> Cow<'v, Value> {
    if holds_files(ty) { Cow::Owned(shown(value, ty)) } else { Cow::Borrowed(value) }
}

fn shown(value: &Value, ty: &Type) -> Value {
    let ty = ty.required();
    match (ty, value) {
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
