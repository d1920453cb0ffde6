//! The range of a number, as `minimum` and `maximum` of its JSON Schema.

use serde_json::Value;

/// The maximum number of references that are followed to a part of a schema.
const REFERENCES_MAX: usize = 16;

/// The smallest and the largest number that fit a schema.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NumberRange {
    /// The smallest number, if there is one.
    pub min: Option<f64>,
    /// The largest number, if there is one.
    pub max: Option<f64>,
}

impl NumberRange {
    /// Returns the range of the number at a path of fields in the values of a schema.
    ///
    /// ```
    /// use graphrun_core::state::NumberRange;
    /// use serde_json::json;
    ///
    /// let schema = json!({"properties": {"level": {"type": "integer", "minimum": 1, "maximum": 5}}});
    /// let range = NumberRange::at(&schema, &["level".to_owned()]);
    /// assert_eq!(range, NumberRange { min: Some(1.0), max: Some(5.0) });
    /// ```
    pub fn at(schema: &Value, path: &[String]) -> Self {
        let part = path.iter().try_fold(target(schema, schema), |part, name| {
            Some(target(schema, part?.get("properties")?.get(name)?))
        });
        let Some(Some(part)) = part else { return Self::default() };
        let end = |key| part.get(key).and_then(Value::as_f64);
        Self { min: end("minimum"), max: end("maximum") }
    }

    /// Returns whether a number is in the range.
    pub fn contains(self, number: f64) -> bool {
        self.min.is_none_or(|it| number >= it) && self.max.is_none_or(|it| number <= it)
    }
}

/// Returns the part of a schema that describes the values other than null, with its references resolved.
fn target<'s>(root: &'s Value, mut part: &'s Value) -> Option<&'s Value> {
    for _ in 0..REFERENCES_MAX {
        let options = ["anyOf", "oneOf"].into_iter().find_map(|it| part.get(it)?.as_array());
        if let Some(options) = options {
            let mut others =
                options.iter().filter(|it| it.get("type").and_then(Value::as_str) != Some("null"));
            let (Some(only), None) = (others.next(), others.next()) else { return None };
            part = only;
        } else if let Some(reference) = part.get("$ref").and_then(Value::as_str) {
            part = root.pointer(reference.strip_prefix('#')?)?;
        } else {
            return Some(part);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_range_is_found_behind_references_and_null() {
        let schema = json!({
            "$ref": "#/$defs/Plan",
            "$defs": {
                "Plan": {"properties": {"level": {"anyOf": [{"$ref": "#/$defs/Level"}, {"type": "null"}]}}},
                "Level": {"type": "integer", "minimum": 0, "maximum": 9},
                "Loop": {"$ref": "#/$defs/Loop"},
            },
        });
        let level = NumberRange::at(&schema, &["level".to_owned()]);
        assert_eq!(level, NumberRange { min: Some(0.0), max: Some(9.0) });
        assert!(level.contains(9.0) && !level.contains(9.5) && !level.contains(-1.0));
        assert_eq!(NumberRange::at(&schema, &["other".to_owned()]), NumberRange::default());
        let endless = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}});
        assert_eq!(NumberRange::at(&endless, &[]), NumberRange::default());
    }

    #[test]
    fn a_choice_of_several_numbers_has_no_range() {
        let schema = json!({"anyOf": [{"type": "integer", "minimum": 5}, {"type": "string"}]});
        assert_eq!(NumberRange::at(&schema, &[]), NumberRange::default());
    }
}
