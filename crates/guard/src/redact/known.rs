//! The secrets that a process knows, and their removal in every encoding in which a text repeats them.

use std::{borrow::Cow, collections::BTreeSet, ops::Range};

use regex::bytes::Regex;

use super::{
    REDACTED,
    folding::FoldedText,
    spellings::{Base, spellings},
};

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
pub(super) struct KnownSecrets {
    secrets: Vec<String>,
    pattern: Option<Regex>,
    /// The texts of the pattern.
    needles: Vec<Vec<u8>>,
    /// The spellings in base64 and base32, of which the characters at both ends hold bits of their neighbours.
    packed: BTreeSet<Vec<u8>>,
}

/// Where a text was cut, so that a secret may be there in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// At its start.
    pub start: bool,
    /// At its end.
    pub end: bool,
}

/// Returns whether a text is distinct enough to be searched for.
pub(super) fn is_searchable(secret: &str) -> bool {
    let folded = FoldedText::new(secret.as_bytes()).bytes;
    let variety = folded.iter().collect::<BTreeSet<_>>().len();
    let length_min =
        if folded.iter().all(u8::is_ascii_alphabetic) { WORD_LENGTH_MIN } else { LENGTH_MIN };
    folded.len() >= length_min && variety >= VARIETY_MIN
}

impl KnownSecrets {
    pub(super) fn new(secrets: Vec<String>) -> Self {
        let in_digits = |it| Base::ALL.into_iter().flat_map(move |base| base.spellings(it));
        let packed: BTreeSet<Vec<u8>> = secrets.iter().flat_map(|it| in_digits(it)).collect();
        let mut needles: Vec<Vec<u8>> = secrets.iter().flat_map(|it| spellings(it)).collect();
        needles.extend(packed.iter().cloned());
        needles.retain(|it| it.len() >= LENGTH_MIN);
        // Of two that begin at one place, the longer one is removed.
        needles.sort_by_key(|it| std::cmp::Reverse(it.len()));
        let escaped: Vec<String> =
            needles.iter().map(|it| regex::escape(&String::from_utf8_lossy(it))).collect();
        // A pattern of plain texts has no limit that they reach; without one, nothing would be found.
        let pattern = Regex::new(&escaped.join("|")).ok();
        Self { secrets, pattern, needles, packed }
    }

    pub(super) fn secrets(&self) -> &[String] {
        &self.secrets
    }

    /// Returns the text without the secrets.
    pub(super) fn remove_from<'a>(&self, text: &'a str) -> Cow<'a, str> {
        without(text, self.find(text))
    }

    /// Returns the text without the secrets, and without the parts of secrets where it was cut.
    pub(super) fn remove_from_part<'a>(&self, text: &'a str, cut: Cut) -> Cow<'a, str> {
        let mut found = self.find(text);
        let size = text.len().min(OVERLAP_BYTES);
        if cut.start {
            let end = floor_boundary(text, size);
            found.extend(self.find_rest(&text[..end]));
        }
        if cut.end {
            let start = ceil_boundary(text, text.len() - size);
            let begun = self.find_beginning(&text[start..], LENGTH_MIN);
            found.extend(begun.map(|it| start + it.start..text.len()));
        }
        without(text, merged(found))
    }

    /// Returns where secrets are, and where one may begin that ends behind the text.
    pub(super) fn find_open(&self, text: &str) -> Vec<Range<usize>> {
        let mut found = self.find(text);
        let start = ceil_boundary(text, text.len() - text.len().min(OVERLAP_BYTES));
        let begun = self.find_beginning(&text[start..], 1);
        // It reaches over the end of the text.
        found.extend(begun.map(|it| start + it.start..usize::MAX));
        found
    }

    /// Returns where a secret begins at the end of a text, of which at least so many bytes are there.
    fn find_beginning(&self, text: &str, least: usize) -> Option<Range<usize>> {
        let found = FoldedText::new(text.as_bytes()).layers().filter_map(|layer| {
            let length = layer.bytes.len();
            // Half of an escape may follow.
            let may_be_last = |end: &usize| {
                let behind = end.checked_sub(1).map(|it| layer.original(&(it..*end)).end);
                let rest = behind.map_or(&[][..], |it| &text.as_bytes()[it..]);
                *end == length || rest.first().is_none_or(|it| b"\\%&=\x1b".contains(it))
            };
            let ends = (length.saturating_sub(ESCAPE_LENGTH_MAX)..=length).rev();
            let ends = ends.filter(may_be_last);
            let start = |end: usize| {
                let kept = |it: &Vec<u8>| {
                    let most = end.min(it.len() - 1);
                    (least..=most).rev().find(|kept| layer.bytes[..end].ends_with(&it[..*kept]))
                };
                self.needles.iter().filter_map(kept).max().map(|kept| end - kept)
            };
            let start = ends.filter_map(start).min()?;
            Some(layer.original(&(start..length)))
        });
        found.min_by_key(|it| it.start).map(|it| floor_boundary(text, it.start)..text.len())
    }

    /// Returns where the rest of a secret is at the start of a text.
    fn find_rest(&self, text: &str) -> Option<Range<usize>> {
        let found = FoldedText::new(text.as_bytes()).layers().filter_map(|layer| {
            // Half of an escape may be ahead.
            let starts = 0..=ESCAPE_LENGTH_MAX.min(layer.bytes.len());
            let end = |start: usize| {
                let rest = &layer.bytes[start..];
                let kept = |it: &Vec<u8>| {
                    let most = rest.len().min(it.len() - 1);
                    (LENGTH_MIN..=most).rev().find(|kept| rest.starts_with(&it[it.len() - kept..]))
                };
                self.needles.iter().filter_map(kept).max().map(|kept| start + kept)
            };
            let end = starts.filter_map(end).max()?;
            Some(layer.original(&(0..end)))
        });
        found.max_by_key(|it| it.end).map(|it| 0..ceil_boundary(text, it.end))
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
        merged(found)
    }

    fn find_in_block(&self, block: &[u8], mut take: impl FnMut(Range<usize>)) {
        let Some(pattern) = &self.pattern else { return };
        for layer in FoldedText::new(block).layers() {
            for found in pattern.find_iter(&layer.bytes) {
                let mut range = found.range();
                if self.packed.contains(found.as_bytes()) {
                    range = with_neighbours(&layer, range);
                }
                take(layer.original(&range));
            }
        }
    }
}

