//! How the writes of a step change a channel.
//!
//! A built-in reducer is a variant of [`Reducer`], a place in [`Reducer::BUILT_IN`], its [`Rules`] and its fold. Other
//! modules ask for its properties and name no variant, except that `Replace` is the absence of a reducer.

use std::{cmp::Ordering, fmt, ptr, sync::Arc};

use serde_json::{Map, Number, Value, json};
use thiserror::Error;

use super::{
    Type,
    contained::contained,
    messages::{add_messages, changes_messages},
};

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
    /// A list of messages: a message with a known `id` replaces its earlier version, at the same index, and is removed
    /// by `{ id, remove: true }`. A message without an id gets one.
    Messages,
    /// The value with the highest number at a path is kept, the earlier one on a tie.
    Best {
        /// Field names from the value down, such as `test_result`, `passed_count`.
        by: Vec<String>,
    },
    /// A function registered by a library user.
    Custom(Arc<dyn Fold>),
}

/// The properties of a reducer.
struct Rules {
    name: &'static str,
    /// The effect, in one sentence.
    about: &'static str,
    needs: Needs,
    /// The value with which a field naturally starts, in the notation of a default.
    start: Option<&'static str>,
    /// Whether two tasks of one step may write the same channel.
    several_writers: bool,
    /// Whether it folds items into a list, one by one.
    grows_list: bool,
    update: UpdateForm,
    result: FoldResult,
}

/// The types of the channels that a reducer can fold.
struct Needs {
    /// Such as "a list".
    noun: &'static str,
    includes: fn(&Type) -> bool,
}

/// The relation of a write to the value of its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateForm {
    /// A whole value.
    Whole,
    /// An item of a list, or a list of items.
    Items,
    /// Some fields of a record or a map, at any depth.
    Fields,
    /// A part of the value, in a form that only the reducer defines.
    Part,
}

impl UpdateForm {
    /// Returns whether only the folded value can be checked, and not a write alone.
    pub fn is_checked_folded(self) -> bool {
        matches!(self, Self::Fields | Self::Part)
    }
}

/// The result of a fold, which decides the checks before and after it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FoldResult {
    /// One of the written values. No write is refused.
    Kept,
    /// The list with all written items. No write is refused.
    Extended,
    /// One of the written values, or some of the written items. A write may be refused.
    Selected,
    /// A value that no task has written. A write may be refused.
    Computed,
}

const UNIQUE_ITEMS: &str = "uniqueItems";

/// The keywords of a JSON Schema about a whole list which more items may break.
const OF_WHOLE_LISTS: &[&str] = &["maxItems", "maxContains", "prefixItems", UNIQUE_ITEMS];

const ANY: Needs = Needs { noun: "any type", includes: |_| true };
const LIST: Needs = Needs { noun: "a list", includes: |it| matches!(it, Type::List(_)) };
const NUMBER: Needs = Needs { noun: "a number", includes: Type::is_number };
const RECORD: Needs =
    Needs { noun: "a record", includes: |it| matches!(it, Type::Record(_) | Type::Map(_)) };

impl Rules {
    /// Keeps one of the written values.
    const KEEP: Self = Self {
        name: "",
        about: "",
        needs: ANY,
        start: None,
        several_writers: true,
        grows_list: false,
        update: UpdateForm::Whole,
        result: FoldResult::Kept,
    };
    /// Folds items into a list.
    const LIST: Self = Self {
        needs: LIST,
        start: Some("[]"),
        grows_list: true,
        update: UpdateForm::Items,
        result: FoldResult::Selected,
        ..Self::KEEP
    };
    /// Folds numbers.
    const NUMBER: Self = Self { needs: NUMBER, result: FoldResult::Selected, ..Self::KEEP };
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
    /// A sum exceeds the range of a signed 64-bit whole number.
    #[error("the sum of {0} and {1} is too large")]
    Overflow(i128, i128),
    /// A sum exceeds the range of a floating-point number.
    #[error("the sum of {0} and {1} is too large")]
    TooLarge(String, String),
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
    /// The built-in reducers, in the order of the documentation.
    pub const BUILT_IN: &[Self] = &[
        Self::Replace,
        Self::Append,
        Self::Union,
        Self::Sum,
        Self::Min,
        Self::Max,
        Self::Merge,
        Self::Messages,
        Self::Best { by: Vec::new() },
    ];

