//! Tables of expressions with their types and their values.

mod guards;
mod limits;
mod mistakes;
mod oracle;
mod random;
mod ranges;
mod sizes;

use std::collections::BTreeSet;

use graphrun_core::{
    event::Usage,
    graph::Remaining,
    id::RunId,
    state::{Channel, Reducer, Update},
    usage::TokenUsage,
};
use graphrun_guard::data_limit::DataLimit;
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Returns a state of all kinds of types; `later` is not written.
fn state() -> State {
    let record = |b: &Value, required: &[&str]| {
        json!({
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": b},
            "required": required,
            "additionalProperties": false,
        })
    };
    let pair = record(&json!({"type": ["integer", "null"]}), &["a"]);
    let fields = [
        ("n", json!({"type": "integer"}), json!(7)),
        ("big", json!({"type": "integer"}), json!(i64::MAX)),
        ("huge", json!({"type": "integer"}), json!(u64::MAX)),
        ("x", json!({"type": "number"}), json!(2.5)),
        ("yes", json!({"type": "boolean"}), json!(true)),
        ("text", json!({"type": "string"}), json!("größer")),
        ("level", json!({"type": "string", "enum": ["low", "high"]}), json!("high")),
        ("list", json!({"type": "array", "items": {"type": "integer"}}), json!([1, 2, 3])),
        ("any", json!({}), json!({"a": {"b": [1, "two"]}, "null": null})),
        ("later", json!({"type": "integer"}), json!(null)),
        (
            "review",
            json!({
                "type": "object",
                "properties": {
                    "score": {"type": "number"},
                    "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                    "by": {"type": "object", "properties": {"name": {"type": "string"}}},
                },
                "required": ["score", "by"],
            }),
            json!({"score": 1, "note": null, "by": {}}),
        ),
        (
            "counts",
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
            json!({"a": 1}),
        ),
        (
            "gaps",
            json!({"type": "object", "additionalProperties": {"type": ["integer", "null"]}}),
            json!({"a": null, "b": 2}),
        ),
        (
            "holes",
            json!({"type": "array", "items": {"type": ["integer", "null"]}}),
            json!([null, 1]),
        ),
        ("grade", json!({"type": "integer", "minimum": 1, "maximum": 6}), json!(4)),
        ("share", json!({"type": "number", "minimum": 0, "maximum": 1}), json!(0.25)),
        ("below", json!({"type": "integer", "minimum": -9, "maximum": -2}), json!(-3)),
        ("pair", pair.clone(), json!({"a": 1, "b": null})),
        ("pairs", json!({"type": "array", "items": pair}), json!([{"a": 1, "b": null}, {"a": 1}])),
        (
            "strict",
            record(&json!({"type": ["integer", "null"]}), &["a", "b"]),
            json!({"a": 1, "b": null}),
        ),
        ("loose", record(&json!({"type": "integer"}), &["a"]), json!({"a": 1})),
        ("large", json!({"type": "number"}), json!(5_000_000_000_000_000_000_i64)),
        (
            "larges",
            json!({"type": "array", "items": {"type": "number"}}),
            json!([5_000_000_000_000_000_000_i64, 5_000_000_000_000_000_000_i64]),
        ),
        ("lowest", json!({"type": "number"}), json!(i64::MIN)),
        (
            "wide",
            json!({"type": "integer", "minimum": 0, "maximum": 9_007_199_254_740_992_i64}),
            json!(9_007_199_254_740_992_i64),
        ),
    ];
    let name = |name: &str| ChannelName::parse(name).unwrap();
    let channels = fields
        .iter()
        .map(|(it, schema, _)| Channel::new(name(it), schema.clone(), Reducer::Replace).unwrap());
    let schema = Schema::new(channels).unwrap();
    let written = fields.iter().filter(|(_, _, value)| !value.is_null());
    let update =
        written.fold(Update::default(), |it, (at, _, value)| it.write(name(at), value.clone()));
    schema.apply(schema.empty(), [&update]).unwrap().0
}

