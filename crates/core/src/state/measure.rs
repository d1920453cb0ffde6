//! The size and the depth of values, and their limits.
//!
//! A value is measured before it is saved. A value that passed can always be read back: readers of JSON stop
//! at 128 levels, and the highest depth that a process can allow is far below.

use graphrun_guard::data_limit::{DataLimit, DataLimitReached};
use serde_json::Value;

use super::Type;

/// The memory in bytes counted for a part of a value: the size of a [`Value`].
pub const PART_MEMORY: u64 = 72;

/// The memory counted for a record without its fields: its table, with room for more fields.
pub const RECORD_MEMORY: u64 = 192;

/// The memory counted for a field of a record without its name and its value.
pub const FIELD_MEMORY: u64 = 32;

/// Returns the memory counted for a text of this length. The text exists in the value, in its JSON, in the
/// packed entry, and in the write of the database; a short text also needs an allocation.
pub fn text_memory(length: u64) -> u64 {
    const ALLOCATION: u64 = 32;
    const COPIES: u64 = 4;
    PART_MEMORY + ALLOCATION + COPIES * length
}

/// The first whole number above which floats skip whole numbers.
pub(crate) const FLOAT_INT_END: f64 = 9_007_199_254_740_992.0;

/// Returns the memory that a value takes while it is saved, as [`DataLimit::ValueMemory`] counts it.
///
/// # Errors
///
/// Fails when the value is larger or deeper than this process allows.
pub fn measure(value: &Value) -> Result<u64, DataLimitReached> {
    measure_in(value, DataLimit::ValueDepth.value())
}

/// Returns the size of the content of a channel. A list of values with the allowed depth is one level deeper.
///
/// # Errors
///
/// Fails as [`measure`] does.
pub(crate) fn measure_folded(value: &Value) -> Result<u64, DataLimitReached> {
    measure_in(value, DataLimit::ValueDepth.value() + 1)
}

/// The levels around a value in an entry of a nested run: the list of its parts, the entry, its records or changes.
const ENTRY_DEPTH: u64 = 10;

/// Returns the size of an entry of a nested run, whose values may have the allowed depth.
///
/// # Errors
///
/// Fails as [`measure`] does.
pub(crate) fn measure_entry(value: &Value) -> Result<u64, DataLimitReached> {
    measure_in(value, DataLimit::ValueDepth.value() + ENTRY_DEPTH)
}

/// Returns the size of a saved value, without limits: they may have changed since.
pub(crate) fn size_of_saved(value: &Value) -> u64 {
    size(value, u64::MAX).unwrap_or(u64::MAX)
}

fn measure_in(value: &Value, depth_max: u64) -> Result<u64, DataLimitReached> {
    let size = size(value, depth_max).ok_or(DataLimitReached {
        limit: DataLimit::ValueDepth,
        max: DataLimit::ValueDepth.value(),
    })?;
    DataLimit::ValueMemory.check(size)?;
    Ok(size)
}

/// Returns the size of a value with at most this many levels. The bound also limits the stack of the
/// recursion.
fn size(value: &Value, levels: u64) -> Option<u64> {
    Some(match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => PART_MEMORY,
        Value::String(text) => text_memory(text_size(text)),
        Value::Array(items) => {
            let levels = levels.checked_sub(1)?;
            items.iter().try_fold(PART_MEMORY, |sum, it| Some(sum + size(it, levels)?))?
        }
        Value::Object(fields) => {
            let levels = levels.checked_sub(1)?;
            let mut sum = PART_MEMORY + RECORD_MEMORY;
            for (name, value) in fields {
                sum += FIELD_MEMORY + text_size(name) + size(value, levels)?;
            }
            sum
        }
    })
}

/// Returns the number of bytes of a text as JSON, with its quotes and escapes.
fn text_size(text: &str) -> u64 {
    let is_escaped = |it: u8| matches!(it, 0..0x20 | b'"' | b'\\');
    // `\u0001` in place of `\n`.
    let is_long = |it: u8| matches!(it, 0..0x08 | 0x0b | 0x0e..0x20);
    text.len() as u64 + 2 + count(text, is_escaped) + 4 * count(text, is_long)
}

/// Returns the number of bytes that meet a condition. The compiler makes instructions of it that count many bytes at once,
/// because the sum of a chunk fits into a byte.
fn count(text: &str, condition: impl Fn(u8) -> bool) -> u64 {
    let chunks = text.as_bytes().chunks(u8::MAX.into());
    let counts = chunks.map(|it| it.iter().map(|byte| u8::from(condition(*byte))).sum::<u8>());
    counts.map(u64::from).sum()
}

