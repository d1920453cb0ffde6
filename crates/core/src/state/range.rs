//! The range of a number.

use std::fmt;

use serde_json::{Map, Value};

/// The smallest and the largest of some numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NumberRange {
    /// The smallest number, if there is one.
    pub min: Option<f64>,
    /// The largest number, if there is one.
    pub max: Option<f64>,
}

// An end comes from JSON, or from arithmetic without its infinite results, so it is never NaN.
impl Eq for NumberRange {}

impl NumberRange {
    /// All numbers.
    pub const ALL: Self = Self { min: None, max: None };
    /// The numbers from zero on.
    pub const FROM_ZERO: Self = Self { min: Some(0.0), max: None };

    /// Returns the range of one number.
    pub const fn only(number: f64) -> Self {
        Self { min: Some(number), max: Some(number) }
    }

    /// Returns the range that a JSON Schema of numbers describes. The ends for whole numbers are whole.
    pub(super) fn of_schema(schema: &Map<String, Value>, is_whole: bool) -> Self {
        let end = |key| schema.get(key).and_then(Value::as_f64);
        let min = end("minimum").map(|it| if is_whole { it.ceil() } else { it });
        let max = end("maximum").map(|it| if is_whole { it.floor() } else { it });
        let above = end("exclusiveMinimum");
        let above = above.map(|it| if is_whole { it.floor() + 1.0 } else { it.next_up() });
        let below = end("exclusiveMaximum");
        let below = below.map(|it| if is_whole { it.ceil() - 1.0 } else { it.next_down() });
        Self {
            min: [min, above].into_iter().flatten().reduce(f64::max),
            max: [max, below].into_iter().flatten().reduce(f64::min),
        }
    }

    /// Returns whether a number is in the range.
    pub fn contains(self, number: f64) -> bool {
        self.min.is_none_or(|it| number >= it) && self.max.is_none_or(|it| number <= it)
    }

    /// Returns whether each number of another range is in this one.
    ///
    /// ```
    /// use graphrun_core::state::NumberRange;
    ///
    /// let grade = NumberRange { min: Some(1.0), max: Some(6.0) };
    /// assert!(grade.includes(NumberRange::only(6.0)));
    /// assert!(!grade.includes(NumberRange::FROM_ZERO));
    /// ```
    pub fn includes(self, other: Self) -> bool {
        self.includes_min_of(other) && self.includes_max_of(other)
    }

    /// Returns whether no number of another range is below this one.
    pub fn includes_min_of(self, other: Self) -> bool {
        self.min.is_none_or(|min| other.min.is_some_and(|it| it >= min))
    }

    /// Returns whether no number of another range is above this one.
    pub fn includes_max_of(self, other: Self) -> bool {
        self.max.is_none_or(|max| other.max.is_some_and(|it| it <= max))
    }

    /// Returns the smallest range that includes both.
    #[must_use]
    pub fn joined(self, other: Self) -> Self {
        Self {
            min: self.min.zip(other.min).map(|(a, b)| a.min(b)),
            max: self.max.zip(other.max).map(|(a, b)| a.max(b)),
        }
    }

    /// Returns the numbers that are in both ranges; `None` if there are none.
    pub fn common(self, other: Self) -> Option<Self> {
        let min = [self.min, other.min].into_iter().flatten().reduce(f64::max);
        let max = [self.max, other.max].into_iter().flatten().reduce(f64::min);
        let is_empty = min.zip(max).is_some_and(|(min, max)| min > max);
        (!is_empty).then_some(Self { min, max })
    }
}

/// A number in a message: one with very many digits, none of which a 64-bit whole number has, has an exponent.
#[derive(Clone, Copy, Debug)]
pub struct ShownNumber(pub f64);

impl fmt::Display for ShownNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_short = self.0 == 0.0 || (1e-9..1e19).contains(&self.0.abs());
        if is_short { write!(f, "{}", self.0) } else { write!(f, "{:e}", self.0) }
    }
}

/// The range in words that follow a verb, such as `1 to 10` or `at most 10`.
impl fmt::Display for NumberRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min.map(ShownNumber), self.max.map(ShownNumber)) {
            (None, None) => f.write_str("any number"),
            (Some(min), None) => write!(f, "at least {min}"),
            (None, Some(max)) => write!(f, "at most {max}"),
            (Some(min), Some(max)) if min.0 >= max.0 => write!(f, "{min}"),
            (Some(min), Some(max)) => write!(f, "{min} to {max}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::Type, *};

    fn range(min: impl Into<Option<f64>>, max: impl Into<Option<f64>>) -> NumberRange {
        NumberRange { min: min.into(), max: max.into() }
    }

    #[test]
    fn a_range_is_found_behind_references_and_null() {
        let schema = json!({
            "$ref": "#/$defs/Plan",
            "$defs": {
                "Plan": {"properties": {"level": {"anyOf": [{"$ref": "#/$defs/Level"}, {"type": "null"}]}}, "type": "object"},
                "Level": {"type": "integer", "minimum": 0, "maximum": 9},
            },
        });
        let ty = Type::of_schema(&schema);
        let level = ty.field("level").and_then(|it| it.required().range());
        assert_eq!(level, Some(range(0.0, 9.0)));
        assert!(
            level.is_some_and(|it| it.contains(9.0) && !it.contains(9.5) && !it.contains(-1.0))
        );
    }

    #[test]
    fn exclusive_ends_are_outside() {
        let of = |schema| Type::of_schema(&schema).range().unwrap();
        let whole = of(json!({"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 9.5}));
        assert_eq!(whole, range(1.0, 9.0));
        let whole = of(json!({"type": "integer", "minimum": 0.5, "maximum": 9.5}));
        assert_eq!(whole, range(1.0, 9.0));
        let share = of(json!({"type": "number", "exclusiveMinimum": 0, "maximum": 1}));
        assert!(!share.contains(0.0) && share.contains(1e-9) && share.contains(1.0));
    }

    #[test]
    fn a_range_includes_the_narrower_ones() {
        let grade = range(1.0, 6.0);
        assert!(grade.includes(range(1.0, 6.0)) && grade.includes(range(2.0, 3.0)));
        assert!(!grade.includes(range(0.0, 6.0)) && !grade.includes(range(1.0, 7.0)));
        assert!(!grade.includes(NumberRange::ALL) && NumberRange::ALL.includes(grade));
        assert!(NumberRange::FROM_ZERO.includes(grade) && !grade.includes(NumberRange::FROM_ZERO));
        assert_eq!(grade.joined(range(5.0, None)), range(1.0, None));
        assert_eq!(grade.common(range(5.0, None)), Some(range(5.0, 6.0)));
        assert_eq!(grade.common(range(7.0, None)), None);
    }

    #[test]
    fn a_range_is_shown_in_words() {
        let above_zero = range(0.0_f64.next_up(), None);
        let shown =
            [range(1.0, 6.0), range(1.0, None), range(None, 0.5), range(3.0, 3.0), above_zero];
        let shown: Vec<String> = shown.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["1 to 6", "at least 1", "at most 0.5", "3", "at least 5e-324"]);
    }
}