/// Returns the facts of a run with a limit of tokens but none of money.
fn facts() -> RunFacts {
    let usage = |tokens| {
        let tokens = TokenUsage { input_tokens: tokens, calls: 1, ..TokenUsage::default() };
        Usage { tokens, cost_usd: None }
    };
    RunFacts {
        run: Some(RunId::parse("run-1").unwrap()),
        workflow: "team".into(),
        began: Some("2026-01-31T08:30:00Z".parse().unwrap()),
        usage: usage(1_200),
        node_usage: BTreeMap::from([(node("sse"), usage(700))]),
        remaining: Remaining { steps: 8, calls: Some(2), tokens: Some(300), usd: None },
        item_index: None,
    }
}

fn node(name: &str) -> NodeName {
    NodeName::parse(name).unwrap()
}

fn compiled(state: &State, source: &str) -> Result<Expression, Vec<Problem>> {
    compiled_for(state, source, None)
}

/// Compiles a value of a type; `Review` is the name of one.
fn compiled_for(
    state: &State,
    source: &str,
    expected: Option<&Type>,
) -> Result<Expression, Vec<Problem>> {
    let review = json!({
        "title": "Review",
        "type": "object",
        "properties": {
            "score": {"type": "number"},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "by": {"type": "object", "properties": {"name": {"type": "string"}}},
            "kind": {"anyOf": [{"enum": ["low", "high"]}, {"type": "null"}]},
            "parts": {"type": "array", "items": {
                "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
            }},
        },
        "required": ["score", "by"],
    });
    let types = BTreeMap::from([("Review".to_owned(), Type::of_schema(&review))]);
    let written = state.schema().channels().iter().map(|it| it.name().clone()).collect();
    let nodes = BTreeSet::from([node("sse"), node("qa")]);
    let schema = state.schema();
    let scope = ExpressionScope {
        schema,
        written: &written,
        nodes: &nodes,
        any_item: false,
        item: None,
        variable: None,
        known: &Guarantees::NONE,
        output: true,
        types: &types,
        expected,
    };
    Expression::compile(source, scope)
}

fn evaluated(state: &State, expression: &Expression) -> Result<Value, EvaluateError> {
    let visits = Visits::from_iter([(node("sse"), 2)]);
    let view = ExpressionView {
        state,
        visits: &visits,
        item: None,
        output_dir: Some("/out"),
        trigger: &Trigger::Start,
        facts: &facts(),
    };
    expression.evaluate(&view).map(Arc::unwrap_or_clone).map_err(|it| it.reason)
}

#[test]
fn a_field_is_shared_unless_its_name_stands_for_something_else() {
    let channel = |name: &str, value: Value| {
        let name = ChannelName::parse(name).unwrap();
        (Channel::new(name.clone(), json!({}), Reducer::Replace).unwrap(), name, value)
    };
    let fields = [channel("list", json!([1])), channel("output", json!(1)), channel("x", json!(2))];
    let schema = Schema::new(fields.iter().map(|it| it.0.clone())).unwrap();
    let write = |update: Update, (_, name, value): &(_, ChannelName, Value)| {
        update.write(name.clone(), value.clone())
    };
    let update = fields.iter().fold(Update::default(), write);
    let state = schema.apply(schema.empty(), [&update]).unwrap().0;
    let visits = Visits::default();
    let root =
        |name: &str| syntax::Node { kind: syntax::NodeKind::Name(name.to_owned()), range: 0..0 };
    let item = json!("item");
    let dir = Some("/out");
    let evaluated = |name: &str, item, output_dir| {
        let view = ExpressionView {
            state: &state,
            visits: &visits,
            item: None,
            output_dir,
            trigger: &Trigger::Start,
            facts: &facts(),
        };
        let places = &TypedPlaces::default();
        let settings = Settings { item, variable: None, places, absent: Absent::IsError };
        evaluate::evaluate(&root(name), &view, settings).unwrap()
    };
    let list = evaluated("list", None, dir);
    assert!(Arc::ptr_eq(&list, &state.get_shared("list").unwrap()));
    assert_eq!(*evaluated("x", Some(("x", &item)), dir), item);
    assert_eq!(*evaluated("x", Some(("y", &item)), dir), json!(2));
    assert_eq!(*evaluated("output", None, dir), json!({"dir": "/out"}));
    assert_eq!(*evaluated("output", None, None), json!(1));
}

