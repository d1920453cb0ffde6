use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use graphrun_core::diagnostic::SourceFile;
use proptest::prelude::*;

use super::*;
use crate::source::{
    reader::{self, Data, Yaml},
    report::Report,
};

fn files() -> Vec<(PathBuf, String)> {
    let folders = [
        "tests/workflow/right",
        "tests/workflow/wrong",
        "graphs",
        "examples",
        "tests/cli/workflows",
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = folders.iter().flat_map(|it| fs::read_dir(root.join(it)).unwrap());
    let mut files: Vec<PathBuf> = files.map(|it| it.unwrap().path()).collect();
    // Case files beside a workflow have a different format.
    let is_of_cases =
        |path: &Path| path.file_stem().is_some_and(|it| Path::new(it).extension().is_some());
    files.retain(|path| path.extension().is_some_and(|it| it == "yaml") && !is_of_cases(path));
    files.sort();
    files.into_iter().map(|it| (it.clone(), fs::read_to_string(it).unwrap())).collect()
}

/// Each key and scalar with its path and its first byte.
fn expected(yaml: &Yaml, path: &[Step], file: &str, found: &mut BTreeSet<String>) {
    let into = |step: Step| path.iter().cloned().chain([step]).collect::<Vec<_>>();
    match &yaml.data {
        Data::Null => (),
        Data::Scalar { .. } => {
            let start = &file[yaml.range.start..];
            let quotes = usize::from(start.starts_with(['"', '\'']));
            found.insert(format!("{path:?} = {}", yaml.range.start + quotes));
        }
        Data::List(items) => {
            for (at, item) in items.iter().enumerate() {
                expected(item, &into(Step::Item(at)), file, found);
            }
        }
        Data::Map(entries) => {
            for entry in entries {
                let path = into(Step::Key(entry.key.text.clone()));
                let start = &file[entry.key.range.start..];
                let quotes = usize::from(start.starts_with(['"', '\'']));
                let key = entry.key.range.start + quotes..entry.key.range.end - quotes;
                found.insert(format!("{path:?}: {key:?}"));
                // The place of an alias is the place of its anchor.
                if entry.value.range.start >= entry.key.range.start {
                    expected(&entry.value, &path, file, found);
                }
            }
        }
    }
}

/// Files in which the reader reports and drops a key or a tag, or repairs a value that YAML has
/// split.
const DIFFER: &[&str] = &["duplicate_key", "yaml_tag", "commas"];

#[test]
fn it_agrees_with_the_reader_where_that_can_read() {
    let mut compared = 0;
    for (path, text) in files() {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let file = Arc::new(SourceFile { name: String::new(), text: text.clone() });
        let Some(root) = reader::read(&mut Report::new(file)) else { continue };
        if DIFFER.iter().any(|it| name.contains(it)) {
            continue;
        }
        let mut read = BTreeSet::new();
        expected(&root, &[], &text, &mut read);
        let mut outlined = BTreeSet::new();
        for part in Outline::of(&text).parts() {
            let path = &part.path;
            outlined.extend(part.key.iter().map(|it| format!("{path:?}: {it:?}")));
            let value = part.value.as_ref().filter(|it| {
                let is_quoted = text[..it.start].ends_with(['"', '\'']);
                let is_null = ["", "~", "null"].contains(&&text[(*it).clone()]);
                is_quoted || !is_null && !text[it.start..].starts_with('*')
            });
            outlined.extend(value.map(|it| format!("{path:?} = {}", it.start)));
        }
        let missing: Vec<&String> = read.difference(&outlined).collect();
        let extra: Vec<&String> = outlined.difference(&read).collect();
        assert!(
            missing.is_empty() && extra.is_empty(),
            "{}: missing {missing:#?}, not there {extra:#?}",
            path.display()
        );
        compared += 1;
    }
    assert!(compared > 30, "only {compared} files");
}

/// Returns the path of a cursor, which is `|` in the text, and the possible elements there.
fn slot(text: &str) -> String {
    let cursor = text.find('|').unwrap();
    let slot = Outline::slot(&text.replacen('|', "", 1), cursor);
    let steps: Vec<String> = slot
        .path
        .iter()
        .map(|it| match it {
            Step::Key(key) => key.clone(),
            Step::Item(at) => at.to_string(),
        })
        .collect();
    let kinds = match (slot.takes_key, slot.takes_value) {
        (true, true) => "key or value",
        (true, false) => "key",
        (false, true) => "value",
        (false, false) => "nothing",
    };
    format!("{}: {kinds} {:?}", steps.join("."), &text[slot.start..cursor])
}

#[test]
fn a_cursor_knows_its_place() {
    for (text, expected) in [
        ("|", ": key \"\""),
        ("sta|", ": key \"sta\""),
        ("a: 1\n|", ": key \"\""),
        ("start: |", "start: value \"\""),
        ("start: b|a\nnodes:", "start: value \"b\""),
        ("input: [a, b|", "input.1: value \"b\""),
        ("input: [a, |\nnodes:\n  x: {}", "input.1: value \"\""),
        ("input:\n  - a\n  - |", "input.1: key or value \"\""),
        ("input:\n- a\n- b|", "input.1: key or value \"b\""),
        ("nodes:\n  |", "nodes: key or value \"\""),
        ("nodes:\n  a:\n    th|", "nodes.a: key or value \"th\""),
        ("nodes:\n  a:\n    agent: x\n    th|", "nodes.a: key \"th\""),
        ("nodes:\n  a:\n    agent: x\n\n  |", "nodes: key \"\""),
        ("nodes:\n  a: { agent: x, th|", "nodes.a: key \"th\""),
        ("nodes:\n  a: { agent: x, then: |", "nodes.a.then: value \"\""),
        ("nodes:\n  a: { then: { match: b, to: { x: y, |", "nodes.a.then.to: key \"\""),
        (
            "nodes:\n  a:\n    then:\n      - { when: b == \"c|",
            "nodes.a.then.0.when: value \"b == \\\"c\"",
        ),
        ("nodes:\n  a:\n    then:\n      - when: b\n        t|", "nodes.a.then.0: key \"t\""),
        ("nodes:\n  a: { when: \"b == |", "nodes.a.when: value \"b == \""),
        ("a: {\n  b: 1,\n  c|\n}\n", "a: key \"c\""),
        ("a: [x\nb: |", "b: value \"\""),
        ("a: \"x\nb: |", "b: value \"\""),
        ("a: x # {|", ": nothing \"a: x # {\""),
        ("# a|", ": nothing \"# a\""),
        ("nodes:\n  a:\n    ask: |\n", "nodes.a.ask: value \"\""),
        ("a: {b: 1}|", ": nothing \"a: {b: 1}\""),
    ] {
        assert_eq!(slot(text), expected, "{text}");
    }
}

#[test]
fn an_unclosed_bracket_does_not_swallow_the_next_key() {
    let outline = Outline::of("a: [x, {y: 'z\nb: \"w\nc: 3\n");
    assert!(outline.under(&["b"]).is_some() && outline.under(&["c"]).is_some());
}

proptest! {
    #[test]
    fn no_text_and_no_cursor_breaks_it(text in r#"([a-c :,\[\]{}'"|>&!*#\\?\n\t é😀-]|: |\n  |- ){0,60}"#) {
        let outline = Outline::of(&text);
        for part in outline.parts() {
            for range in part.key.iter().chain(&part.value) {
                prop_assert!(text.get(range.clone()).is_some(), "{range:?}");
            }
        }
        for cursor in (0..=text.len()).filter(|it| text.is_char_boundary(*it)) {
            let slot = Outline::slot(&text, cursor);
            prop_assert!(text.get(slot.start..cursor).is_some(), "{slot:?} at {cursor}");
        }
    }
}

/// Returns the text of the only value of a file, as the reader has it.
fn read_text(file: &str) -> Option<String> {
    let file = Arc::new(SourceFile { name: String::new(), text: file.to_owned() });
    let root = reader::read(&mut Report::new(file))?;
    root.get("a")?.text().map(str::to_owned)
}

#[test]
fn a_scalar_has_the_text_that_the_reader_has() {
    for written in [
        "'it''s'",
        "''''",
        r#""say \"a\" \\ \x41\u00e4\U0001F600\t\/ end""#,
        "\"a \\\n   b\"",
        "\"a\\\r\n   \\ b\"",
        "plain '' \"x\" \\n",
    ] {
        let file = format!("a: {written}\n");
        let range = Outline::of(&file).under(&["a"]).unwrap().value.clone().unwrap();
        let scalar = ScalarText::of(&file, range).unwrap();
        assert_eq!(Some(scalar.text()), read_text(&file).as_deref(), "{file}");
    }
}

#[test]
fn each_part_of_a_scalar_has_its_bytes_in_the_file() {
    let file = r#"a: "x \"ä\x41\" \\""#;
    let scalar = ScalarText::of(file, 4..file.len() - 1).unwrap();
    assert_eq!(scalar.text(), r#"x "äA" \"#);
    let shown = |part: &str| {
        let at = scalar.text().find(part).unwrap();
        &file[scalar.in_file(&(at..at + part.len()))]
    };
    assert_eq!(["x", "\"äA\"", "A", "\\"].map(shown), ["x", r#"\"ä\x41\""#, r"\x41", r"\\"]);
    let end = scalar.text().len();
    assert_eq!(scalar.in_file(&(end..end)), file.len() - 1..file.len() - 1);
    // The middle of an escape is its character.
    let escape = file.find(r"\x41").unwrap();
    assert_eq!(scalar.in_text(escape + 2), scalar.text().find('A').unwrap());
    assert_eq!(scalar.in_text(file.len()), scalar.text().len());
}

proptest! {
    #[test]
    fn the_escapes_of_a_scalar_are_those_of_yaml(
        inside in r#"([a-c "'\\x4nt/é😀]|''|\\"|\\x41|\\u00e4){0,20}"#
    ) {
        for quote in ['"', '\''] {
            let file = format!("a: {quote}{inside}{quote}\n");
            let Some(text) = read_text(&file) else { continue };
            let range = Outline::of(&file).under(&["a"]).unwrap().value.clone().unwrap();
            let scalar = ScalarText::of(&file, range).unwrap();
            prop_assert_eq!(scalar.text(), text, "{}", file);
            prop_assert_eq!(scalar.in_file(&(0..scalar.text().len())).len(), inside.len());
        }
    }
}

/// An editor would change the comment with the names in the value.
#[test]
fn a_comment_behind_a_value_in_brackets_is_no_part_of_it() {
    let text = "start: [\n  s1 # then s2, s3\n  , s4 # {\n]\nnodes: { a: b # c: d\n }\n";
    let outline = Outline::of(text);
    let values: Vec<&str> =
        outline.parts().iter().filter_map(|it| text.get(it.value.clone()?)).collect();
    assert_eq!(values, ["s1", "s4", "b"]);
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_key() {
    let text = "\u{feff}state: { a: string }\nstart: x\n";
    let outline = Outline::of(text);
    assert_eq!(outline.under(&["state", "a"]).unwrap().key, Some(12..13));
    assert_eq!(slot("\u{feff}sta|"), ": key \"sta\"");
}

#[test]
fn many_anchors_need_no_stack() {
    let anchors = "&a ".repeat(200_000);
    for text in [format!("a: {anchors}b"), format!("a: [{anchors}b]")] {
        let outline = Outline::of(&text);
        let end = outline.parts().last().unwrap().value.clone().unwrap().end;
        assert_eq!(end, text.trim_end_matches(']').len());
    }
}
