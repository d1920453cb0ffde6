//! Random expressions have the value that another implementation of CEL gives them.
//!
//! The expressions use only constructs of both languages. The test avoids deliberate differences
//! and values that `cel` reads otherwise:
//!
//! - `cel` reads whole numbers of JSON from zero on as unsigned, and an unsigned one plus `1` has
//!   no value there; so the test passes signed ones.
//! - Here a whole number and a float can be added, in CEL they cannot, so those are generated
//!   apart. Comparisons of them exist in both.
//! - Division of floats by zero is an error here and infinite in CEL, so the divisors are
//!   constants.
//! - In CEL `a || true` holds also if `a` has no value, on either side, and so do `exists` and
//!   `all`; here evaluation is from left to right. So an expression with one of these may have a
//!   value there and none here.
//! - Items and functions that may have no value are guarded by `has` here and by a comparison in CEL,
//!   and some functions exist only here. [`FORMS`] has both spellings of such a part.
//! - `has` takes fields of records. Here it also takes fields of the state itself; CEL has no such
//!   form.

use std::{collections::HashMap, sync::Arc};

use ::cel::{Context, Program, objects};

use super::*;

/// Patterns whose syntax is the same in both.
const PATTERNS: &[&str] = &[
    "^[a-m]+(ü|w)?",
    "o",
    "^$",
    "",
    "[0-9]{2,}$",
    "^-?[0-9]+$",
    "low|zz",
    "(g)(r)?",
    "[^a-z]",
    "\\\\d\\\\b",
    "(?i)LOW",
];

const WHOLE: &[i64] = &[0, 1, 2, 3, 7, -1, -5, i64::MAX, i64::MIN + 1];

fn channel(name: &str, schema: Value) -> Channel {
    Channel::new(ChannelName::parse(name).unwrap(), schema, Reducer::Replace).unwrap()
}

fn schema() -> Schema {
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let record = json!({
        "type": "object",
        "properties": {"stars": {"type": "integer"}, "note": {"type": ["string", "null"]}},
        "required": ["stars"],
    });
    Schema::new([
        channel("a", json!({"type": "integer"})),
        channel("b", json!({"type": "integer"})),
        channel("x", json!({"type": "number"})),
        channel("p", json!({"type": "boolean"})),
        channel("q", json!({"type": "boolean"})),
        channel("s", json!({"type": "string"})),
        channel("t", json!({"type": "string"})),
        channel("level", json!({"type": "string", "enum": ["low", "high"]})),
        channel("numbers", json!({"type": "array", "items": {"type": "integer"}})),
        channel("texts", texts),
        channel("review", record),
    ])
    .unwrap()
}

fn select(from: &[&str]) -> BoxedStrategy<String> {
    prop::sample::select(from.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()).boxed()
}

fn two(
    inner: &BoxedStrategy<String>,
    operators: &'static [&'static str],
) -> impl Strategy<Value = String> + use<> {
    let sides = (inner.clone(), prop::sample::select(operators), inner.clone());
    sides.prop_map(|(a, operator, b)| format!("{a} {operator} {b}"))
}

