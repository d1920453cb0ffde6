//! Functions that make texts, lists and records. Each charges the meter before it makes them.

use std::{cmp::Ordering, collections::BTreeSet, fmt, ops::Range, sync::Arc};

use graphrun_core::state::{Absence, Field, NumberRange, Record, Type};
use serde_json::{Map, Number, Value};

use super::{
    evaluate::Evaluated,
    evaluate_error::{EvaluateError, kind},
    meter::ExpressionMeter,
    numbers::{self, Numeric, numeric, order_of},
    operators::joined,
    ranges::{self, EXACT_BELOW},
    syntax::{Operator, Pattern},
    typing::describe,
};

pub(super) fn text(text: &str, meter: &mut ExpressionMeter) -> Evaluated<Value> {
    meter.make_text(text.len())?;
    Ok(text.into())
}

pub(super) fn split(text: &str, separator: &str, meter: &mut ExpressionMeter) -> Evaluated<Value> {
    let mut parts = Vec::new();
    let mut keep = |part: &str| -> Evaluated<()> {
        meter.make_text(part.len())?;
        parts.push(Value::from(part));
        Ok(())
    };
    if separator.is_empty() {
        let mut buffer = [0; 4];
        text.chars().try_for_each(|it| keep(it.encode_utf8(&mut buffer)))?;
    } else {
        text.split(separator).try_for_each(&mut keep)?;
    }
    Ok(parts.into())
}

/// Replaces each occurrence of a part. An empty part occurs before each character, and at the end.
pub(super) fn replace(
    text: &str,
    part: &str,
    other: &str,
    meter: &mut ExpressionMeter,
) -> Evaluated<Value> {
    let count = text.matches(part).count();
    let removed = count.saturating_mul(part.len());
    let added = count.saturating_mul(other.len());
    meter.make_text((text.len() - removed).saturating_add(added))?;
    Ok(text.replace(part, other).into())
}

pub(super) fn join(
    items: &[Value],
    separator: &str,
    meter: &mut ExpressionMeter,
) -> Evaluated<Value> {
    let text = |it: &'_ Value| it.as_str().map(str::len).ok_or_else(|| kind("join", "texts", it));
    let mut length = items.len().saturating_sub(1).saturating_mul(separator.len());
    for item in items {
        meter.step()?;
        length = length.saturating_add(text(item)?);
    }
    meter.make_text(length)?;
    let parts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
    Ok(parts.join(separator).into())
}

/// Returns an item of a list; null if there is none.
pub(super) fn item(item: Option<&Value>, meter: &mut ExpressionMeter) -> Evaluated<Value> {
    Ok(item.map(|it| meter.copy(it)).transpose()?.unwrap_or_default())
}

pub(super) fn slice(
    of: &Value,
    range: Range<i64>,
    meter: &mut ExpressionMeter,
) -> Evaluated<Value> {
    let bound = |it: i64| usize::try_from(it.max(0)).unwrap_or(usize::MAX);
    let from = bound(range.start);
    let to = bound(range.end);
    match of {
        Value::Array(items) => {
            let to = to.min(items.len());
            copied(items.get(from.min(to)..to).unwrap_or_default(), meter)
        }
        Value::String(whole) => {
            let start = |at: usize| whole.char_indices().nth(at).map_or(whole.len(), |it| it.0);
            let to = start(to);
            text(whole.get(start(from).min(to)..to).unwrap_or_default(), meter)
        }
        other => Err(kind("slice", "a list or a text", other)),
    }
}

fn copied(items: &[Value], meter: &mut ExpressionMeter) -> Evaluated<Value> {
    let copies = items.iter().map(|it| Ok(meter.copy(it)?));
    Ok(Value::Array(copies.collect::<Evaluated<_>>()?))
}

pub(super) fn flatten(lists: &[Value], meter: &mut ExpressionMeter) -> Evaluated<Value> {
    let mut items = Vec::new();
    for list in lists {
        meter.step()?;
        let list = list.as_array().ok_or_else(|| kind("flatten", "lists", list))?;
        for item in list {
            items.push(meter.copy(item)?);
        }
    }
    Ok(items.into())
}

pub(super) fn sort(items: &[Value], meter: &mut ExpressionMeter) -> Evaluated<Value> {
    charge_sort("sort", items.iter(), meter)?;
    let Value::Array(mut sorted) = copied(items, meter)? else { return Ok(Value::Null) };
    sorted.sort_by(order_of_keys);
    Ok(sorted.into())
}

