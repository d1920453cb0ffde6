//! The layout of files: comments and values stay, and a second layout changes nothing.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use graphrun::workflow::format_text;
use proptest::prelude::*;
use saphyr::{LoadableYamlNode, Yaml};

/// All workflows and test cases of the repository that can be read.
fn files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["graphs", "examples", "tests/corpus", "tests/mutants", "tests/cases"] {
        collect(Path::new(folder), &mut found);
    }
    found.sort();
    found
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|it| it == "yaml") {
            found.push(path);
        }
    }
}

/// The values of a text, by a reader that has nothing to do with the layout.
fn values(text: &str) -> Vec<Yaml<'_>> {
    Yaml::load_from_str(text).unwrap()
}

/// The layout of a text, checked in every way that needs no knowledge of it.
fn laid_out(name: &str, text: &str) -> String {
    let laid_out = format_text(name, text).unwrap_or_else(|it| panic!("{name}: {it}\n{text}"));
    assert_eq!(values(text), values(&laid_out), "{name}");
    assert_eq!(format_text(name, &laid_out).unwrap(), laid_out, "{name} is not stable");
    laid_out
}

#[test]
fn every_file_of_the_repository_keeps_its_values_and_comments() {
    let files = files();
    assert!(files.len() > 60, "only {} files", files.len());
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let laid_out = laid_out(&path.display().to_string(), &text);
        let comments = |text: &str| -> Vec<String> {
            let lines = text.lines().map(str::trim_start).filter(|it| it.starts_with('#'));
            lines.map(|it| it.trim_end().to_owned()).collect()
        };
        let lost: Vec<String> =
            comments(&text).into_iter().filter(|it| !comments(&laid_out).contains(it)).collect();
        assert!(lost.is_empty(), "{}: {lost:?}", path.display());
    }
}

#[test]
fn brackets_stay_in_a_line_that_they_fit_in() {
    let text = "nodes:\n    a:   {set: {x: 'it''s', y:   [1,2]},then: end}   # why\n";
    let expected = "nodes:\n  a: { set: { x: 'it''s', y: [1, 2] }, then: end } # why\n";
    assert_eq!(laid_out("a.yaml", text), expected);
    let item = "a_rather_long_word_in_a_list";
    let long = format!("x: [{}]\n", [item; 5].join(", "));
    let expected = format!("x: [\n  {}\n]\n", [item; 5].join(",\n  "));
    assert_eq!(laid_out("a.yaml", &long), expected);
}

#[test]
fn comments_of_neighbouring_lines_stay_in_one_column() {
    let text = "a: {x: 1}      # one\nbbbb:   2      # two\nc: 3   # three\n\nd: 'ä # b'   # four\n\
                ee:    \"x\"   # five\nf:\n  g: 1  # six\n";
    let expected = "a: { x: 1 } # one\nbbbb: 2     # two\nc: 3 # three\n\nd: \"ä # b\" # four\n\
                    ee: \"x\"    # five\nf:\n  g: 1 # six\n";
    assert_eq!(laid_out("a.yaml", text), expected);
    let kept = "# fmt-keep\na: {\n  x: 1,    # one\n  yy: 2,   # two\n}\n";
    assert_eq!(laid_out("a.yaml", kept), kept);
}

#[test]
fn long_lists_in_brackets_are_laid_out() {
    let word = "a_rather_long_word_in_a_list";
    for text in [
        format!("x: [{word}, {word}, {word},\n    {word}, {word}] # c\n"),
        format!("x: [\n  {word}, {word}, # one\n  {word}, {word}, {word},\n]\n"),
        format!("a: {{ b: [{word}, {word}, {word}], c: [{word}, {word}] }}\n"),
        format!(
            "a:\n  - [{word}, {word}, {word}, {word}, {word}]\n  - {{ x: [{word}, {word}, {word}, {word}] }}\n"
        ),
        format!("a: {{ b: {{ c: [{word}, {word}, {word}, {word}, {word}] }}, then: end }} # c\n"),
    ] {
        laid_out("a.yaml", &text);
    }
}

#[test]
fn blocks_of_text_and_blank_lines_between_nodes_stay() {
    let text = "a: |\n    one\n      two\n\n    three\n\n\n\nb: >-\n  x\n  y\n# last\n";
    let expected = "a: |\n  one\n    two\n\n  three\n\nb: >-\n  x\n  y\n# last\n";
    assert_eq!(laid_out("a.yaml", text), expected);
}

#[test]
fn blanks_and_empty_lines_that_belong_to_a_text_stay() {
    for (text, expected) in [
        ("a:   |\n    one  \n      two\t\n\n    three\n", "a: |\n  one  \n    two\t\n\n  three\n"),
        ("a: |\n  one\n     \n  two\nb:   1\n", "a: |\n  one\n     \n  two\nb: 1\n"),
        ("a: |+\n    one\n\n\nb:   1\n", "a: |+\n  one\n\n\nb: 1\n"),
        (
            "a:\n  - b: >+\n        one\n        two \n\n",
            "a:\n  - b: >+\n      one\n      two \n\n",
        ),
        ("a: |\n  one\n    \nb:   1\n", "a: |\n  one\n    \nb: 1\n"),
        ("a: |\r\n    one  \r\nb:  1\r\n", "a: |\r\n  one  \r\nb: 1\r\n"),
    ] {
        assert_eq!(laid_out("a.yaml", text), expected, "{text:?}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_refused() {
    for text in ["a: [1\n", "a: 1\na: 2\n", "a: { b: [c }\n", ""] {
        assert!(format_text("a.yaml", text).is_err(), "{text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Comments are put at the ends of random lines and between them, and spaces before values.
    #[test]
    fn no_comment_is_lost_and_no_value_changes(
        file in any::<prop::sample::Index>(),
        lines in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..6),
        spaces in prop::collection::vec((any::<prop::sample::Index>(), 1..12_usize), 0..6),
    ) {
        let files = files();
        let text = fs::read_to_string(file.get(&files)).unwrap();
        let mut changed: Vec<String> = text.lines().map(str::to_owned).collect();
        for (line, spaces) in spaces {
            let line = line.get_mut(&mut changed);
            *line = line.replacen(": ", &format!(":{}", " ".repeat(spaces)), 1);
        }
        let mut comments = Vec::new();
        for (number, (line, is_own)) in lines.into_iter().enumerate() {
            let at = line.index(changed.len());
            let comment = format!("# comment {number}");
            let mut other = changed.clone();
            if is_own {
                other.insert(at, comment.clone());
            } else {
                other[at] = format!("{} {comment}", other[at]);
            }
            // In a block of text it would be a part of the text.
            let joined = other.join("\n");
            let is_comment = Yaml::load_from_str(&joined)
                .is_ok_and(|it| it == values(&changed.join("\n")));
            if is_comment && format_text("a.yaml", &joined).is_ok() {
                changed = other;
                comments.push(comment);
            }
        }
        let changed = changed.join("\n") + "\n";
        let Ok(result) = format_text("a.yaml", &changed) else { return Ok(()) };
        prop_assert_eq!(values(&changed), values(&result));
        for comment in comments {
            prop_assert_eq!(result.matches(&comment).count(), 1, "{}", comment);
        }
    }
}
