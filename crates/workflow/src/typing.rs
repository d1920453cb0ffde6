//! The compatibility of types, for expressions and prompts.

use graphrun_core::state::{Field, Record, Type, is_date};

/// The values of an enum, and of an optional one.
pub fn values_of(ty: &Type) -> Option<&[String]> {
    match ty.required() {
        Type::Enum(values) => Some(values),
        _ => None,
    }
}

/// The type of `null`. No other type is optional without a type of its values.
pub(super) fn null() -> Type {
    Type::Optional(Box::new(Type::Any))
}

/// Whether a type is that of `null`.
pub(super) fn is_null(ty: &Type) -> bool {
    matches!(ty, Type::Optional(inner) if **inner == Type::Any)
}

/// Whether values of both types may be equal.
pub(super) fn comparable(a: &Type, b: &Type) -> bool {
    let text = |it: &Type| matches!(it, Type::String | Type::Enum(_));
    match (a, b) {
        (Type::Any, _) | (_, Type::Any) => true,
        // One duration has many spellings, so equality of the texts would be too strict.
        (Type::Duration, _) | (_, Type::Duration) => false,
        (Type::Date, Type::Enum(texts)) | (Type::Enum(texts), Type::Date) => {
            texts.iter().all(|it| is_date(it))
        }
        (Type::Enum(a), Type::Enum(b)) => a.iter().any(|it| b.contains(it)),
        (Type::List(a), Type::List(b)) | (Type::Map(a), Type::Map(b)) => comparable(a, b),
        (Type::Record(a), Type::Record(b)) => {
            let find = |record: &Record, name: &str| {
                record.fields.iter().find(|it| it.name == name).map(|it| it.ty.clone())
            };
            let agrees = |it: &Field, other: &Record| match find(other, &it.name) {
                Some(ty) => comparable(it.ty.required(), ty.required()),
                None => matches!(it.ty, Type::Optional(_)),
            };
            a.fields.iter().all(|it| agrees(it, b)) && b.fields.iter().all(|it| agrees(it, a))
        }
        (Type::Record(record), Type::Map(item)) | (Type::Map(item), Type::Record(record)) => {
            record.fields.iter().all(|it| comparable(it.ty.required(), item.required()))
        }
        (a, b) => a == b || (a.is_number() && b.is_number()) || (text(a) && text(b)),
    }
}

/// A type as shown in a message; the type of a literal text is shown as the text.
pub fn describe(ty: &Type) -> String {
    match ty {
        ty if is_null(ty) => "`null`".to_owned(),
        Type::Enum(values) if values.len() == 1 => format!("the text \"{}\"", values[0]),
        other => format!("`{other}`"),
    }
}
