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
        let findings = compile(workflow.into_graph(&factory)).map(|_| ());
        (name, findings.map_err(|it| it.in_order().iter().map(|it| it.code).collect::<Vec<_>>()))
    });
    let found: Vec<(String, Result<(), Vec<&str>>)> = found.collect();
    // Each of the nodes that write has the other one beside it.
    assert_eq!(found[0].1, Err(vec!["GR036"]), "{}", found[0].0);
    assert_eq!(found[1].1, Ok(()), "{}", found[1].0);
}

#[test]
fn inputs_of_earlier_findings_pass() {
    let mut seeds = 0;
    for (folder, target) in [
        ("yaml", targets::yaml as fn(&str)),
        ("expression", targets::expression),
        ("prompt", targets::prompt),
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
    fn no_mangled_workflow_makes_the_checks_panic(steps in prop::collection::vec(any::<u8>(), 1..24)) {
        targets::workflow(&steps);
    }
}