/// Sorts items, each behind the number or text that gives its place. Equal ones keep their order.
pub(super) fn sort_by_key(
    function: &'static str,
    mut keyed: Vec<(Value, Value)>,
    meter: &mut ExpressionMeter,
) -> Evaluated<Value> {
    charge_sort(function, keyed.iter().map(|it| &it.0), meter)?;
    keyed.sort_by(|left, right| order_of_keys(&left.0, &right.0));
    Ok(keyed.into_iter().map(|it| it.1).collect())
}

/// Compares the number or text of an item with that of another one, if there is another one.
pub(super) fn compare_keys(
    function: &'static str,
    key: &Value,
    other: Option<&Value>,
    meter: &mut ExpressionMeter,
) -> Evaluated<Option<Ordering>> {
    let Some(other) = other else {
        charge_sort(function, [key].into_iter(), meter)?;
        return Ok(None);
    };
    charge_sort(function, [other, key].into_iter(), meter)?;
    Ok(Some(order_of_keys(key, other)))
}

/// Charges for a sort: each key is compared with about as many others as their number has binary digits.
fn charge_sort<'v>(
    function: &'static str,
    keys: impl ExactSizeIterator<Item = &'v Value>,
    meter: &mut ExpressionMeter,
) -> Evaluated<()> {
    let comparisons = u64::from(keys.len().max(1).ilog2()) + 1;
    let mut is_text = None;
    for key in keys {
        let is_text = *is_text.get_or_insert(key.is_string());
        let steps = match key {
            Value::String(text) if is_text => text.len() as u64 / 32 + 1,
            Value::Number(_) if !is_text => 1,
            other => return Err(kind(function, "numbers or texts", other)),
        };
        meter.steps(steps.saturating_mul(comparisons))?;
    }
    Ok(())
}

fn order_of_keys(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::String(left), Value::String(right)) => left.cmp(right),
        _ => numeric(left)
            .zip(numeric(right))
            .and_then(|(left, right)| order_of(left, right))
            .unwrap_or(Ordering::Equal),
    }
}

pub(super) fn reverse(items: &[Value], meter: &mut ExpressionMeter) -> Evaluated<Value> {
    let Value::Array(mut reversed) = copied(items, meter)? else { return Ok(Value::Null) };
    reversed.reverse();
    Ok(reversed.into())
}

pub(super) fn distinct(items: &[Value], meter: &mut ExpressionMeter) -> Evaluated<Value> {
    let mut seen = BTreeSet::new();
    let mut kept = Vec::new();
    for item in items {
        // The key is a second copy.
        meter.count(item)?;
        let key = key_of(item);
        meter.steps(key.len() as u64 / 32 + 1)?;
        if seen.insert(key) {
            kept.push(meter.copy(item)?);
        }
    }
    Ok(kept.into())
}

/// Returns a text that is the same for equal values: `1` and `1.0` are equal, and the order of fields does not matter.
fn key_of(value: &Value) -> String {
    match value {
        Value::Number(number) => match numeric(value) {
            #[expect(clippy::cast_possible_truncation, reason = "below the limit it is exact")]
            Some(Numeric::Float(float)) if float.fract() == 0.0 && float.abs() < EXACT_BELOW => {
                (float as i64).to_string()
            }
            _ => number.to_string(),
        },
        Value::Array(items) => {
            format!("[{}]", items.iter().map(key_of).collect::<Vec<_>>().join(","))
        }
        Value::Object(fields) => {
            let field = |(name, it): (&String, &Value)| {
                format!("{}:{}", Value::from(name.as_str()), key_of(it))
            };
            let fields: BTreeSet<String> =
                fields.iter().filter(|it| !it.1.is_null()).map(field).collect();
            format!("{{{}}}", fields.into_iter().collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

/// Returns the sum of whole numbers or of floats, which `add` adds.
pub(super) fn sum(
    items: &[Value],
    add: fn(Operator, Numeric, Numeric) -> Evaluated<Value>,
    meter: &mut ExpressionMeter,
) -> Evaluated<Value> {
    let mut sum = Value::from(0);
    for item in items {
        meter.step()?;
        let next = numeric(item).ok_or_else(|| kind("sum", "numbers", item))?;
        let before = numeric(&sum).unwrap_or(Numeric::Int(0));
        sum = add(Operator::Add, before, next)?;
    }
    Ok(sum)
}

pub(super) fn keys<'v>(
    of: impl Iterator<Item = &'v String>,
    meter: &mut ExpressionMeter,
) -> Evaluated<Value> {
    let mut keys = BTreeSet::new();
    for key in of {
        meter.look_at(key)?;
        meter.make_text(key.len())?;
        keys.insert(key.as_str());
    }
    Ok(keys.into_iter().collect())
}

/// Adds the fields of a record to those of another. An absent field changes nothing.
pub(super) fn merge(
    of: &Map<String, Value>,
    changes: &Value,
    meter: &mut ExpressionMeter,
) -> Evaluated<Value> {
    let mut merged = Map::new();
    let changes = changes.as_object();
    let change = |name: &str| changes.and_then(|it| it.get(name)).filter(|it| !it.is_null());
    for (name, value) in of {
        meter.make_text(name.len())?;
        let value = match (value, change(name)) {
            (Value::Object(below), Some(change @ Value::Object(_))) => merge(below, change, meter)?,
            (_, Some(change)) => meter.copy(change)?,
            (value, None) => meter.copy(value)?,
        };
        merged.insert(name.clone(), value);
    }
    for (name, value) in changes.into_iter().flatten() {
        if !of.contains_key(name) && !value.is_null() {
            meter.make_text(name.len())?;
            merged.insert(name.clone(), meter.copy(value)?);
        }
    }
    Ok(merged.into())
}

/// Two types that one value of a merged record or map may have.
pub(super) struct TwoTypes(Type, Type);

impl fmt::Display for TwoTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} or {}", describe(&self.0), describe(&self.1))
    }
}

