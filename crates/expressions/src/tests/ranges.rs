//! The ranges of numbers: how they are computed, and where a number must stay in one.

use graphrun_core::state::Type;
use serde_json::json;

use super::{compiled, compiled_for, state};

#[test]
fn the_range_of_a_number_is_computed() {
    let state = state();
    let cases = [
        ("7", "7"),
        ("-7", "-7"),
        ("grade", "1 to 6"),
        ("grade + 1", "2 to 7"),
        ("1 - grade", "-5 to 0"),
        ("-grade", "-6 to -1"),
        ("grade * below", "-54 to -2"),
        ("grade * grade - 1", "0 to 35"),
        ("n * 0", "0"),
        ("n * grade", "any number"),
        ("grade / 2", "0 to 3"),
        ("grade / 2.0", "0.5 to 3"),
        ("below / grade", "-9 to 0"),
        ("list.size() / grade", "at least 0"),
        ("12 / n", "any number"),
        ("n % 5", "-4 to 4"),
        ("visits('sse') % 5", "0 to 4"),
        ("(grade + 1) % 6", "0 to 5"),
        ("share % 0.5", "0 to 0.5"),
        ("share + grade", "1 to 7"),
        ("list.size()", "at least 0"),
        ("usage.tokens - 1", "at least -1"),
        ("min(n, 10)", "at most 10"),
        ("max(n, 1)", "at least 1"),
        ("max(min(n, 10), 1)", "1 to 10"),
        ("min(grade, share)", "0 to 1"),
        ("max(grade, 3)", "3 to 6"),
        ("has(list.first()) ? min(list.first(), 9) : grade", "at most 9"),
        ("list.map(it, grade).sum()", "at least 0"),
        ("int(share * 2.5)", "0 to 2"),
        ("yes ? grade : 9", "1 to 9"),
        ("yes ? grade : share", "0 to 6"),
        ("{ a: grade }.a", "1 to 6"),
        // Floats do not represent all whole numbers from here on.
        ("wide + 1", "at least 1"),
        ("wide - 1", "at least -1"),
        ("wide / 2", "at least 0"),
        ("min(wide, 5)", "0 to 5"),
        ("9007199254740993", "9007199254740991 to 9007199254740994"),
        ("9007199254740994", "9007199254740994"),
        ("n < 10 ? n : 0", "at most 9"),
        ("n < 10 && n >= 0 ? n + 1 : 0", "0 to 10"),
        ("n < 0 || n > 5 ? 0 : n", "0 to 5"),
        ("n in [1, -2, 5] ? n : 2", "-2 to 5"),
        ("n in [1, grade] ? n : 2", "1 to 6"),
        ("n in list ? n : 2", "any number"),
        ("!(n <= 3) ? n : 4", "at least 4"),
        ("3 >= n ? n : 4", "at most 4"),
        ("n < grade ? n : 0", "at most 5"),
        ("n == grade ? n : 2", "1 to 6"),
        ("n < 2.5 ? n : 0", "at most 2"),
        ("x < 10.0 ? x : 0.0", "at most 10"),
        ("n + 1 <= 10 ? n + 1 : 0", "at most 10"),
        ("yes ? (n < 10 ? n : 0) : n", "any number"),
        ("grade > 9 ? grade : 1", "1 to 6"),
        ("has(counts.a) && counts.a <= 3 ? counts.a : 0", "at most 3"),
        ("list.size() > 2 ? list.size() : 3", "at least 3"),
        ("n < 0 ? 0 : (n > 10 ? 10 : n)", "0 to 10"),
        ("n < 0 ? 0 : (n > 4 + 6 ? 10 : n)", "0 to 10"),
        ("n < 0 ? 1 : (n + 1 > 10 ? 10 : n + 1)", "1 to 10"),
        ("n < 0 ? -1 : (n < 10 ? (n > 5 ? n : 7) : 9)", "-1 to 9"),
        ("n > 0 ? (yes || n > 5 ? n : 3) : 1", "at least 1"),
        ("grade != 1 ? grade : 2", "2 to 6"),
        ("!(6 == grade) ? grade : 2", "1 to 5"),
        ("grade != 2 && grade != 1 && grade != 6 ? grade : 3", "3 to 5"),
        ("n != 0 && n >= 0 ? 10 / n : 0", "0 to 10"),
        ("n == 0 || n < 0 ? 1 : n", "at least 1"),
        ("n != 3 ? n : 0", "any number"),
        ("x >= 0.0 && x != 0.0 ? x : 1.0", "at least 0"),
        ("list.filter(it, it >= 0).sum()", "at least 0"),
        (
            "list.filter(it, it < 3 && it >= 0).map(it, it + 1).filter(it, has(list[it])).sum()",
            "at least 0",
        ),
    ];
    for (source, expected) in cases {
        let ty = compiled(&state, source).expect(source).ty().required().clone();
        assert_eq!(ty.range().expect(source).to_string(), expected, "{source}");
    }
}

#[test]
fn a_number_out_of_range_is_refused_where_it_is_written() {
    let state = state();
    let grade = json!({"type": "integer", "minimum": 1, "maximum": 6});
    let record = json!({
        "type": "object",
        "properties": {"grade": grade.clone()},
        "required": ["grade"],
        "additionalProperties": false,
    });
    let list = json!({"type": "array", "items": grade});
    let cases = [
        (
            &record,
            "{ grade: 7 }",
            "`grade` takes 1 to 6, and this is 7 | write a number from 1 to 6, or widen the range of `grade`",
        ),
        (
            &record,
            "{ grade: n }",
            "`grade` takes 1 to 6, and this may be any number | write `max(min(n, 6), 1)`, or widen the range of `grade`",
        ),
        (
            &record,
            "{ grade: grade + 1 }",
            "`grade` takes 1 to 6, and this may be 2 to 7 | write `min(grade + 1, 6)`, or widen the range of `grade`",
        ),
        (
            &list,
            "[1, 0]",
            "an item takes 1 to 6, and this is 0 | write a number from 1 to 6, or widen the range of an item",
        ),
    ];
    for (schema, source, expected) in cases {
        let ty = Type::of_schema(schema);
        let problems = compiled_for(&state, source, Some(&ty)).expect_err(source);
        let help = problems[0].help.as_deref().unwrap_or_default();
        assert_eq!(format!("{} | {help}", problems[0].message), expected, "{source}");
        assert_eq!(problems[0].code, "GR120", "{source}");
    }
}
