//! The formats of texts that are checked as types: days and spans of time.

use std::sync::LazyLock;

use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp, tz::TimeZone};
use jsonschema::{
    JsonType, PatternOptions, ValidationError, ValidationOptions, Validator,
    error::{TypeKind, ValidationErrorKind},
};
use serde_json::Value;

use super::schema_size;
use crate::diagnostic::did_you_mean;

/// The largest compiled pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// The maximum number of backtracking steps in the match of a pattern with look-around.
const BACKTRACKS_MAX: usize = 100_000;
/// The most options that the problem of a value names.
const OPTIONS_MAX: usize = 40;

/// Returns a validator that also checks `format`, which JSON Schema alone treats as an annotation.
///
/// # Errors
///
/// Fails when the schema is invalid, or larger than the limit.
pub fn validator_for(schema: &Value) -> Result<Validator, ValidationError<'static>> {
    static OPTIONS: LazyLock<ValidationOptions<'static>> = LazyLock::new(|| {
        let patterns = PatternOptions::fancy_regex()
            .backtrack_limit(BACKTRACKS_MAX)
            .size_limit(PATTERN_BYTES_MAX);
        jsonschema::options()
            .should_validate_formats(true)
            .with_format("duration", is_duration)
            .with_pattern_options(patterns)
    });
    if let Err(reached) = schema_size(schema) {
        return Err(ValidationError::custom(format!("it is {reached}")));
    }
    OPTIONS.build(schema)
}

/// Returns the text of a problem with a value: its place in the value, and what does not fit there. A problem with the
/// whole value has no place.
pub fn schema_problem(error: &ValidationError<'_>) -> String {
    if let Some(problems) = problems_of_optional(error) {
        return problems.iter().map(schema_problem).collect::<Vec<_>>().join("; ");
    }
    let problem = match error.kind() {
        ValidationErrorKind::Enum { options } => no_option(error.instance(), options),
        _ => error.to_string(),
    };
    let path = error.instance_path().as_str();
    if path.is_empty() { problem } else { format!("{path}: {problem}") }
}

/// Returns the problem of a value that is none of these: with all of them, so that the next one can be right.
fn no_option(value: &Value, options: &Value) -> String {
    let options = options.as_array().map_or(&[][..], Vec::as_slice);
    let mut shown: Vec<String> = options.iter().take(OPTIONS_MAX).map(Value::to_string).collect();
    if options.len() > shown.len() {
        shown.push(format!("{} others", options.len() - shown.len()));
    }
    let last = shown.pop().unwrap_or_default();
    let or = if shown.is_empty() { "" } else { " or " };
    let meant = value.as_str().and_then(|it| {
        let meant = did_you_mean(it, options.iter().filter_map(Value::as_str))?;
        Some(format!("; did you mean {}?", Value::from(meant)))
    });
    format!("{value} is not one of {}{or}{last}{}", shown.join(", "), meant.unwrap_or_default())
}

/// Returns the problems of a value with the type of an optional one. That it is not absent either says nothing.
fn problems_of_optional<'a>(
    error: &'a ValidationError<'_>,
) -> Option<&'a [ValidationError<'static>]> {
    let ValidationErrorKind::AnyOf { context } = error.kind() else { return None };
    let is_null = |problems: &&Vec<ValidationError<'static>>| {
        let expects_null = |it: &ValidationError<'_>| {
            let ValidationErrorKind::Type { kind } = it.kind() else { return false };
            matches!(kind, TypeKind::Single(JsonType::Null))
        };
        problems.iter().any(expects_null)
    };
    let (absent, present): (Vec<_>, Vec<_>) = context.iter().partition(is_null);
    match (absent.as_slice(), present.as_slice()) {
        ([_], [problems]) => Some(problems),
        _ => None,
    }
}

