//! Values of a workflow file, read as the types they are for.

use graphrun_core::state::Type;
use serde_json::Value;

use crate::source::{
    reader::{Data, Entry, Yaml},
    report::Report,
};

/// Reads a value of the file as a type.
pub(crate) fn value_of(report: &mut Report, yaml: &Yaml, ty: &Type) -> Option<Value> {
    Some(match &yaml.data {
        Data::Null => Value::Null,
        Data::List(items) => {
            let item_type = match ty.required() {
                Type::List(item) => item.as_ref(),
                _ => &Type::Any,
            };
            let items = items.iter().map(|it| value_of(report, it, item_type));
            Value::Array(items.collect::<Option<_>>()?)
        }
        Data::Map(entries) => {
            let field = |Entry { key, value }: &Entry| {
                let ty = ty.field(&key.text).unwrap_or(&Type::Any);
                Some((key.text.clone(), value_of(report, value, ty)?))
            };
            Value::Object(entries.iter().map(field).collect::<Option<_>>()?)
        }
        Data::Scalar { text, plain: false } => Value::String(text.clone()),
        Data::Scalar { text, plain: true } => match ty.required() {
            Type::String | Type::Enum(_) | Type::Date | Type::Duration => {
                Value::String(text.clone())
            }
            _ => return plain_value(report, yaml, text),
        },
    })
}

fn plain_value(report: &mut Report, yaml: &Yaml, text: &str) -> Option<Value> {
    const AMBIGUOUS: &[&str] = &["yes", "no", "on", "off", "y", "n"];
    if AMBIGUOUS.contains(&text.to_lowercase().as_str()) {
        let wanted = "`true`, `false`, or a text in quotes";
        report.wrong_kind(yaml, "this value", wanted);
        return None;
    }
    let value = match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => match text.replace('_', "").parse::<serde_json::Number>() {
            Ok(number) => Value::Number(number),
            Err(_) => Value::String(text.to_owned()),
        },
    };
    Some(value)
}