/// Returns the text without these ranges, which are in order and do not overlap.
fn without(text: &str, ranges: Vec<Range<usize>>) -> Cow<'_, str> {
    if ranges.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut redacted = String::with_capacity(text.len());
    let mut end = 0;
    for range in ranges {
        redacted += &text[end..range.start];
        redacted += REDACTED;
        end = range.end;
    }
    Cow::Owned(redacted + &text[end..])
}

/// Returns the ranges in order, and one for each group that overlaps.
fn merged(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_by_key(|it| it.start);
    ranges.dedup_by(|next, before| {
        let overlaps = next.start <= before.end;
        if overlaps {
            before.end = before.end.max(next.end);
        }
        overlaps
    });
    ranges
}

/// Extends a part of a base64 or base32 text by the characters at both ends that hold bits of it.
fn with_neighbours(layer: &FoldedText, range: Range<usize>) -> Range<usize> {
    let text = &layer.bytes;
    let is_digit = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'+' | b'/' | b'=');
    let ahead = &text[range.start.saturating_sub(ESCAPE_LENGTH_MAX)..range.start];
    // Half of an escape would make JSON unreadable. The layer in which the escape is decoded extends the range over it.
    let is_escape = ahead.contains(&b'\\');
    // A word after a blank is no part of it.
    let before = |it: &usize| !is_escape && is_digit(text[*it]) && layer.touches_next(*it);
    let after = |it: &usize| is_digit(text[*it]) && layer.touches_next(*it - 1);
    let start = (range.start.saturating_sub(2)..range.start).rev().take_while(before).last();
    let end = (range.end..text.len().min(range.end + 2)).take_while(after).last();
    start.unwrap_or(range.start)..end.map_or(range.end, |it| it + 1)
}

fn floor_boundary(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|it| text.is_char_boundary(*it)).unwrap_or_default()
}