/// Checks the types and the values of expressions.
fn check_values(cases: &[(&str, &str, Value)]) {
    let state = state();
    for (source, ty, value) in cases {
        let expression = compiled(&state, source).unwrap_or_else(|it| panic!("{source}: {it:?}"));
        assert_eq!(expression.ty().to_string(), *ty, "{source}");
        assert_eq!(evaluated(&state, &expression).as_ref(), Ok(value), "{source}");
    }
}

#[test]
fn a_field_that_is_null_is_absent() {
    check_values(&[
        ("'b' in pair", "bool", json!(false)),
        ("pair == { a: 1 }", "bool", json!(true)),
        ("{ a: 1 } in pairs", "bool", json!(true)),
        ("pair.keys()", "[string]", json!(["a"])),
        ("pair.size()", "int", json!(1)),
        ("pairs.distinct().size()", "int", json!(1)),
        ("counts.merge(pair).keys()", "[string]", json!(["a"])),
        ("'a' in gaps", "bool", json!(true)),
    ]);
}

#[test]
fn an_open_record_merges_fields_of_any_type() {
    check_values(&[
        ("{ z: 1 }.merge(review).z", "json", json!(1)),
        ("counts.merge(review).a", "json", json!(1)),
        ("{ z: 1 }.merge(pair).z", "int", json!(1)),
        ("pair.merge(counts)", "map[string, int?]", json!({"a": 1, "b": null})),
    ]);
}

#[test]
fn floats_that_look_whole_are_computed_as_floats() {
    check_values(&[
        ("large + large", "float", json!(1e19)),
        ("large * 4", "float", json!(2e19)),
        ("lowest - large", "float", json!(-1.422_337_203_685_477_6e19)),
        ("-lowest", "float", json!(9_223_372_036_854_775_808.0)),
        ("larges.sum()", "float", json!(1e19)),
    ]);
}

#[test]
fn no_list_has_an_item_of_a_huge_number() {
    check_values(&[
        ("has(list[huge])", "bool", json!(false)),
        ("list[huge].orValue(0)", "int", json!(0)),
        ("list.slice(1, huge)", "[int]", json!([2, 3])),
    ]);
}

