//! The secrets that a process knows, and their removal in every encoding in which a text repeats them.

use std::{borrow::Cow, collections::BTreeSet, fmt::Write, ops::Range};

use regex::bytes::Regex;

use super::{REDACTED, folding::Folded};

/// Shorter texts are not searched for: a key of `x` would blank out every message.
const LENGTH_MIN: usize = 8;

/// A plain word must be this long to be searched for: `postgres` and `password` are passwords, too.
const WORD_LENGTH_MIN: usize = 16;

/// A text with fewer different characters, such as `********`, stands for a secret rather than being one.
const VARIETY_MIN: usize = 4;

/// The longest escape of a character, as in `\\u{10ffff}`.
const ESCAPE_LENGTH_MAX: usize = 12;

/// The bytes of a text that are searched at once.
const BLOCK_BYTES: usize = 64 * 1024;

/// How far a block reaches into the next one, so that a secret at the border is found in one of them.
const OVERLAP_BYTES: usize = 16 * 1024;

/// Secrets, and the pattern that finds every spelling of them in a folded text.
#[derive(Debug)]
pub(super) struct Known {
    secrets: Vec<String>,
    pattern: Option<Regex>,
    /// The spellings in base64, of which the characters at both ends hold bits of their neighbours.
    base64: BTreeSet<Vec<u8>>,
}

/// Returns whether a text is distinct enough to be searched for.
pub(super) fn is_searchable(secret: &str) -> bool {
    let folded = Folded::new(secret.as_bytes()).bytes;
    let variety = folded.iter().collect::<BTreeSet<_>>().len();
    let length_min =
        if folded.iter().all(u8::is_ascii_alphabetic) { WORD_LENGTH_MIN } else { LENGTH_MIN };
    folded.len() >= length_min && variety >= VARIETY_MIN
}

impl Known {
    pub(super) fn new(secrets: Vec<String>) -> Self {
        let base64: BTreeSet<Vec<u8>> = secrets.iter().flat_map(|it| in_base64(it)).collect();
        let mut needles: Vec<Vec<u8>> = secrets.iter().flat_map(|it| spellings(it)).collect();
        needles.extend(base64.iter().cloned());
        needles.retain(|it| it.len() >= LENGTH_MIN);
        // Of two that begin at one place, the longer one is removed.
        needles.sort_by_key(|it| std::cmp::Reverse(it.len()));
        let escaped: Vec<String> =
            needles.iter().map(|it| regex::escape(&String::from_utf8_lossy(it))).collect();
        // A pattern of plain texts has no limit that they reach; without one, nothing would be found.
        let pattern = Regex::new(&escaped.join("|")).ok();
        Self { secrets, pattern, base64 }
    }

    pub(super) fn secrets(&self) -> &[String] {
        &self.secrets
    }

    /// Returns the text without the secrets.
    pub(super) fn remove_from<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let ranges = self.find(text);
        if ranges.is_empty() {
            return Cow::Borrowed(text);
        }
        let (mut redacted, mut end) = (String::with_capacity(text.len()), 0);
        for range in ranges {
            redacted += &text[end..range.start];
            redacted += REDACTED;
            end = range.end;
        }
        Cow::Owned(redacted + &text[end..])
    }

    /// Returns where the secrets are, in order and without overlaps.
    fn find(&self, text: &str) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        for start in (0..text.len()).step_by(BLOCK_BYTES) {
            let end = text.len().min(start + BLOCK_BYTES + OVERLAP_BYTES);
            self.find_in_block(&text.as_bytes()[start..end], |range| {
                let range = range.start + start..range.end + start;
                found.push(floor_boundary(text, range.start)..ceil_boundary(text, range.end));
            });
        }
        found.sort_by_key(|it| it.start);
        found.dedup_by(|next, before| {
            let overlaps = next.start <= before.end;
            if overlaps {
                before.end = before.end.max(next.end);
            }
            overlaps
        });
        found
    }

    fn find_in_block(&self, block: &[u8], mut take: impl FnMut(Range<usize>)) {
        let Some(pattern) = &self.pattern else { return };
        for layer in Folded::new(block).layers() {
            for found in pattern.find_iter(&layer.bytes) {
                let mut range = found.range();
                if self.base64.contains(found.as_bytes()) {
                    range = with_neighbours(&layer.bytes, range);
                }
                take(layer.original(&range));
            }
        }
    }
}

