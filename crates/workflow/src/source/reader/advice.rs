//! Advice for a file that is not valid YAML.

use std::ops::Range;

pub(super) const NO_TABS: &str = "indent with spaces; YAML takes no tabs";

/// A part of the parser's message, and what to do about it.
const BY_MESSAGE: &[(&str, &str)] = &[
    ("flow mapping", "within `{ … }`, quote a value that holds `[`, `]`, `{`, `}`, `,` or `: `"),
    (
        "illegal placement of ':'",
        "within `[ … ]`, quote a text with `: `; or a `]` is missing above",
    ),
    ("flow sequence", "within `[ … ]`, put `,` between items; or the `]` is missing"),
    ("misplaced bracket", "this bracket closes nothing: remove it, or quote the whole value"),
    (
        "unknown escape",
        "in double quotes `\\` begins an escape: write `\\\\`, or put the text in single quotes",
    ),
    (
        "Unicode character escape",
        "YAML has no pairs of `\\u` escapes: write the character itself, or `\\U0001F469`",
    ),
    (
        "after double-quoted scalar",
        "a quoted text ends at the next quotation mark: quote the whole value; one within the text is \
         `\\\"` in double quotes, and `''` in single ones",
    ),
    (
        "quoted scalar",
        "the quotation mark that begins here is never closed: close it, or write the text without it",
    ),
    (
        "unknown anchor",
        "`*` begins an alias of a value that `&` has named: quote a text that begins with it",
    ),
    ("unexpected character", "quote a text that begins with this character"),
    (
        "simple key expect",
        "the text above is no entry: write `KEY: VALUE`, with a blank after the colon",
    ),
    (
        "block sequence entries",
        "begin a list on a new line, or write `[a, b]`; quote a text that begins with `- `",
    ),
    (
        "did not find expected key",
        "the lines of one mapping are all `KEY: VALUE`, with the same indentation, and no `- ` among them",
    ),
    ("comments must be separated", "write a blank before `#`, or quote the whole value"),
    ("unprintable", "remove this character, or write it as an escape in double quotes"),
];

/// Returns advice on a message of the parser about a place in a text.
pub(super) fn advice(message: &str, text: &str, at: usize) -> Option<String> {
    if tab_before(text, at) {
        return Some(NO_TABS.to_owned());
    }
    if ["flow ", "indentation"].iter().any(|it| message.contains(it))
        && let Some(open) = OpenBracket::above(text, at)
    {
        let is_shallow = message.contains("indentation") && open.is_closed_later(text);
        return Some(if is_shallow { open.indent_advice() } else { open.advice() });
    }
    let known = BY_MESSAGE.iter().find(|(part, _)| message.contains(part));
    known.map(|(_, help)| (*help).to_owned()).or_else(|| for_line(text, at))
}

/// Returns the place of a character behind a colon that looks like a blank and is none, in the line of a place or the
/// two lines above it. Behind it, YAML reads no value.
pub(super) fn hidden_blank(text: &str, at: usize) -> Option<Range<usize>> {
    let end = at + text.get(at..)?.find('\n').unwrap_or(text.len() - at);
    let mut start = end;
    for _ in 0..3 {
        start = text[..start].rfind('\n').unwrap_or(0);
    }
    let is_hidden = |char: char| {
        matches!(
            char,
            '\u{a0}' | '\u{2000}'..='\u{200b}' | '\u{202f}' | '\u{2060}' | '\u{3000}' | '\u{feff}'
        )
    };
    let mut lines = text[start..end].split_inclusive('\n');
    let mut begin = start;
    lines.find_map(|line| {
        let first = begin;
        begin += line.len();
        let (colon, _) = line.match_indices(':').next()?;
        let hidden = line[colon + 1..].chars().next().filter(|it| is_hidden(*it))?;
        let found = first + colon + 1;
        Some(found..found + hidden.len_utf8())
    })
}

/// The most lines in which the end of a bracket is searched.
const LINES_MAX: usize = 1_000;

/// A bracket that begins a list or a mapping above a place, and is not closed before it.
struct OpenBracket {
    bracket: char,
    /// The number of its line, from 1 on.
    line: usize,
    /// The number of a later line in which ` #` begins a comment.
    comment: Option<usize>,
}

