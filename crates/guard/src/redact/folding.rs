//! Folds texts so that all spellings of a secret become one.
//!
//! A server may repeat a key with a part of it as `\u0073`, `%73` or `&#115;`, in capitals, wrapped over two lines, or
//! with characters in it that no terminal shows; and it may do several of these at once. Instead of one pattern for each
//! mixture, the text itself is folded: case, blanks and invisible characters disappear, then one layer of escapes
//! after the other is decoded. Each byte of the folded text remembers the range that it came from.

use std::ops::Range;

/// More layers of escapes are not decoded.
const LAYERS_MAX: usize = 4;

/// A folded text, with the range in the original of each of its bytes.
#[derive(Debug, Clone, Default)]
pub(super) struct FoldedText {
    pub(super) bytes: Vec<u8>,
    ranges: Vec<(u32, u32)>,
}

/// What stands at a place of a folded text.
struct DecodedPart {
    /// The bytes that it stands for.
    bytes: Vec<u8>,
    /// How many bytes of the text it takes.
    length: usize,
}

impl FoldedText {
    /// Folds a text without decoding anything. It must be shorter than 4 GiB, since ranges are kept small.
    pub(super) fn new(text: &[u8]) -> Self {
        let mut folded = Self { bytes: Vec::with_capacity(text.len()), ranges: Vec::new() };
        folded.ranges.reserve(text.len());
        let mut at = 0;
        while at < text.len() {
            let hidden = hidden_length(&text[at..]);
            if hidden > 0 {
                at += hidden;
                continue;
            }
            folded.push(text[at], at..at + 1);
            at += 1;
        }
        folded
    }

    /// Returns this text and each text that follows from it by decoding one more layer of escapes.
    pub(super) fn layers(self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self), Self::decoded).take(LAYERS_MAX + 1)
    }

    /// Returns where a range of it is in the original.
    pub(super) fn original(&self, range: &Range<usize>) -> Range<usize> {
        let start = self.ranges[range.start].0;
        let end = self.ranges[range.end - 1].1;
        start as usize..end as usize
    }

    /// Returns whether nothing is between a byte and the next one in the original.
    pub(super) fn touches_next(&self, at: usize) -> bool {
        let this = self.ranges[at];
        let next = self.ranges[at + 1];
        // Bytes of one escape share its range.
        this.1 == next.0 || this == next
    }

    /// Decodes a layer of escapes, if there is one.
    fn decoded(&self) -> Option<Self> {
        let mut next = Self::default();
        let mut at = 0;
        while at < self.bytes.len() {
            let Some(DecodedPart { bytes, length }) = decode(&self.bytes[at..]) else {
                next.push(self.bytes[at], self.original(&(at..at + 1)));
                at += 1;
                continue;
            };
            let from = self.original(&(at..at + length));
            let hidden = bytes.iter().all(|it| is_hidden(*it));
            for byte in bytes.into_iter().filter(|_| !hidden) {
                next.push(byte, from.clone());
            }
            at += length;
        }
        (next.bytes != self.bytes).then_some(next)
    }

    fn push(&mut self, byte: u8, from: Range<usize>) {
        let byte = match byte {
            // The two alphabets of base64 become one.
            b'-' => b'+',
            b'_' => b'/',
            byte => byte.to_ascii_lowercase(),
        };
        self.bytes.push(byte);
        let small = |it: usize| u32::try_from(it).unwrap_or(u32::MAX);
        self.ranges.push((small(from.start), small(from.end)));
    }
}

/// Blanks and control characters.
fn is_hidden(byte: u8) -> bool {
    byte <= b' ' || byte == 0x7f
}

/// Returns how many bytes at the start of a text no reader sees.
fn hidden_length(text: &[u8]) -> usize {
    match text {
        [0x1b, b'[', rest @ ..] => {
            let end = rest.iter().take(32).position(u8::is_ascii_alphabetic);
            end.map_or(1, |end| end + 3)
        }
        [0xc2, 0xad, ..] => 2,
        // Zero-width characters, marks of direction, joiners, and the byte order mark.
        [0xe2, 0x80, 0x8b..=0x8f | 0xaa..=0xae, ..]
        | [0xe2, 0x81, 0xa0..=0xaf, ..]
        | [0xef, 0xbb, 0xbf, ..] => 3,
        [byte, ..] if is_hidden(*byte) => 1,
        _ => 0,
    }
}

