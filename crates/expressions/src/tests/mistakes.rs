//! The diagnostics of expressions that do not load.

use super::*;

#[test]
fn forms_of_other_languages_get_the_form_of_this_one() {
    let cases = [
        ("n == 1 and yes", "and is `&&`"),
        ("n == 1 or yes", "or is `||`"),
        ("not yes", "not is `!`"),
        ("n = 1", "equality is `==`"),
        ("n === 1", "equality is `==`"),
        ("n is 1", "equality is `==`"),
        ("n is None", "`!has(x)` asks whether `x` has no value"),
        ("n is not None", "`has(x)` asks whether `x` has a value"),
        ("n <> 1", "unequal is `!=`"),
        ("yes & yes", "and is `&&`"),
        ("{{ yes }}", "remove the braces; a record is written `{ field: value }`"),
        ("{% if yes %}", "remove the braces; a record is written `{ field: value }`"),
        (
            "{ yes }",
            "a record is written `{ field: value }`; remove the braces if no record is meant",
        ),
        ("${n}", "a field is written by its name alone, as in `review.verdict`"),
        ("text == null", "`has(x)` asks whether a value is there"),
        (
            "text == None",
            "the value of an absent field is `null`; `has(x)` asks whether a value is there",
        ),
        ("1 < n < 3", "write `a < b && b < c`"),
        ("list[0] == 1", "guard it: `has(list[0]) && …`"),
        ("list[0]", "guard it: `has(list[0]) ? list[0] : …`"),
        ("Review{ score: int(text) }", "guard it: `has(int(text)) ? int(text) : …`"),
        ("list[-1] == 1", "the last item is `items.last()`"),
        ("text[0] == 'a'", "a part of a text is `text.slice(0, 1)`"),
        ("list.first() == 1", "guard it: `has(list.first()) && …`"),
        ("int(text) > 1", "guard it: `has(int(text)) && …`"),
        ("has(list.size())", "omit `has`"),
        ("list.size().orValue(1)", "omit `orValue`"),
        ("text.orValue('')", "omit `orValue`"),
        (
            "int(text).orValue('')",
            "give both values of one type, or write a record with all fields",
        ),
        ("list.maxBy(it, it) > 1", "guard it: `has(list.maxBy(it, it)) && …`"),
        ("text.default('')", "write `review.guidance.orValue(\"none\")`"),
        ("join(['a'], '')", "write `items.map(item, item.title).join(\", \")`"),
        ("text.toLowerCase()", "write `title.lower()`"),
        (
            "text.groups('a')",
            r#"write `title.groups("^(?<key>[A-Z]+)-[0-9]+$").key.orValue("none")`"#,
        ),
        ("Revue{ score: 1 }", "did you mean `Review`?"),
        ("Review{ scores: 1 }", "did you mean `score`?"),
        ("Other{ a: 1 }", "there is: Review"),
        ("{ a: 1, a: 2 }", ""),
        ("Review{ score: 1, by: {}, kind: 'hight' }", "did you mean `high`?"),
        ("len(list) > 1", "write `items.size()`"),
        ("list.length() > 1", "write `items.size()`"),
        ("list.any(it, it > 1)", "write `items.exists(item, item.done)`"),
        ("list.includes(1)", "write `item in items`, or `text.contains(\"part\")`"),
        ("text.startswith('a')", "did you mean `startsWith`?"),
        ("exists(text)", "write `has(review.guidance)`"),
        ("list.exists(it > 1)", "write `items.exists(item, item.done)`"),
        ("list.map(it + 1)", "write `items.map(item, item.title)`"),
        ("text.contains()", "write `title.contains(\"RE\")`"),
        ("text.matches(level)", "write `title.matches(\"^[A-Z]+-[0-9]+$\")`"),
        ("text.matches('a(?=b)')", "patterns are those of RE2; look-around is not supported"),
        (
            "text.matches('(a{1000}){1000}')",
            "patterns are those of RE2; look-around is not supported",
        ),
    ];
    let state = state();
    for (source, help) in cases {
        let problems = compiled(&state, source).expect_err(source);
        assert_eq!(problems[0].help.as_deref().unwrap_or_default(), help, "{source}: {problems:?}");
    }
}