impl OpenBracket {
    /// Finds the bracket in the lines above that of a place, the nearest line first.
    fn above(text: &str, at: usize) -> Option<Self> {
        let end = text.get(..at)?.rfind('\n')?;
        let lines: Vec<&str> = text[..end].lines().collect();
        (0..lines.len()).rev().take(20).find_map(|first| {
            let mut found: Vec<Self> = Vec::new();
            for (number, line) in lines.iter().enumerate().skip(first) {
                read_brackets(line, number + 1, &mut found);
                if found.is_empty() {
                    return None;
                }
            }
            found.pop()
        })
    }

    /// Returns whether the lines from its own on close it.
    fn is_closed_later(&self, text: &str) -> bool {
        let mut open = Vec::new();
        let lines = text.lines().enumerate().skip(self.line - 1).take(LINES_MAX);
        let mut depth = None;
        for (at, line) in lines {
            read_brackets(line, at + 1, &mut open);
            // Those before it in its line may stay open.
            let own = *depth.get_or_insert(open.len());
            if open.len() < own {
                return true;
            }
        }
        false
    }

    fn indent_advice(self) -> String {
        let Self { bracket, line, .. } = self;
        format!(
            "this line is within the `{bracket}` of line {line}: indent it deeper than the key before that bracket"
        )
    }

    fn advice(self) -> String {
        let Self { bracket, line, comment } = self;
        let close = if bracket == '{' { '}' } else { ']' };
        let open = format!("`{bracket}` in line {line} is not closed by `{close}`");
        match comment {
            Some(comment) => {
                format!(
                    "{open}; a text with ` #` is quoted, because it begins a comment in line {comment}"
                )
            }
            None => open,
        }
    }
}

/// Adds the brackets that a line opens, and removes those that it closes.
fn read_brackets(line: &str, number: usize, open: &mut Vec<OpenBracket>) {
    let mut quote = None;
    // Whether a value can begin here: a bracket or a quotation mark within a text is a part of it.
    let mut is_start = true;
    let mut before = ' ';
    for char in line.chars() {
        match (quote, char) {
            (Some(mark), _) => {
                if char == mark && (mark == '\'' || before != '\\') {
                    quote = None;
                }
            }
            (None, '#') if before.is_whitespace() => {
                for bracket in open {
                    bracket.comment.get_or_insert(number);
                }
                return;
            }
            (None, '\'' | '"') if is_start => quote = Some(char),
            (None, '{' | '[') if is_start => {
                open.push(OpenBracket { bracket: char, line: number, comment: None });
            }
            (None, '}' | ']') => {
                open.pop();
            }
            (None, _) => (),
        }
        is_start = if char.is_whitespace() {
            is_start || matches!(before, ':' | '-')
        } else {
            matches!(char, '{' | '[' | ',') && !open.is_empty()
        };
        before = char;
    }
}

/// Returns whether a line near a place is indented with a tab.
fn tab_before(text: &str, at: usize) -> bool {
    let end = text[at..].find('\n').map_or(text.len(), |line| at + line);
    let indented =
        |line: &str| line.chars().take_while(|it| it.is_whitespace()).any(|it| it == '\t');
    text[..end].lines().rev().take(2).any(indented)
}

