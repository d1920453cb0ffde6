//! Random expressions: each one that is accepted has a value of its checked type.

use graphrun_core::state::{Absence, Type};
use proptest::prelude::*;
use serde_json::Value;

use super::{compiled, evaluated, state};
use crate::EvaluateError;

/// Lists and maps.
fn lists() -> impl Strategy<Value = &'static str> {
    let filtered = "list.filter(it, it > 2)";
    prop::sample::select(vec!["list", "holes", "counts", "gaps", filtered, "list.slice(0, 1)"])
}

/// Items of lists by numbers that are guarded, not always well.
fn guarded_items(inner: &BoxedStrategy<String>) -> impl Strategy<Value = String> + use<> {
    let number = prop::sample::select(vec![
        "n",
        "n - 5",
        "n - 6",
        "grade",
        "grade - 2",
        "grade - 4",
        "below + 3",
        "n % size",
        "size - 1",
        "size - 2",
        "size - 4",
        "min(grade, size - 1)",
        "it",
    ]);
    let least =
        prop::sample::select(vec!["$ >= 0", "-1 < $", "$ != -1", "$ > -2", "!($ < 0)", "yes"]);
    let most = prop::sample::select(vec![
        "$ < size",
        "size > $",
        "$ <= size - 1",
        "$ <= size",
        "$ == size - 1",
        "!($ >= size)",
        "size > 0",
        "size > $ - 1",
    ]);
    (lists(), number, least, most, any::<bool>(), inner.clone()).prop_map(
        |(list, number, least, most, is_turned, otherwise)| {
            let (one, other) = if is_turned { (most, least) } else { (least, most) };
            let guarded = format!("({one} && {other} ? {list}[$] : {otherwise})");
            guarded.replace('$', &format!("({number})")).replace("size", &format!("{list}.size()"))
        },
    )
}

/// Source texts of valid and invalid expressions; without `any`, which is not type-checked.
fn sources() -> impl Strategy<Value = String> {
    let names = vec![
        "n",
        "big",
        "x",
        "yes",
        "text",
        "level",
        "list",
        "later",
        "counts.a",
        "review.score",
        "review.note",
        "review.by.name",
        "visits('sse')",
        "grade",
        "share",
        "below",
        "it",
        "1",
        "0",
        "2.5",
        "'high'",
        "true",
        "[]",
        "has(later)",
        "has(review.note)",
        "has(counts.a)",
        "9223372036854775807",
        "null",
        "list[0]",
        "'7'",
        "{ a: n }",
        "{ a: review.note, b: 'x' }",
        "counts",
        "holes",
        "gaps.a",
        "pair",
        "pairs[1]",
        "strict",
        "loose",
        "strict.b",
        "loose.b",
    ];
    let operators =
        vec!["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in"];
    let leaf = prop::sample::select(names).prop_map(str::to_owned);
    leaf.prop_recursive(5, 24, 3, move |inner| {
        let of = inner.clone();
        prop_oneof![
            4 => (inner.clone(), prop::sample::select(operators.clone()), inner.clone())
                .prop_map(|(a, operator, b)| format!("({a} {operator} {b})")),
            1 => inner.clone().prop_map(|a| format!("!{a}")),
            1 => inner.clone().prop_map(|a| format!("-{a}")),
            1 => inner.clone().prop_map(|a| format!("{a}.size()")),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("[{a}, {b}]")),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}.all(it, {b})")),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}.filter(it, {b})")),
            1 => (inner.clone(), prop::sample::select(vec!["map", "sortBy", "minBy", "maxBy"]), inner.clone())
                .prop_map(|(a, of, b)| format!("{a}.{of}(it, {b})")),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}.contains({b})")),
            2 => (inner.clone(), prop::sample::select(vec![
                "first", "last", "flatten", "sort", "distinct", "sum", "keys", "trim", "lower",
                "upper", "reverse",
            ])).prop_map(|(a, of)| format!("{a}.{of}()")),
            1 => (inner.clone(), prop::sample::select(vec!["join", "split", "merge"]), inner.clone())
                .prop_map(|(a, of, b)| format!("{a}.{of}({b})")),
            1 => (inner.clone(), prop::sample::select(vec!["slice", "replace"]), inner.clone(), inner.clone())
                .prop_map(|(a, of, b, c)| format!("{a}.{of}({b}, {c})")),
            1 => (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| format!("{a}.toMap(it, {b}, {c})")),
            1 => (inner.clone(), prop::sample::select(vec!["string", "int", "float"]))
                .prop_map(|(a, of)| format!("{of}({a})")),
            2 => (prop::sample::select(vec!["min", "max"]), inner.clone(), inner.clone())
                .prop_map(|(of, a, b)| format!("{of}({a}, {b})")),
            1 => (inner.clone(), inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c, d)| format!("({a} < {b} ? {c} : {d})")),
            2 => (inner.clone(), prop::sample::select(vec!["<", "<=", ">", ">=", "=="]), inner.clone())
                .prop_map(|(a, operator, b)| format!("({a} {operator} {b} ? {a} + {b} : {a} - {b})")),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}[{b}]")),
            3 => guarded_items(&inner.clone().boxed()),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("(has({a}) ? {a} : {b})")),
            2 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}.orValue({b})")),
            3 => (lists(), prop::sample::select(vec![">", ">=", "==", "!=", "<"]), 0..4_usize, 0..4_usize, inner.clone())
                .prop_map(|(a, operator, size, at, b)| {
                    let item = [format!("{a}[{at}]"), format!("{a}.first()"), format!("{a}.last()")];
                    let item = &item[usize::from(at == 0) * (size % 3)];
                    format!("({a}.size() {operator} {size} ? {item} : {b})")
                }),
            1 => (lists(), 0..2_usize, inner.clone())
                .prop_map(|(a, at, b)| format!("({a} == [] ? {b} : {a}[{at}])")),
            2 => (lists(), prop::sample::select(vec!["'a'", "'b'", "text", "1", "level"]), inner.clone())
                .prop_map(|(a, key, b)| format!("({key} in {a} ? {a}[{key}] : {b})")),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{{ a: {a}, c: {b} }}")),
            1 => (inner.clone(), inner.clone(), of).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
        ]
    })
}