#[test]
fn expressions_have_types_and_values() {
    check_values(&[
        ("1 + 2 * 3", "int", json!(7)),
        ("(1 + 2) * 3", "int", json!(9)),
        ("10 - 4 - 3", "int", json!(3)),
        ("7 / 2", "int", json!(3)),
        ("-7 / 2", "int", json!(-3)),
        ("7 % 3 + -n", "int", json!(-6)),
        ("n / 2.0", "float", json!(3.5)),
        ("x * 2 == 5", "bool", json!(true)),
        ("1 == 1.0", "bool", json!(true)),
        ("1e3", "float", json!(1000.0)),
        ("25E-1 == x && 1.5e+2 == 150 && 2e0 + n == 9", "bool", json!(true)),
        ("[1, 2] == [1.0, 2.0]", "bool", json!(true)),
        ("n > 3 && x <= 2.5", "bool", json!(true)),
        ("yes || 1 / 0 == 1", "bool", json!(true)),
        ("!yes && 1 / 0 == 1", "bool", json!(false)),
        ("!yes || n == 7 && false", "bool", json!(false)),
        ("level == \"high\" ? 1 : 2.5", "float", json!(1)),
        ("yes ? false ? 1 : 2 : 3", "int", json!(2)),
        ("level in [\"low\", 'high']", "bool", json!(true)),
        ("2 in list && !(4 in list)", "bool", json!(true)),
        ("\"a\" in counts", "bool", json!(true)),
        ("text + \" \" + level", "string", json!("größer high")),
        ("\"a\\n\\\"b\" + ''", "string", json!("a\n\"b")),
        ("text.size()", "int", json!(6)),
        ("list.size() + counts.size()", "int", json!(4)),
        ("list + [4]", "[int]", json!([1, 2, 3, 4])),
        ("[]", "[json]", json!([])),
        ("list.exists(it, it > 2)", "bool", json!(true)),
        ("list.all(it, it > 2)", "bool", json!(false)),
        ("[].all(it, it > 2)", "bool", json!(true)),
        ("list.exists(a, list.all(b, a <= b))", "bool", json!(true)),
        ("has(later)", "bool", json!(false)),
        ("has(review.note)", "bool", json!(false)),
        ("has(review.note) && review.note == \"x\"", "bool", json!(false)),
        ("!has(review.note) || review.note.size() > 3", "bool", json!(true)),
        ("!has(review.note) ? \"none\" : review.note", "string", json!("none")),
        ("has(counts.a) && counts.a == 1", "bool", json!(true)),
        ("has(any.a.b) && any.a.b.size() == 2", "bool", json!(true)),
        ("has(any.nothing.below)", "bool", json!(false)),
        ("has(any.null)", "bool", json!(false)),
        ("any.a", "json", json!({"b": [1, "two"]})),
        ("visits(\"sse\") + visits(\"qa\")", "int", json!(2)),
        ("output.dir", "string", json!("/out")),
        ("size(list)", "int", json!(3)),
        ("list.exists_one(it, it > 2)", "bool", json!(true)),
        ("list.exists_one(it, it > 1)", "bool", json!(false)),
        ("list.filter(it, it != 2)", "[int]", json!([1, 3])),
        ("list.map(it, it / 2.0)", "[float]", json!([0.5, 1.0, 1.5])),
        ("list.map(it, it > 1 ? 'a' : 'b')", "[a | b]", json!(["b", "a", "a"])),
        ("list.filter(it, it > 1).map(it, it * n).size()", "int", json!(2)),
        ("text.startsWith('grö') && !text.endsWith('o')", "bool", json!(true)),
        ("text.contains(level) || level.contains('ig')", "bool", json!(true)),
        ("text.matches('^gr.*r$') && text.matches('(?i)GRÖSS|ße')", "bool", json!(true)),
        ("text.matches('^r')", "bool", json!(false)),
    ]);
}

#[test]
fn a_quotient_of_whole_numbers_in_a_list_of_floats_drops_its_fraction() {
    let state = state();
    for source in [
        "[n / 2, x]",
        "[x] + [n / 2]",
        "x in [n / 2]",
        "n / 2 in [x]",
        "[[x]] + [[n / 2]]",
        "[x] == [-(n / 2)]",
    ] {
        let problems = compiled(&state, source).unwrap_err();
        let [problem] = problems.as_slice() else { panic!("{source}: {problems:?}") };
        assert!(problem.message.contains("`n / 2` drops the fraction"), "{problem:?}");
    }
    for source in ["[n / 2, 1]", "[int(n / 2), x]", "n in [n / 2]", "[float(n) / 2, x]"] {
        assert!(compiled(&state, source).is_ok(), "{source}");
    }
}

#[test]
fn whole_numbers_beyond_the_range_of_results_are_exact() {
    check_values(&[
        ("string(huge)", "string", json!("18446744073709551615")),
        ("huge % 2", "int", json!(1)),
        ("huge / 2", "int", json!(i64::MAX)),
        ("huge == big", "bool", json!(false)),
        ("huge > big", "bool", json!(true)),
        ("[huge, big, huge].distinct().size()", "int", json!(2)),
        ("(-big - 1) % -1", "int", json!(0)),
    ]);
}