#[test]
fn a_value_is_checked_against_the_type_that_it_is_for() {
    let state = state();
    let review = json!({
        "type": "object",
        "properties": {"score": {"type": "integer"}, "tags": {"type": ["array", "null"], "items": {"enum": ["a", "b"]}}},
        "required": ["score"],
    });
    let list = json!({"type": "array", "items": review.clone()});
    let optional = json!({"anyOf": [{"type": "string"}, {"type": "null"}]});
    let map = json!({"type": "object", "additionalProperties": {"type": "integer"}});
    let accepted = [
        (&review, "{ score: 1, tags: ['a'] }", json!({"score": 1, "tags": ["a"]})),
        (&review, "yes ? { score: 1 } : { score: 2, tags: null }", json!({"score": 1})),
        (
            &list,
            "[{ score: 1 }] + list.map(it, { score: it })",
            json!([{"score": 1}, {"score": 1}, {"score": 2}, {"score": 3}]),
        ),
        (&optional, "null", json!(null)),
        (&optional, "review.note", json!(null)),
        (&optional, "yes ? review.note : 'x'", json!(null)),
        (&optional, "has(review.note) ? review.note : level", json!("high")),
        (&map, "{ \"a b\": 1 }", json!({"a b": 1})),
        (&map, "{}", json!({})),
    ];
    for (schema, source, value) in accepted {
        let ty = Type::of_schema(schema);
        let expression = compiled_for(&state, source, Some(&ty)).expect(source);
        assert!(expression.ty().fits(&ty), "{source}: {expression:?}");
        assert_eq!(evaluated(&state, &expression), Ok(value), "{source}");
    }
    let refused = [
        (&review, "{ tags: [] }", "GR022", "`{score: int, tags: [a | b]?}` needs `score`"),
        (&review, "{ score: 1.5 }", "GR022", "`score` is `int`, and this is `float`"),
        (
            &review,
            "{ score: null }",
            "GR022",
            "null is the value of an absent field, but a value is needed here",
        ),
        (&review, "{ score: list[0] }", "GR026", "`list[0]` may be absent"),
        (&review, "{ score: [][0] }", "GR026", "`[][0]` may be absent"),
        (&review, "{ score: [].first() }", "GR026", "`[].first()` may be absent"),
        (
            &review,
            "{ score: 1, stars: 2 }",
            "GR021",
            "`{score: int, tags: [a | b]?}` has no field `stars`",
        ),
        (
            &list,
            "list.map(it, { stars: it })",
            "GR021",
            "`{score: int, tags: [a | b]?}` has no field `stars`",
        ),
        (&map, "{ a: 'x' }", "GR022", "a value of the map is `int`, and this is the text \"x\""),
        (
            &list,
            "[null]",
            "GR022",
            "null is the value of an absent field, but a value is needed here",
        ),
    ];
    for (schema, source, code, message) in refused {
        let ty = Type::of_schema(schema);
        let problems = compiled_for(&state, source, Some(&ty)).expect_err(source);
        assert_eq!((problems[0].code, problems[0].message.as_str()), (code, message), "{source}");
    }
}

#[test]
fn values_of_two_types_are_not_merged() {
    let state = state();
    let refused = [
        ("counts.merge({ b: 'x' })", "`merge` makes values that are `int` or the text \"x\""),
        ("{ b: text }.merge(counts)", "`merge` makes values that are `int` or `string`"),
        (
            "counts.merge(list.toMap(it, 'k', text))",
            "`merge` makes values that are `int` or `string`",
        ),
        ("{ a: n }.merge({ a: review.note })", "`merge` makes values that are `int` or `string`"),
        ("{ a: counts }.merge({ a: { b: yes } })", "`merge` makes values that are `int` or `bool`"),
    ];
    for (source, message) in refused {
        let problems = compiled(&state, source).expect_err(source);
        assert_eq!(
            (problems[0].code, problems[0].message.as_str()),
            ("GR022", message),
            "{source}"
        );
    }
    let accepted = [
        ("counts.merge({ b: 2 })", "map[string, int]"),
        ("counts.merge({ b: 2.5 })", "map[string, float]"),
        ("{ a: n }.merge({ a: text, b: yes })", "{a: string, b: bool}"),
        ("any.merge({ a: n })", "json"),
        (
            "list.toMap(it, 'k', { a: n }).merge({ b: { c: text } })",
            "map[string, {a: int?, c: string?}]",
        ),
        (
            "list.toMap(it, 'k', { a: n }).merge(list.toMap(it, 'l', { c: text }))",
            "map[string, {a: int?, c: string?}]",
        ),
    ];
    for (source, ty) in accepted {
        assert_eq!(compiled(&state, source).expect(source).ty().to_string(), ty, "{source}");
    }
}

#[test]
fn an_empty_list_beside_another_one_has_its_type() {
    let state = state();
    for (source, ty) in [
        ("[] + list", "[int]"),
        ("list + []", "[int]"),
        ("[[], list]", "[[int]]"),
        ("[list, []]", "[[int]]"),
        ("yes ? [] : list", "[int]"),
    ] {
        assert_eq!(compiled(&state, source).expect(source).ty().to_string(), ty, "{source}");
    }
    assert!(compiled(&state, "[[], 1]").is_err());
}

#[test]
fn a_division_of_whole_numbers_is_refused_as_a_float() {
    let state = state();
    for source in [
        "n / grade >= 0.8",
        "n / grade * 100.0",
        "0.5 + n / grade",
        "yes ? n / grade : 0.5",
        "max(n / grade, 0.5)",
        "-(1 + n / grade) < share",
        "yes && (yes ? n / grade : n) == x",
    ] {
        let problems = compiled(&state, source).unwrap_err();
        let helps: Vec<_> = problems.iter().map(|it| it.help.as_deref().unwrap()).collect();
        let help = "write `float(n) / grade`; `int(n / grade)` drops it on purpose";
        assert_eq!(helps, [help], "{source}");
    }
    for source in ["n / grade", "[n / grade]", "yes ? n / grade : 0"] {
        let expected =
            if source.starts_with('[') { Type::List(Box::new(Type::FLOAT)) } else { Type::FLOAT };
        let problems = compiled_for(&state, source, Some(&expected)).unwrap_err();
        assert_eq!(problems.len(), 1, "{source}: {problems:?}");
    }
    for source in ["n / grade >= 1", "float(n) / grade >= 0.8", "int(n / grade) * 0.5"] {
        assert!(compiled(&state, source).is_ok(), "{source}");
    }
}

/// The guarantees about a fact would hold for the items, too.
#[test]
fn a_variable_has_no_name_of_a_fact() {
    let state = state();
    for source in ["list.exists(via, via > 1)", "list.map(usage, usage + 1)"] {
        let problems = compiled(&state, source).expect_err(source);
        assert!(problems[0].message.ends_with("is already in use"), "{source}: {problems:?}");
    }
    assert!(compiled(&state, "list.exists(item, item > 1)").is_ok());
}
