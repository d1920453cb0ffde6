//! Mistakes that the parser notices elsewhere than where they are. The parser fails at them, so `cut`, which looks at values that
//! were read, does not see them.

use std::ops::Range;

use super::{ENDS_AT_COMMA, advice::NO_TABS};

/// The most lines above an error of the parser in which its cause is searched.
const LINES_ABOVE: usize = 10;

/// A mistake that the parser notices elsewhere than where it is.
#[derive(Debug)]
pub(super) struct Mistake {
    pub(super) message: &'static str,
    pub(super) range: Range<usize>,
    pub(super) label: &'static str,
    pub(super) help: &'static str,
}

impl Mistake {
    /// Finds the mistake behind a message of the parser about a place in a text.
    pub(super) fn of(message: &str, text: &str, at: usize) -> Option<Self> {
        if message.contains("found a tab") {
            let tab = tab_below(text, at)?;
            return Some(Self {
                message: "YAML takes no tab here",
                range: tab..tab + 1,
                label: "a tab",
                help: NO_TABS,
            });
        }
        if message.contains("quoted scalar") || message.contains("flow mapping") {
            let comma = cut_quote(text, at)?;
            return Some(Self {
                message: ENDS_AT_COMMA,
                range: comma..comma + 1,
                label: "the value ends here",
                help: "quote it: put the whole value in quotes",
            });
        }
        if message.contains("mapping values are not allowed") {
            let above = text.get(..text.get(..at)?.rfind('\n')?)?;
            let line = above.rsplit('\n').next()?;
            let (key, value) = line.trim().split_once(':')?;
            let is_key = !key.is_empty() && key.chars().all(|it| it.is_alphanumeric() || it == '_');
            return (is_key && value.starts_with(|it: char| !it.is_whitespace())).then(|| {
                Self::no_entry(above.len() - line.trim_start().len()..above.trim_end().len())
            });
        }
        if message.contains("simple key expect") {
            let before = text.get(..at)?;
            let is_first = before.rsplit('\n').next()?.trim().is_empty();
            let line = before.trim_end().rsplit('\n').next().filter(|_| is_first)?;
            let end = before.trim_end().len();
            return Some(Self::no_entry(end - line.trim_start().len()..end));
        }
        None
    }

    fn no_entry(range: Range<usize>) -> Self {
        Self {
            message: "this is no entry of a mapping",
            range,
            label: "no `KEY: VALUE`",
            help: "write `KEY: VALUE`, with a blank after the colon",
        }
    }
}

/// Returns the tab because of which a text without quotes that begins at a place cannot be read: one that indents its line
/// or one below it, or else the first one.
fn tab_below(text: &str, at: usize) -> Option<usize> {
    let mut begin = text.get(..at)?.rfind('\n').map_or(0, |it| it + 1);
    let indenting = text[begin..].split_inclusive('\n').find_map(|line| {
        let first = begin;
        begin += line.len();
        let blanks = &line[..line.len() - line.trim_start().len()];
        let tab = blanks.find('\t').filter(|_| !line.trim().is_empty());
        tab.map(|it| first + it)
    });
    indenting.or_else(|| text[at..].find('\t').map(|it| at + it))
}

/// Returns the comma within the quotes of an expression that stands in braces without quotes around it, in the line of a
/// place or above it. YAML ends the value at the comma, and begins a quoted text behind it.
fn cut_quote(text: &str, at: usize) -> Option<usize> {
    let end = at + text.get(at..)?.find('\n').unwrap_or(text.len() - at);
    let mut starts = text[..end].match_indices('\n').rev().map(|(it, _)| it + 1);
    let mut begin = end;
    let mut found = None;
    for _ in 0..=LINES_ABOVE {
        let start = starts.next().unwrap_or(0);
        let line = &text[start..begin];
        found = cut_quote_of_line(line).map(|it| start + it).or(found);
        if start == 0 {
            break;
        }
        begin = start - 1;
    }
    found
}

fn cut_quote_of_line(line: &str) -> Option<usize> {
    // Whether a value can begin here, the quotation mark of a text that YAML reads as one, and that of an expression.
    let mut is_start = false;
    let mut quoted = None;
    let mut inner = None;
    let mut depth = 0_usize;
    let mut before = ' ';
    for (at, it) in line.char_indices() {
        match (quoted, inner, it) {
            (Some(mark), _, _) => {
                if it == mark && before != '\\' {
                    quoted = None;
                }
            }
            (None, Some(_), ',') => return Some(at),
            (None, Some(mark), _) => {
                if it == mark {
                    inner = None;
                }
            }
            (None, None, '#') if before == ' ' => return None,
            (None, None, '"' | '\'') if is_start || depth == 0 => quoted = Some(it),
            (None, None, '"' | '\'') if !before.is_alphanumeric() => inner = Some(it),
            (None, None, '{') => depth += 1,
            (None, None, '}') => depth = depth.saturating_sub(1),
            (None, None, _) => (),
        }
        is_start = if it == ' ' {
            is_start || before == ':'
        } else {
            quoted.is_none() && matches!(it, '{' | '[' | ',')
        };
        before = it;
    }
    None
}
