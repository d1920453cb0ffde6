//! The encodings of a secret that decoding a text does not undo: each is searched for as a text.

use std::fmt::Write;

use super::folding::FoldedText;

/// Returns the spellings of a secret that folding does not make equal to it, and itself.
pub(super) fn spellings(secret: &str) -> Vec<Vec<u8>> {
    let joined = |separator: &str, digits: fn(u8) -> String| {
        secret.bytes().map(digits).collect::<Vec<_>>().join(separator)
    };
    let hex = |byte: u8| format!("{byte:02x}");
    let texts = [
        secret.to_owned(),
        secret.chars().rev().collect(),
        joined("", hex),
        joined(":", hex),
        joined(",", |byte| format!("0x{byte:02x}")),
        joined(",", |byte| byte.to_string()),
        secret.chars().map(rot13).collect(),
    ];
    // A secret may itself look escaped, and is then decoded with the text around it.
    let folded = texts.iter().flat_map(|it| FoldedText::new(it.as_bytes()).layers());
    folded.map(|it| it.bytes).collect()
}

pub(super) fn rot13(character: char) -> char {
    let turn = |first: u8| char::from(first + (character as u8 - first + 13) % 26);
    match character {
        'a'..='z' => turn(b'a'),
        'A'..='Z' => turn(b'A'),
        other => other,
    }
}

/// An encoding in which each digit holds some bits: <https://www.rfc-editor.org/rfc/rfc4648>.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base {
    digits: &'static [u8],
    bits: usize,
    /// After how many bytes the digits begin anew.
    group: usize,
}

impl Base {
    pub(super) const SIXTY_FOUR: Self = Self {
        digits: b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
        bits: 6,
        group: 3,
    };
    pub(super) const THIRTY_TWO: Self =
        Self { digits: b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", bits: 5, group: 5 };
    pub(super) const ALL: [Self; 2] = [Self::SIXTY_FOUR, Self::THIRTY_TWO];

    /// Returns what a secret is at each of the places where it can begin within a longer text, without the characters
    /// at both ends that hold bits of their neighbours.
    pub(super) fn spellings(self, secret: &str) -> impl Iterator<Item = Vec<u8>> {
        (0..self.group).map(move |offset| {
            let bytes: Vec<u8> = std::iter::repeat_n(0, offset).chain(secret.bytes()).collect();
            let encoded = self.encode(&bytes);
            let start = (offset * 8).div_ceil(self.bits);
            let end = bytes.len() * 8 / self.bits;
            FoldedText::new(&encoded.as_bytes()[start..end]).bytes
        })
    }

    /// Encodes bytes without padding.
    pub(super) fn encode(self, bytes: &[u8]) -> String {
        let mut bits = String::new();
        for byte in bytes {
            // Writing to a text cannot fail.
            _ = write!(bits, "{byte:08b}");
        }
        let digit = |part: &[u8]| {
            let number = part.iter().fold(0, |number, bit| number << 1 | usize::from(bit - b'0'));
            char::from(self.digits[number << (self.bits - part.len())])
        };
        bits.as_bytes().chunks(self.bits).map(digit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encodings_are_those_of_the_standard() {
        for (text, in_64, in_32) in [
            ("", "", ""),
            ("f", "Zg", "MY"),
            ("fo", "Zm8", "MZXQ"),
            ("foobar", "Zm9vYmFy", "MZXW6YTBOI"),
        ] {
            assert_eq!(Base::SIXTY_FOUR.encode(text.as_bytes()), in_64);
            assert_eq!(Base::THIRTY_TWO.encode(text.as_bytes()), in_32);
        }
        assert_eq!("Why, 3?".chars().map(rot13).collect::<String>(), "Jul, 3?");
    }
}
