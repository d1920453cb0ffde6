//! Satisfiability of conditions, by examples; and no state contradicts a result.

mod random;

use std::collections::{BTreeMap, BTreeSet};

use graphrun_core::{
    id::{ChannelName, NodeName},
    state::{Channel, Reducer, Schema},
};
use serde_json::{Value, json};

use super::{
    super::{Expression, ExpressionScope},
    *,
};
use crate::{flow::guarantee::Guarantees, problem::Problem};

fn name(name: &str) -> ChannelName {
    ChannelName::parse(name).unwrap()
}

fn node(name: &str) -> NodeName {
    NodeName::parse(name).unwrap()
}

fn schema() -> Schema {
    let severity = json!({"type": "string", "enum": ["minor", "major", "fatal"]});
    let optional = |ty: Value| json!({"anyOf": [ty, {"type": "null"}]});
    let fields = [
        ("severity", severity.clone()),
        ("before", severity),
        ("passed", json!({"type": "boolean"})),
        ("urgent", json!({"type": "boolean"})),
        ("attempts", json!({"type": "integer"})),
        ("limit", json!({"type": "integer"})),
        ("score", json!({"type": "number"})),
        ("kind", json!({"type": "string"})),
        ("note", optional(json!({"type": "string"}))),
        ("bonus", optional(json!({"type": "integer"}))),
        ("issues", json!({"type": "array", "items": {"type": "string"}})),
        (
            "review",
            json!({
                "type": "object",
                "properties": {"stars": {"type": "integer"}, "by": {"type": ["string", "null"]}},
                "required": ["stars"],
            }),
        ),
        ("any", json!({})),
        ("grade", json!({"type": "integer", "minimum": 1, "maximum": 6})),
        ("rank", json!({"type": "integer", "minimum": 6, "maximum": 9})),
        (
            "who",
            json!({
                "type": "object",
                "properties": {"name": {"type": "string"}, "nick": {"type": ["string", "null"]}},
                "required": ["name"],
                "additionalProperties": false,
            }),
        ),
        (
            "grades",
            json!({"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 6}}),
        ),
        ("mood", optional(json!({"type": "string", "enum": ["good", "bad"]}))),
        ("level", optional(json!({"type": "integer", "minimum": 0, "maximum": 3}))),
    ];
    let channel = |(it, schema)| Channel::new(name(it), schema, Reducer::Replace).unwrap();
    Schema::new(fields.map(channel)).unwrap()
}

fn try_compiled(schema: &Schema, source: &str) -> Result<Expression, Vec<Problem>> {
    let written = schema.channels().iter().map(|it| it.name().clone()).collect();
    let nodes = BTreeSet::from([node("sse")]);
    let scope = ExpressionScope {
        schema,
        written: &written,
        nodes: &nodes,
        any_item: false,
        item: None,
        variable: None,
        known: &Guarantees::NONE,
        output: false,
        types: &BTreeMap::new(),
        expected: None,
    };
    Expression::compile(source, scope)
}

fn compiled(schema: &Schema, source: &str) -> Expression {
    try_compiled(schema, source).unwrap_or_else(|it| panic!("{source}: {it:?}"))
}

fn all_compiled(sources: &[&str]) -> Vec<Expression> {
    let schema = schema();
    sources.iter().map(|it| compiled(&schema, it)).collect()
}

fn uncovered(sources: &[&str]) -> UncoveredState {
    let expressions = all_compiled(sources);
    CaseList::of(&expressions.iter().collect::<Vec<_>>()).uncovered()
}

#[test]
fn cases_that_leave_no_state_over_need_no_last_one() {
    let complete: &[&[&str]] = &[
        &["passed", "!passed"],
        &["severity == 'minor'", "severity == 'major'", "severity == 'fatal'"],
        &["severity in ['minor', 'major']", "severity == 'fatal'"],
        &["severity != 'minor'", "severity == 'minor'"],
        &["severity == before", "severity != before"],
        &["attempts < 3", "attempts == 3", "attempts > 3"],
        &["attempts <= 2", "attempts >= 3"],
        &["attempts < 2.5", "attempts > 2.5"],
        &["3 > attempts", "3 <= attempts"],
        &["attempts < -1", "attempts > 2", "attempts in [-1, 0, 1, 2]"],
        &["score < 0.5", "score >= 0.5"],
        &["score > limit", "score == limit", "limit > score"],
        &["kind == 'a'", "kind != 'a'"],
        &["kind < 'm'", "kind >= 'm'"],
        &["has(note) && note == 'x'", "has(note)", "!has(note)"],
        &["!has(note)", "has(note) && note.size() > 0", "has(note) && note.size() == 0"],
        &["issues.size() == 0", "issues.size() > 0"],
        &["visits('sse') == 0", "visits('sse') >= 1"],
        &["issues.exists(it, it == kind)", "!issues.exists(it, it == kind)"],
        &["passed && urgent", "passed && !urgent", "!passed"],
        &["passed == urgent", "passed != urgent"],
        &["passed ? urgent : severity == 'minor'", "!passed && severity != 'minor'", "!urgent"],
        &["attempts + limit > 3", "attempts + limit <= 3"],
        &["any.flag", "!any.flag"],
        &["attempts > 1 || urgent", "!urgent && !(attempts > 1)"],
        &["has(review.by)", "!has(review)", "!has(review.by)"],
        &["attempts > 3", "has(attempts)", "false"],
    ];
    for sources in complete {
        assert_eq!(uncovered(sources), UncoveredState::No, "{sources:?}");
    }
}

#[test]
fn a_state_without_a_case_is_shown_with_its_relevant_values() {
    let yes = |text: &str| UncoveredState::Yes(text.to_owned());
    let perhaps = |text: &str| UncoveredState::Perhaps(text.to_owned());
    let cases: &[(&[&str], UncoveredState)] = &[
        (&["passed"], yes("`passed` is false")),
        (
            &["severity == 'major'", "severity == 'fatal'", "attempts > 3"],
            yes("`severity` is \"minor\" and `attempts` is 3"),
        ),
        (
            &["severity in ['minor', 'fatal'] || urgent"],
            yes("`severity` is \"major\" and `urgent` is false"),
        ),
        (&["attempts < 3", "attempts > 3"], yes("`attempts` is 3")),
        (&["attempts <= 3", "attempts >= 6"], yes("`attempts` is 4")),
        (&["attempts < 2.5", "attempts > 3"], yes("`attempts` is 3")),
        (&["score < 0.5", "score > 0.6", "score in [0.5, 0.6]"], yes("`score` is 0.55")),
        (&["score <= 1", "score >= 2"], yes("`score` is 1.5")),
        (&["kind in ['a', 'b']"], yes("`kind` is another text")),
        (&["has(note)"], yes("`note` is absent")),
        (
            &["has(note) && note == 'x'", "!has(note)"],
            yes("`note` is there and `note` is another text"),
        ),
        (&["visits('sse') > 1"], yes("`visits(\"sse\")` is 0")),
        (&["issues.size() > 2"], yes("`issues.size()` is 0")),
        (
            &["attempts > 1 ? passed : issues.size() == 0"],
            yes("`attempts` is 1 and `issues.size()` is 1"),
        ),
        (&["attempts < limit"], yes("`attempts` is equal to `limit`")),
        (&["severity == before"], yes("`severity` is \"minor\" and `before` is \"major\"")),
        (&["attempts + 1 > 3"], perhaps("`attempts + 1` is 3")),
        // The abstraction cannot decide whether the two exclude each other.
        (&["attempts > limit", "attempts <= 3"], perhaps("`attempts <=> limit`")),
        (&["any.a == 1", "any.a != 2"], perhaps("`any.a == 1` is false and `any.a == 2` is true")),
        (&["has(attempts)"], perhaps("`attempts` is absent")),
    ];
    for (sources, expected) in cases {
        let found = uncovered(sources);
        match (&found, expected) {
            (UncoveredState::Perhaps(found), UncoveredState::Perhaps(expected))
                if expected.contains("<=>") =>
            {
                assert!(!found.contains("<=>"), "{found}");
            }
            _ => assert_eq!(found, *expected, "{sources:?}"),
        }
    }
}

#[test]
fn a_case_that_earlier_ones_take_all_of_is_never_reached() {
    let cases: &[(&[&str], &[usize])] = &[
        (&["attempts > 3", "attempts > 5"], &[0]),
        (&["attempts > 5", "attempts > 3"], &[]),
        (&["passed", "urgent", "passed && urgent"], &[0]),
        (&["severity == 'minor'", "urgent", "severity != 'minor'", "passed"], &[0, 2]),
        (&["kind == 'a'", "kind == 'b'", "kind in ['b', 'a']"], &[0, 1]),
        (&["kind == 'a'", "kind in ['b', 'a']"], &[]),
        (&["!has(note)", "has(note) && note == 'x'", "has(note) && 'x' == note"], &[1]),
        (&["attempts < limit", "limit > attempts"], &[0]),
        (&["issues.exists(a, a == kind)", "issues.exists( a,a==kind )"], &[0]),
        (&["issues.exists(a, a == kind)", "issues.exists(b, b == kind)"], &[]),
        (&["score > 0.5", "score >= 0.75 && passed"], &[0]),
        (&["has(review)", "has(review.by)"], &[0]),
    ];
    for (sources, expected) in cases {
        let expressions = all_compiled(sources);
        let mut cases = CaseList::of(&expressions.iter().collect::<Vec<_>>());
        assert_eq!(cases.takers(sources.len() - 1, &[]), *expected, "{sources:?}");
    }
}

fn constants(source: &str) -> Vec<String> {
    let expression = compiled(&schema(), source);
    let problems = expression.constant_parts();
    let shown = |it: Problem| format!("{} {}: {}", it.code, &source[it.range], it.message);
    problems.into_iter().map(shown).collect()
}

#[test]
fn parts_that_are_the_same_in_every_state_are_found() {
    let cases = [
        (
            "attempts > 5 && attempts < 3",
            "GR027 attempts > 5 && attempts < 3: this condition is never true",
        ),
        (
            "attempts > 2 && attempts < 3",
            "GR027 attempts > 2 && attempts < 3: this condition is never true",
        ),
        ("attempts == 2.5", "GR027 attempts == 2.5: this condition is never true"),
        ("passed || !passed", "GR027 passed || !passed: this condition is always true"),
        (
            "urgent && (kind == 'a' && kind == 'b')",
            "GR027 kind == 'a' && kind == 'b': this condition is never true",
        ),
        ("urgent || issues.size() >= 0", "GR027 issues.size() >= 0: this condition is always true"),
        ("urgent && issues.size() >= 0", "GR027 issues.size() >= 0: this condition is always true"),
        ("urgent && issues.size() in [-1, 2]", "GR027 -1: this condition is never true"),
        (
            "severity in ['minor', 'major', 'fatal']",
            "GR027 severity in ['minor', 'major', 'fatal']: this condition is always true",
        ),
        (
            "severity != 'minor' || severity != 'major'",
            "GR027 severity != 'minor' || severity != 'major': this condition is always true",
        ),
        ("kind == kind", "GR027 kind == kind: this condition is always true"),
        ("urgent && 1 == 2", "GR027 1 == 2: this condition is never true"),
        ("visits('sse') < 0 ? 1 : 2", "GR027 visits('sse') < 0: this condition is never true"),
        ("issues.exists(it, it.size() < 0)", "GR027 it.size() < 0: this condition is never true"),
        ("attempts / 0 > 1", "GR028 attempts / 0: this never has a value: division by zero"),
        (
            "attempts % (2 - 2) > 1",
            "GR028 attempts % (2 - 2): this never has a value: division by zero",
        ),
        (
            "urgent && 9223372036854775807 + 1 > attempts",
            "GR028 9223372036854775807 + 1: this never has a value: `+` leaves the range of numbers",
        ),
    ];
    for (source, expected) in cases {
        assert_eq!(constants(source), [expected], "{source}");
    }
}

/// The parts that have the same outcome because of the types and ranges of their values.
#[test]
fn types_and_ranges_decide_conditions() {
    const ALWAYS: &[&str] = &[
        "'name' in who",
        "grade <= rank",
        "rank >= grade",
        "grade * 2 <= 12",
        "severity.matches('^[mf]')",
        "severity.size() >= 5",
        "severity.contains('a') || severity == 'minor'",
        "kind.matches('x*')",
        "kind.startsWith('')",
        "kind.contains(kind)",
        "issues == issues",
        "who.size() >= 1",
        "[grade, rank].size() == 2",
        "attempts != 2.5",
    ];
    const NEVER: &[&str] = &[
        "grade > rank",
        "grade * 2 == 5",
        "grade % 2 == 5",
        "severity.matches('x')",
        "severity.lower() == 'none'",
        "severity + '!' == 'x!'",
        "kind.matches('[^\\\\s\\\\S]')",
        "(rank + 4) in grades",
        "[grade + 7] == grades",
        "[grade, 1] == [2]",
        "[grade, 1] == [rank + 1, attempts]",
        "{ a: grade } == { a: rank + 1 }",
        "who.size() > 2",
        "[severity, kind].size() == 3",
    ];
    let within = [
        ("[grade > 9]", "grade > 9"),
        ("{ ok: grade < 7 }.ok", "grade < 7"),
        ("issues.map(it, it.size() < 0)", "it.size() < 0"),
        ("string(grade > 9)", "grade > 9"),
        ("passed == (grade > 9)", "grade > 9"),
        ("(grade > 9) in [passed]", "grade > 9"),
        ("attempts > 2 && grade + 1 > 9", "grade + 1 > 9"),
    ];
    let whole = |outcome, sources: &'static [&'static str]| {
        sources.iter().map(move |it| (*it, *it, outcome))
    };
    let within = within.into_iter().map(|(source, part)| {
        (source, part, if part.contains("< 7") { "always" } else { "never" })
    });
    for (source, part, outcome) in
        whole("always", ALWAYS).chain(whole("never", NEVER)).chain(within)
    {
        let expected = format!("GR027 {part}: this condition is {outcome} true");
        assert_eq!(constants(source), [expected], "{source}");
    }
}

#[test]
fn values_of_few_kinds_complete_a_list_of_cases() {
    for sources in [
        &["severity.startsWith('m')", "severity.endsWith('l')"][..],
        &["grade % 2 == 0", "grade in [1, 3, 5]"],
        &["grade < rank", "grade == rank"],
        &["has(who)", "!has(who.name)"],
    ] {
        assert_eq!(uncovered(sources), UncoveredState::No, "{sources:?}");
    }
    assert_eq!(
        uncovered(&["grade % 2 == 0", "grade > 4"]),
        UncoveredState::Yes("`grade` is 1".to_owned())
    );
}

#[test]
fn parts_that_may_differ_are_left_alone() {
    let sources = [
        "true",
        "passed && true",
        "attempts > 2 && attempts < 4",
        "score > 2 && score < 3",
        "attempts / 2 > 0 && attempts / 2 < 2",
        "score / 2 > 1 && score / 2 < 2",
        "attempts == 9223372036854775807 && attempts > 9223372036854775806.0",
        "attempts + 1 > attempts",
        "any.a == 1 && any.a == 'x'",
        "any.a != 1 && any.a != 2",
        "any.a == true || any.a == false",
        "kind < 'a' && kind > 'a ' || urgent",
        "has(review.stars) && !has(review.by)",
        "has(note) ? note == 'x' : urgent",
        "issues.exists(it, it == 'a') && !issues.exists(it, it == 'b')",
        "limit - attempts > 0 && limit > attempts",
        "'nick' in who",
        "'x' in review",
        "kind in who",
        "grade < rank",
        "grade == rank || passed",
        "rank in grades",
        "grade * attempts == 5",
        "severity.matches('^m')",
        "kind.matches('^x*$')",
        "kind.startsWith(severity)",
        "grades == []",
        "[grade] == grades",
        "[grade, 1] == [rank, attempts]",
        "has(who.nick) || has(who.name)",
        "who.size() > 1",
    ];
    for source in sources {
        assert_eq!(constants(source), Vec::<String>::new(), "{source}");
    }
}

#[test]
fn expensive_questions_stay_undecided() {
    // Which of twenty sums are positive? The abstraction only finds that they depend on each other.
    let terms: Vec<String> = (0..20).map(|it| format!("(attempts + {it} > 0)")).collect();
    let odd = terms.iter().skip(1).fold(terms[0].clone(), |all, it| format!("({all}) == {it}"));
    let even = format!("!({odd})");
    assert_eq!(uncovered(&[&odd, &even]), UncoveredState::Unknown);
    let many: Vec<String> = (0..5_000).map(|it| format!("attempts == {it}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(uncovered(&many), UncoveredState::Unknown);
}

/// An absent value has a default, which decides a condition like any other value.
#[test]
fn a_default_counts_as_a_value() {
    for sources in [
        &["mood.orValue('none') == 'good'", "mood.orValue('none') == 'bad'"][..],
        &["bonus.orValue(0) > 3", "bonus.orValue(0) <= 3 && has(bonus)"],
        &["level.orValue(9) < 4"],
        &["{ mood: mood }.size() == 1"],
        &["note.orValue('').size() > 3", "has(note)"],
    ] {
        assert!(
            matches!(uncovered(sources), UncoveredState::Yes(_) | UncoveredState::Perhaps(_)),
            "{sources:?}"
        );
    }
    for sources in [
        &[
            "mood.orValue('none') == 'good'",
            "mood.orValue('none') == 'bad'",
            "mood.orValue('none') == 'none'",
        ][..],
        &["bonus.orValue(0) > 3", "bonus.orValue(0) <= 3"],
    ] {
        assert_eq!(uncovered(sources), UncoveredState::No, "{sources:?}");
    }
    for source in [
        "mood.orValue('none') == 'none'",
        "level.orValue(9) > 5",
        "!has(bonus) && bonus.orValue(9) > 3",
        "!has(note) && note.orValue('none').size() > 3",
        "!has(issues.first()) && issues.first().orValue('none') == 'none'",
    ] {
        assert_eq!(constants(source), Vec::<String>::new(), "{source}");
    }
    for [first, second] in
        [["has(bonus)", "bonus.orValue(0) > 3"], ["mood.orValue('good') != 'good'", "!has(mood)"]]
    {
        let expressions = all_compiled(&[first, second]);
        let mut cases = CaseList::of(&expressions.iter().collect::<Vec<_>>());
        assert!(cases.takers(1, &[]).is_empty(), "{first}, {second}");
    }
    let [good, absent] = ["mood.orValue('good') == 'good'", "!has(mood)"];
    let both = all_compiled(&[good, absent]);
    assert!(!exclude_each_other(&[(&both[0], true), (&both[1], true)]));
}

#[test]
fn constants_are_computed_with_their_types() {
    let quotient = "(attempts > 1 ? 0.5 : attempts) / 2 < 0.5";
    for source in ["max(grade, 0.5) / 2 == 0.5", quotient] {
        assert_eq!(constants(source), Vec::<String>::new(), "{source}");
    }
    for source in ["min(grade, 2.5) / 2 < 0.5", "min(1, 2.5) / 2 < 0.5"] {
        let expected = format!("GR027 {source}: this condition is never true");
        assert_eq!(constants(source), [expected], "{source}");
    }
    let cases = ["min(grade, 2.5) / 2 < 0.5", "grade in [2, 3, 4, 5, 6]"];
    assert_eq!(uncovered(&cases), UncoveredState::Yes("`grade` is 1".to_owned()));
}
