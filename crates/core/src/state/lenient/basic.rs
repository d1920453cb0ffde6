//! Reads lists, texts, counts and flags.

use serde_json::Value;

use super::{
    super::measure::FLOAT_INT_END, ReadLeniently, Reader, kind, quoted, shown, unique_word,
};

/// A single element in place of a list becomes a list of one.
impl<T: ReadLeniently> ReadLeniently for Vec<T> {
    fn read(answer: Value, reader: &mut Reader) -> Self {
        read_list(answer, reader, T::read)
    }
}

/// Reads a list whose elements `read` reads.
pub(super) fn read_list<T>(
    answer: Value,
    reader: &mut Reader,
    read: impl Fn(Value, &mut Reader) -> T,
) -> Vec<T> {
    let elements = match answer {
        Value::Array(elements) => elements,
        Value::Null => {
            reader.warn("null was read as an empty list");
            return Vec::new();
        }
        Value::String(text) if text.trim().is_empty() => {
            reader.warn("a blank text was read as an empty list");
            return Vec::new();
        }
        single => {
            reader.warn(&format!("{} was read as a list of one", kind(&single)));
            vec![single]
        }
    };
    let places = 0..elements.len();
    places
        .zip(elements)
        .map(|(place, element)| {
            reader.inside(&format!("[{place}]"), |reader| read(element, reader))
        })
        .collect()
}

/// Null becomes an empty text, a list its lines, anything else its JSON.
impl ReadLeniently for String {
    fn read(answer: Value, reader: &mut Reader) -> Self {
        match answer {
            Value::String(text) => text,
            Value::Null => {
                reader.warn("null was read as an empty text");
                Self::new()
            }
            Value::Array(lines) if lines.iter().all(Value::is_string) => {
                reader.warn("a list was read as the lines of a text");
                lines.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
            }
            other => {
                reader.warn(&format!("{} was read as a text", kind(&other)));
                other.to_string()
            }
        }
    }
}

/// A whole number, also as a text; anything else becomes 0 with a warning.
impl ReadLeniently for u64 {
    fn read(answer: Value, reader: &mut Reader) -> Self {
        let (count, warning) = match &answer {
            Value::Number(number) => match number.as_u64().or_else(|| whole(number.as_f64()?)) {
                Some(count) => (count, None),
                None => (0, Some(format!("{number} is not a count; it was read as 0"))),
            },
            Value::String(text) => match text.trim().parse() {
                Ok(count) => {
                    (count, Some(format!("the text {} was read as a number", quoted(text))))
                }
                Err(_) => {
                    (0, Some(format!("the text {} is not a count; it was read as 0", quoted(text))))
                }
            },
            other => (0, Some(format!("{} was read as 0", kind(other)))),
        };
        if let Some(warning) = warning {
            reader.warn(&warning);
        }
        count
    }
}

/// A yes or no, also as the texts `true` and `false`. Any other text means neither: prose must never open a
/// gate.
impl ReadLeniently for Option<bool> {
    fn read(answer: Value, reader: &mut Reader) -> Self {
        match &answer {
            Value::Bool(flag) => Some(*flag),
            Value::String(text) if unique_word(text, &["true", "false"]).is_some() => {
                reader.warn(&format!("the text {} was read as a yes or no", quoted(text)));
                Some(unique_word(text, &["true"]).is_some())
            }
            other => {
                reader.warn(&format!("{} is neither true nor false; it was omitted", shown(other)));
                None
            }
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "both are checked on the line before"
)]
fn whole(number: f64) -> Option<u64> {
    let fits = number >= 0.0 && number.fract() == 0.0 && number < FLOAT_INT_END;
    fits.then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_read_from_texts_and_whole_floats_only() {
        let cases = [
            (json!(20), 20, 0),
            (json!(20.0), 20, 0),
            (json!(" 20 "), 20, 1),
            (json!(null), 0, 1),
            (json!(-3), 0, 1),
            (json!(2.5), 0, 1),
            (json!("twenty"), 0, 1),
            (json!(1e300), 0, 1),
            (json!([1]), 0, 1),
        ];
        for (answer, expected, warnings) in cases {
            let reading = u64::read_leniently(answer.clone()).unwrap();
            assert_eq!((reading.value, reading.warnings.len()), (expected, warnings), "{answer}");
        }
    }

    #[test]
    fn only_plain_yes_and_no_are_read_as_a_flag() {
        let cases = [
            (json!(true), Some(true)),
            (json!("False"), Some(false)),
            (json!(" TRUE "), Some(true)),
            (json!("yes, it is"), None),
            (json!("not true"), None),
            (json!(1), None),
            (json!(null), None),
        ];
        for (answer, expected) in cases {
            assert_eq!(
                Option::<bool>::read_leniently(answer.clone()).unwrap().value,
                expected,
                "{answer}"
            );
        }
    }

    #[test]
    fn texts_and_lists_are_coerced_to_the_requested_type() {
        let cases = [
            (json!(["a", "b"]), vec!["a", "b"], 0),
            (json!("a"), vec!["a"], 1),
            (json!(null), vec![], 1),
            (json!("  "), vec![], 1),
            (json!(["a", null, 3, {"b": 1}]), vec!["a", "", "3", r#"{"b":1}"#], 3),
            (json!([["a", "b"]]), vec!["a\nb"], 1),
        ];
        for (answer, expected, warnings) in cases {
            let reading = Vec::<String>::read_leniently(answer.clone()).unwrap();
            assert_eq!(reading.value, expected, "{answer}");
            assert_eq!(reading.warnings.len(), warnings, "{answer}: {:?}", reading.warnings);
        }
    }
}
