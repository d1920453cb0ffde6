//! The layout of a file: one form for each value, with the comments of the author.
//!
//! Only spaces, line breaks, and the quotes around texts change. A result that reads differently from the file, or that never
//! stays as it is, is refused: a layout never changes what a workflow does.

mod blanks;
mod comments;

use std::sync::Arc;

use graphrun_core::diagnostic::{Diagnostic, Diagnostics, Severity, SourceFile};
use pretty_yaml::config::{FormatOptions, LanguageOptions, LayoutOptions, LineBreak};
use yaml_parser::SyntaxError;

use self::{
    blanks::{GuardedText, trim_empty_lines},
    comments::keep_columns,
};
use super::source::{
    reader::{self, Data, Yaml},
    report::Report,
};

/// How often a file is laid out until nothing changes. A comment in brackets needs a second round, because the first one
/// moves it to another line and so breaks the brackets around it.
const ROUNDS_MAX: usize = 4;
/// The width of a line. A list or a mapping in brackets that fits stays on its line.
const WIDTH: usize = 120;
/// A comment with this text keeps the layout of the value below it.
const KEEP: &str = "fmt-keep";
/// The codes of mistakes because of which the values of a file are unknown.
const UNREADABLE: [&str; 3] = ["GR001", "GR002", "GR055"];

/// The kind of a YAML file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A workflow.
    Workflow,
    /// The test cases of a workflow.
    Cases,
}

impl FileKind {
    /// Returns the kind that a text declares by its first keys; `None` if it is a file of another program.
    pub fn of(text: &str) -> Option<Self> {
        let text = text.trim_start_matches('\u{feff}');
        let is_content = |line: &&str| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with(['#', '%']) && line != "---"
        };
        // The whole document may be indented.
        let first = text.lines().find(is_content).unwrap_or_default();
        let indentation = &first[..first.len() - first.trim_start().len()];
        let declares = |key: &str| {
            let is_key = |line: &str| {
                let rest = line.trim_start_matches(['"', '\'']).strip_prefix(key);
                let rest = rest.map(|it| it.trim_start_matches(['"', '\'']).trim_start());
                rest.is_some_and(|it| it.starts_with(':'))
            };
            text.lines().filter_map(|it| it.strip_prefix(indentation)).any(is_key)
        };
        if declares("graphrun_test") {
            Some(Self::Cases)
        } else {
            declares("graphrun").then_some(Self::Workflow)
        }
    }
}

/// Returns a text in the layout of this format.
///
/// ```
/// use graphrun_workflow::format_text;
///
/// let text = "nodes:\n    a:   {set: {x: 'y'},then: end}   # why\n";
/// let laid_out = "nodes:\n  a: { set: { x: \"y\" }, then: end } # why\n";
/// assert_eq!(format_text("a.yaml", text).unwrap(), laid_out);
/// ```
///
/// # Errors
///
/// Fails with the mistakes because of which the values of the text are unknown, or if they would change.
pub fn format_text(name: &str, text: &str) -> Result<String, Diagnostics> {
    // The parser of the layout does not count the mark of an encoding.
    let body = text.trim_start_matches('\u{feff}');
    let marks = &text[..text.len() - body.len()];
    let text = body;
    let before = read(name, text)?;
    let refused = |at: usize, reason: &str| {
        let file = Arc::new(SourceFile { name: name.to_owned(), text: text.to_owned() });
        let span = Report::new(file).span(&(at..at));
        let message = format!("the file cannot be laid out: {reason}");
        let diagnostic = Diagnostic::error("GR001", message).at(span, "left as it is");
        Diagnostics::from(diagnostic.help("lay it out by hand, and report the file"))
    };
    let mut laid_out = text.to_owned();
    for round in 0..ROUNDS_MAX {
        let again = lay_out(&laid_out).map_err(|error| match round {
            0 => refused(error.offset(), "the layout has no form for this place"),
            _ => {
                refused(0, "a comment in brackets stands before a comma; write it behind the comma")
            }
        })?;
        let after = read(name, &again).map_err(|_| refused(0, "the result could not be read"))?;
        if !is_same(&before, &after) {
            return Err(refused(0, "its values would change"));
        }
        if again == laid_out {
            return Ok(format!("{marks}{laid_out}"));
        }
        laid_out = again;
    }
    Err(refused(0, "the result is not stable"))
}

fn lay_out(text: &str) -> Result<String, SyntaxError> {
    let line_break = if text.contains("\r\n") { LineBreak::Crlf } else { LineBreak::Lf };
    let layout = LayoutOptions { print_width: WIDTH, line_break, ..LayoutOptions::default() };
    let language = LanguageOptions {
        trailing_comma: false,
        ignore_comment_directive: KEEP.to_owned(),
        ..LanguageOptions::default()
    };
    let guarded = GuardedText::new(text)?;
    let laid_out = pretty_yaml::format_text(&guarded.text, &FormatOptions { layout, language })?;
    let aligned = keep_columns(&guarded.text, &laid_out)?;
    trim_empty_lines(&guarded.restore(&aligned)?)
}

/// Reads the values of a text.
fn read(name: &str, text: &str) -> Result<Yaml, Diagnostics> {
    let file = Arc::new(SourceFile { name: name.to_owned(), text: text.to_owned() });
    let mut report = Report::new(file);
    let root = reader::read(&mut report);
    let diagnostics = report.into_diagnostics();
    let is_unreadable =
        |it: &&Diagnostic| it.severity == Severity::Error && UNREADABLE.contains(&it.code);
    match root {
        Some(root) if !diagnostics.in_order().iter().any(is_unreadable) => Ok(root),
        _ => Err(diagnostics),
    }
}