fn ceil_boundary(text: &str, at: usize) -> usize {
    (at..text.len()).find(|it| text.is_char_boundary(*it)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::{super::spellings::rot13, *};

    const KEY: &str = "sk-Canary_7f3a9c/21+e8";

    fn base64(bytes: &[u8]) -> String {
        Base::SIXTY_FOUR.encode(bytes)
    }

    fn each(encode: impl Fn(u8) -> String) -> String {
        KEY.bytes().map(encode).collect()
    }

    /// Returns the key in many encodings, each with a name.
    fn encodings() -> Vec<(&'static str, String)> {
        let in_base64 =
            |before: &str, after: &str| base64(format!("{before}{KEY}{after}").as_bytes());
        let in_base32 = |before: &str, after: &str| {
            Base::THIRTY_TWO.encode(format!("{before}{KEY}{after}").as_bytes())
        };
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
            ("base32", in_base32("", "")),
            ("base32, second place", in_base32("x", "")),
            ("base32, third place", in_base32("me", "")),
            ("base32, fourth place", in_base32("you", "")),
            ("base32, fifth place", in_base32("them", "").to_lowercase()),
            ("rot13", KEY.chars().map(rot13).collect()),
            ("reversed", KEY.chars().rev().collect()),
            ("UTF-16", each(|it| format!("{}\0", char::from(it)))),
            ("zero width", each(|it| format!("{}\u{200b}", char::from(it)))),
            ("coloured", each(|it| format!("\u{1b}[1m{}", char::from(it)))),
            ("wrapped", format!("{}\r\n{}", &KEY[..9], &KEY[9..])),
        ]
    }

    #[test]
    fn a_secret_is_removed_in_every_encoding() {
        let known = KnownSecrets::new(vec![KEY.to_owned()]);
        for (name, text) in encodings() {
            let redacted = known.remove_from(&text);
            assert!(redacted.contains(REDACTED), "{name}: {text} -> {redacted}");
            // In base32, more of the text ahead is encoded apart from the secret.
            let rest_max = if name.starts_with("base32") { 5 } else { 4 };
            assert!(redacted.len() <= REDACTED.len() + rest_max, "{name}: {text} -> {redacted}");
        }
        let list =
            format!("[{}]", KEY.bytes().map(|it| it.to_string()).collect::<Vec<_>>().join(", "));
        assert_eq!(known.remove_from(&list), "[[redacted]]");
    }

    #[test]
    fn texts_around_a_secret_stay_as_they_are() {
        let known = KnownSecrets::new(vec![KEY.to_owned(), "hunter2-hunter2".to_owned()]);
        let text = format!("é 100% \\n {KEY}, {KEY} & hunter2-hunter2 \u{202e}é");
        let expected = "é 100% \\n [redacted], [redacted] & [redacted] \u{202e}é";
        assert_eq!(known.remove_from(&text), expected);
        assert!(matches!(known.remove_from("nothing & more %20"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_secret_in_json_leaves_json() {
        let known = KnownSecrets::new(vec![KEY.to_owned()]);
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
        let known = KnownSecrets::new(vec![KEY.to_owned()]);
        for before in [BLOCK_BYTES - 5, BLOCK_BYTES + OVERLAP_BYTES - 5, 2 * BLOCK_BYTES - 1] {
            let text = format!("{}{KEY}é", "x ".repeat(before / 2));
            assert!(known.remove_from(&text).ends_with(" [redacted]é"), "{before}");
        }
    }

    #[test]
    fn a_secret_that_looks_escaped_is_found_as_well() {
        let secret = "p%41ss\\word-&amp;1";
        let known = KnownSecrets::new(vec![secret.to_owned()]);
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
    fn a_word_beside_an_encoded_secret_stays() {
        let known = KnownSecrets::new(vec![KEY.to_owned()]);
        for (name, encoded) in encodings() {
            let redacted = known.remove_from(&format!("so {encoded} is x")).into_owned();
            let (before, after) = redacted.split_once(REDACTED).unwrap();
            // The rest is of the text that was encoded together with the secret.
            assert!(before.starts_with("so ") && before.len() <= 8, "{name}: {redacted}");
            assert!(after.ends_with(" is x") && after.chars().count() <= 7, "{name}: {redacted}");
        }
        let text = format!("{} is", base64(KEY.as_bytes()));
        assert_eq!(known.remove_from(&text), "[redacted] is");
        let text = format!("is {}", base64(KEY.as_bytes()));
        assert_eq!(known.remove_from(&text), "is [redacted]");
    }

    /// The parts of a text that are left of a secret are shorter than this.
    const PART_MAX: usize = LENGTH_MIN;

    #[test]
    fn a_part_of_a_secret_at_a_cut_is_removed() {
        let known = KnownSecrets::new(vec![KEY.to_owned()]);
        let (end, start) = (Cut { start: false, end: true }, Cut { start: true, end: false });
        for kept in 0..KEY.len() {
            for (before, spelling) in
                [("", KEY.to_owned()), ("say ", each(|it| format!("\\x{it:02x}")))]
            {
                let size = spelling.len() / KEY.len();
                for less in 0..size {
                    let cut = (kept + 1) * size - less - 1;
                    let text = format!("{before}{}", &spelling[..cut]);
                    let redacted = known.remove_from_part(&text, end).into_owned();
                    let expected =
                        if cut / size >= PART_MAX { format!("{before}{REDACTED}") } else { text };
                    assert_eq!(redacted, expected);
                }
            }
            let text = format!("{} after", &KEY[kept..]);
            let redacted = known.remove_from_part(&text, start).into_owned();
            let is_long = KEY.len() - kept >= PART_MAX;
            let expected = if is_long { format!("{REDACTED} after") } else { text };
            assert_eq!(redacted, expected);
        }
        let encoded = base64(format!("x{KEY}").as_bytes());
        assert_eq!(known.remove_from_part(&format!("a {}", &encoded[..20]), end), "a eH[redacted]");
        let whole = format!("{KEY} and {KEY}");
        assert_eq!(known.remove_from_part(&whole, end), "[redacted] and [redacted]");
        let none = Cut { start: false, end: false };
        assert!(matches!(known.remove_from_part(&KEY[..12], none), Cow::Borrowed(_)));
    }
}
