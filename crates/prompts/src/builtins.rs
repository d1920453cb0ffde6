//! The filters, tests and functions of a prompt: those of the engine, metered.
//!
//! The result of most is a few times as large as the arguments, so only the arguments are counted.
//! For the others [`multiplied`] estimates the extra memory. `namespace` and `debug` are left out:
//! the first makes values that contain themselves, the second prints the whole state.

use minijinja::{
    Environment, Error, ErrorKind, Output, State, Value, escape_formatter, filters, functions,
    tests,
    value::{Kwargs, Rest, ValueKind, ValueOrKwargs},
};

use super::{json, meter::meter, parts};

/// Counts a value and returns it.
pub(super) const COUNT: &str = "$count";
/// Counts a text whose characters may all be read.
pub(super) const TEXT: &str = "$text";
/// Makes a list of a lazy value, which would be computed again at each access.
pub(super) const LIST: &str = "$list";
/// Makes null of a part that is absent.
pub(super) const PART: &str = "$part";
/// Refuses the step of a slice that the engine would panic at.
pub(super) const STEP: &str = "$step";
/// The operator `+`.
pub(super) const PLUS: &str = "$plus";
/// The operator `*`.
pub(super) const TIMES: &str = "$times";

/// Replaces filters, tests and functions of the engine by metered ones.
pub(super) fn register(environment: &mut Environment<'_>) {
    register_filters(environment);
    register_tests(environment);
    environment.add_function("range", metered("range", Value::from_function(functions::range)));
    environment.add_function("dict", metered("dict", Value::from_function(functions::dict)));
    environment.remove_global("namespace");
    environment.remove_global("debug");
    environment.set_formatter(write);
    environment.add_filter(COUNT, |state: &mut State<'_, '_>, value: Value| {
        meter(state).count(&value).map(|()| value)
    });
    environment.add_filter(TEXT, |state: &mut State<'_, '_>, value: Value| {
        meter(state).steps(value.as_str().map_or(0, str::len) as u64).map(|()| value)
    });
    environment.add_filter(LIST, |state: &mut State<'_, '_>, value: Value| settled(state, value));
    environment.add_filter(
        PART,
        |value: Value| {
            if value.is_undefined() { Value::from(()) } else { value }
        },
    );
    environment.add_filter(STEP, step);
    environment.add_filter(PLUS, plus);
    environment.add_filter(TIMES, times);
}

fn register_filters(environment: &mut Environment<'_>) {
    macro_rules! add {
        ($($name:literal: $filter:path),* $(,)?) => {
            $(environment.add_filter($name, metered($name, Value::from_function($filter)));)*
        };
    }
    add! {
        "abs": filters::abs, "attr": filters::attr, "batch": filters::batch, "bool": filters::bool,
        "capitalize": filters::capitalize, "chain": filters::chain, "count": filters::length,
        "d": default, "default": default, "dictsort": filters::dictsort,
        "e": filters::escape, "escape": filters::escape, "first": filters::first,
        "float": filters::float, "format": filters::format, "groupby": parts::groupby,
        "indent": filters::indent, "int": filters::int, "items": filters::items,
        "join": filters::join, "last": filters::last, "length": filters::length,
        "lines": filters::lines, "list": filters::list, "lower": filters::lower,
        "map": parts::map, "max": filters::max, "min": filters::min, "pprint": filters::pprint,
        "reject": filters::reject, "rejectattr": filters::rejectattr,
        "replace": filters::replace, "reverse": filters::reverse, "round": filters::round,
        "safe": filters::safe, "select": filters::select, "selectattr": filters::selectattr,
        "slice": filters::slice, "sort": filters::sort, "split": filters::split,
        "string": filters::string, "sum": filters::sum, "title": filters::title,
        "tojson": json::tojson, "trim": filters::trim, "unique": filters::unique,
        "upper": filters::upper, "zip": filters::zip,
    }
}

/// The tests that read the whole value; the others check only its kind.
fn register_tests(environment: &mut Environment<'_>) {
    macro_rules! add {
        ($($name:literal: $test:path),* $(,)?) => {
            $(environment.add_test($name, metered($name, Value::from_function($test)));)*
        };
    }
    add! {
        "eq": tests::is_eq, "equalto": tests::is_eq, "==": tests::is_eq,
        "ne": tests::is_ne, "!=": tests::is_ne,
        "lt": tests::is_lt, "lessthan": tests::is_lt, "<": tests::is_lt,
        "le": tests::is_le, "<=": tests::is_le,
        "gt": tests::is_gt, "greaterthan": tests::is_gt, ">": tests::is_gt,
        "ge": tests::is_ge, ">=": tests::is_ge,
        "divisibleby": divisible, "in": tests::is_in, "sameas": tests::is_sameas,
        "startingwith": tests::is_startingwith, "endingwith": tests::is_endingwith,
        "lower": tests::is_lower, "upper": tests::is_upper,
    }
    environment.add_test("defined", |value: &Value| !is_absent(value));
    environment.add_test("undefined", is_absent);
    environment.add_test("none", is_absent);
}