fn is_of(value: &Value, ty: &Type) -> bool {
    match ty {
        Type::Any => true,
        Type::Bool => value.is_boolean(),
        Type::Int(range) => value.is_i64() && value.as_f64().is_some_and(|it| range.contains(it)),
        Type::Float(range) => value.as_f64().is_some_and(|it| range.contains(it)),
        Type::String | Type::Date | Type::Duration => value.is_string(),
        Type::Enum(values) => value.as_str().is_some_and(|it| values.iter().any(|of| of == it)),
        Type::List(item) => {
            value.as_array().is_some_and(|items| items.iter().all(|it| is_of(it, item)))
        }
        Type::Map(item) => {
            value.as_object().is_some_and(|fields| fields.values().all(|it| is_of(it, item)))
        }
        Type::Record(record) => value.as_object().is_some_and(|fields| {
            let is_declared = |name: &String| record.fields.iter().any(|it| it.name == *name);
            (!record.is_closed || fields.keys().all(is_declared))
                && record.fields.iter().all(|field| match fields.get(&field.name) {
                    Some(Value::Null) if field.ty != Type::Any => {
                        matches!(field.ty, Type::Optional(_)) && field.absence != Absence::Omitted
                    }
                    Some(value) => is_of(value, &field.ty),
                    None => field.may_be_omitted(),
                })
        }),
        Type::Optional(inner) => value.is_null() || is_of(value, inner),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn an_accepted_expression_has_its_checked_type(source in sources()) {
        let state = state();
        if let Ok(expression) = compiled(&state, &source) {
            match evaluated(&state, &expression) {
                // The check assumes that `later` is assigned; a record omits it.
                Ok(value) => prop_assert!(
                    is_of(&value, expression.ty()) || source.contains(": later"),
                    "{source} is {value}"
                ),
                Err(EvaluateError::Absent(path)) => {
                    // The item of an empty list may be anything, and so absent. A choice of `later` is absent as a whole.
                    prop_assert!(path.contains("later") || source.contains("[]"), "{source}: {path}");
                }
                Err(EvaluateError::Range(_) | EvaluateError::DivisionByZero) => (),
                Err(error @ (EvaluateError::Kind { .. } | EvaluateError::Limit(_))) => prop_assert!(false, "{source}: {error}"),
            }
        }
    }
}