/// Extends a part of a base64 text by the characters at both ends that hold bits of it.
fn with_neighbours(text: &[u8], range: Range<usize>) -> Range<usize> {
    let is_digit = |it: &&u8| it.is_ascii_alphanumeric() || matches!(it, b'+' | b'/' | b'=');
    let ahead = &text[range.start.saturating_sub(ESCAPE_LENGTH_MAX)..range.start];
    // Half of an escape would make JSON unreadable. The layer in which the escape is decoded extends the range over it.
    let is_escape = ahead.contains(&b'\\');
    let before = ahead.iter().rev().take(2).take_while(|it| is_digit(it) && !is_escape).count();
    let after = text[range.end..].iter().take(2).take_while(is_digit).count();
    range.start - before..range.end + after
}

/// Returns the spellings of a secret that folding does not make equal to it, and itself.
fn spellings(secret: &str) -> Vec<Vec<u8>> {
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
    ];
    // A secret may itself look escaped, and is then decoded with the text around it.
    let folded = texts.iter().flat_map(|it| Folded::new(it.as_bytes()).layers());
    folded.map(|it| it.bytes).collect()
}

/// Returns what a secret is in base64 at each of the three places where it can begin within a longer text, without the
/// characters at both ends that hold bits of their neighbours.
fn in_base64(secret: &str) -> impl Iterator<Item = Vec<u8>> {
    (0..3).map(move |offset| {
        let bytes: Vec<u8> = std::iter::repeat_n(0, offset).chain(secret.bytes()).collect();
        let encoded = base64(&bytes);
        let (start, end) = ((offset * 8).div_ceil(6), bytes.len() * 8 / 6);
        Folded::new(&encoded.as_bytes()[start..end]).bytes
    })
}

/// Encodes bytes in base64 without padding: <https://www.rfc-editor.org/rfc/rfc4648#section-4>.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bits = String::new();
    for byte in bytes {
        // Writing to a text cannot fail.
        _ = write!(bits, "{byte:08b}");
    }
    let digit = |six: &[u8]| {
        let number = six.iter().fold(0, |number, bit| number << 1 | usize::from(bit - b'0'));
        char::from(DIGITS[number << (6 - six.len())])
    };
    bits.as_bytes().chunks(6).map(digit).collect()
}

fn floor_boundary(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|it| text.is_char_boundary(*it)).unwrap_or_default()
}

