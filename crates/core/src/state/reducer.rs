//! How the writes of a step change a channel.

use std::{cmp::Ordering, fmt, sync::Arc};

use serde_json::{Map, Value};
use thiserror::Error;

use super::contained::contained;

/// A rule that combines a write with the value before it.
#[derive(Clone, Debug, Default)]
pub enum Reducer {
    /// The write replaces the value; two writers in one step are a conflict.
    #[default]
    Replace,
    /// The written items are appended.
    Append,
    /// Like append, without items that are already in the list.
    Union,
    /// The sum of numbers.
    Sum,
    /// The smaller of two numbers.
    Min,
    /// The larger of two numbers.
    Max,
    /// Objects are merged field by field, at any depth; null removes a field.
    Merge,
    /// The value with the highest number at a path is kept, the earlier one on a tie.
    Best {
        /// Field names from the value down, such as `test_result`, `passed_count`.
        by: Vec<String>,
    },
    /// A list of messages: a message with a known `id` replaces its earlier version, at the same index.
    Messages,
    /// A function registered by a library user.
    Custom(Arc<dyn Fold>),
}

/// A custom reducer of a library user.
pub trait Fold: fmt::Debug + Send + Sync {
    /// Returns its name in a workflow.
    fn name(&self) -> &str;

    /// Returns the new value.
    ///
    /// # Errors
    ///
    /// Returns the reason why the two cannot be combined.
    fn fold(&self, current: Option<Value>, written: Value) -> Result<Value, String>;
}

/// A write cannot be combined with the value before it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReduceError {
    /// The reducer does not support this kind of value.
    #[error("`{reducer}` needs {needed}, got {got}")]
    Kind {
        /// The reducer.
        reducer: String,
        /// The supported kind of value.
        needed: &'static str,
        /// The given value, shortened.
        got: String,
    },
    /// A sum exceeds the range of a 64-bit whole number.
    #[error("the sum of {0} and {1} is too large")]
    Overflow(i64, i64),
    /// A registered reducer returned an error.
    #[error("`{reducer}` refused: {reason}")]
    Custom {
        /// The reducer.
        reducer: String,
        /// The error.
        reason: String,
    },
    /// A registered reducer panicked.
    #[error("`{reducer}` panicked: {message}")]
    Panicked {
        /// The reducer.
        reducer: String,
        /// The message of the panic.
        message: String,
    },
}

impl Reducer {
    /// Returns whether two tasks of one step may write the same channel.
    pub fn takes_several_writers(&self) -> bool {
        !matches!(self, Self::Replace)
    }

    /// Returns whether a write of the right type may still be refused because of the value before it.
    pub fn may_refuse(&self) -> bool {
        !matches!(self, Self::Replace | Self::Append | Self::Best { .. })
    }

    /// Folds one write that is not a list of items into the value before it.
    ///
    /// # Errors
    ///
    /// Fails when the two cannot be combined.
    pub(super) fn fold(
        &self,
        current: Option<Value>,
        written: Value,
    ) -> Result<Value, ReduceError> {
        match self {
            Self::Replace => Ok(written),
            Self::Append | Self::Union | Self::Messages => self.fold_list(current, written),
            Self::Sum => match current {
                None => Ok(written),
                Some(before) => self.sum(&before, &written),
            },
            Self::Min => self.choose(current, written, Ordering::Less),
            Self::Max => self.choose(current, written, Ordering::Greater),
            Self::Merge => self.merge(current, written),
            Self::Best { by } => Ok(match current {
                Some(before) if rank(&written, by) <= rank(&before, by) => before,
                _ => written,
            }),
            Self::Custom(custom) => {
                let reducer = || custom.name().to_owned();
                match contained(|| custom.fold(current, written)) {
                    Ok(folded) => {
                        folded.map_err(|reason| ReduceError::Custom { reducer: reducer(), reason })
                    }
                    Err(message) => Err(ReduceError::Panicked { reducer: reducer(), message }),
                }
            }
        }
    }

    fn fold_list(&self, current: Option<Value>, written: Value) -> Result<Value, ReduceError> {
        let mut items = match current {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => items,
            Some(other) => return Err(self.kind_error("a list", &other)),
        };
        let written = match written {
            Value::Array(written) => written,
            one => vec![one],
        };
        self.add(&mut items, &written);
        Ok(Value::Array(items))
    }

    /// Adds items to a list by the rule of the reducer.
    pub(super) fn add(&self, list: &mut Vec<Value>, items: &[Value]) {
        reserve(list, items.len());
        for item in items {
            match self {
                Self::Union if list.contains(item) => (),
                Self::Messages => match place_of(item, list) {
                    Some(at) => list[at] = item.clone(),
                    None => list.push(item.clone()),
                },
                _ => list.push(item.clone()),
            }
        }
    }

    fn sum(&self, before: &Value, written: &Value) -> Result<Value, ReduceError> {
        if let (Some(a), Some(b)) = (before.as_i64(), written.as_i64()) {
            return a.checked_add(b).map(Value::from).ok_or(ReduceError::Overflow(a, b));
        }
        let number = |it: &Value| it.as_f64().ok_or_else(|| self.kind_error("a number", it));
        Ok(Value::from(number(before)? + number(written)?))
    }