/// Parts with another spelling in CEL: the name, the spelling here and the spelling there. Sources contain
/// them as `@name(first;second)`.
const FORMS: &[(&str, &str, &str)] = &[
    ("at", "(has($0[$1]) ? $0[$1] : $2)", "(0 <= $1 && $1 < size($0) ? $0[$1] : $2)"),
    ("first", "(has($0.first()) ? $0.first() : $1)", "(size($0) > 0 ? $0[0] : $1)"),
    ("last", "(has($0.last()) ? $0.last() : $1)", "(size($0) > 0 ? $0[size($0) - 1] : $1)"),
    // The longest numbers are those near the ends of the range, which the sources contain.
    (
        "int",
        "(has(int($0)) ? int($0) : $1)",
        r#"(($0).matches("^-?([0-9]{1,18}|[1-8][0-9]{18}|9223372036854775[0-7][0-9]{2}|922337203685477580[0-7])$") ? int($0) : $1)"#,
    ),
    ("sum", "[$0, $1].sum()", "(0 + ($0) + ($1))"),
    ("smaller", "min($0, $1)", "(($0) <= ($1) ? ($0) : ($1))"),
    ("larger", "max($0, $1)", "(($0) >= ($1) ? ($0) : ($1))"),
    ("distinct", "[$0, $1].distinct().size()", "(($0) == ($1) ? 1 : 2)"),
    ("merge", "{a: $0}.merge({a: $1}).a", "(($0) == ($0) ? ($1) : ($1))"),
    ("record", "{a: $0, \"b\": $1}.b", "{\"a\": $0, \"b\": $1}.b"),
    ("flatten", "[$0, $1].flatten()", "($0 + $1)"),
    ("sort", "[$0, $1].sort()", "(($0) <= ($1) ? [$0, $1] : [$1, $0])"),
    ("sorted", "[$0, $1].sortBy(k, k / 2)", "(($0) / 2 <= ($1) / 2 ? [$0, $1] : [$1, $0])"),
    ("smallest", "[$0, $1].minBy(k, k / 2)", "(($0) / 2 <= ($1) / 2 ? ($0) : ($1))"),
    ("largest", "[$0, $1].maxBy(k, k / 2)", "(($0) / 2 >= ($1) / 2 ? ($0) : ($1))"),
    (
        "most",
        "$0.filter(k, k % 3 == 1).maxBy(k, k / 2).orValue($1)",
        "($0.exists(k, k % 3 == 1) ? $0.filter(k, k % 3 == 1 && $0.all(m, m % 3 != 1 || m / 2 <= k / 2))[0] : ($1))",
    ),
    ("default", "$0.first().orValue($1)", "(size($0) > 0 ? $0[0] : ($1))"),
    ("note", "review.note.orValue($0)", "(has(review.note) ? review.note : ($0))"),
    ("reverse", "[$0, $1].reverse()", "[$1, $0]"),
    ("double", "float($0)", "double($0)"),
    ("slice", "[$0, $1, 5].slice(1, 3)", "(($0) == ($0) ? [$1, 5] : [])"),
    ("join", "[$0, $1].join(\", \")", "(($0) + \", \" + ($1))"),
    ("trim", "(' x' + ($0) + ($1) + 'x\\t').trim()", "('x' + ($0) + ($1) + 'x')"),
    (
        "lower",
        "('ÄBC' + string((($0) + ($1)).size())).lower()",
        "('äbc' + string(size(($0) + ($1))))",
    ),
    // The names of the groups are known, and CEL has none: a group of its match is the text around it.
    (
        "groups",
        r#"(has(('<' + ($0) + '>').groups("<(.*)>")) ? ('<' + ($0) + '>').groups("<(.*)>")[0] : ($1))"#,
        r#"(($0).contains("\n") ? ($1) : ($0))"#,
    ),
    ("keys", "{a: $0, \"b\": $1}.keys().size()", "size({\"a\": $0, \"b\": $1})"),
    (
        "key",
        "((($0) + '') in {a: $1, \"ü\": $1}.keys())",
        "((($0) + '') in {\"a\": $1, \"ü\": $1})",
    ),
    (
        "lookup",
        "(has([$0, $1].toMap(k, string(k), k)[string($0)]) ? [$0, $1].toMap(k, string(k), k)[string($0)] : 0)",
        "(($0) == ($1) ? ($1) : ($0))",
    ),
    ("mapped", "[$0, $1].toMap(k, k + '', 1).keys().size()", "(($0) == ($1) ? 1 : 2)"),
    (
        "upper",
        "('äbc' + string((($0) + ($1)).size())).upper()",
        "('ÄBC' + string(size(($0) + ($1))))",
    ),
    (
        "replace",
        "('%' + string((($0) + ($1)).size()) + '%').replace('%', 'ab')",
        "('ab' + string(size(($0) + ($1))) + 'ab')",
    ),
    ("cut", "[($0) + '%', $1].join('').split('%').join('%')", "(($0) + '%' + ($1))"),
];

/// Writes the forms of a source, with `spelling` of those in the table.
fn written(
    source: &str,
    spelling: fn(&(&str, &'static str, &'static str)) -> &'static str,
) -> String {
    let mut source = source.to_owned();
    // The last form contains no other one.
    while let Some(at) = source.rfind('@') {
        let open = at + source[at..].find('(').unwrap();
        let form = FORMS.iter().find(|it| it.0 == &source[at + 1..open]).unwrap();
        let mut depth = 0;
        let mut parts = Vec::new();
        let mut from = open + 1;
        let mut quote = None;
        let mut before = ' ';
        let end = source[open..].char_indices().map(|(it, char)| (open + it, char)).find(
            |(here, char)| {
                let is_escaped = before == '\\';
                before = if is_escaped { ' ' } else { *char };
                match (quote, char) {
                    (Some(it), char) if it == *char && !is_escaped => quote = None,
                    (Some(_), _) => (),
                    (None, '"' | '\'') => quote = Some(*char),
                    (None, '(' | '[' | '{') => depth += 1,
                    (None, ')' | ']' | '}') => depth -= 1,
                    (None, ';') if depth == 1 => {
                        parts.push(source[from..*here].to_owned());
                        from = here + 1;
                    }
                    _ => (),
                }
                depth == 0
            },
        );
        let (end, _) = end.unwrap();
        parts.push(source[from..end].to_owned());
        let made = parts.iter().enumerate().fold(spelling(form).to_owned(), |text, (at, part)| {
            text.replace(&format!("${at}"), part)
        });
        source.replace_range(at..=end, &made);
    }
    source
}

