//! Repairs values in `{ … }` that YAML ended at a comma within their brackets or quotes, such as
//! `{ when: parts.exists(p, p.hard) }`: the pieces are joined again, and one mistake is reported.

use std::ops::Range;

use super::{Data, Entry};

/// The most pieces of one split value.
const PIECES_MAX: usize = 16;

/// A value that may be split, and the entries behind it.
#[derive(Debug, Default)]
pub(super) struct Cut {
    /// The start of the value; `None` if no value may be split.
    start: Option<usize>,
    /// The entries that may be the rest of the value.
    pieces: Vec<Entry>,
}

/// The result of the next entry.
#[derive(Debug)]
pub(super) enum NextEntry {
    /// These are real entries; the last one may be split.
    Entries(Vec<Entry>),
    /// It may be the rest of the previous value; later entries decide.
    Nothing,
    /// It ends the previous value, which has this span.
    End(Range<usize>),
}

impl Cut {
    /// Takes the next entry of a mapping in braces.
    pub(super) fn next(&mut self, entry: Entry, file: &str) -> NextEntry {
        if let Some(start) = self.start {
            let end = match entry.value.data {
                Data::Null => Some(entry.key.range.end),
                Data::Scalar { .. } => Some(entry.value.range.end),
                Data::List(_) | Data::Map(_) => None,
            };
            let is_piece = !self.pieces.is_empty() || is_odd(&entry);
            if let Some(end) = end.filter(|_| is_piece && self.pieces.len() < PIECES_MAX) {
                if file.get(start..end).is_some_and(|it| !is_open(it)) {
                    *self = Self::default();
                    return NextEntry::End(start..end);
                }
                self.pieces.push(entry);
                return NextEntry::Nothing;
            }
        }
        let mut entries = self.rest();
        if let Data::Scalar { text, plain: true } = &entry.value.data {
            self.start = is_open(text).then_some(entry.value.range.start);
        }
        entries.push(entry);
        NextEntry::Entries(entries)
    }

    /// Returns the entries that turned out to be real ones.
    pub(super) fn rest(&mut self) -> Vec<Entry> {
        std::mem::take(self).pieces
    }
}

/// Returns whether an entry is implausible as an entry of its mapping.
fn is_odd(Entry { key, value }: &Entry) -> bool {
    matches!(value.data, Data::Null) || key.text.contains([')', ']', '"', '\''])
}

/// Returns whether a bracket or a quote in a text has no end. An apostrophe within a word is no quote.
fn is_open(text: &str) -> bool {
    let mut depth = 0_usize;
    let mut quote = None;
    let mut before = ' ';
    for character in text.chars() {
        match (quote, character) {
            (Some(open), it) if it == open => quote = None,
            (Some(_), _) => (),
            (None, '"' | '\'') if !before.is_alphanumeric() => quote = Some(character),
            (None, '(' | '[') => depth += 1,
            (None, ')' | ']') => depth = depth.saturating_sub(1),
            (None, _) => (),
        }
        before = character;
    }
    quote.is_some() || depth > 0
}