    fn choose(
        &self,
        current: Option<Value>,
        written: Value,
        wanted: Ordering,
    ) -> Result<Value, ReduceError> {
        let Some(before) = current else { return Ok(written) };
        let order =
            compare(&written, &before).ok_or_else(|| self.kind_error("a number", &written))?;
        Ok(if order == wanted { written } else { before })
    }

    fn merge(&self, current: Option<Value>, written: Value) -> Result<Value, ReduceError> {
        let Value::Object(written) = written else {
            return Err(self.kind_error("an object", &written));
        };
        match current {
            None | Some(Value::Null) => Ok(Value::Object(merged(Map::new(), written))),
            Some(Value::Object(before)) => Ok(Value::Object(merged(before, written))),
            Some(other) => Err(self.kind_error("an object", &other)),
        }
    }

    fn kind_error(&self, needed: &'static str, got: &Value) -> ReduceError {
        let got = got.to_string().chars().take(40).collect();
        ReduceError::Kind { reducer: self.to_string(), needed, got }
    }
}

/// Reserves room for more items. For many items it reserves exactly that room, since doubling would take
/// twice the memory.
pub fn reserve(list: &mut Vec<Value>, more: usize) {
    if more > list.len() / 4 {
        list.reserve_exact(more);
    }
}

impl fmt::Display for Reducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replace => f.write_str("replace"),
            Self::Append => f.write_str("append"),
            Self::Union => f.write_str("union"),
            Self::Sum => f.write_str("sum"),
            Self::Min => f.write_str("min"),
            Self::Max => f.write_str("max"),
            Self::Merge => f.write_str("merge"),
            Self::Best { by } => write!(f, "best({})", by.join(".")),
            Self::Messages => f.write_str("messages"),
            Self::Custom(custom) => f.write_str(custom.name()),
        }
    }
}

/// Returns the index of the message with the same `id`.
pub(super) fn place_of(message: &Value, messages: &[Value]) -> Option<usize> {
    let id = message.get("id")?;
    messages.iter().position(|it| it.get("id") == Some(id))
}

fn merged(mut into: Map<String, Value>, written: Map<String, Value>) -> Map<String, Value> {
    for (key, value) in written {
        match value {
            Value::Null => drop(into.shift_remove(&key)),
            Value::Object(inner) => {
                let before = match into.get_mut(&key).map(Value::take) {
                    Some(Value::Object(before)) => before,
                    _ => Map::new(),
                };
                into.insert(key, Value::Object(merged(before, inner)));
            }
            other => drop(into.insert(key, other)),
        }
    }
    into
}

/// Returns the number at a path; a value without one ranks below every value with one.
fn rank(value: &Value, by: &[String]) -> f64 {
    let found = by.iter().try_fold(value, |it, key| it.get(key));
    found.and_then(Value::as_f64).unwrap_or(f64::NEG_INFINITY)
}

fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn folded(reducer: &Reducer, writes: &[Value]) -> Result<Value, ReduceError> {
        let mut current = None;
        for write in writes {
            current = Some(reducer.fold(current, write.clone())?);
        }
        Ok(current.unwrap_or(Value::Null))
    }

    #[test]
    fn each_reducer_folds_its_writes_in_order() {
        let best = Reducer::Best { by: vec!["test".into(), "passed".into()] };
        let attempt = |name: &str, passed: i64| json!({"name": name, "test": {"passed": passed}});
        let cases = [
            (Reducer::Replace, vec![json!(1), json!(2)], json!(2)),
            (Reducer::Append, vec![json!([1]), json!(2), json!([3, 1])], json!([1, 2, 3, 1])),
            (Reducer::Union, vec![json!([1, 2]), json!([2, 3])], json!([1, 2, 3])),
            (Reducer::Sum, vec![json!(1), json!(2)], json!(3)),
            (Reducer::Sum, vec![json!(1), json!(0.5)], json!(1.5)),
            (Reducer::Min, vec![json!(2), json!(1), json!(3)], json!(1)),
            (Reducer::Max, vec![json!(2), json!(3.5), json!(3)], json!(3.5)),
            (
                Reducer::Merge,
                vec![json!({"a": {"x": 1, "y": 2}, "b": 1}), json!({"a": {"x": null, "z": 3}})],
                json!({"a": {"y": 2, "z": 3}, "b": 1}),
            ),
            (
                best,
                vec![attempt("one", 12), attempt("two", 20), attempt("three", 20)],
                attempt("two", 20),
            ),
            (
                Reducer::Messages,
                vec![
                    json!([{"id": "1", "text": "a"}, {"id": "2", "text": "b"}]),
                    json!({"id": "1", "text": "A"}),
                    json!({"text": "no id"}),
                ],
                json!([{"id": "1", "text": "A"}, {"id": "2", "text": "b"}, {"text": "no id"}]),
            ),
        ];
        for (reducer, writes, expected) in cases {
            assert_eq!(folded(&reducer, &writes), Ok(expected), "{reducer}");
        }
    }

    #[test]
    fn values_that_a_reducer_cannot_combine_are_an_error() {
        let error = folded(&Reducer::Sum, &[json!(1), json!("two")]).unwrap_err();
        assert_eq!(error.to_string(), "`sum` needs a number, got \"two\"");
        assert!(folded(&Reducer::Merge, &[json!([])]).is_err());
        assert!(folded(&Reducer::Sum, &[json!(i64::MAX), json!(1)]).is_err());
    }
}