/// Expressions of whole numbers with this depth. They rely on the precedence of operators instead
/// of brackets.
fn whole(depth: u32) -> BoxedStrategy<String> {
    let leaf = select(&["a", "b", "0", "1", "3", "9223372036854775807", "review.stars", "visits"]);
    let leaf = leaf.prop_map(|it| it.replace("visits", "numbers.size()")).boxed();
    if depth == 0 {
        return leaf;
    }
    let inner = whole(depth - 1);
    prop_oneof![
        2 => leaf,
        3 => two(&inner, &["+", "-", "*", "/", "%"]),
        1 => inner.clone().prop_map(|it| format!("({it})")),
        1 => inner.clone().prop_map(|it| format!("-({it})")),
        1 => (truth(depth - 1), inner.clone(), inner)
            .prop_map(|(c, a, b)| format!("({c} ? {a} : {b})")),
        1 => text(depth - 1).prop_map(|it| format!("({it}).size()")),
        1 => list(depth - 1).prop_map(|it| format!("size({it})")),
        1 => (list(depth - 1), whole(depth - 1), whole(depth - 1))
            .prop_map(|(l, i, d)| format!("@at({l};({i} + 0);{d})")),
        1 => (prop::sample::select(&["first", "last", "default", "most"][..]), list(depth - 1), whole(depth - 1))
            .prop_map(|(of, l, d)| format!("@{of}({l};{d})")),
        1 => (text(depth - 1), whole(depth - 1)).prop_map(|(t, d)| format!("@int({t};{d})")),
        1 => (prop::sample::select(
                &["sum", "smaller", "larger", "smallest", "largest", "distinct", "merge", "record", "keys", "lookup"][..],
            ), whole(depth - 1), whole(depth - 1))
            .prop_map(|(of, a, b)| format!("@{of}({a};{b})")),
        1 => (text(depth - 1), text(depth - 1)).prop_map(|(a, b)| format!("@mapped({a};{b})")),
        1 => float(depth - 1).prop_map(|it| format!("int({it})")),
    ]
    .boxed()
}

fn float(depth: u32) -> BoxedStrategy<String> {
    let leaf = select(&["x", "0.5", "2.0", "1.25"]);
    if depth == 0 {
        return leaf;
    }
    let inner = float(depth - 1);
    prop_oneof![
        2 => leaf,
        2 => two(&inner, &["+", "-", "*"]),
        1 => inner.clone().prop_map(|it| format!("({it}) / 4.0")),
        1 => whole(depth - 1).prop_map(|it| format!("@double({it})")),
        1 => inner.prop_map(|it| format!("-({it})")),
    ]
    .boxed()
}

