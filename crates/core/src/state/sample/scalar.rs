//! Small numbers and texts that fit a JSON Schema.

use regex_syntax::{
    Parser,
    hir::{Class, Hir, HirKind},
};
use serde_json::{Map, Number, Value};

use super::LENGTH_MAX;

/// Returns the value of a keyword with a count, or 0 without the keyword.
pub(super) fn count(object: &Map<String, Value>, key: &str) -> usize {
    object
        .get(key)
        .and_then(Value::as_u64)
        .map_or(0, |it| usize::try_from(it).unwrap_or(usize::MAX))
}

/// Returns the whole number nearest to zero within the bounds.
pub(super) fn whole_number(object: &Map<String, Value>) -> Result<Value, String> {
    let bound = |key: &str| object.get(key).and_then(Value::as_f64);
    let above = bound("minimum").map(f64::ceil);
    let above = above.or(bound("exclusiveMinimum").map(|it| it.floor() + 1.0));
    let below = bound("maximum").map(f64::floor);
    let below = below.or(bound("exclusiveMaximum").map(|it| it.ceil() - 1.0));
    let nearest = 0.0_f64.max(above.unwrap_or(f64::MIN)).min(below.unwrap_or(f64::MAX));
    format!("{nearest:.0}")
        .parse::<i64>()
        .map(|it| Value::Number(Number::from(it)))
        .map_err(|_| "a whole number is out of range".to_owned())
}

pub(super) fn number(object: &Map<String, Value>) -> Result<Value, String> {
    let bound = |key: &str| object.get(key).and_then(Value::as_f64);
    let above =
        bound("minimum").or(bound("exclusiveMinimum").map(|it| it + it.abs().max(1.0) / 1e6));
    let below =
        bound("maximum").or(bound("exclusiveMaximum").map(|it| it - it.abs().max(1.0) / 1e6));
    let nearest = 0.0_f64.max(above.unwrap_or(f64::MIN)).min(below.unwrap_or(f64::MAX));
    let number = Number::from_f64(nearest).ok_or_else(|| "a number is out of range".to_owned())?;
    Ok(Value::Number(number))
}

pub(super) fn text(object: &Map<String, Value>) -> Result<Value, String> {
    if let Some(pattern) = object.get("pattern").and_then(Value::as_str) {
        return matching(pattern).map(Value::String);
    }
    let known = match object.get("format").and_then(Value::as_str) {
        Some("date") => Some("2000-01-01"),
        Some("date-time") => Some("2000-01-01T00:00:00Z"),
        Some("duration") => Some("PT0S"),
        Some("uuid") => Some("00000000-0000-0000-0000-000000000000"),
        Some("email") => Some("a@example.org"),
        Some("uri") => Some("https://example.org"),
        _ => None,
    };
    if let Some(known) = known {
        return Ok(Value::from(known));
    }
    match count(object, "minLength") {
        long if long > LENGTH_MAX => {
            Err(format!("a text of {long} characters is too long to make"))
        }
        length => Ok(Value::String("x".repeat(length))),
    }
}

/// Returns a short text that matches a pattern.
fn matching(pattern: &str) -> Result<String, String> {
    let parsed = Parser::new().parse(pattern);
    let parsed = parsed.map_err(|_| format!("the pattern `{pattern}` is not understood"))?;
    let mut text = String::new();
    write_match(&parsed, &mut text)
        .map(|()| text)
        .ok_or_else(|| format!("nothing was found that matches `{pattern}`"))
}

fn write_match(pattern: &Hir, text: &mut String) -> Option<()> {
    match pattern.kind() {
        HirKind::Empty | HirKind::Look(_) => (),
        HirKind::Literal(literal) => text.push_str(std::str::from_utf8(&literal.0).ok()?),
        HirKind::Class(Class::Unicode(class)) => text.push(class.ranges().first()?.start()),
        HirKind::Class(Class::Bytes(class)) => {
            text.push(char::from(class.ranges().first()?.start()));
        }
        HirKind::Repetition(repetition) => {
            for _ in 0..repetition.min {
                write_match(&repetition.sub, text)?;
                if text.len() > LENGTH_MAX {
                    return None;
                }
            }
        }
        HirKind::Capture(capture) => write_match(&capture.sub, text)?,
        HirKind::Concat(parts) => {
            for part in parts {
                write_match(part, text)?;
            }
        }
        HirKind::Alternation(options) => write_match(options.first()?, text)?,
    }
    Some(())
}
