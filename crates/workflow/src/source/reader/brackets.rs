//! Indents closing brackets for the parser.
//!
//! saphyr refuses a closing bracket at the start of a line that is indented no deeper than the key of its collection, unless
//! a plain text stands before it:
//!
//! ```yaml
//! input: [
//!   "a"
//! ]
//! ```
//!
//! Other parsers of YAML accept it, and it is the usual layout. White space before a bracket has no meaning. So the parser
//! reads the file with blanks before such brackets, and each of its characters keeps the place that it has in the file.

use std::borrow::Cow;

use saphyr_parser::{Event, Parser};

use super::DEPTH_MAX;
use crate::outline::bracket_pairs;

/// The text for the parser, and the byte in the file for each of its characters and for its end.
pub(super) struct ParsedText<'t> {
    pub(super) text: Cow<'t, str>,
    pub(super) offsets: Vec<usize>,
}

impl<'t> ParsedText<'t> {
    /// Returns the text of a file for the parser. Only a file that it refuses at such a bracket is changed.
    pub(super) fn of(file: &'t str) -> Self {
        let indents = if is_refused_at_bracket(file) { indents(file) } else { Vec::new() };
        let mut indents = indents.into_iter().peekable();
        let mut offsets = Vec::with_capacity(file.len() + 1);
        let mut text = String::new();
        let mut copied = 0;
        for (at, _) in file.char_indices() {
            if let Some((_, blanks)) = indents.next_if(|(bracket, _)| *bracket == at) {
                text.push_str(&file[copied..at]);
                text.extend(std::iter::repeat_n(' ', blanks));
                offsets.extend(std::iter::repeat_n(at, blanks));
                copied = at;
            }
            offsets.push(at);
        }
        offsets.push(file.len());
        if copied == 0 {
            return Self { text: Cow::Borrowed(file), offsets };
        }
        text.push_str(&file[copied..]);
        Self { text: Cow::Owned(text), offsets }
    }
}

/// Returns whether the parser refuses the file at a closing bracket that begins a line.
fn is_refused_at_bracket(file: &str) -> bool {
    let begins = |it: &str| it.trim_start().starts_with([']', '}']);
    if !file.lines().any(begins) {
        return false;
    }
    let mut depth = 0_usize;
    let mut events = Parser::new_from_str(file);
    while let Some(event) = events.next_event() {
        match event {
            Ok((Event::SequenceStart(..) | Event::MappingStart(..), _)) => depth += 1,
            Ok((Event::SequenceEnd | Event::MappingEnd, _)) => depth = depth.saturating_sub(1),
            Ok(_) => (),
            Err(error) => {
                let mut rest = file.chars().skip(error.marker().index());
                return matches!(rest.next(), Some(']' | '}'));
            }
        }
        if depth > DEPTH_MAX + 1 {
            return false;
        }
    }
    false
}

/// Each closing bracket that begins a line left of the column of its opening bracket, with the blanks that it lacks.
fn indents(file: &str) -> Vec<(usize, usize)> {
    let column = |at: usize| at - file[..at].rfind('\n').map_or(0, |it| it + 1);
    let begins_line = |at: usize| file[at - column(at)..at].trim_start_matches(' ').is_empty();
    let pairs = bracket_pairs(file).into_iter().filter(|(_, end)| begins_line(*end));
    let lacking = pairs.map(|(start, end)| (end, column(start).saturating_sub(column(end))));
    lacking.filter(|(_, blanks)| *blanks > 0).collect()
}