    const fn rules(&self) -> Rules {
        match self {
            Self::Replace => Rules {
                name: "replace",
                about: "The update replaces the value; two writers in one step are an error.",
                several_writers: false,
                ..Rules::KEEP
            },
            Self::Append => Rules {
                name: "append",
                about: "The items are appended.",
                result: FoldResult::Extended,
                ..Rules::LIST
            },
            Self::Union => Rules {
                name: "union",
                about: "The items are appended, without those that are already in the list.",
                ..Rules::LIST
            },
            Self::Sum => Rules {
                name: "sum",
                about: "The numbers are added.",
                start: Some("0"),
                result: FoldResult::Computed,
                ..Rules::NUMBER
            },
            Self::Min => {
                Rules { name: "min", about: "The smaller number is kept.", ..Rules::NUMBER }
            }
            Self::Max => {
                Rules { name: "max", about: "The larger number is kept.", ..Rules::NUMBER }
            }
            Self::Merge => Rules {
                name: "merge",
                about: "Records are merged field by field, at any depth; null removes a field.",
                needs: RECORD,
                start: Some("{}"),
                update: UpdateForm::Fields,
                result: FoldResult::Computed,
                ..Rules::KEEP
            },
            Self::Messages => Rules {
                name: "messages",
                about: "The items are appended, each with an `id`; one with a known `id` replaces the earlier one in its place, and `{ id, remove: true }` removes it (with the id `__remove_all__`, all messages before it).",
                needs: Needs { noun: "a list of records with a text `id`", includes: has_ids },
                update: UpdateForm::Part,
                result: FoldResult::Computed,
                ..Rules::LIST
            },
            Self::Best { .. } => Rules {
                name: "best",
                about: "The value with the highest number at the path `by` is kept, the earlier one on a tie.",
                needs: Needs { noun: "a record with a number", ..ANY },
                ..Rules::KEEP
            },
            Self::Custom(_) => Rules {
                name: "custom",
                about: "A reducer that the program registers.",
                update: UpdateForm::Part,
                result: FoldResult::Computed,
                ..Rules::KEEP
            },
        }
    }

    /// Returns its name in a workflow.
    pub fn name(&self) -> &str {
        match self {
            Self::Custom(custom) => custom.name(),
            built_in => built_in.rules().name,
        }
    }