/// Returns the place and the text of the first whole number that lost digits: its type is a whole number, and
/// it was read as a float that stands for several of them.
pub(crate) fn rounded_int(ty: &Type, value: &Value) -> Option<(String, String)> {
    match (ty.required(), value) {
        (Type::Int(_), Value::Number(number)) if number.is_f64() => {
            let is_rounded = number.as_f64().is_none_or(|it| it.abs() >= FLOAT_INT_END);
            is_rounded.then(|| (String::new(), number.to_string()))
        }
        (Type::List(item), Value::Array(items)) => first(items.iter().enumerate(), |_| Some(item)),
        (Type::Map(item), Value::Object(fields)) => first(fields, |_| Some(item)),
        (Type::Record(record), Value::Object(fields)) => {
            first(fields, |name| record.fields.iter().find(|it| it.name == **name).map(|it| &it.ty))
        }
        _ => None,
    }
}

fn first<'a, 't, K: ToString>(
    parts: impl IntoIterator<Item = (K, &'a Value)>,
    ty: impl Fn(&K) -> Option<&'t Type>,
) -> Option<(String, String)> {
    parts.into_iter().find_map(|(at, value)| {
        let (inner, number) = rounded_int(ty(&at)?, value)?;
        Some((format!("/{}{inner}", at.to_string()), number))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns lists nested to this depth.
    fn nested(depth: u64) -> Value {
        (1..depth).fold(json!([]), |inner, _| json!([inner]))
    }

    #[test]
    fn a_value_may_be_as_deep_as_the_limit() {
        let max = DataLimit::ValueDepth.value();
        assert!(measure(&nested(max)).is_ok());
        assert_eq!(measure(&nested(max + 1)).unwrap_err().limit, DataLimit::ValueDepth);
        assert!(measure_folded(&nested(max + 1)).is_ok());
        assert_eq!(measure_folded(&nested(max + 2)).unwrap_err().limit, DataLimit::ValueDepth);
        let record = (1..max).fold(json!({"a": 1}), |inner, _| json!({ "a": inner }));
        assert!(measure(&record).is_ok());
        assert!(measure(&json!({ "a": record })).is_err());
    }

    #[test]
    fn a_value_may_be_as_large_as_the_limit() {
        let max = DataLimit::ValueMemory.value();
        let count = (max - PART_MEMORY) / PART_MEMORY;
        let zeros = |count| Value::from(vec![0; usize::try_from(count).unwrap()]);
        assert_eq!(measure(&zeros(count)), Ok((count + 1) * PART_MEMORY));
        assert_eq!(measure(&zeros(count + 1)).unwrap_err().limit, DataLimit::ValueMemory);
        // The text is written, packed and saved, so it takes several times its length.
        let text = |length| Value::from("x".repeat(usize::try_from(length).unwrap()));
        assert!(measure(&text(max / 5)).is_ok());
        assert_eq!(measure(&text(max / 4)).unwrap_err().limit, DataLimit::ValueMemory);
    }

    #[test]
    fn no_value_is_smaller_than_its_json() {
        for value in [
            json!(null),
            json!("é\"\\\n\u{1}\u{7f}"),
            json!("\u{8}\u{c}\t\r\u{1f}".repeat(9)),
            json!({"a": [1, -2.5e-300, u64::MAX], "": {}}),
            json!([[], {}, true, i64::MIN]),
        ] {
            let json = value.to_string().len() as u64;
            assert!(size_of_saved(&value) >= json, "{value}");
        }
        let text = json!("\u{8}\u{c}\t\r\u{1f}".repeat(9));
        assert_eq!(size_of_saved(&text), text_memory(text.to_string().len() as u64));
    }

    #[test]
    fn whole_numbers_that_lost_digits_are_found() {
        let schema = json!({"type": "object", "required": ["a", "b", "f"], "properties": {
            "a": {"type": "integer"},
            "b": {"type": "array", "items": {"type": "integer"}},
            "f": {"type": "number"},
        }});
        let ty = Type::of_schema(&schema);
        let found = |text: &str| rounded_int(&ty, &serde_json::from_str(text).unwrap());
        assert_eq!(
            found(r#"{"a": 18446744073709551615, "b": [-9223372036854775808], "f": 1e300}"#),
            None
        );
        assert_eq!(found(r#"{"a": 2.0, "b": [9007199254740991.0]}"#), None);
        let at = |place: &str, number: &str| Some((place.to_owned(), number.to_owned()));
        assert_eq!(found(r#"{"a": 9007199254740993.0}"#), at("/a", "9007199254740992.0"));
        assert_eq!(found(r#"{"b": [1, 1e19]}"#), at("/b/1", "1e+19"));
    }
}
