//! Advice for a file that is not valid YAML.

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
        return Some("indent with spaces; YAML takes no tabs".to_owned());
    }
    let known = BY_MESSAGE.iter().find(|(part, _)| message.contains(part));
    known.map(|(_, help)| (*help).to_owned()).or_else(|| for_line(text, at))
}

/// Whether a line near a place is indented with a tab.
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
    let (one, other) = (indent(above), indent(line));
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

    use graphrun_core::diagnostic::SourceFile;

    use crate::{Registry, parse};

    /// The advice on a workflow that begins with these lines.
    fn advice_on(lines: &str) -> String {
        let text = format!("graphrun: 1\n{lines}\nstart: x\n");
        let file = SourceFile { name: "w.yaml".to_owned(), text };
        let found = parse(Arc::new(file), Path::new(""), &Registry::default()).unwrap_err();
        let first = found.in_order()[0];
        assert_eq!(first.code, "GR001", "{lines}: {first:?}");
        first.help.clone().unwrap_or_default()
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
            ("state: { i: a: b }", "within `{ … }`"),
            ("input: [i", "`]` is missing"),
            ("input: [i j: k, l: m: n]", "quote a value that holds"),
            ("state: {}#x", "a blank before `#`"),
            ("about: a\u{0}b", "remove this character"),
            ("state:\n\ti: int", "no tabs"),
            ("about: Turn: a", "`about: \"Turn: a\"`"),
            ("state:\n  i: int\n   j: int", "indent the keys"),
        ] {
            let given = advice_on(lines);
            assert!(given.contains(advice), "{lines}: {given}");
        }
    }
}
