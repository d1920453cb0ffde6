//! The parts of a value that decisions distinguish, each with the values that the exploration tries.
//!
//! [`Leaves`] also lists the parts with values that it does not try, so that the search claims of no node behind them that
//! nothing leads to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use serde_json::{Map, Value, json};

use super::placed::placed;
use crate::{
    graph::Access,
    state::{NumberRange, Type},
};

/// The maximum length of a generated list, for conditions on a length.
const LIST_MAX: i64 = 4;
/// The largest difference of the ends of a range of whole numbers that are all tried.
const WHOLE_NUMBERS_MAX: f64 = 16.0;
/// The maximum depth of nested fields with distinct values.
const DEPTH_MAX: usize = 4;
/// Texts of the formats that types have.
const DATES: [&str; 2] = ["2000-01-01", "2000-01-02"];
const DURATIONS: [&str; 2] = ["PT1M", "PT2M"];

/// A path into a value.
type Path = Vec<String>;

/// The parts of a value that decisions distinguish.
#[derive(Debug, Default)]
pub(super) struct Leaves {
    /// The values of each part, which are combined with those of the other parts.
    pub(super) combined: BTreeMap<Path, Vec<Value>>,
    /// Values around these parts, such as an absent record; each is tried with the smallest values beside it.
    pub(super) alone: Vec<(Path, Value)>,
    /// The parts with values that are not tried.
    pub(super) untried: BTreeSet<Path>,
}

impl Leaves {
    /// Returns the parts of a type that the accesses read. `example` is a value of the type.
    pub(super) fn of(ty: &Type, accesses: &[Access], example: Option<&Value>) -> Self {
        let mut leaves = Self::default();
        for access in accesses {
            leaves.add(ty, access);
        }
        // A text may have a format that only its schema shows.
        for (path, values) in &mut leaves.combined {
            let at = |example| path.iter().try_fold(example, |value: &Value, name| value.get(name));
            if let Some(text @ Value::String(_)) = example.and_then(at)
                && type_at(ty, path) == Some(&Type::String)
                && !values.contains(text)
            {
                values.push(text.clone());
            }
        }
        leaves.take_outer();
        let is_beside = |(path, _): &(Path, Value)| {
            leaves.combined.keys().any(|it| !it.starts_with(path))
                || leaves.alone.iter().any(|(it, _)| !it.starts_with(path) && !path.starts_with(it))
        };
        let beside = leaves.alone.iter().filter(|it| is_beside(it)).map(|it| it.0.clone());
        leaves.untried.extend(beside.collect::<Vec<Path>>());
        leaves
    }

    /// Takes the parts that contain other parts out of the combinations: one of two such values replaces the other.
    fn take_outer(&mut self) {
        let is_outer = |outer: &Path| {
            self.combined.keys().any(|it| it.len() > outer.len() && it.starts_with(outer))
        };
        let outer: Vec<Path> = self.combined.keys().filter(|it| is_outer(it)).cloned().collect();
        for path in outer {
            for value in self.combined.remove(&path).into_iter().flatten() {
                self.add_alone(&path, value);
            }
        }
    }

    fn add_alone(&mut self, path: &[String], value: Value) {
        if !self.alone.iter().any(|(at, it)| at == path && *it == value) {
            self.alone.push((path.to_vec(), value));
        }
    }

    /// Adds the parts below an access whose values affect decisions.
    fn add(&mut self, ty: &Type, access: &Access) {
        let mut at = ty;
        for (depth, name) in access.path.iter().enumerate() {
            let above = &access.path[..depth];
            match at.required() {
                Type::Map(_) => self.add_alone(above, json!({})),
                Type::Any => {
                    self.add_alone(above, json!({}));
                    self.untried.insert(above.to_vec());
                    at = &Type::Any;
                    continue;
                }
                _ => (),
            }
            let Some(field) = at.field(name) else { return };
            if matches!(field, Type::Optional(_)) && depth + 1 < access.path.len() {
                self.add_alone(&access.path[..=depth], Value::Null);
            }
            at = field;
        }
        if access.is_presence && access.path.is_empty() && !may_be_null(at) {
            return;
        }
        let mut found = PartsBelow::default();
        collect(at, access, &mut access.path.clone(), 0, &mut found);
        self.untried.extend(found.untried);
        for (path, values) in found.leaves {
            let known = self.combined.entry(path).or_default();
            for value in values {
                if !known.contains(&value) {
                    known.push(value);
                }
            }
        }
    }