#[test]
fn records_and_items_have_types_and_values() {
    check_values(&[
        (
            "{ n: n, \"two words\": text, }",
            "{n: int, two words: string}",
            json!({"n": 7, "two words": "größer"}),
        ),
        ("{ gone: has(review.note) ? review.note : null, n: 1 }.n", "int", json!(1)),
        ("{ gone: review.note, n: 1 }", "{gone: string?, n: int}", json!({"n": 1})),
        ("[{ a: 1 }, { a: 2.5, b: yes }].size()", "int", json!(2)),
        ("[{ a: 1 }, { b: yes }]", "[{a: int?, b: bool?}]", json!([{"a": 1}, {"b": true}])),
        (
            "Review{ score: n, by: { name: level } }",
            "Review",
            json!({"score": 7, "by": {"name": "high"}}),
        ),
        ("Review{ score: 1, by: {}, parts: list.map(it, { n: it }) }.score", "float", json!(1)),
        ("{ a: 1 } == { a: 1.0 } && [{ a: 'x' }] != [{ a: text }]", "bool", json!(true)),
        ("has(list[0]) && list[0] == 1 && !has(list[3])", "bool", json!(true)),
        ("has(list[n]) ? list[n] : -1", "int", json!(-1)),
        ("has(counts['a']) && counts.a == 1", "bool", json!(true)),
        ("has(counts[level]) ? counts[level] : 0", "int", json!(0)),
        ("review['score'] + 1", "float", json!(2)),
        ("any.a.b[1]", "json", json!("two")),
        ("has(any.a.b[7])", "bool", json!(false)),
        ("[[1], []].exists(it, has(it[0]) && it[0] == 1)", "bool", json!(true)),
        ("has([{ a: 1 }][0]) ? [{ a: 1 }][0].a : 0", "int", json!(1)),
    ]);
}

