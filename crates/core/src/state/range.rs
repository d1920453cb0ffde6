//! The range of a number, as `minimum` and `maximum` of its JSON Schema.

use serde_json::Value;

use super::part::{Part, resolve};

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
        let part = path.iter().try_fold(resolve(schema, schema), |part, name| {
            Some(resolve(schema, part?.schema.get("properties")?.get(name)?))
        });
        let Some(Some(Part { schema: part, .. })) = part else { return Self::default() };
        let end = |key| part.get(key).and_then(Value::as_f64);
        Self { min: end("minimum"), max: end("maximum") }
    }

    /// Returns whether a number is in the range.
    pub fn contains(self, number: f64) -> bool {
        self.min.is_none_or(|it| number >= it) && self.max.is_none_or(|it| number <= it)
    }
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
