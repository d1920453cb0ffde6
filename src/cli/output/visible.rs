//! Makes control characters visible in text for a terminal.
//!
//! Names, values, files and models may contain escape sequences and direction marks. With these, a
//! text can move the cursor, hide itself, or change its visible order. Each becomes an escape such
//! as `\u001b`. JSON uses the same escapes, so a JSON value stays the same.

use std::{borrow::Cow, fmt::Write};

/// Returns the text with every control and invisible character as an escape. Line ends and tabs
/// stay.
///
/// Colour sequences stay if the program paints.
pub(crate) fn visible(text: &str, is_coloured: bool) -> Cow<'_, str> {
    if !text.bytes().any(may_be_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = None;
    while let Some(character) = rest.chars().next() {
        let colour = if is_coloured { colour_length(rest) } else { 0 };
        if colour > 0 {
            shown += &rest[..colour];
            rest = &rest[colour..];
            continue;
        }
        let next = rest.chars().nth(1);
        if is_hidden(character) && !is_joined(before, character, next) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string cannot fail.
                _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(character);
        }
        before = Some(character);
        rest = &rest[character.len_utf8()..];
    }
    Cow::Owned(shown)
}

/// Returns whether a character joins or separates its neighbours, as in Persian words and in pictures of several people.
fn is_joined(before: Option<char>, character: char, next: Option<char>) -> bool {
    let is_seen = |it: Option<char>| it.is_some_and(|it| !it.is_ascii() && !is_hidden(it));
    matches!(character, '\u{200c}' | '\u{200d}') && is_seen(before) && is_seen(next)
}

/// Returns whether a character moves the cursor, changes the direction of text, or has no width.
pub(crate) fn is_hidden(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}' => true,
        character => character.is_control(),
    }
}

/// Returns whether a byte can be part of a hidden character.
fn may_be_hidden(byte: u8) -> bool {
    match byte {
        b'\n' | b'\t' => false,
        0..=0x1f | 0x7f | 0xc2 | 0xd8 | 0xe1 | 0xe2 | 0xef | 0xf3 => true,
        _ => false,
    }
}

/// Returns the length of the sequence at the start of a text that sets a colour or a weight.
/// Sequences that hide text or set a background do not count: the program writes none.
fn colour_length(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\u{1b}[") else { return 0 };
    let Some(end) = rest.bytes().take(16).position(|it| it == b'm') else { return 0 };
    let is_harmless = |code: &str| {
        let code = code.parse::<u8>().ok().filter(|_| code.len() < 3);
        code.is_some_and(|it| matches!(it, 0..=4 | 22..=24 | 31..=37 | 39 | 90..=97))
    };
    let codes = &rest[..end];
    if codes.is_empty() || codes.split(';').all(is_harmless) { end + 3 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_become_escapes() {
        let cases = [
            ("plain \n\t text é 日本 \u{2014}", "plain \n\t text é 日本 \u{2014}"),
            ("\u{1b}[2J\u{1b}]0;x\u{7}", r"\u001b[2J\u001b]0;x\u0007"),
            ("a\rb\u{8}\0\u{7f}", r"a\u000db\u0008\u0000\u007f"),
            ("\u{9b}31m\u{85}", r"\u009b31m\u0085"),
            ("\u{202e}\u{2066}\u{200f}\u{61c}", r"\u202e\u2066\u200f\u061c"),
            ("\u{200b}\u{feff}\u{ad}\u{2028}", r"\u200b\ufeff\u00ad\u2028"),
            ("\u{e0041}", r"\udb40\udc41"),
            ("👨\u{200d}👩 می\u{200c}شود", "👨\u{200d}👩 می\u{200c}شود"),
            ("a\u{200d}b \u{200d}👩 می\u{200c}", r"a\u200db \u200d👩 می\u200c"),
            ("👨\u{200d}\u{200d}👩", r"👨\u200d\u200d👩"),
        ];
        for (text, expected) in cases {
            assert_eq!(visible(text, false), expected, "{text:?}");
            assert_eq!(visible(text, true), expected, "{text:?}");
        }
    }

    #[test]
    fn only_colours_stay_and_only_where_the_program_paints() {
        let painted = "\u{1b}[1;31mbad\u{1b}[0m\u{1b}[m";
        assert_eq!(visible(painted, true), painted);
        assert_eq!(visible(painted, false), r"\u001b[1;31mbad\u001b[0m\u001b[m");
        for hostile in
            ["\u{1b}[8m", "\u{1b}[1;8m", "\u{1b}[30m", "\u{1b}[41m", "\u{1b}[1A", "\u{1b}"]
        {
            assert!(!visible(hostile, true).contains('\u{1b}'), "{hostile:?}");
        }
    }

    #[test]
    fn json_keeps_its_value() {
        let text = "\u{202e}\u{7f}\u{e0041}\u{1b}";
        let json = serde_json::to_string(text).unwrap();
        let shown = visible(&json, false);
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        assert!(shown.is_ascii(), "{shown}");
    }
}
