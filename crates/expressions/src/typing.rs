//! The compatibility of types, for expressions and prompts.

use graphrun_core::state::{
    Absence, Field, NumberRange, OutOfRange, Record, ShownNumber, Type, is_date,
};

use crate::problem::suggestion;

/// Returns the values of an enum, and of an optional one.
pub fn values_of(ty: &Type) -> Option<&[String]> {
    match ty.required() {
        Type::Enum(values) => Some(values),
        _ => None,
    }
}

/// Returns the type of `null`. No other type is optional without a type of its values.
pub fn null() -> Type {
    Type::Optional(Box::new(Type::Any))
}

/// Returns whether a type is that of `null`.
pub fn is_null(ty: &Type) -> bool {
    matches!(ty, Type::Optional(inner) if **inner == Type::Any)
}

/// Returns whether values of both types may be equal.
pub fn comparable(a: &Type, b: &Type) -> bool {
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
            let agrees = |field: &Field, other: &Record| match find(other, &field.name) {
                Some(ty) => comparable(field.ty.required(), ty.required()),
                None => matches!(field.ty, Type::Optional(_)),
            };
            a.fields.iter().all(|it| agrees(it, b)) && b.fields.iter().all(|it| agrees(it, a))
        }
        (Type::Record(record), Type::Map(item)) | (Type::Map(item), Type::Record(record)) => {
            record.fields.iter().all(|it| comparable(it.ty.required(), item.required()))
        }
        (a, b) => a == b || (a.is_number() && b.is_number()) || (text(a) && text(b)),
    }
}

/// Why the values of a type cannot be assigned to a declared type.
#[derive(Debug)]
pub struct Misfit {
    /// The code of the diagnostic.
    pub code: &'static str,
    /// The message.
    pub message: String,
    /// The label of the place.
    pub label: &'static str,
    /// The advice, if there is any.
    pub help: Option<String>,
}

impl Misfit {
    /// Returns why values of a type do not [fit](Type::fits) a declared one. `what` receives them, and `source` is the
    /// expression that makes them.
    pub fn of(ty: &Type, declared: &Type, what: &str, source: &str) -> Self {
        if let (Some(given), Some(values)) = (values_of(ty), values_of(declared))
            && let Some(text) = given.iter().find(|it| !values.contains(it))
        {
            return Self {
                code: "GR023",
                message: format!("\"{text}\" is never a value of {what}"),
                label: "no such value",
                help: suggestion(text, values.iter().map(String::as_str)),
            };
        }
        if let Some(found) = ty.out_of_range(declared) {
            // An expression of a list or a record cannot be limited as a whole.
            let source = Some(source).filter(|it| ty.required().is_number() && !it.is_empty());
            return Self::of_range(&found, what, source);
        }
        Self {
            code: "GR022",
            message: format!("{what} is `{declared}`, and this is {}", describe(ty)),
            label: "another type",
            help: help(ty, declared),
        }
    }

    /// Returns why numbers are out of range. `source` is the expression that makes them.
    fn of_range(
        OutOfRange { path, found, declared }: &OutOfRange,
        what: &str,
        source: Option<&str>,
    ) -> Self {
        let what = match (path.is_empty(), what.strip_suffix('`')) {
            (true, _) => what.to_owned(),
            (false, Some(field)) => format!("{field}.{path}`"),
            (false, None) => format!("`{path}` of {what}"),
        };
        let is_one = found.min.is_some() && found.min == found.max;
        let found_numbers = match (found.min.map(ShownNumber), found.max.map(ShownNumber)) {
            _ if is_one => format!("is {found}"),
            (Some(min), None) => format!("may be {min} or more"),
            (None, Some(max)) => format!("may be up to {max}"),
            _ => format!("may be {found}"),
        };
        let message = format!("{what} takes {declared}, and this {found_numbers}");
        let help = if is_one {
            format!("write {}, or widen the range of {what}", worded(*declared))
        } else if let Some(source) = source {
            format!("write `{}`, or widen the range of {what}", clamped(source, *declared, *found))
        } else {
            format!("keep it in the range with `min` and `max`, or widen the range of {what}")
        };
        Self { code: "GR120", message, label: "out of range", help: Some(help) }
    }
}

/// Returns the advice for a record that differs from the declared one in further or in absent fields.
fn help(ty: &Type, declared: &Type) -> Option<String> {
    if ty.closed().fits(declared) {
        let help = "it may have further fields of any type: write a record of the declared fields";
        return Some(help.to_owned());
    }
    if ty.fits_cut(declared) {
        let field = ty.undeclared_field(declared)?;
        return Some(format!(
            "it has the field `{field}`, which is not declared: write a record without it"
        ));
    }
    let (field, absence) = ty.absent_field(declared)?;
    Some(match absence {
        Absence::Omitted => format!("its `{field}` may be omitted: write a record that has it"),
        Absence::Null | Absence::NullOrOmitted => {
            format!(
                "its `{field}` may be null: declare the type so, or write a record, which omits a null field"
            )
        }
    })
}

fn worded(range: NumberRange) -> String {
    match (range.min.map(ShownNumber), range.max.map(ShownNumber)) {
        (Some(min), Some(max)) if min.0 < max.0 => format!("a number from {min} to {max}"),
        (Some(min), None) => format!("a number from {min} on"),
        (None, Some(max)) => format!("a number up to {max}"),
        _ => range.to_string(),
    }
}

/// Returns an expression that keeps the numbers of another one in a range.
fn clamped(source: &str, range: NumberRange, found: NumberRange) -> String {
    let mut clamped = source.trim().to_owned();
    if let Some(max) = range.max.filter(|_| !range.includes_max_of(found)) {
        clamped = format!("min({clamped}, {})", ShownNumber(max));
    }
    if let Some(min) = range.min.filter(|_| !range.includes_min_of(found)) {
        clamped = format!("max({clamped}, {})", ShownNumber(min));
    }
    clamped
}

/// Returns a type as shown in a message; the type of a literal text is shown as the text.
pub fn describe(ty: &Type) -> String {
    match ty {
        ty if is_null(ty) => "`null`".to_owned(),
        Type::Enum(values) if values.len() == 1 => format!("the text \"{}\"", values[0]),
        other => format!("`{other}`"),
    }
}
