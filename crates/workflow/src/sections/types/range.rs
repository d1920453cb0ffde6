//! The ranges of numbers: `min` and `max`.

use graphrun_core::state::Type;
use serde_json::{Number, Value};

use super::{RANGE_KEYS, TypeReader, value_of};
use crate::source::reader::{Entry, SpannedText, Yaml};

impl<'y> TypeReader<'_, 'y> {
    /// Adds `min` and `max` of a specification to the schema of its type. Of two ranges the narrower one applies, so a
    /// use of a named type never widens it.
    pub(super) fn restrict(&mut self, schema: &mut Value, spec: &'y Yaml) -> Option<()> {
        let mut keys = Vec::new();
        for Entry { key, value } in spec.entries() {
            if !RANGE_KEYS.contains(&key.text.as_str()) {
                continue;
            }
            if let Some(file) = spec.get("schema") {
                let file = file.text().unwrap_or_default();
                let message = format!("`{file}` defines the values of this field already");
                self.report.bad_value(key, message, "write `minimum` and `maximum` there");
                return None;
            }
            let number = self.end_of_range(key, value, &Type::of_schema(schema))?;
            let is_min = key.text == "min";
            let part = number_part(schema)?;
            let (name, is_narrower): (_, fn(f64, f64) -> bool) = if is_min {
                ("minimum", |new, old| new > old)
            } else {
                ("maximum", |new, old| new < old)
            };
            let old = part.get(name).and_then(Value::as_f64);
            if old.is_none_or(|old| number.as_f64().is_some_and(|new| is_narrower(new, old))) {
                part.insert(name.to_owned(), number.into());
            }
            keys.push(key);
        }
        let range = Type::of_schema(schema).required().range().unwrap_or_default();
        if let (Some(key), Some(min), Some(max)) = (keys.last(), range.min, range.max)
            && min > max
        {
            let message = format!("no number is at least {min} and at most {max}");
            self.report.bad_value(key, message, "exchange the two, or remove one");
            return None;
        }
        Some(())
    }

    fn end_of_range(&mut self, key: &SpannedText, value: &Yaml, ty: &Type) -> Option<Number> {
        let what = &key.text;
        if !ty.required().is_number() {
            let message = format!("`{what}` is for numbers, and this type is `{ty}`");
            self.report.bad_value(key, message, "remove it, or write `int` or `float`");
            return None;
        }
        let wanted = match ty.required() {
            Type::Int(_) => "a whole number",
            _ => "a number",
        };
        if value.text().is_some_and(is_endless) {
            let message = format!("`{what}` is {wanted}, and `{}` is none", value.text()?);
            let help = format!("remove `{what}` if the numbers have no such bound");
            self.report.bad_value(&value.word()?, message, &help);
            return None;
        }
        let is_plain = value.text().is_some();
        let number = if is_plain { value_of(self.report, value, ty)? } else { Value::Null };
        let is_whole = |it: &Number| it.is_i64() || it.is_u64();
        match number {
            Value::Number(it) if matches!(ty.required(), Type::Float(_)) || is_whole(&it) => {
                Some(it)
            }
            _ => {
                self.report.wrong_kind(value, &format!("`{what}`"), wanted);
                None
            }
        }
    }
}

/// Returns whether a text is how YAML writes no number, or an infinite one.
pub(super) fn is_endless(text: &str) -> bool {
    matches!(
        text.trim_start_matches(['+', '-']).to_ascii_lowercase().as_str(),
        ".nan" | ".inf" | "nan" | "inf" | "infinity"
    )
}

/// Returns the part of the schema of a number, or of an optional one, that describes the number. A name may stand for an optional
/// type already.
fn number_part(schema: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    if schema.get("anyOf").is_none() {
        return schema.as_object_mut();
    }
    number_part(schema.get_mut("anyOf")?.get_mut(0)?)
}
