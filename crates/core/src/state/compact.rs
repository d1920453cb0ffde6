//! Values without spare capacity. Records read in the usual way keep capacity for fields that never come,
//! which is most of the memory of a long list of small records.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

/// A value that is read into exactly the memory that it needs.
#[derive(Debug)]
pub struct Compact(Value);

impl Compact {
    /// Returns the value.
    pub fn into_value(self) -> Value {
        self.0
    }
}

impl<'de> Deserialize<'de> for Compact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CompactVisitor).map(Self)
    }
}

struct CompactVisitor;

impl<'de> Visitor<'de> for CompactVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Compact(item)) = parts.next_element()? {
            items.push(item);
        }
        items.shrink_to_fit();
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut parts: A) -> Result<Value, A::Error> {
        let mut fields: Vec<(String, Value)> = Vec::new();
        while let Some((name, Compact(value))) = parts.next_entry()? {
            fields.push((name, value));
        }
        let mut record = Map::with_capacity(fields.len());
        record.extend(fields);
        Ok(Value::Object(record))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn it_accepts_the_same_json_as_serde_json() {
        for text in [
            r#"{"b": [1, -2, 1.5, null, true, "é\n"], "a": {"": {}}, "b": [], "c": 18446744073709551615}"#,
            r#"{"a": 1, "b": 2, "a": 3}"#,
            "[[], {}, -0, 1e300, 0.1]",
            "\"text\"",
            "[1",
            "{\"a\": 1e400}",
            "nul",
        ] {
            let ours = serde_json::from_str::<Compact>(text).map(Compact::into_value);
            let theirs = serde_json::from_str::<Value>(text);
            match (ours, theirs) {
                (Ok(ours), Ok(theirs)) => assert_eq!(ours.to_string(), theirs.to_string()),
                (ours, theirs) => {
                    assert_eq!(ours.unwrap_err().to_string(), theirs.unwrap_err().to_string());
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_number_stays_the_same_number(number: f64) {
            let text = json!(number).to_string();
            let read = serde_json::from_str::<Compact>(&text).unwrap().into_value();
            prop_assert_eq!(read.to_string(), text);
        }
    }
}