/// Null is an absent value, as in expressions.
fn is_absent(value: &Value) -> bool {
    value.is_undefined() || value.is_none()
}

/// Returns the filter `default`, which replaces null as well.
fn default(state: &State<'_, '_>, value: &Value, args: Rest<Value>) -> Result<Value, Error> {
    let value = if value.is_none() { &Value::UNDEFINED } else { value };
    filters::default(state, value, args)
}

/// Returns the test `divisibleby`, without the panic of the engine's for zero.
fn divisible(value: &Value, by: &Value) -> Result<bool, Error> {
    if *by == Value::from(0) {
        let message = "nothing is divisible by zero";
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    Ok(tests::is_divisibleby(value, by))
}

/// Returns the step of a slice. The engine reads beyond the end of a list with a negative one, and panics.
fn step(value: Value) -> Result<Value, Error> {
    if f64::try_from(value.clone()).is_ok_and(|it| it < 1.0) {
        let message = "the step of a slice is 1 or more";
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    Ok(value)
}

/// Returns a function that counts its arguments and its result.
fn metered(
    name: &'static str,
    function: Value,
) -> impl Fn(&mut State<'_, '_>, Rest<ValueOrKwargs>) -> Result<Value, Error> + Send + Sync + 'static
{
    move |state, args| {
        let args = args.into_values();
        for arg in &args {
            meter(state).count(arg)?;
        }
        let bytes = multiplied(name, &args);
        meter(state).bytes(bytes)?;
        let made = function.call(state, &args)?;
        settled(state, made)
    }
}

/// Counts the value of a filter, as a list if it is lazy.
fn settled(state: &mut State<'_, '_>, made: Value) -> Result<Value, Error> {
    let made = match made.kind() {
        ValueKind::Iterable => listed(state, [&made])?,
        _ => made,
    };
    meter(state).count(&made)?;
    Ok(made)
}

/// Returns the items of several lists as one.
fn listed<const N: usize>(state: &mut State<'_, '_>, lists: [&Value; N]) -> Result<Value, Error> {
    let mut items = Vec::new();
    for list in lists {
        for item in list.try_iter()? {
            // The engine would fail at the first use of the item, which another check may not foresee.
            if item.kind() == ValueKind::Invalid {
                let message = "one of the values is no list";
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
            meter(state).count(&item)?;
            items.push(item);
        }
    }
    Ok(Value::from(items))
}

/// Returns the bytes that a filter may make beyond its arguments.
fn multiplied(name: &str, args: &[Value]) -> usize {
    let text = |at: usize| args.get(at).and_then(Value::as_str).unwrap_or_default();
    let length = || args.first().and_then(Value::len).unwrap_or(0);
    match name {
        "replace" => {
            let from = text(1);
            let found =
                if from.is_empty() { text(0).len() + 1 } else { text(0).matches(from).count() };
            found.saturating_mul(text(2).len())
        }
        "join" => length().saturating_mul(size(args.get(1))),
        // The first argument is the text itself, which may be a number.
        "indent" => (text(0).lines().count() + 1)
            .saturating_mul(largest_number(args.get(1..).unwrap_or(&[]))),
        // Lists of 24 bytes an item.
        "batch" | "slice" => largest_number(args).saturating_mul(24),
        "format" => formatted(args),
        // Each item is processed together with the other arguments.
        "map" | "select" | "reject" | "selectattr" | "rejectattr" => {
            let others: usize = args.iter().skip(1).map(|it| size(Some(it))).sum();
            length().saturating_mul(others)
        }
        // Sorting compares each item several times.
        "sort" | "unique" | "groupby" | "dictsort" | "min" | "max" => size(args.first()) * 4,
        // Texts and lists are copied with each item that is added.
        "sum" => {
            match args.first().and_then(|it| it.try_iter().ok()).and_then(|mut it| it.next()) {
                Some(first) if first.kind() == ValueKind::Number => 0,
                _ => length().saturating_mul(size(args.first())),
            }
        }
        // Each character becomes a value of 24 bytes.
        "list" | "split" | "lines" | "reverse" => text(0).len().saturating_mul(24),
        _ => 0,
    }
}

/// Returns the most bytes that a printf format makes: a width or a precision adds its value, and each placeholder may
/// take any of the values.
fn formatted(args: &[Value]) -> usize {
    let format = args.first().and_then(Value::as_str).unwrap_or_default();
    let number = |it: &str| if it.is_empty() { 0 } else { it.parse().unwrap_or(usize::MAX) };
    let widths = format.split(|it: char| !it.is_ascii_digit()).map(number);
    let widths = widths.fold(0, usize::saturating_add);
    let places = format.matches('%').count();
    let stars = if format.contains('*') { largest_number(args) } else { 0 };
    let values = args.iter().skip(1).map(|it| size(Some(it))).max().unwrap_or(0);
    places.saturating_mul(values.saturating_add(stars)).saturating_add(widths)
}

/// Returns the approximate bytes of a value as a text. The value was counted before, so it is not too large.
fn size(value: Option<&Value>) -> usize {
    let Some(value) = value else { return 0 };
    match value.kind() {
        ValueKind::String | ValueKind::Bytes => value.as_bytes().map_or(0, <[u8]>::len),
        ValueKind::Map => {
            let entry = |key: &Value| size(Some(key)) + size(value.get_item(key).ok().as_ref());
            value.try_iter().map_or(0, |keys| keys.map(|it| entry(&it)).sum())
        }
        ValueKind::Seq | ValueKind::Iterable => {
            value.try_iter().map_or(0, |items| items.map(|it| size(Some(&it)) + 1).sum())
        }
        _ => 8,
    }
}

/// Returns the largest whole number among arguments, those with names included.
fn largest_number(args: &[Value]) -> usize {
    let named = args.last().and_then(|it| Kwargs::try_from(it.clone()).ok());
    let named = named.map(|arguments| {
        let names: Vec<String> = arguments.args().map(str::to_owned).collect();
        names.iter().filter_map(|name| arguments.get::<Value>(name).ok()).collect::<Vec<_>>()
    });
    let numbers = args.iter().cloned().chain(named.unwrap_or_default());
    numbers.filter_map(|it| it.as_usize()).max().unwrap_or(0)
}

/// Writes a value to the output, or into the capture of a block.
fn write(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    meter(state).write(value)?;
    escape_formatter(out, state, value)
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

/// `left + right`, of texts, lists and numbers.
fn plus(state: &mut State<'_, '_>, left: &Value, right: &Value) -> Result<Value, Error> {
    if let (Some(left), Some(right)) = (left.as_str(), right.as_str()) {
        meter(state).bytes(left.len() + right.len())?;
        return Ok(Value::from([left, right].concat()));
    }
    if is_list(left) && is_list(right) {
        return listed(state, [left, right]);
    }
    arithmetic('+', left, right, i128::checked_add, |left, right| left + right)
}

/// `left * right`, of numbers, and of a text or a list with a number.
fn times(state: &mut State<'_, '_>, left: &Value, right: &Value) -> Result<Value, Error> {
    let is_repeated = |it: &Value| it.as_str().is_some() || is_list(it);
    let (what, count) = if is_repeated(left) { (left, right) } else { (right, left) };
    if !is_repeated(what) {
        return arithmetic('*', left, right, i128::checked_mul, |left, right| left * right);
    }
    // As in Python, nothing is repeated a negative number of times.
    let is_negative = count.is_integer() && i128::try_from(count.clone()).is_ok_and(|it| it < 0);
    let count = if is_negative { Some(0) } else { count.as_usize() };
    let count = count.ok_or_else(|| {
        Error::new(ErrorKind::InvalidOperation, "a text or a list is repeated by a whole number")
    })?;
    if let Some(text) = what.as_str() {
        meter(state).bytes(text.len().saturating_mul(count))?;
        return Ok(Value::from(text.repeat(count)));
    }
    let mut items = Vec::new();
    meter(state).steps(count as u64)?;
    for _ in 0..count {
        for item in what.try_iter()? {
            meter(state).count(&item)?;
            items.push(item);
        }
    }
    Ok(Value::from(items))
}

/// Returns the operators of numbers, as the engine computes them: exact for whole numbers, or with a point where the
/// exact number is too large.
fn arithmetic(
    operator: char,
    left: &Value,
    right: &Value,
    whole: fn(i128, i128) -> Option<i128>,
    float: fn(f64, f64) -> f64,
) -> Result<Value, Error> {
    let unsupported = || {
        let message = format!("`{operator}` does not work on {} and {}", left.kind(), right.kind());
        Error::new(ErrorKind::InvalidOperation, message)
    };
    let is_number = |it: &Value| matches!(it.kind(), ValueKind::Number | ValueKind::Bool);
    if !is_number(left) || !is_number(right) {
        return Err(unsupported());
    }
    if let (true, true) = (left.is_integer(), right.is_integer()) {
        let exact = whole(i128::try_from(left.clone())?, i128::try_from(right.clone())?);
        if let Some(exact) = exact {
            return Ok(i64::try_from(exact).map_or_else(|_| Value::from(exact), Value::from));
        }
    }
    Ok(Value::from(float(f64::try_from(left.clone())?, f64::try_from(right.clone())?)))
}