fn text(depth: u32) -> BoxedStrategy<String> {
    let leaf =
        select(&["s", "t", "level", "''", "\"low\"", "'grün'", "'42'", "'-7'", r#""a\"b\\""#]);
    if depth == 0 {
        return leaf;
    }
    let inner = text(depth - 1);
    prop_oneof![
        3 => leaf,
        2 => two(&inner, &["+"]),
        1 => (truth(depth - 1), inner.clone(), inner.clone())
            .prop_map(|(c, a, b)| format!("({c} ? {a} : {b})")),
        1 => (prop::sample::select(&["join", "cut", "record", "trim", "lower", "upper", "replace", "groups"][..]), inner.clone(), inner.clone())
            .prop_map(|(of, a, b)| format!("@{of}({a};{b})")),
        1 => inner.prop_map(|it| format!("@note({it})")),
        1 => whole(depth - 1).prop_map(|it| format!("string({it})")),
        1 => float(depth - 1).prop_map(|it| format!("string({it})")),
    ]
    .boxed()
}

fn list(depth: u32) -> BoxedStrategy<String> {
    let leaf = select(&["numbers", "[1, 2]", "[3]"]);
    if depth == 0 {
        return leaf;
    }
    let inner = list(depth - 1);
    prop_oneof![
        2 => leaf,
        1 => two(&inner, &["+"]).prop_map(|it| format!("({it})")),
        1 => (whole(depth - 1), whole(depth - 1)).prop_map(|(a, b)| format!("[{a}, {b}]")),
        1 => (inner.clone(), whole(depth - 1)).prop_map(move |(l, a)| format!("{l}.filter(i{depth}, i{depth} < {a})")),
        1 => (prop::sample::select(&["sort", "sorted", "reverse", "slice"][..]), whole(depth - 1), whole(depth - 1))
            .prop_map(|(of, a, b)| format!("@{of}({a};{b})")),
        1 => two_lists(&inner),
        1 => (inner, whole(depth - 1)).prop_map(move |(l, a)| format!("{l}.map(i{depth}, i{depth} * 2 - {a})")),
    ]
    .boxed()
}

fn two_lists(inner: &BoxedStrategy<String>) -> impl Strategy<Value = String> + use<> {
    (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("@flatten({a};{b})"))
}

fn truth(depth: u32) -> BoxedStrategy<String> {
    let leaf = select(&["p", "q", "true", "false", "has(review.note)", "level == 'low'"]);
    if depth == 0 {
        return leaf;
    }
    let inner = truth(depth - 1);
    let orders: &[&str] = &["==", "!=", "<", "<=", ">", ">="];
    let pair = |of: BoxedStrategy<String>| two(&of, orders).prop_map(|it| format!("({it})"));
    let number = prop_oneof![whole(depth - 1), float(depth - 1)].boxed();
    let each = prop::sample::select(&["exists", "all", "exists_one"][..]);
    let question = prop::sample::select(&["startsWith", "endsWith", "contains"][..]);
    prop_oneof![
        2 => leaf,
        3 => two(&inner, &["&&", "||"]),
        1 => inner.clone().prop_map(|it| format!("!({it})")),
        1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("(({a}) == ({b}))")),
        2 => pair(number),
        1 => pair(text(depth - 1)),
        1 => (whole(depth - 1), list(depth - 1)).prop_map(|(a, l)| format!("(({a}) in {l})")),
        1 => text(depth - 1).prop_map(|it| format!("(({it}) in texts)")),
        1 => (list(depth - 1), each, whole(depth - 1))
            .prop_map(move |(l, each, a)| format!("{l}.{each}(i{depth}, i{depth} % 3 <= {a})")),
        1 => (text(depth - 1), question, text(depth - 1))
            .prop_map(|(a, question, b)| format!("({a}).{question}({b})")),
        1 => (text(depth - 1), prop::sample::select(PATTERNS))
            .prop_map(|(it, pattern)| format!("({it}).matches(\"{pattern}\")")),
        1 => (text(depth - 1), whole(depth - 1)).prop_map(|(a, b)| format!("@key({a};{b})")),
        1 => (inner.clone(), inner.clone(), inner).prop_map(|(c, a, b)| format!("({c} ? {a} : {b})")),
        1 => (text(depth - 1)).prop_map(|it| format!("(has(review.note) && review.note != {it})")),
    ]
    .boxed()
}

fn fields() -> impl Strategy<Value = Value> {
    let whole = || prop::sample::select(WHOLE);
    let text = || prop::sample::select(&["", "low", "grün", "a\"b\\", "zz", "12", "-3"][..]);
    let float = prop::sample::select(&[0.5, -2.25, 3.0, 1e10][..]);
    let numbers = prop::collection::vec(whole(), 0..4);
    let note = prop::option::of(text());
    let level = prop::sample::select(&["low", "high"][..]);
    let rest = (prop::collection::vec(text(), 0..3), whole(), note, level);
    (whole(), whole(), float, any::<(bool, bool)>(), text(), text(), numbers, rest).prop_map(
        |(a, b, x, (p, q), s, t, numbers, (texts, stars, note, level))| {
            let mut review = json!({"stars": stars});
            if let Some(note) = note {
                review["note"] = json!(note);
            }
            json!({
                "a": a, "b": b, "x": x, "p": p, "q": q, "s": s, "t": t, "level": level,
                "numbers": numbers, "texts": texts, "review": review,
            })
        },
    )
}

fn to_cel(value: &Value) -> ::cel::Value {
    match value {
        Value::Null => ::cel::Value::Null,
        Value::Bool(it) => (*it).into(),
        Value::Number(it) => it.as_i64().map_or_else(|| it.as_f64().unwrap().into(), Into::into),
        Value::String(it) => it.as_str().into(),
        Value::Array(items) => items.iter().map(to_cel).collect::<Vec<_>>().into(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, it)| (key.as_str().into(), to_cel(it)));
            let map: HashMap<objects::Key, ::cel::Value> = fields.collect();
            ::cel::Value::Map(map.into())
        }
    }
}