/// Decodes the escape at the start of a text.
fn decode(text: &[u8]) -> Option<DecodedPart> {
    match text {
        [b'%', high, low, ..] => Some(DecodedPart { bytes: vec![hex([*high, *low])?], length: 3 }),
        [b'\\', ..] => Some(decode_backslash(text)),
        [b'&', rest @ ..] => decode_entity(rest),
        [b'=', b'3', b'd', ..] => Some(DecodedPart { bytes: vec![b'='], length: 3 }),
        _ => None,
    }
}

/// Decodes `\u0073`, `\u{73}`, `\x73`, `\163`, `\n`, and any other escaped character, after any number of backslashes.
fn decode_backslash(text: &[u8]) -> DecodedPart {
    let slashes = text.iter().take_while(|it| **it == b'\\').count();
    let rest = &text[slashes..];
    let found = match rest {
        [b'u', b'{', digits @ ..] => {
            let count = digits.iter().take(6).take_while(|it| it.is_ascii_hexdigit()).count();
            let is_closed = digits.get(count) == Some(&b'}');
            let code = number(&digits[..count], 16).filter(|_| is_closed);
            code.map(|code| (utf8(code), count + 3))
        }
        [b'u', digits @ ..] if digits.len() >= 4 => {
            number(&digits[..4], 16).map(|code| (utf8(code), 5))
        }
        [b'x', high, low, ..] => hex([*high, *low]).map(|byte| (vec![byte], 3)),
        [b'0'..=b'3', b'0'..=b'7', b'0'..=b'7', ..] => {
            number(&rest[..3], 8).and_then(|it| u8::try_from(it).ok()).map(|byte| (vec![byte], 3))
        }
        [b'n' | b'r' | b't' | b'b' | b'f', ..] => Some((Vec::new(), 1)),
        _ => None,
    };
    let (bytes, length) = found.unwrap_or_default();
    DecodedPart { bytes, length: slashes + length }
}

/// Decodes `#115;`, `#x73;` and the names of characters that keys have.
fn decode_entity(text: &[u8]) -> Option<DecodedPart> {
    let end = text.iter().take(12).position(|it| *it == b';')?;
    let bytes = match &text[..end] {
        [b'#', b'x', digits @ ..] => utf8(number(digits, 16)?),
        [b'#', digits @ ..] => utf8(number(digits, 10)?),
        b"amp" => vec![b'&'],
        b"hyphen" | b"dash" => vec![b'-'],
        b"lowbar" => vec![b'_'],
        b"period" => vec![b'.'],
        b"sol" => vec![b'/'],
        b"plus" => vec![b'+'],
        b"equals" => vec![b'='],
        _ => return None,
    };
    Some(DecodedPart { bytes, length: end + 2 })
}

fn hex(digits: [u8; 2]) -> Option<u8> {
    number(&digits, 16).and_then(|it| u8::try_from(it).ok())
}

fn number(digits: &[u8], radix: u32) -> Option<u32> {
    if digits.is_empty() || !digits.iter().all(|it| char::from(*it).is_digit(radix)) {
        return None;
    }
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()
}

/// Returns the bytes of a character; nothing for half of a pair.
fn utf8(code: u32) -> Vec<u8> {
    char::from_u32(code).map_or_else(Vec::new, |it| it.to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(text: &str) -> String {
        let layer = FoldedText::new(text.as_bytes()).layers().last().unwrap();
        String::from_utf8(layer.bytes).unwrap()
    }

    #[test]
    fn all_spellings_become_one() {
        for text in [
            "sk-Ab1",
            "S K-ab1",
            r"\u0073k-ab1",
            r"\\u0073k\-ab1",
            r"\u{73}\x6b\055ab1",
            "%73k%2Dab1",
            "%2573k-ab1",
            "&#115;k&#x2d;ab1",
            "&amp;#115;k&hyphen;ab1",
            "%26%23115%3Bk-ab1",
            "s\u{200b}k\u{1b}[31m-\u{0}a\r\nb1",
            r"sk-\nab\1",
        ] {
            assert_eq!(last(text), "sk+ab1", "{text}");
        }
    }

    #[test]
    fn a_folded_text_knows_where_its_bytes_came_from() {
        let text = "x %73\u{200b}k y";
        let layer = FoldedText::new(text.as_bytes()).layers().last().unwrap();
        assert_eq!(layer.bytes, b"xsky");
        assert_eq!(&text[layer.original(&(1..3))], "%73\u{200b}k");
    }

    #[test]
    fn texts_without_escapes_stay_unchanged() {
        for text in ["100%", "%zz", "a&b;", "&;", "&#;", "&#x;", "=", "\u{e9}"] {
            assert_eq!(last(text), text);
        }
        assert_eq!(last("\\"), "");
        assert_eq!(last(r"\u{110000}"), "");
    }
}