#[test]
fn functions_make_values_of_their_type() {
    check_values(&[
        (
            "string(n) + string(x) + string(yes) + string(level) + string(2.0)",
            "string",
            json!("72.5truehigh2"),
        ),
        ("has(int('42')) && int('42') == 42", "bool", json!(true)),
        (
            "['', '-', 'a1', '4.2', ' 4', '+4', '99999999999999999999'].exists(it, has(int(it)))",
            "bool",
            json!(false),
        ),
        ("has(int('-7')) ? int('-7') : 0", "int", json!(-7)),
        ("int(x) + int(-2.5) + int(n)", "int", json!(7)),
        ("'a, b,, c'.split(',')", "[string]", json!(["a", " b", "", " c"])),
        ("text.split('')", "[string]", json!(["g", "r", "ö", "ß", "e", "r"])),
        ("['a', level, ''].join('-') + [].join(', ')", "string", json!("a-high-")),
        ("'\\t ä \\n'.trim() + 'ÄB'.lower()", "string", json!("ääb")),
        (
            "has(list.first()) && list.first() == 1 && has(list.last()) && list.last() == 3",
            "bool",
            json!(true),
        ),
        ("has([].first()) || has(list.filter(it, it > 5).last())", "bool", json!(false)),
        ("[[1, 2], [3]].flatten()", "[int]", json!([1, 2, 3])),
        ("[[1, 2], []].flatten()", "[int]", json!([1, 2])),
        (
            "[3, 1, 2].sort() + ['b', 'a'].sort().map(it, it.size())",
            "[int]",
            json!([1, 2, 3, 1, 1]),
        ),
        ("[2, 0.5, 1].sort()", "[float]", json!([0.5, 1, 2])),
        (
            "[{ a: 2, b: 'x' }, { a: 1, b: 'y' }, { a: 2, b: 'z' }].sortBy(it, -it.a).map(it, it.b)",
            "[x | y | z]",
            json!(["x", "z", "y"]),
        ),
        ("list.reverse().map(it, string(it)).sortBy(it, it)", "[string]", json!(["1", "2", "3"])),
        (
            "[{ a: 1, b: 'x' }, { a: 2, b: 'y' }, { a: 2, b: 'z' }].maxBy(it, it.a).b",
            "x | y | z",
            json!("y"),
        ),
        ("list.size() > 1 ? list.minBy(it, -it) : 0", "int", json!(3)),
        ("has(list.filter(it, it > 5).maxBy(it, it))", "bool", json!(false)),
        ("list.map(it, string(it)).maxBy(it, it).orValue('none')", "string", json!("3")),
        ("list.filter(it, it > 5).minBy(it, it).orValue(7)", "int", json!(7)),
        ("int(text).orValue(0) + list[0].orValue(0)", "int", json!(1)),
        ("counts.none.orValue(2) + counts.a.orValue(2)", "int", json!(3)),
        ("[{ a: 1 }].filter(it, it.a > 1).maxBy(it, it.a).a.orValue(9)", "int", json!(9)),
        ("review.by.name.orValue('nobody')", "string", json!("nobody")),
        ("list.first().orValue(0.5)", "float", json!(1)),
        ("text.groups('(x)').orValue([])", "[string]", json!([])),
        ("'ß-a-b'.upper().replace('-', ', ')", "string", json!("SS, A, B")),
        ("'ab'.replace('', '-') + 'aaa'.replace('aa', '')", "string", json!("-a-b-a")),
        ("float(list.size()) / 2", "float", json!(1.5)),
        ("has(float('1e3')) ? float('1e3') : 0.5", "float", json!(1000.0)),
        ("has(float('inf')) || has(float('1,5'))", "bool", json!(false)),
        ("[1, 2, 1.0, 2].distinct()", "[float]", json!([1, 2])),
        ("[{ a: 1, b: 2 }, { b: 2, a: 1 }].distinct().size()", "int", json!(1)),
        ("list.slice(1, 9) + list.slice(-4, 1) + list.slice(2, 1)", "[int]", json!([2, 3, 1])),
        ("text.slice(2, 4) + text.slice(9, 12) + text.slice(3, 2)", "string", json!("öß")),
        ("list.sum() + [].size()", "int", json!(6)),
        ("[0.5, 1].sum()", "float", json!(1.5)),
        ("counts.merge({ b: 2, a: 3 })", "map[string, int]", json!({"a": 3, "b": 2})),
        ("counts.merge({ b: 2 }).keys()", "[string]", json!(["a", "b"])),
        (
            "{ a: { x: 1, y: 2 }, b: 1 }.merge({ a: { y: 'z' }, c: review.note })",
            "{a: {x: int, y: z}, b: int, c: string?}",
            json!({"a": {"x": 1, "y": "z"}, "b": 1}),
        ),
        ("list.toMap(it, string(it), it * 2)", "map[string, int]", json!({"1": 2, "2": 4, "3": 6})),
        (
            "has('ab-12'.groups('([a-z]+)-([0-9]+)(x)?')) ? 'ab-12'.groups('([a-z]+)-([0-9]+)(x)?') : []",
            "[string]",
            json!(["ab", "12", ""]),
        ),
        (
            "has(text.groups('^(?<first>.)(?<rest>.*)$')) ? text.groups('^(?<first>.)(?<rest>.*)$').rest : ''",
            "string",
            json!("rößer"),
        ),
        ("has(text.groups('(x)'))", "bool", json!(false)),
        ("{ \"b\": 1, a: 2 }.keys()", "[string]", json!(["a", "b"])),
        ("{ a: 1, b: 2 }.size() + size(counts)", "int", json!(3)),
        ("'a' in { \"a\": 1, b: 'x' } && !('c' in counts)", "bool", json!(true)),
    ]);
}

