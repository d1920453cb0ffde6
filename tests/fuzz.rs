//! No input makes loading panic, hang or overflow the stack.
//!
//! The functions of the fuzz targets (`fuzz/`), driven here by random inputs, by inputs kept from their
//! runs, and by inputs that are hard on purpose. How long the hard ones take is measured in
//! `benches/check.rs`.

#[path = "../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "it is the library of another crate")]
mod targets;

#[expect(unreachable_pub, reason = "benches use it as well")]
mod hostile;

use std::{fs, path::Path, sync::Arc};

use graphrun::{
    compile::compile,
    diagnostic::SourceFile,
    nodes::{Services, factory},
    registry,
    workflow::parse,
};
use proptest::prelude::*;

#[test]
fn hard_workflows_are_loaded_or_refused() {
    for (name, text) in hostile::inputs() {
        println!("{name}");
        targets::load(&text);
    }
}

#[test]
fn all_pairs_of_very_many_nodes_are_checked() {
    let registry = registry();
    let factory = factory(Services::offline(), graphrun::registry());
    let found = hostile::crowded().into_iter().map(|(name, text)| {
        let file = Arc::new(SourceFile { name: "crowded.yaml".into(), text });
        let (workflow, _) = parse(file, Path::new("no/such/folder"), &registry).unwrap();
        let diagnostics = compile(workflow.into_graph(&factory)).map(|_| ());
        (
            name,
            diagnostics
                .map_err(|found| found.in_order().iter().map(|it| it.code).collect::<Vec<_>>()),
        )
    });
    let found: Vec<(String, Result<(), Vec<&str>>)> = found.collect();
    // Each of the nodes that write has the other one beside it.
    assert_eq!(found[0].1, Err(vec!["GR036"]), "{}", found[0].0);
    assert_eq!(found[1].1, Ok(()), "{}", found[1].0);
}

#[test]
fn inputs_of_earlier_diagnostics_pass() {
    let mut seeds = 0;
    for (folder, target) in [
        ("yaml", targets::yaml as fn(&str)),
        ("expression", targets::expression),
        ("prompt", targets::prompt),
        ("cases", targets::cases),
        ("layout", targets::layout),
        ("types", targets::types),
    ] {
        for entry in fs::read_dir(Path::new("fuzz/seeds").join(folder)).unwrap() {
            let path = entry.unwrap().path();
            target(&String::from_utf8_lossy(&fs::read(&path).unwrap()));
            seeds += 1;
        }
    }
    assert!(seeds >= 30, "only {seeds} seeds");
}

/// Pieces that mean something in all three languages.
fn pieces() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "graphrun: 1",
        "name",
        "state",
        "nodes",
        "then",
        "text",
        "number",
        "level",
        "parts",
        "part",
        "note",
        "has(",
        "visits(\"n\")",
        ".size()",
        ".exists(x, ",
        ".all(x, ",
        "&&",
        "||",
        "==",
        "!=",
        "<",
        "in",
        "?",
        ":",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "{{",
        "}}",
        "{%",
        "%}",
        "if ",
        "for x in ",
        "endif",
        "endfor",
        "elif ",
        "else",
        "set x = ",
        "brief",
        "plan.steps",
        "tasks",
        "loop.index",
        "| length",
        "| join(', ')",
        "is defined",
        "\"",
        "'",
        "\n",
        "\n  ",
        "- ",
        ", ",
        "&a ",
        "*a",
        "!",
        "|\n",
        ">\n",
        "#",
        "0",
        "1",
        "9223372036854775807",
        "-1",
        "1.5",
        "true",
        "null",
        "\"low\"",
        "\"2026-01-31\"",
        "\t",
        "é",
        "\u{0}",
        "\u{feff}",
    ]);
    prop::collection::vec(words, 0..40).prop_map(|it| it.join(" "))
}

/// Files of test cases for the workflow of the target: known keys, with values that may fit.
fn case_files() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec![
        "input", "start", "state", "visits", "usage", "now", "until", "nodes", "replay", "expect",
        "name", "about",
    ]);
    let word = prop::sample::select(vec![
        "plan",
        "search",
        "each",
        "topic",
        "fail",
        "message",
        "calls",
        "answer",
        "route",
        "status",
        "prompts",
        "never",
        "tokens",
        "nodes",
        "tool",
        "result",
        "timeout",
        "done",
        "...",
        "1",
        "-3",
        "true",
        "2025-01-01T00:00:00Z",
        "é",
        "",
    ]);
    let leaf = word.clone().prop_map(str::to_owned);
    let value = leaf.prop_recursive(3, 12, 3, move |inner| {
        let entry = (word.clone(), inner.clone()).prop_map(|(key, it)| format!("\"{key}\": {it}"));
        prop_oneof![
            prop::collection::vec(inner, 0..3).prop_map(|it| format!("[{}]", it.join(", "))),
            prop::collection::vec(entry, 0..3).prop_map(|it| format!("{{ {} }}", it.join(", "))),
        ]
    });
    let entries = prop::collection::btree_map(key, value, 0..6);
    (entries.clone(), prop::collection::vec(entries, 0..3)).prop_map(|(top, cases)| {
        let lines = |keys: std::collections::BTreeMap<&str, String>, indent: &str| -> String {
            let line = |(key, value): (&str, String)| format!("{indent}{key}: {value}\n");
            keys.into_iter().map(line).collect::<Vec<_>>().concat()
        };
        let case = |it| format!("  - about: case\n{}", lines(it, "    "));
        let cases: String = cases.into_iter().map(case).collect();
        format!("graphrun_test: 1\n{}cases:\n{cases}", lines(top, ""))
    })
}

/// Types in the short notation, most of which are right.
fn types() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "string", "int", "float", "bool", "json", "date", "duration", "Part", "a | b", "x",
        "é | ü", "Nothing", "", "1", "map", "[]", "{", "a | a",
    ]);
    let leaf = words.prop_map(str::to_owned);
    leaf.prop_recursive(4, 16, 3, |inner| {
        let name = prop::sample::select(vec!["a", "b", "a_1", "é", "type", ""]);
        let field = (name, inner.clone()).prop_map(|(name, ty)| format!("{name}: {ty}"));
        prop_oneof![
            3 => inner.clone().prop_map(|it| format!("[{it}]")),
            2 => inner.clone().prop_map(|it| format!("{it}?")),
            2 => inner.clone().prop_map(|it| format!("map[string, {it}]")),
            3 => prop::collection::vec(field, 0..3).prop_map(|it| format!("{{{}}}", it.join(", "))),
            1 => (inner.clone(), inner).prop_map(|(a, b)| format!("{a} | {b}")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_the_reader_panic(text in pieces()) {
        targets::yaml(&text);
    }

    #[test]
    fn no_expression_makes_the_checker_panic(text in pieces()) {
        targets::expression(&text);
    }

    #[test]
    fn no_prompt_makes_the_checker_panic(text in pieces()) {
        targets::prompt(&text);
    }

    #[test]
    fn a_type_is_shown_as_it_is_written(text in prop_oneof![3 => types(), 1 => pieces()]) {
        targets::types(&text);
    }

    #[test]
    fn no_test_case_makes_the_checker_panic(text in case_files()) {
        targets::cases(&text);
    }

    #[test]
    fn a_layout_is_laid_out_already(text in prop_oneof![pieces(), case_files()]) {
        targets::layout(&text);
    }

    #[test]
    fn no_mangled_workflow_makes_the_checks_panic(steps in prop::collection::vec(any::<u8>(), 1..24)) {
        targets::workflow(&steps);
    }
}