    /// Notes the parts of which values that a decision may distinguish do not fit. `tried` has the numbers of the values
    /// that fit, for each part.
    pub(super) fn note_lost(&mut self, ty: &Type, accesses: &[Access], tried: &[BTreeSet<usize>]) {
        let is_named = |value: &Value| {
            let text = value.as_str();
            accesses.iter().flat_map(|it| &it.texts).any(|it| Some(it.as_str()) == text)
        };
        for ((path, values), tried) in self.combined.iter().zip(tried) {
            let mut lost = (0..values.len()).filter(|it| !tried.contains(it)).map(|it| &values[it]);
            let is_lacking = match type_at(ty, path).map(Type::required) {
                Some(Type::Int(range) | Type::Float(range)) => {
                    lost.any(|number| number.as_f64().is_none_or(|it| range.contains(it)))
                }
                // The other texts stand for each other.
                Some(Type::String | Type::Date | Type::Duration) => {
                    let other = |it: &&usize| values[**it].is_string() && !is_named(&values[**it]);
                    !tried.iter().any(|it| other(&it))
                }
                _ => lost.any(|it| !is_empty(it)),
            };
            if is_lacking {
                self.untried.insert(path.clone());
            }
        }
    }
}

fn may_be_null(ty: &Type) -> bool {
    matches!(ty, Type::Optional(_) | Type::Any)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

fn type_at<'a>(ty: &'a Type, path: &[String]) -> Option<&'a Type> {
    path.iter().try_fold(ty, |ty, name| match ty.required() {
        Type::Any => Some(&Type::Any),
        _ => ty.field(name),
    })
}

/// The parts below an access.
#[derive(Debug, Default)]
struct PartsBelow {
    leaves: Vec<(Path, Vec<Value>)>,
    untried: Vec<Path>,
}

fn collect(ty: &Type, access: &Access, path: &mut Path, depth: usize, found: &mut PartsBelow) {
    let texts = || access.texts.iter().map(|it| json!(it));
    let with_texts = |others: &[&str]| others.iter().map(|it| json!(it)).chain(texts()).collect();
    let mut values: Vec<Value> = match ty.required() {
        Type::Bool => vec![json!(true), json!(false)],
        Type::Enum(values) => values.iter().map(|it| json!(it)).collect(),
        Type::Int(range) => whole_numbers(*range, access).into_iter().map(|it| json!(it)).collect(),
        Type::Float(range) => fractions(*range, access).into_iter().map(|it| json!(it)).collect(),
        Type::String => with_texts(&["", "x"]),
        Type::Date => with_texts(&DATES),
        Type::Duration => with_texts(&DURATIONS),
        Type::List(item) => lists(item, access, found),
        Type::Record(record) if access.is_whole && depth < DEPTH_MAX => {
            for field in &record.fields {
                path.push(field.name.clone());
                collect(&field.ty, access, path, depth + 1, found);
                path.pop();
            }
            return;
        }
        // Only its presence matters.
        Type::Record(_) if !access.is_whole && may_be_null(ty) => vec![json!({})],
        Type::Record(_) if !access.is_whole => return,
        Type::Map(item) if depth == 0 => maps(item, access),
        Type::Any if depth == 0 => {
            found.untried.push(path.clone());
            json_values(access)
        }
        Type::Map(_) | Type::Record(_) | Type::Any | Type::Optional(_) => {
            found.untried.push(path.clone());
            return;
        }
    };
    if may_be_null(ty) {
        values.push(Value::Null);
    }
    found.leaves.push((path.clone(), values));
}

/// Returns the numbers that conditions distinguish: those they name, and their neighbours.
fn around(numbers: &[i64]) -> BTreeSet<i64> {
    let near = numbers.iter().flat_map(|it| [it.saturating_sub(1), *it, it.saturating_add(1)]);
    near.chain([0]).collect()
}

/// Returns the whole numbers that conditions distinguish: all of a small range, or else those around the numbers they name.
fn whole_numbers(range: NumberRange, access: &Access) -> BTreeSet<i64> {
    if let Some(all) = all_of(range) {
        return all.collect();
    }
    let named = access.numbers.iter().copied();
    let beside = access.fractions.iter().flat_map(|it| [it.0.floor(), it.0.ceil()]);
    #[expect(clippy::cast_possible_truncation, reason = "a number beyond the ends becomes the end")]
    let beside = beside.chain(range.min).chain(range.max).map(|it| it as i64);
    around(&named.chain(beside).collect::<Vec<i64>>())
}