#[test]
fn the_facts_of_a_run_are_values() {
    check_values(&[
        ("run.id + ' ' + run.name", "string", json!("run-1 team")),
        ("now()", "string", json!("2026-01-31T08:30:00Z")),
        ("now().size() > 0 && now() == now()", "bool", json!(true)),
        ("usage.tokens + usage.calls", "int", json!(1201)),
        ("has(usage.usd)", "bool", json!(false)),
        ("has(usage('sse').context_tokens) || has(usage.context_window)", "bool", json!(false)),
        ("usage('sse').tokens + usage('qa').tokens", "int", json!(700)),
        ("remaining.steps", "int", json!(8)),
        ("has(remaining.calls) ? remaining.calls : 0", "int", json!(2)),
        (
            "has(remaining.tokens) && remaining.tokens < 500 && !has(remaining.usd)",
            "bool",
            json!(true),
        ),
        ("via.reason", "start | then | exhausted | caught | limit", json!("start")),
        ("has(via.node) || has(via.error) && via.error.kind == 'timeout'", "bool", json!(false)),
    ]);
}

/// The state that `docs/expressions.md` names above the table of functions.
#[test]
fn the_example_of_each_function_has_the_documented_value() {
    let shape = json!({
        "type": "object",
        "properties": {
            "review": {"type": "object", "properties": {"guidance": {"type": "string"}}},
            "title": {"type": "string"},
            "items": {"type": "array", "items": {
                "type": "object",
                "properties": {"title": {"type": "string"}, "done": {"type": "boolean"}},
                "required": ["title", "done"],
            }},
        },
    });
    let schema = Schema::of_json_schema(&shape, &[]).unwrap();
    let items = json!([{"title": "plan", "done": true}, {"title": "draft 2", "done": false}]);
    let state = Update::of(&json!({"review": {}, "title": "CORE-7", "items": items})).unwrap();
    let state = schema.apply(schema.empty(), [&state]).unwrap().0;
    for function in Function::all() {
        let expression = compiled(&state, function.example);
        let expression = expression.unwrap_or_else(|it| panic!("{function}: {it:?}"));
        let value: Value = serde_json::from_str(function.example_value).unwrap();
        assert_eq!(evaluated(&state, &expression), Ok(value), "{function}");
        assert!(function.example.contains(function.name), "{function}");
        assert!(function.about.ends_with('.'), "{function}");
    }
}