/// Returns whether a text is a calendar day, such as `2026-01-31`.
pub fn is_date(text: &str) -> bool {
    // The parser accepts more forms, such as `20260131`, which do not sort like days.
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

/// Returns whether a text is a duration of fixed length, such as `PT90M` or `1h 30m`.
///
/// Months and years are refused: their length depends on their start.
pub fn is_duration(text: &str) -> bool {
    duration_of(text).is_some()
}

/// Returns the duration of a text of the type `duration`.
pub fn duration_of(text: &str) -> Option<SignedDuration> {
    let span: Span = text.parse().ok()?;
    span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()
}

/// Returns the moment of a text: the begin of a day in UTC, or a time with its offset, such as `2026-01-31T08:30:00Z`.
pub fn moment_of(text: &str) -> Option<Timestamp> {
    if !is_date(text) {
        return text.parse().ok();
    }
    let day: jiff::civil::Date = text.parse().ok()?;
    // Times end shortly before the last day.
    Some(day.to_zoned(TimeZone::UTC).map_or(Timestamp::MAX, |it| it.timestamp()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn problems_of_an_optional_value_are_those_of_its_type() {
        let file = json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}});
        let optional = json!({"properties": {"photo": {"anyOf": [file, {"type": "null"}]}}});
        let validator = validator_for(&optional).unwrap();
        let problem = |value| schema_problem(&validator.validate(&value).unwrap_err());
        assert_eq!(problem(json!({"photo": {}})), r#"/photo: "name" is a required property"#);
        let of_name = r#"/photo/name: 1 is not of type "string""#;
        assert_eq!(problem(json!({"photo": {"name": 1}})), of_name);
        // Of two types, neither is the one that was meant.
        let either =
            validator_for(&json!({"anyOf": [{"type": "string"}, {"minimum": 3}]})).unwrap();
        let problem = schema_problem(&either.validate(&json!(1)).unwrap_err());
        assert!(problem.contains("anyOf"), "{problem}");
    }

    #[test]
    fn the_problem_of_an_option_names_all_of_them_and_the_nearest() {
        let problem = |options: Value, value: Value| {
            let validator = validator_for(&json!({"items": {"enum": options}})).unwrap();
            schema_problem(&validator.validate(&json!([value])).unwrap_err())
        };
        let colours = json!(["red", "green", "blue", "black", null]);
        assert_eq!(
            problem(colours, json!("gren")),
            r#"/0: "gren" is not one of "red", "green", "blue", "black" or null; did you mean "green"?"#
        );
        assert_eq!(problem(json!([3]), json!(4)), "/0: 4 is not one of 3");
        let many: Value = (0..50).collect();
        assert!(problem(many, json!(99)).ends_with(", 38, 39 or 10 others"));
    }

    #[test]
    fn every_date_is_a_moment() {
        let of = |text: &str| moment_of(text).unwrap();
        assert!(of("0001-01-01") < of("2026-01-31") && of("2026-01-31") < of("9999-12-30"));
        assert!(of("9999-12-30") < of("9999-12-31"));
        assert_eq!(moment_of("2026-02-30"), None);
    }

    #[test]
    fn a_date_is_a_day_that_exists_in_one_spelling() {
        let is_valid =
            |text: &str| validator_for(&json!({"format": "date"})).unwrap().is_valid(&json!(text));
        for (text, expected) in [
            ("2026-01-31", true),
            ("2024-02-29", true),
            ("2026-02-29", false),
            ("2026-1-31", false),
            ("20260131", false),
            ("2026-01-31T00:00:00", false),
            ("tomorrow", false),
            ("", false),
        ] {
            assert_eq!(is_valid(text), expected, "{text}");
            assert_eq!(is_date(text), expected, "{text}");
        }
    }

    #[test]
    fn a_duration_has_a_fixed_length() {
        let validator = validator_for(&json!({"format": "duration"})).unwrap();
        for (text, expected) in [
            ("PT90M", true),
            ("P1DT2H", true),
            ("P2W", true),
            ("1h 30m", true),
            ("24h", true),
            ("P1M", false),
            ("1 year", false),
            ("90", false),
            ("soon", false),
        ] {
            assert_eq!(validator.is_valid(&json!(text)), expected, "{text}");
        }
    }
}