/// Returns advice for a line that cannot be read: a value with a colon, or another indentation than the line above.
fn for_line(text: &str, at: usize) -> Option<String> {
    let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let start = text.get(..at)?.rfind('\n').map_or(0, |it| it + 1);
    let line = text[start..].lines().next().unwrap_or_default();
    if let Some((key, value)) = line.trim().split_once(": ")
        && value.contains(':')
        && !value.starts_with(['"', '\'', '{', '[', '|', '>'])
    {
        let value = value.replace('"', "\\\"");
        return Some(format!("quote the value, because it holds a colon: `{key}: \"{value}\"`"));
    }
    let above = text[..start].lines().rev().find(|it| !it.trim().is_empty())?;
    let one = indent(above);
    let other = indent(line);
    let is_nested = above.trim_end().ends_with(':');
    (one != other && !is_nested).then(|| {
        format!(
            "the line above begins after {one} blanks, and this one after {other}: indent the keys of one mapping \
             equally"
        )
    })
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use graphrun_core::diagnostic::{Diagnostic, SourceFile};

    use crate::{Registry, parse};

    /// Returns the first diagnostic on a workflow that begins with these lines.
    fn diagnostic_on(lines: &str) -> Diagnostic {
        let text = format!("graphrun: 1\n{lines}\nstart: x\n");
        let file = SourceFile { name: "w.yaml".to_owned(), text };
        let found = parse(Arc::new(file), Path::new(""), &Registry::default()).unwrap_err();
        let first = found.in_order()[0];
        assert_eq!(first.code, "GR001", "{lines}: {first:?}");
        first.clone()
    }

    fn advice_on(lines: &str) -> String {
        diagnostic_on(lines).help.unwrap_or_default()
    }

    #[test]
    fn a_mistake_is_shown_where_it_is() {
        for (lines, line, message, advice) in [
            ("about: hello\n\tname: x", 3, "no tab", "indent with spaces"),
            ("state:\n  i: int\n \tj: int", 4, "no tab", "indent with spaces"),
            (
                "nodes:\n  s: { set: { m: l.join(\", \").slice(0, 2) }, then: t }\n  \
                 t: { set: { m: l.join(\", \") }, then: end }",
                3,
                "ends this value at its comma",
                "put the whole value in quotes",
            ),
            (
                "nodes:\n  s: { set: { m: l.join(\", \") }, then: t }\n  \
                 t: { ask: \"Ready?\", writes: m, then: end }",
                3,
                "ends this value at its comma",
                "put the whole value in quotes",
            ),
            ("nodes:\n  s:\n    max_visits:3\n    then: end", 4, "no entry", "a blank after"),
        ] {
            let diagnostic = diagnostic_on(lines);
            let found = diagnostic.labels[0].span.line_and_column().0;
            assert_eq!(found, line, "{lines}: {diagnostic:?}");
            assert!(diagnostic.message.contains(message), "{lines}: {diagnostic:?}");
            assert!(
                diagnostic.help.as_ref().is_some_and(|it| it.contains(advice)),
                "{diagnostic:?}"
            );
        }
    }

    #[test]
    fn each_mistake_in_yaml_has_its_advice() {
        for (lines, advice) in [
            ("about: @me", "begins with this character"),
            ("about: 50%\nname: %x", "begins with this character"),
            ("about: `make`", "begins with this character"),
            ("about: *all", "alias"),
            ("about: 'it's'", "`''` in single ones"),
            ("about: \"a\" b", "quote the whole value"),
            ("about: \"\\d+\"", "write `\\\\`"),
            ("about: \"a\n'b: c", "never closed"),
            ("'about: a", "never closed"),
            ("about:a", "with a blank after the colon"),
            ("about: - a", "a list on a new line"),
            ("state:\n  i: int\n  - j", "no `- ` among them"),
            ("state: { i: int }}", "closes nothing"),
            ("state: { i: int\nlimits: { steps: 5 }", "`{` in line 2 is not closed by `}`"),
            ("state: { i: fix #12 }", "` #` is quoted, because it begins a comment in line 2"),
            ("state:\n  i: { type: string, default: fix #12 now }", "begins a comment in line 3"),
            ("state: { a: [int, \n  b: { c: \"}\" }\n", "`[` in line 2"),
            ("state: { i: a: b }", "within `{ … }`"),
            ("input: [i", "`]` is missing"),
            ("input: [i j: k, l: m: n]", "quote a value that holds"),
            ("state: {}#x", "a blank before `#`"),
            ("about: a\u{0}b", "remove this character"),
            ("state:\n\ti: int", "no tabs"),
            ("about: Turn: a", "`about: \"Turn: a\"`"),
            ("state:\n  i: int\n   j: int", "indent the keys"),
            (
                "state:\n  a: {\n b: int }",
                "within the `{` of line 3: indent it deeper than the key before that bracket",
            ),
            (
                "state:\n  a: { type: int,\n  min: 1 }",
                "within the `{` of line 3: indent it deeper than the key before that bracket",
            ),
        ] {
            let given = advice_on(lines);
            assert!(given.contains(advice), "{lines}: {given}");
        }
    }
}
