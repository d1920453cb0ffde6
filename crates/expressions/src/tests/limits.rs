//! Expressions and values that would take too much time or memory.

use super::*;

/// Returns a state with a list of many numbers and a long text.
fn large_state() -> State {
    let name = |name: &str| ChannelName::parse(name).unwrap();
    let fields = [
        ("l", json!({"type": "array", "items": {"type": "integer"}}), json!(vec![7; 3_000])),
        ("t", json!({"type": "string"}), json!("a".repeat(200_000))),
        (
            "big",
            json!({"type": "array", "items": {"type": "string"}}),
            json!(["x".repeat(500_000)]),
        ),
    ];
    let channel = |(it, schema, _): &(&str, Value, Value)| {
        Channel::new(name(it), schema.clone(), Reducer::Replace).unwrap()
    };
    let schema = Schema::new(fields.iter().map(channel)).unwrap();
    let update = Update::default();
    let update = fields.into_iter().fold(update, |it, (at, _, value)| it.write(name(at), value));
    schema.apply(schema.empty(), [&update]).unwrap().0
}

#[test]
fn an_evaluation_that_takes_too_much_is_an_error() {
    let state = large_state();
    let cases = [
        ("l.exists(a, l.exists(b, a + b < 0))", DataLimit::ExpressionSteps),
        ("l.map(a, l.filter(b, a != b)).size() > 0", DataLimit::ExpressionSteps),
        ("l.all(a, l == l)", DataLimit::ExpressionSteps),
        ("l.all(a, !(8 in l))", DataLimit::ExpressionSteps),
        ("l.all(a, t == t)", DataLimit::ExpressionSteps),
        ("l.all(a, t.size() > 0)", DataLimit::ExpressionSteps),
        ("l.all(a, !t.contains(\"b\"))", DataLimit::ExpressionSteps),
        ("l.all(a, !t.matches(\"(x+x+)+y\"))", DataLimit::ExpressionSteps),
        ("t.matches(\"(a{50}){80}b\")", DataLimit::ExpressionSteps),
        ("l.map(a, t + t).size() > 0", DataLimit::ExpressionMemory),
        ("l.map(a, big).size() > 0", DataLimit::ExpressionMemory),
        ("l.map(a, [t]).size() > 0", DataLimit::ExpressionMemory),
        ("l.map(a, l + l).size() > 0", DataLimit::ExpressionMemory),
    ];
    for (source, limit) in cases {
        let expression = compiled(&state, source).unwrap();
        match evaluated(&state, &expression) {
            Err(EvaluateError::Limit(reached)) => assert_eq!(reached.limit, limit, "{source}"),
            other => panic!("{source}: {other:?}"),
        }
    }
}

#[test]
fn large_values_can_be_inspected() {
    let state = large_state();
    for source in [
        "l.all(a, a == 7) && l.size() == 3000",
        "l.filter(a, a > 6).map(b, b * 2).all(c, c == 14)",
        "t.matches(\"^a+$\") && !t.contains(\"b\")",
        "(big + big).map(x, x + x).size() == 2",
    ] {
        let expression = compiled(&state, source).unwrap();
        assert_eq!(evaluated(&state, &expression), Ok(json!(true)), "{source}");
    }
}

#[test]
fn deep_and_long_inputs_are_refused() {
    let state = state();
    let parts = [
        "(",
        "[",
        "{a: ",
        "n[",
        "!",
        "-",
        "n.",
        "n + ",
        "yes ? ",
        "list.map(it, ",
        "has(",
        "size(",
    ];
    for part in parts {
        for times in [10_000, 1_000_000 / part.len()] {
            let problems = compiled(&state, &part.repeat(times)).expect_err(part);
            assert_eq!(problems[0].code, "GR020", "{part}");
        }
        // As many parts as the length allows.
        let problems = compiled(&state, &part.repeat(4096 / part.len())).expect_err(part);
        assert_eq!(problems[0].code, "GR020", "{part}");
    }
}