fn either(a: &Type, b: &Type) -> Result<Type, TwoTypes> {
    joined(a, b).ok_or_else(|| TwoTypes(a.clone(), b.clone()))
}

/// Returns the range of the sizes of the values of a type.
pub(super) fn size_range(of: &Type) -> NumberRange {
    match of {
        Type::Enum(texts) => {
            let sizes = texts.iter().map(|it| it.chars().count());
            let ends = sizes.clone().min().zip(sizes.max());
            ends.map_or(NumberRange::FROM_ZERO, |(min, max)| ranges::sizes(min, max))
        }
        Type::Record(record) if record.is_closed => {
            let is_needed = |it: &&Field| !matches!(it.ty, Type::Optional(_) | Type::Any);
            ranges::sizes(record.fields.iter().filter(is_needed).count(), record.fields.len())
        }
        _ => NumberRange::FROM_ZERO,
    }
}

/// Returns the type of merged records or maps.
pub(super) fn merged_type(of: &Type, changes: &Type) -> Result<Type, TwoTypes> {
    Ok(match (of, changes) {
        (Type::Record(record), Type::Record(changes)) => {
            let mut fields = record.fields.clone();
            for field in &mut fields {
                match changes.fields.iter().find(|it| it.name == field.name) {
                    Some(change) => {
                        *field = field.joined(Some(field), merged_field(&field.ty, &change.ty)?);
                    }
                    // An open record may have a field that its type does not name.
                    None if changes.is_closed => (),
                    None => *field = Field::new(&*field.name, Type::Any),
                }
            }
            let is_new = |it: &&Field| !record.fields.iter().any(|field| field.name == it.name);
            fields.extend(changes.fields.iter().filter(is_new).map(|change| {
                let may_stay = !record.is_closed && matches!(change.ty, Type::Optional(_));
                let ty = if may_stay { Type::Any } else { change.ty.clone() };
                Field::new(&*change.name, ty).absent_as(Absence::Omitted)
            }));
            let is_closed = record.is_closed && changes.is_closed;
            let merged = Type::Record(Arc::new(Record { name: None, fields, is_closed }));
            // With fields of the same types, it is still a value of the named type.
            let is_same = record.name.is_some() && changes.is_closed && merged.fits(of);
            if is_same { of.clone() } else { merged }
        }
        (Type::Map(of), Type::Map(changes)) => {
            // A key may be in one of them, or in both.
            let merged = merged_field(of, changes)?;
            Type::Map(Box::new(either(&either(of, changes)?, &merged)?))
        }
        (Type::Map(_), Type::Record(record)) | (Type::Record(record), Type::Map(_))
            if !record.is_closed =>
        {
            Type::Map(Box::new(Type::Any))
        }
        (Type::Map(value), Type::Record(changes)) => {
            let mut types = changes.fields.iter().map(|it| it.ty.required());
            Type::Map(Box::new(types.try_fold(Type::clone(value), |all, it| either(&all, it))?))
        }
        // A field that is null stays so.
        (Type::Record(record), Type::Map(value)) => {
            let mut types = record.fields.iter().map(|it| &it.ty);
            Type::Map(Box::new(types.try_fold(Type::clone(value), |all, it| either(&all, it))?))
        }
        _ => Type::Any,
    })
}