    /// Returns the effect, in one sentence.
    pub fn about(&self) -> &'static str {
        self.rules().about
    }

    /// Returns the kind of channels that it can fold, such as "a list".
    pub fn needs(&self) -> &'static str {
        self.rules().needs.noun
    }

    /// Returns whether it can fold the values of a channel of this type.
    ///
    /// Only the author of a custom reducer knows its types, so it fits all of them.
    pub fn fits(&self, ty: &Type) -> bool {
        *ty == Type::Any || (self.rules().needs.includes)(ty)
    }

    /// Returns the value with which a channel naturally starts, in the notation of a default.
    pub fn natural_start(&self) -> Option<&'static str> {
        self.rules().start
    }

    /// Returns whether two tasks of one step may write the same channel.
    pub fn takes_several_writers(&self) -> bool {
        self.rules().several_writers
    }

    /// Returns the names of the built-in reducers with which several tasks of one step may write a channel of this type,
    /// as far as they need no more than their name.
    ///
    /// ```
    /// use graphrun_core::state::{Reducer, Type};
    ///
    /// assert_eq!(Reducer::for_several_writers(&Type::INT), ["sum", "min", "max"]);
    /// assert!(Reducer::for_several_writers(&Type::String).is_empty());
    /// ```
    pub fn for_several_writers(ty: &Type) -> Vec<&str> {
        let fits = |it: &&Self| {
            it.takes_several_writers() && it.fits(ty) && !matches!(it, Self::Best { .. })
        };
        Self::BUILT_IN.iter().filter(fits).map(Self::name).collect()
    }

    /// Returns the relation of a write to the value of its channel.
    pub fn update_form(&self) -> UpdateForm {
        self.rules().update
    }

    /// Returns whether it folds items into a list, one by one.
    pub fn grows_list(&self) -> bool {
        self.rules().grows_list
    }

    /// Returns a keyword of a JSON Schema that the value may break although each write fits.
    pub(super) fn may_break(&self, root: &Value) -> Option<&'static str> {
        if !self.grows_list() {
            return None;
        }
        let keeps_once = matches!(self, Self::Union);
        // The list also has the keywords of the schemas that it refers to; these may refer to each other.
        let mut parts = vec![root];
        let mut at = 0;
        while let Some(&schema) = parts.get(at) {
            at += 1;
            let breaks = |it: &&&str| match **it {
                UNIQUE_ITEMS => !keeps_once && schema.get(UNIQUE_ITEMS) == Some(&Value::Bool(true)),
                keyword => schema.get(keyword).is_some(),
            };
            if let Some(keyword) = OF_WHOLE_LISTS.iter().find(breaks) {
                return Some(keyword);
            }
            let all = schema.get("allOf").and_then(Value::as_array).into_iter().flatten();
            let referred = schema.get("$ref").and_then(Value::as_str);
            let referred = referred.and_then(|it| root.pointer(it.strip_prefix('#')?));
            for part in all.chain(referred) {
                if !parts.iter().any(|it| ptr::eq(*it, part)) {
                    parts.push(part);
                }
            }
        }
        None
    }

    /// Returns whether a write of the right type may still be refused because of the value before it.
    pub fn may_refuse(&self) -> bool {
        matches!(self.rules().result, FoldResult::Selected | FoldResult::Computed)
    }

    /// Returns whether a value can result that no task has written, even if each write fits the type.
    pub(super) fn computes(&self) -> bool {
        self.rules().result == FoldResult::Computed
    }

    /// Returns whether the result is the sum of the value before and the written number.
    pub fn adds(&self) -> bool {
        matches!(self, Self::Sum)
    }

    /// Returns whether writes are messages, or removals of them.
    pub(super) fn is_messages(&self) -> bool {
        matches!(self, Self::Messages)
    }

    /// Returns whether the result is the list before with all written items behind it.
    pub(super) fn extends(&self) -> bool {
        self.rules().result == FoldResult::Extended
    }

    /// Returns whether a write simply replaces the value.
    pub fn is_replace(&self) -> bool {
        matches!(self, Self::Replace)
    }

    /// Reads the value of `x-merge` in a schema; `None` for an unknown name.
    pub(super) fn of_schema(named: &Value, custom: &[Arc<dyn Fold>]) -> Option<Self> {
        if let Some(path) = named.get("best").and_then(Value::as_str) {
            return Some(Self::Best { by: path.split('.').map(str::to_owned).collect() });
        }
        Self::named(named.as_str()?, custom)
    }

    /// Returns the value of `x-merge` in a schema; `None` for the default.
    pub(super) fn to_schema(&self) -> Option<Value> {
        match self {
            Self::Replace => None,
            Self::Best { by } => Some(json!({ "best": by.join(".") })),
            named => Some(named.name().into()),
        }
    }

    /// Returns the reducer of a name, which needs no more than the name.
    pub fn named(name: &str, custom: &[Arc<dyn Fold>]) -> Option<Self> {
        let is_named = |it: &&Self| it.name() == name && !matches!(it, Self::Best { .. });
        let custom = || custom.iter().find(|it| it.name() == name).cloned().map(Self::Custom);
        Self::BUILT_IN.iter().find(is_named).cloned().or_else(custom)
    }

    /// Folds one write that is not a list of items into the value before it. `removed_max` is the largest number in an id
    /// of a removed message, which only a list of messages reads and changes.
    ///
    /// # Errors
    ///
    /// Fails when the two cannot be combined.
    pub(super) fn fold(
        &self,
        current: Option<Value>,
        written: Value,
        removed_max: &mut u64,
    ) -> Result<Value, ReduceError> {
        match self {
            Self::Replace => Ok(written),
            Self::Append | Self::Union | Self::Messages => {
                self.fold_list(current, written, removed_max)
            }
            Self::Sum => match current {
                None => Ok(written),
                Some(before) => self.sum(&before, &written),
            },
            Self::Min => self.choose(current, written, Ordering::Less),
            Self::Max => self.choose(current, written, Ordering::Greater),
            Self::Merge => self.merge(current, written),
            Self::Best { by } => Ok(match current {
                Some(before) if !is_better(&written, &before, by) => before,
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

    fn fold_list(
        &self,
        current: Option<Value>,
        written: Value,
        removed_max: &mut u64,
    ) -> Result<Value, ReduceError> {
        let mut items = match current {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => items,
            Some(other) => return Err(self.kind_error("a list", &other)),
        };
        let written = match written {
            Value::Array(written) => written,
            one => vec![one],
        };
        self.add(&mut items, &written, removed_max);
        Ok(Value::Array(items))
    }

    /// Adds items to a list by the rule of the reducer; see [`Self::fold`].
    pub(super) fn add(&self, list: &mut Vec<Value>, items: &[Value], removed_max: &mut u64) {
        reserve(list, items.len());
        if self.is_messages() {
            return add_messages(list, items, removed_max);
        }
        for item in items {
            if !matches!(self, Self::Union) || !list.contains(item) {
                list.push(item.clone());
            }
        }
    }

    /// Returns whether items would change some of the items that are already in the list.
    pub(super) fn changes_items(&self, list: &[Value], items: &[Value]) -> bool {
        self.is_messages() && changes_messages(list, items)
    }

    fn sum(&self, before: &Value, written: &Value) -> Result<Value, ReduceError> {
        if let (Some(a), Some(b)) = (integer(before), integer(written)) {
            let sum = i64::try_from(a + b);
            return sum.map(Value::from).map_err(|_| ReduceError::Overflow(a, b));
        }
        let number = |it: &Value| it.as_f64().ok_or_else(|| self.kind_error("a number", it));
        // JSON has no infinity, and serde_json would write null.
        let sum = Number::from_f64(number(before)? + number(written)?).map(Value::Number);
        sum.ok_or_else(|| ReduceError::TooLarge(before.to_string(), written.to_string()))
    }

    fn choose(
        &self,
        current: Option<Value>,
        written: Value,
        wanted: Ordering,
    ) -> Result<Value, ReduceError> {
        let Some(before) = current else { return Ok(written) };
        let order = compare(&written, &before).ok_or_else(|| {
            let unfit = if before.is_number() { &written } else { &before };
            self.kind_error("a number", unfit)
        })?;
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
            Self::Best { by } => write!(f, "best({})", by.join(".")),
            named => f.write_str(named.name()),
        }
    }
}

fn has_ids(ty: &Type) -> bool {
    let Type::List(item) = ty else { return false };
    **item == Type::Any || item.field("id").is_some_and(|it| *it.required() == Type::String)
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

/// Returns whether the number at a path is higher. A value without one ranks below every value with one.
fn is_better(written: &Value, before: &Value, by: &[String]) -> bool {
    let number = |value| {
        let found = by.iter().try_fold(value, |it: &Value, key| it.get(key));
        found.filter(|it| it.is_number())
    };
    match (number(written), number(before)) {
        (Some(written), Some(before)) => compare(written, before) == Some(Ordering::Greater),
        (written, None) => written.is_some(),
        (None, Some(_)) => false,
    }
}

/// Returns a whole number, of any 64 bits: as a float, it could lose digits.
fn integer(value: &Value) -> Option<i128> {
    value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from))
}

fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (integer(a), integer(b)) {
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
            current = Some(reducer.fold(current, write.clone(), &mut 0)?);
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
                json!([{"id": "1", "text": "A"}, {"id": "2", "text": "b"}, {"text": "no id", "id": "m1"}]),
            ),
        ];
        for (reducer, writes, expected) in cases {
            assert_eq!(folded(&reducer, &writes), Ok(expected), "{reducer}");
        }
    }

    #[test]
    fn limits_of_a_list_are_found_behind_references() {
        let of = |schema: Value| Reducer::Append.may_break(&schema);
        let limited = |limit: Value| {
            json!({
                "$ref": "#/$defs/A",
                "$defs": {
                    "A": {"$ref": "#/$defs/B"},
                    "B": {"allOf": [{"$ref": "#/$defs/A"}, {"type": "array"}, limit]},
                },
            })
        };
        assert_eq!(of(limited(json!({}))), None);
        assert_eq!(of(limited(json!({"maxItems": 3}))), Some("maxItems"));
        let once = limited(json!({"uniqueItems": true}));
        assert_eq!((Reducer::Union.may_break(&once), of(once)), (None, Some("uniqueItems")));
        assert_eq!(Reducer::Replace.may_break(&json!({"maxItems": 3})), None);
    }

    #[test]
    fn values_that_a_reducer_cannot_combine_are_an_error() {
        let error = folded(&Reducer::Sum, &[json!(1), json!("two")]).unwrap_err();
        assert_eq!(error.to_string(), "`sum` needs a number, got \"two\"");
        assert!(folded(&Reducer::Merge, &[json!([])]).is_err());
        assert!(folded(&Reducer::Sum, &[json!(i64::MAX), json!(1)]).is_err());
        assert!(folded(&Reducer::Sum, &[json!(f64::MAX), json!(f64::MAX)]).is_err());
    }

    #[test]
    fn large_whole_numbers_keep_their_digits() {
        let large = json!(u64::MAX - 1);
        let larger = json!(u64::MAX);
        let both = [larger.clone(), large.clone()];
        assert_eq!(folded(&Reducer::Min, &both), Ok(large.clone()));
        assert_eq!(folded(&Reducer::Max, &[large.clone(), larger.clone()]), Ok(larger.clone()));
        let best = Reducer::Best { by: vec!["n".into()] };
        let [lower, higher] = [json!({"n": large}), json!({"n": larger})];
        assert_eq!(folded(&best, &[lower, higher.clone()]), Ok(higher));
        let error = folded(&Reducer::Sum, &[json!(u64::MAX), json!(1)]).unwrap_err();
        assert_eq!(error.to_string(), "the sum of 18446744073709551615 and 1 is too large");
        let in_range = [json!(u64::MAX), json!(i64::MIN)];
        assert_eq!(folded(&Reducer::Sum, &in_range), Ok(json!(i64::MAX)));
    }
}