fn ceil_boundary(text: &str, at: usize) -> usize {
    (at..text.len()).find(|it| text.is_char_boundary(*it)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "sk-Canary_7f3a9c/21+e8";

    fn each(encode: impl Fn(u8) -> String) -> String {
        KEY.bytes().map(encode).collect()
    }

    /// The key in many encodings, each with a name.
    fn encodings() -> Vec<(&'static str, String)> {
        let in_base64 =
            |before: &str, after: &str| base64(format!("{before}{KEY}{after}").as_bytes());
        vec![
            ("plain", KEY.into()),
            ("capitals", KEY.to_uppercase()),
            ("JSON, one character", KEY.replacen('s', "\\u0073", 1)),
            ("JSON, all", each(|it| format!("\\u{it:04X}"))),
            ("JSON twice", each(|it| format!("\\\\u{it:04x}"))),
            ("JSON, slash", KEY.replace('/', "\\/")),
            ("percent", KEY.replace('/', "%2F").replace('+', "%2b")),
            ("percent, all", each(|it| format!("%{it:02X}"))),
            ("percent twice", each(|it| format!("%25{it:02x}"))),
            ("HTML, decimal", each(|it| format!("&#{it};"))),
            ("HTML, hexadecimal", each(|it| format!("&#x{it:X};"))),
            ("HTML in JSON", each(|it| format!("\\u0026#{it};"))),
            ("base64", in_base64("", "")),
            ("base64, second place", in_base64("x", "y")),
            ("base64, third place", in_base64("me", ":yz")),
            ("base64 for URLs", in_base64("a", "").replace('+', "-").replace('/', "_")),
            ("hexadecimal", each(|it| format!("{it:02x}"))),
            ("hexadecimal, capitals", each(|it| format!("{it:02X}"))),
            ("hexadecimal, dump", each(|it| format!("{it:02x} "))),
            ("bytes in C", each(|it| format!("\\x{it:02x}"))),
            ("octal", each(|it| format!("\\{it:03o}"))),
            ("reversed", KEY.chars().rev().collect()),
            ("UTF-16", each(|it| format!("{}\0", char::from(it)))),
            ("zero width", each(|it| format!("{}\u{200b}", char::from(it)))),
            ("coloured", each(|it| format!("\u{1b}[1m{}", char::from(it)))),
            ("wrapped", format!("{}\r\n{}", &KEY[..9], &KEY[9..])),
        ]
    }

    #[test]
    fn a_secret_is_removed_in_every_encoding() {
        let known = Known::new(vec![KEY.to_owned()]);
        for (name, text) in encodings() {
            let redacted = known.remove_from(&text);
            assert!(redacted.contains(REDACTED), "{name}: {text} -> {redacted}");
            assert!(redacted.len() <= REDACTED.len() + 4, "{name}: {text} -> {redacted}");
        }
        let list =
            format!("[{}]", KEY.bytes().map(|it| it.to_string()).collect::<Vec<_>>().join(", "));
        assert_eq!(known.remove_from(&list), "[[redacted]]");
    }

    #[test]
    fn texts_around_a_secret_stay_as_they_are() {
        let known = Known::new(vec![KEY.to_owned(), "hunter2-hunter2".to_owned()]);
        let text = format!("é 100% \\n {KEY}, {KEY} & hunter2-hunter2 \u{202e}é");
        let expected = "é 100% \\n [redacted], [redacted] & [redacted] \u{202e}é";
        assert_eq!(known.remove_from(&text), expected);
        assert!(matches!(known.remove_from("nothing & more %20"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_secret_in_json_leaves_json() {
        let known = Known::new(vec![KEY.to_owned()]);
        let secret = base64(KEY.as_bytes());
        for before in ["\n", "\u{1}", "\"", "\\", "a"] {
            let json = serde_json::to_string(&format!("{before}{secret}")).unwrap();
            let redacted = known.remove_from(&json);
            let text: String = serde_json::from_str(&redacted).unwrap();
            assert!(text.ends_with(REDACTED), "{json}: {redacted}");
        }
    }

    #[test]
    fn a_secret_at_the_border_of_two_blocks_is_found() {
        let known = Known::new(vec![KEY.to_owned()]);
        for before in [BLOCK_BYTES - 5, BLOCK_BYTES + OVERLAP_BYTES - 5, 2 * BLOCK_BYTES - 1] {
            let text = format!("{}{KEY}é", "x ".repeat(before / 2));
            assert!(known.remove_from(&text).ends_with(" [redacted]é"), "{before}");
        }
    }

    #[test]
    fn a_secret_that_looks_escaped_is_found_as_well() {
        let secret = "p%41ss\\word-&amp;1";
        let known = Known::new(vec![secret.to_owned()]);
        assert_eq!(known.remove_from(&format!("a {secret} b")), "a [redacted] b");
        assert_eq!(known.remove_from("a pAssword-&1 b"), "a [redacted] b");
    }

    #[test]
    fn words_and_placeholders_are_not_searched_for() {
        for kept in ["x", "hunter2", "postgres", "correcthorse", "xxxxxxxxxxxxxxxxxxxx", "00000000"]
        {
            assert!(!is_searchable(kept), "{kept}");
        }
        for secret in ["hunter22", "correcthorsebatterystaple", "correct-horse", KEY] {
            assert!(is_searchable(secret), "{secret}");
        }
    }

    #[test]
    fn base64_is_that_of_the_standard() {
        for (text, expected) in [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }
}