#[test]
fn a_missing_value_has_a_reason() {
    let cases = [
        ("big + 1", "`+` leaves the range of numbers"),
        ("-big - 2", "`-` leaves the range of numbers"),
        ("big * 2", "`*` leaves the range of numbers"),
        ("-(-big - 1)", "`-` leaves the range of numbers"),
        ("(-big - 1) / -1", "`/` leaves the range of numbers"),
        ("huge + 0", "`+` leaves the range of numbers"),
        ("huge - 1", "`-` leaves the range of numbers"),
        ("huge * huge", "`*` leaves the range of numbers"),
        ("-huge", "`-` leaves the range of numbers"),
        ("int(huge)", "`int` leaves the range of numbers"),
        ("n / 0", "division by zero"),
        ("n % 0", "division by zero"),
        ("x / 0.0", "division by zero"),
        ("later + 1", "`later` is not there"),
        ("any.nothing.below == 1", "`any.nothing` is not there"),
        ("any.a.b", "no error"),
        ("any.a > 1", "`>` needs two numbers or two texts, got `{\"b\":[1,\"two\"]}`"),
        ("any.a && true", "`&&` needs a bool, got `{\"b\":[1,\"two\"]}`"),
        ("any.a.startsWith('x')", "`startsWith` needs a text, got `{\"b\":[1,\"two\"]}`"),
        ("any.a.matches('x')", "`matches` needs a text, got `{\"b\":[1,\"two\"]}`"),
        ("any.a.filter(it, true)", "`filter` needs a list, got `{\"b\":[1,\"two\"]}`"),
        ("any.a.exists(it, it == 1)", "`exists` needs a list, got `{\"b\":[1,\"two\"]}`"),
        ("any.a.b.all(it, it > 0)", "`>` needs two numbers or two texts, got `\"two\"`"),
        ("any.a.b[5]", "`any.a.b[5]` is not there"),
        ("any.a[0]", "`[]` needs a text, got `0`"),
        ("any.a.b['x']", "`[]` needs a whole number, got `\"x\"`"),
        ("any.a.b[0][0]", "`[]` needs a list or a map, got `1`"),
        ("int(any.a)", "`int` needs a text or a number, got `{\"b\":[1,\"two\"]}`"),
        ("int(1e300)", "`int` leaves the range of numbers"),
        ("[big, 1].sum()", "`+` leaves the range of numbers"),
        ("any.a.b.sort()", "`sort` needs numbers or texts, got `\"two\"`"),
        ("any.a.b.sum()", "`sum` needs numbers, got `\"two\"`"),
        ("any.a.b.join('')", "`join` needs texts, got `1`"),
        ("any.a.b.flatten()", "`flatten` needs lists, got `1`"),
        ("any.a.b.keys()", "`keys` needs a record or a map, got `[1,\"two\"]`"),
        ("any.a.merge(any.a.b)", "`merge` needs a record or a map, got `[1,\"two\"]`"),
        ("any.a.b.slice(0, any.a)", "`slice` needs a whole number, got `{\"b\":[1,\"two\"]}`"),
        ("any.a.b.toMap(it, it, 1)", "`toMap` needs a text, got `1`"),
    ];
    let state = state();
    for (source, expected) in cases {
        let expression = compiled(&state, source).unwrap_or_else(|it| panic!("{source}: {it:?}"));
        let found = evaluated(&state, &expression);
        let found = found.err().map_or("no error".to_owned(), |it| it.to_string());
        assert_eq!(found, expected, "{source}");
    }
}

/// JSON Schema counts `7.0` as a whole number, and models write it.
#[test]
fn a_whole_number_that_is_written_with_a_point_is_one() {
    let name = |name: &str| ChannelName::parse(name).unwrap();
    let fields = [
        ("n", json!({"type": "integer"}), json!(7.0)),
        ("x", json!({"type": "number"}), json!(7.0)),
        ("y", json!({"type": "number"}), json!(7)),
        ("list", json!({"type": "array", "items": {"type": "integer"}}), json!([5.0, 10.0])),
        (
            "part",
            json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}),
            json!({"n": 5.0}),
        ),
    ];
    let channels = fields
        .iter()
        .map(|(it, schema, _)| Channel::new(name(it), schema.clone(), Reducer::Replace).unwrap());
    let schema = Schema::new(channels).unwrap();
    let update = fields
        .iter()
        .fold(Update::default(), |it, (at, _, value)| it.write(name(at), value.clone()));
    let state = schema.apply(schema.empty(), [&update]).unwrap().0;
    for (source, value) in [
        ("n / 2", json!(3)),
        ("n", json!(7)),
        ("x / 2", json!(3.5)),
        ("y / 2 + (n > 0 ? y : 0.5) / 2 + [y, 0.5].sum() / 2", json!(10.75)),
        ("part.n / 2", json!(2)),
        ("list.map(it, it / 2)", json!([2, 5])),
        ("list.sum() / 2", json!(7)),
        ("string(n) + string(part.n)", json!("75")),
        ("n == 7 && 5 in list && n / 2 * 2 < 7", json!(true)),
    ] {
        let expression = compiled(&state, source).unwrap_or_else(|it| panic!("{source}: {it:?}"));
        assert_eq!(evaluated(&state, &expression).as_ref(), Ok(&value), "{source}");
    }
}
