//! The text of a scalar without the escapes of its quotes.

use std::ops::Range;

/// The text of a scalar as YAML reads it, with the bytes in the file that each of its bytes stands for. Line breaks and
/// indentation stay as they are in the file.
///
/// ```
/// use graphrun_workflow::ScalarText;
///
/// let file = "when: 'a == ''b'''";
/// let scalar = ScalarText::of(file, 7..file.len() - 1).unwrap();
/// assert_eq!(scalar.text(), "a == 'b'");
/// assert_eq!(&file[scalar.in_file(&(5..8))], "''b''");
/// ```
#[derive(Clone, Debug)]
pub struct ScalarText {
    text: String,
    /// The bytes in the file for each byte of the text.
    places: Vec<Range<usize>>,
    /// The byte in the file behind the text.
    end: usize,
    quote: Option<char>,
}

impl ScalarText {
    /// Returns the text of the bytes between the quotes of a scalar, or of the bytes of one without quotes, as a
    /// [`Part`](super::Part) has them. The text may be incomplete. `None` if the bytes are not in the file.
    pub fn of(file: &str, range: Range<usize>) -> Option<Self> {
        let written = file.get(range.clone())?;
        let quote = file[..range.start].chars().next_back().filter(|it| matches!(it, '"' | '\''));
        let mut scalar = Self { text: String::new(), places: Vec::new(), end: range.end, quote };
        let mut at = 0;
        while let Some(next) = written[at..].chars().next() {
            let rest = &written[at..];
            let (read, length) = match (quote, next) {
                (Some('\''), '\'') if rest.starts_with("''") => (Some('\''), 2),
                (Some('"'), '\\') => escape(rest).unwrap_or((Some(next), 1)),
                _ => (Some(next), next.len_utf8()),
            };
            let start = range.start + at;
            match read {
                Some(char) if rest[..length].chars().eq([char]) => scalar.push_same(char, start),
                Some(char) => scalar.push(char, start..start + length),
                None => (),
            }
            at += length;
        }
        Some(scalar)
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the quote around it in the file; `None` if it has none.
    pub fn quote(&self) -> Option<char> {
        self.quote
    }

    /// Returns the bytes in the file for some bytes of the text.
    pub fn in_file(&self, range: &Range<usize>) -> Range<usize> {
        let start = self.places.get(range.start).map_or(self.end, |it| it.start);
        let last = range.end.checked_sub(1).filter(|_| !range.is_empty());
        let end = last.and_then(|it| self.places.get(it)).map_or(start, |it| it.end);
        start..end
    }

    /// Returns the byte of the text for one in the file; inside an escape, the one of its character.
    pub fn in_text(&self, at: usize) -> usize {
        let mut found = self.places.partition_point(|it| it.end <= at);
        while !self.text.is_char_boundary(found) {
            found -= 1;
        }
        found
    }

    /// Adds a character that the file has, too.
    fn push_same(&mut self, char: char, start: usize) {
        self.text.push(char);
        self.places.extend((start..start + char.len_utf8()).map(|it| it..it + 1));
    }

    fn push(&mut self, char: char, written: Range<usize>) {
        self.text.push(char);
        self.places.extend(std::iter::repeat_n(written, char.len_utf8()));
    }
}

/// Returns the character of the escape at the front of a text in double quotes, and the length of the escape. An escaped line
/// break stands for no character. `None` if it is no escape.
fn escape(text: &str) -> Option<(Option<char>, usize)> {
    let code = text[1..].chars().next()?;
    let digits = match code {
        'x' => 2,
        'u' => 4,
        'U' => 8,
        '\n' | '\r' => {
            let line = &text[1..];
            let next = ["\r\n", "\n", "\r"].iter().find_map(|it| line.strip_prefix(*it))?;
            let next = next.trim_start_matches([' ', '\t']);
            return Some((None, text.len() - next.len()));
        }
        _ => 0,
    };
    if digits > 0 {
        let number = text.get(2..2 + digits)?;
        // A sign is no digit, but Rust accepts one.
        let number = number.bytes().all(|it| it.is_ascii_hexdigit()).then_some(number)?;
        let number = u32::from_str_radix(number, 16).ok()?;
        return Some((Some(char::from_u32(number)?), 2 + digits));
    }
    let char = match code {
        '0' => '\0',
        'a' => '\u{7}',
        'b' => '\u{8}',
        't' | '\t' => '\t',
        'n' => '\n',
        'v' => '\u{b}',
        'f' => '\u{c}',
        'r' => '\r',
        'e' => '\u{1b}',
        'N' => '\u{85}',
        '_' => '\u{a0}',
        'L' => '\u{2028}',
        'P' => '\u{2029}',
        ' ' | '"' | '/' | '\\' => code,
        _ => return None,
    };
    Some((Some(char), 2))
}
