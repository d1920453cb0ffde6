//! Converts between byte offsets and the positions of editors: lines, and UTF-16 units in a line.

use std::ops::Range;

use super::protocol;

/// The starts of the lines of a text.
#[derive(Debug)]
pub(super) struct LineIndex<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> LineIndex<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let mut starts = vec![0];
        let bytes = text.as_bytes();
        for (at, byte) in bytes.iter().enumerate() {
            let ends = match byte {
                b'\n' => true,
                b'\r' => bytes.get(at + 1) != Some(&b'\n'),
                _ => false,
            };
            if ends {
                starts.push(at + 1);
            }
        }
        Self { text, starts }
    }

    /// Returns the position of a byte; inside a character, that of its first byte.
    pub(super) fn position(&self, offset: usize) -> protocol::Position {
        let offset = offset.min(self.text.len());
        let line = self.starts.partition_point(|it| *it <= offset) - 1;
        let before = self.text[self.starts[line]..].char_indices();
        let before = before.take_while(|(at, it)| self.starts[line] + at + it.len_utf8() <= offset);
        let character = before.map(|(_, it)| it.len_utf16()).sum();
        protocol::Position { line: number(line), character: number(character) }
    }

    /// Returns the offset of a position; beyond the end of a line, that of its end.
    pub(super) fn offset(&self, position: protocol::Position) -> usize {
        let line = position.line as usize;
        let Some(start) = self.starts.get(line).copied() else { return self.text.len() };
        let end = self.starts.get(line + 1).copied().unwrap_or(self.text.len());
        let content = self.text[start..end].trim_end_matches(['\n', '\r']);
        let mut units = 0;
        for (at, char) in content.char_indices() {
            if units >= position.character as usize {
                return start + at;
            }
            units += char.len_utf16();
        }
        start + content.len()
    }

    pub(super) fn range(&self, range: &Range<usize>) -> protocol::Range {
        protocol::Range { start: self.position(range.start), end: self.position(range.end) }
    }
}

fn number(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn characters_are_counted_in_utf_16_units() {
        let lines = LineIndex::new("aä😀b\r\nc\rd\n");
        let at = |offset| {
            let position = lines.position(offset);
            (position.line, position.character)
        };
        assert_eq!([0, 1, 3, 7, 8].map(at), [(0, 0), (0, 1), (0, 2), (0, 4), (0, 5)]);
        assert_eq!([10, 12, 14, 99].map(at), [(1, 0), (2, 0), (3, 0), (3, 0)]);
        let offset = |line, character| lines.offset(protocol::Position { line, character });
        assert_eq!([offset(0, 4), offset(0, 5), offset(0, 99)], [7, 8, 8]);
        assert_eq!(offset(9, 0), 14);
    }

    proptest! {
        #[test]
        fn every_offset_comes_back(text in "[aä😀 \n\r]{0,40}") {
            let lines = LineIndex::new(&text);
            let broken = |at: &usize| text[..*at].ends_with('\r') && text[*at..].starts_with('\n');
            for at in (0..=text.len()).filter(|it| text.is_char_boundary(*it) && !broken(it)) {
                prop_assert_eq!(lines.offset(lines.position(at)), at);
            }
        }
    }
}