/// Returns whether two values read the same: quotes may decide the type of a value.
fn is_same(one: &Yaml, other: &Yaml) -> bool {
    match (&one.data, &other.data) {
        (Data::Null, Data::Null) => true,
        (Data::Scalar { text: a, plain: b }, Data::Scalar { text: x, plain: y }) => {
            a == x && b == y
        }
        (Data::List(one), Data::List(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(a, b)| is_same(a, b))
        }
        (Data::Map(one), Data::Map(other)) => {
            let mut both = one.iter().zip(other);
            one.len() == other.len()
                && both.all(|(a, b)| a.key.text == b.key.text && is_same(&a.value, &b.value))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_declares_its_kind_by_its_first_key() {
        assert_eq!(FileKind::of("# x\ngraphrun: 1\n"), Some(FileKind::Workflow));
        assert_eq!(FileKind::of("\u{feff}\"graphrun\" : 1\n"), Some(FileKind::Workflow));
        assert_eq!(FileKind::of("graphrun_test: 1\ncases: []\n"), Some(FileKind::Cases));
        assert_eq!(FileKind::of("jobs:\n  graphrun: 1\n"), None);
        assert_eq!(FileKind::of("graphrunner: 1\nstart: a\nnodes: {}\n"), None);
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_its_mistakes() {
        let diagnostics = format_text("a.yaml", "a: [1\nb: 2\n").unwrap_err();
        assert!(diagnostics.has_errors(), "{diagnostics}");
        let twice = format_text("a.yaml", "a: 1\na: 2\n").unwrap_err();
        assert_eq!(twice.in_order()[0].code, "GR002");
    }

    #[test]
    fn a_comment_keeps_the_layout_of_a_value() {
        let text = "a: {b:  1}\n# fmt-keep\nc:   {d:  1}\ne: {f: 1}\n";
        let laid_out = "a: { b: 1 }\n# fmt-keep\nc:   {d:  1}\ne: { f: 1 }\n";
        assert_eq!(format_text("a.yaml", text).unwrap(), laid_out);
    }

    #[test]
    fn comments_and_commas_in_brackets_are_laid_out() {
        for text in [
            "k: { a: [ #c\n  ] }\n",
            "k1:\n  k0: [ 'x' , #c2\n    'y' ]\n",
            "k1: [\n    \"dq\" ,]\n",
            "k: { #c\n  a: 1, # d\n  b: [ # e\n 'x' ] }\n",
            "k: [\n  { a: 'x' }, # why\n  { b: \"y\" }\n]\n",
        ] {
            let laid_out = format_text("a.yaml", text).unwrap_or_else(|it| panic!("{text}{it}"));
            assert_eq!(format_text("a.yaml", &laid_out).unwrap(), laid_out);
            let comments = |it: &str| it.matches('#').count();
            assert_eq!(comments(&laid_out), comments(text), "{laid_out}");
        }
    }

    #[test]
    fn brackets_with_a_comment_alone_have_no_blanks_at_the_ends_of_lines() {
        for (text, expected) in [
            ("k: { # c\n  }\n", "k: {\n  # c\n\n\n}\n"),
            ("k: [ # c\r\n  ]\r\n", "k: [\r\n  # c\r\n\r\n\r\n]\r\n"),
            ("k: \"a\n   \n  b\"\n", "k: \"a\n\n  b\"\n"),
        ] {
            assert_eq!(format_text("a.yaml", text).unwrap(), expected);
            assert_eq!(format_text("a.yaml", expected).unwrap(), expected);
        }
    }

    #[test]
    fn a_refused_layout_names_its_place() {
        let refused = format_text("a.yaml", "j: 1\nk: [a, b #c\n  , ]\n").unwrap_err();
        assert!(refused.to_string().contains("a.yaml:2:4"), "{refused}");
    }

    #[test]
    fn an_indentation_indicator_follows_the_layout() {
        for (text, expected) in [
            ("a:\n    b: |4\n          x\n        y\n", "a:\n  b: |2\n      x\n    y\n"),
            ("a:\n    b: |4+\n          x\n\n", "a:\n  b: |2+\n      x\n\n"),
            (
                "a:\n    b: |+4 # why\n\n          x\n\n\n    c: 1\n",
                "a:\n  b: |2+ # why\n\n      x\n\n\n  c: 1\n",
            ),
            ("a:\n    b: |2\n      x\n    c: 1\n", "a:\n  b: |\n    x\n  c: 1\n"),
            ("a: >1\n  x\n y\n", "a: >2\n   x\n  y\n"),
            (
                "a:\n    - |2\n         x\n      y\n    - b: |3\n            z\n",
                "a:\n  - |2\n       x\n    y\n  - b: |2\n         z\n",
            ),
            ("a:\n    b: |2\n            \n        x\n", "a:\n  b: |2\n          \n      x\n"),
            ("a:\n    b: |\n        \tx\n", "a:\n  b: |\n    \tx\n"),
            ("a:\n    b: |1-\n      é\n", "a:\n  b: |2-\n     é\n"),
        ] {
            assert_eq!(
                format_text("a.yaml", text).unwrap_or_else(|it| panic!("{text}{it}")),
                expected
            );
            assert_eq!(format_text("a.yaml", expected).unwrap(), expected);
        }
    }

    #[test]
    fn line_ends_stay_as_they_are() {
        assert_eq!(format_text("a.yaml", "a:   1\r\nb: 2\r\n").unwrap(), "a: 1\r\nb: 2\r\n");
    }
}
