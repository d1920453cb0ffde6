//! The code of a template, which may be incomplete.

use std::ops::Range;

use crate::workflow::quoted_texts;

/// The marks around code, each with the one that ends it.
const MARKS: [(&str, &str); 3] = [("{{", "}}"), ("{%", "%}"), ("{#", "#}")];

/// The code between two marks.
pub(super) struct Code {
    /// The bytes, without the marks. Code without an end reaches to the end of the template.
    pub(super) range: Range<usize>,
    pub(super) is_closed: bool,
}

/// Returns the code of a template, without comments and the text between `{% raw %}` and `{% endraw %}`.
pub(super) fn codes(template: &str) -> Vec<Code> {
    let mut codes = Vec::new();
    let mut at = 0;
    while let Some((open, (_, close))) = next_mark(&template[at..]) {
        let start = at + open + 2;
        let rest = &template[start..];
        let length = if close == "#}" { rest.find(close) } else { code_length(rest, close) };
        let range = start..length.map_or(template.len(), |it| start + it);
        let is_closed = length.is_some();
        at = (range.end + close.len()).min(template.len());
        if is_closed && close == "%}" && tag(&template[range.clone()]) == "raw" {
            at += raw_length(&template[at..]);
        } else if close != "#}" {
            codes.push(Code { range, is_closed });
        }
    }
    codes
}

/// Returns the code of a template at an offset, and the code before it, which may bind names.
pub(super) fn code_at(template: &str, at: usize) -> Option<(String, Range<usize>)> {
    let mut before = String::new();
    for Code { range, .. } in codes(template) {
        if range.start <= at && at <= range.end {
            return Some((before, range));
        }
        before.push_str(&template[range]);
        before.push(' ');
    }
    None
}

fn next_mark(text: &str) -> Option<(usize, (&'static str, &'static str))> {
    let mut braces = text.match_indices('{');
    braces.find_map(|(at, _)| {
        let mark = MARKS.iter().find(|it| text[at..].starts_with(it.0))?;
        Some((at, *mark))
    })
}

/// Returns the length of the code at the front of a text up to its last mark, which does not stand in a text in quotes.
fn code_length(text: &str, close: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let end = at + text[at..].find(close)?;
        let quote = text[at..end].find(['"', '\'']).map(|it| at + it);
        let quoted = quote.and_then(|it| Some((it, quoted_texts(&text[it..]).next()?)));
        match quoted {
            Some((start, it)) if it.is_closed => at = start + it.range.end,
            // A text that is being typed ends with its code.
            _ => return Some(end),
        }
    }
}

/// Returns the length of a text that is shown as it is, with the tag that ends it.
fn raw_length(text: &str) -> usize {
    let mut tags = text.match_indices("{%").filter_map(|(at, _)| {
        let inside = &text[at + 2..];
        let length = inside.find("%}")?;
        (tag(&inside[..length]) == "endraw").then_some(at + 2 + length + 2)
    });
    tags.next().unwrap_or(text.len())
}

/// Returns the words of a tag without the signs that remove white space around it.
fn tag(code: &str) -> &str {
    let code = code.strip_prefix(['-', '+']).unwrap_or(code);
    code.strip_suffix(['-', '+']).unwrap_or(code).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_neither_comment_nor_raw_text() {
        for (template, expected) in [
            ("a {{ b }} {# {{ c }} #} {% if d %}", &[" b ", " if d "][..]),
            ("{{ '}}' }}{{ \"a\\\"}}\" }}", &[" '}}' ", " \"a\\\"}}\" "]),
            ("{% raw %}{{ a }}{% endraw %}{{ b }}", &[" b "]),
            ("{%- raw -%}{{ a }}{% if %}{%+ endraw +%}{{ b }}", &[" b "]),
            ("{% raw %}{{ a }}", &[]),
            ("{{ a == 'x }} {{ b }}", &[" a == 'x ", " b "]),
            ("{{ raw }}{% set raw = 1 %}", &[" raw ", " set raw = 1 "]),
            ("{{ a", &[" a"]),
            ("{# {{ a", &[]),
            ("{{ it's }} {{ it's }}", &[" it's }} {{ it's "]),
        ] {
            let found: Vec<&str> =
                codes(template).into_iter().map(|it| &template[it.range]).collect();
            assert_eq!(found, expected, "{template}");
        }
    }

    #[test]
    fn code_follows_the_code_that_binds_its_names() {
        let template = "{% for a in b %}it's {{ a";
        let (before, code) = code_at(template, template.len()).unwrap();
        assert_eq!((before.as_str(), &template[code]), (" for a in b  ", " a"));
        assert_eq!(code_at(template, 18), None);
    }
}