fn from_cel(value: &::cel::Value) -> Value {
    match value {
        ::cel::Value::Bool(it) => json!(it),
        ::cel::Value::Int(it) => json!(it),
        ::cel::Value::UInt(it) => json!(it),
        ::cel::Value::Float(it) => json!(it),
        ::cel::Value::String(it) => json!(it.as_str()),
        ::cel::Value::List(items) => items.iter().map(from_cel).collect(),
        other => panic!("no expression here is {other:?}"),
    }
}

/// Returns `None` if it compares texts that can never be equal, or the order of enum values.
fn compiled(schema: &Schema, source: &str) -> Option<Expression> {
    let written = schema.channels().iter().map(|it| it.name().clone()).collect();
    let nodes = BTreeSet::new();
    let written = &written;
    let nodes = &nodes;
    let scope = ExpressionScope {
        schema,
        written,
        nodes,
        any_item: false,
        item: None,
        variable: None,
        known: &Guarantees::NONE,
        output: false,
        types: &BTreeMap::new(),
        expected: None,
    };
    match Expression::compile(source, scope) {
        Ok(expression) => Some(expression),
        Err(problems) => {
            let picky = |it: &Problem| {
                // Two enums without a common value are the texts of two operands, as in `'' | 'a'`.
                let enums = it.message.contains(" | ") && it.message.ends_with("never compared");
                let texts = it.message.contains('"') || it.message.ends_with("has no order");
                // CEL has no float that meets a whole number.
                let fractions = it.message.ends_with("both are whole numbers");
                let texts = texts
                    || enums
                    || fractions
                    || it.message.ends_with("never exists")
                    || it.message.ends_with("always has a value");
                ["GR022", "GR023"].contains(&it.code) && texts
            };
            assert!(problems.iter().all(picky), "{source}: {problems:?}");
            None
        }
    }
}

fn ours(schema: &Schema, expression: &Expression, fields: &Value) -> Result<Value, EvaluateError> {
    let write = |it: Update, (at, value): (&String, &Value)| {
        it.write(ChannelName::parse(at).unwrap(), value.clone())
    };
    let update = fields.as_object().unwrap().iter().fold(Update::default(), write);
    let state = schema.apply(schema.empty(), [&update]).unwrap().0;
    let visits = Visits::default();
    let view = ExpressionView {
        state: &state,
        visits: &visits,
        item: None,
        output_dir: None,
        trigger: &Trigger::Start,
        facts: &RunFacts::default(),
    };
    expression.evaluate(&view).map(Arc::unwrap_or_clone).map_err(|it| it.reason)
}

fn theirs(source: &str, fields: &Value) -> Result<Value, String> {
    let program = Program::compile(source).unwrap_or_else(|it| panic!("{source}: {it}"));
    let mut context = Context::default();
    for (name, value) in fields.as_object().unwrap() {
        context.add_variable_from_value(name.as_str(), to_cel(value));
    }
    program.execute(&context).map(|it| from_cel(&it)).map_err(|it| it.to_string())
}

/// Returns whether CEL can evaluate the expression although a part has no value.
fn forgives(source: &str) -> bool {
    ["&&", "||", ".exists", ".all("].iter().any(|it| source.contains(it))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, max_global_rejects: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn expressions_have_the_value_that_cel_gives_them(
        source in prop_oneof![3 => truth(3), 2 => whole(3), 1 => text(2), 1 => list(2), 1 => float(3)],
        fields in fields(),
    ) {
        let schema = schema();
        let (source, cel) = (written(&source, |it| it.1), written(&source, |it| it.2));
        // Nested forms repeat their parts.
        prop_assume!(source.len() < 4_000);
        let expression = compiled(&schema, &source);
        prop_assume!(expression.is_some());
        let ours = expression.map(|it| ours(&schema, &it, &fields)).unwrap();
        match (ours, theirs(&cel, &fields)) {
            (Ok(ours), Ok(theirs)) => prop_assert_eq!(ours, theirs, "{} in {}", source, fields),
            (Ok(ours), Err(theirs)) => {
                prop_assert!(false, "{source} is {ours} here, and there {theirs}: {fields}");
            }
            (Err(ours), Ok(theirs)) => {
                prop_assert!(forgives(&cel), "{source}: {ours} here, {theirs} there: {fields}");
            }
            (Err(_), Err(_)) => (),
        }
    }
}