/// Returns all whole numbers of a range, if they are few.
#[expect(clippy::cast_possible_truncation, reason = "the numbers of a small range are small")]
pub(super) fn all_of(range: NumberRange) -> Option<RangeInclusive<i64>> {
    let min = range.min?;
    let max = range.max?;
    let is_small = max - min < WHOLE_NUMBERS_MAX && min.abs() < 1e15 && max.abs() < 1e15;
    is_small.then(|| min.ceil() as i64..=max.floor() as i64)
}

/// Returns the numbers that conditions distinguish: those they name, one between each two of them, and one beyond each end.
#[expect(clippy::cast_precision_loss, reason = "the condition compares floats, too")]
fn fractions(range: NumberRange, access: &Access) -> Vec<f64> {
    let whole = access.numbers.iter().map(|it| *it as f64);
    let named = whole.chain(access.fractions.iter().map(|it| it.0));
    let mut numbers: Vec<f64> = named.chain(range.min).chain(range.max).collect();
    if numbers.is_empty() {
        return vec![0.0];
    }
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    let between: Vec<f64> = numbers.windows(2).map(|it| f64::midpoint(it[0], it[1])).collect();
    let first = numbers[0] - 1.0;
    let last = numbers[numbers.len() - 1] + 1.0;
    let all = numbers.into_iter().chain(between).chain([first, last]);
    all.filter(|it| it.is_finite()).collect()
}

/// Returns lists with none, one and two items, and with the lengths that a condition distinguishes.
/// If the condition reads the items, also lists with each kind of item.
fn lists(item: &Type, access: &Access, found: &mut PartsBelow) -> Vec<Value> {
    let lengths: BTreeSet<i64> = around(&access.numbers).into_iter().chain([1, 2]).collect();
    let plain = plain(item);
    let lengths = lengths.into_iter().filter(|it| (0..=LIST_MAX).contains(it));
    let lengths = lengths.filter_map(|it| usize::try_from(it).ok());
    let mut lists: Vec<Value> = lengths.map(|it| Value::Array(vec![plain.clone(); it])).collect();
    if access.is_whole {
        let inside = Access { path: Vec::new(), item_parts: None, ..access.clone() };
        let mut items = PartsBelow::default();
        collect(item, &inside, &mut Vec::new(), DEPTH_MAX - 1, &mut items);
        found.untried.extend(items.untried.iter().map(|_| access.path.clone()));
        for (path, values) in items.leaves {
            for value in values {
                let only = placed(None, &path, value);
                lists.push(json!([only]));
                lists.push(json!([only, plain]));
            }
        }
    }
    lists
}

/// Returns maps with none, one and two entries, and one with each key that a condition names.
fn maps(item: &Type, access: &Access) -> Vec<Value> {
    let of = |keys: &[&str]| {
        let entries = keys.iter().map(|key| ((*key).to_owned(), plain(item)));
        Value::Object(entries.collect::<Map<String, Value>>())
    };
    let named = access.texts.iter().map(|it| of(&[it.as_str()]));
    [of(&[]), of(&["x"]), of(&["x", "y"])].into_iter().chain(named).collect()
}

/// Returns values for a part of any type. Values that the condition cannot compute with would only make it fail.
fn json_values(access: &Access) -> Vec<Value> {
    if access.item_parts.is_some() {
        return vec![json!([]), json!(["x"]), json!(["x", "x"])];
    }
    let texts = access.texts.iter().map(|it| json!(it));
    if access.numbers.is_empty() && access.fractions.is_empty() {
        let others = [json!(true), json!(false), json!(""), json!("x")];
        return others.into_iter().chain(texts).collect();
    }
    let whole = around(&access.numbers).into_iter().map(|it| json!(it));
    let fractions = access.fractions.iter().flat_map(|it| [it.0 - 1.0, it.0, it.0 + 1.0]);
    whole.chain(fractions.map(|it| json!(it))).chain(texts).collect()
}

/// Returns one value of a type; a record is completed later.
fn plain(ty: &Type) -> Value {
    match ty.required() {
        Type::Bool => json!(false),
        Type::Int(_) | Type::Float(_) => json!(0),
        Type::Enum(values) => json!(values.first()),
        Type::List(_) => json!([]),
        Type::Record(_) | Type::Map(_) => json!({}),
        Type::Date => json!(DATES[0]),
        Type::Duration => json!(DURATIONS[0]),
        Type::String | Type::Any | Type::Optional(_) => json!("x"),
    }
}