fn merged_field(of: &Type, change: &Type) -> Result<Type, TwoTypes> {
    let changed = match (of.required(), change.required()) {
        (of @ (Type::Record(_) | Type::Map(_)), change @ (Type::Record(_) | Type::Map(_))) => {
            merged_type(of, change)?
        }
        // The value may be a record, which keeps its other fields.
        (Type::Any, Type::Record(_) | Type::Map(_)) => Type::Any,
        (_, change) => change.clone(),
    };
    let is_optional = |it: &Type| matches!(it, Type::Optional(_));
    // Without a record to merge with, the change stands alone.
    let changed = if is_optional(of) && changed != *change.required() {
        either(&changed, change.required())?
    } else {
        changed
    };
    if is_optional(change) { either(of, &changed) } else { Ok(changed) }
}

pub(super) fn string(value: &Value, meter: &mut ExpressionMeter) -> Evaluated<Value> {
    match (value, numeric(value)) {
        (Value::String(it), _) => text(it, meter),
        (Value::Bool(it), _) => text(&it.to_string(), meter),
        (_, Some(Numeric::Int(it))) => text(&it.to_string(), meter),
        (_, Some(Numeric::Float(it))) => text(&it.to_string(), meter),
        (other, None) => Err(kind("string", "a simple value", other)),
    }
}

/// Returns the whole number of a text or a number; null if the text shows none.
pub(super) fn int(value: &Value) -> Evaluated<Value> {
    match (value, numeric(value)) {
        (Value::String(text), _) => {
            let digits = text.strip_prefix('-').unwrap_or(text);
            let is_whole = digits.bytes().all(|it| it.is_ascii_digit());
            let number = is_whole.then(|| text.parse::<i64>().ok()).flatten();
            Ok(number.map(Value::from).unwrap_or_default())
        }
        (_, Some(Numeric::Int(it))) => numbers::whole(Some(it), "int"),
        #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
        #[expect(
            clippy::cast_precision_loss,
            reason = "the bounds are powers of two, and not among the numbers, as in CEL"
        )]
        (_, Some(Numeric::Float(it))) => {
            let is_inside = it > i64::MIN as f64 && it < -(i64::MIN as f64);
            is_inside.then(|| Value::from(it as i64)).ok_or(EvaluateError::Range("int"))
        }
        (other, None) => Err(kind("int", "a text or a number", other)),
    }
}

/// Returns the number of a text or a number as a float; null if the text shows none.
pub(super) fn float(value: &Value) -> Evaluated<Value> {
    match (value, numeric(value)) {
        (Value::String(text), _) => {
            // Rust reads `inf` and `nan` as floats, too.
            let is_digits = |it: u8| it.is_ascii_digit() || b"+-.eE".contains(&it);
            let number = text.bytes().all(is_digits).then(|| text.parse::<f64>().ok()).flatten();
            Ok(number.and_then(Number::from_f64).map(Value::Number).unwrap_or_default())
        }
        (_, Some(number)) => numbers::float(number.as_float(), "float"),
        (other, None) => Err(kind("float", "a text or a number", other)),
    }
}

/// Returns the groups of the first match; null without one.
pub(super) fn groups(of: &str, pattern: &Pattern, meter: &mut ExpressionMeter) -> Evaluated<Value> {
    // Finding the groups takes a slower search than finding out whether there is a match.
    meter.steps(pattern.steps(of).saturating_mul(4))?;
    let Some(found) = pattern.regex.captures(of) else { return Ok(Value::Null) };
    let group = |at: usize| found.get(at).map_or("", |it| it.as_str());
    let mut made = Map::new();
    let mut items = Vec::new();
    for (at, name) in pattern.regex.capture_names().enumerate().skip(1) {
        let value = text(group(at), meter)?;
        match name {
            Some(name) => _ = made.insert(name.to_owned(), value),
            None => items.push(value),
        }
    }
    Ok(if made.is_empty() { items.into() } else { made.into() })
}

impl Pattern {
    /// Returns the type of its groups: a record if they have names, otherwise a list.
    pub(super) fn groups_type(&self) -> Type {
        let names = self.regex.capture_names().flatten();
        let fields: Vec<Field> = names.map(|it| Field::new(it, Type::String)).collect();
        if fields.is_empty() {
            return Type::List(Box::new(Type::String));
        }
        Type::Record(Arc::new(Record { name: None, fields, is_closed: true }))
    }
}
