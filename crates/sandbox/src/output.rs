//! Truncates and cleans the output of a program before it is stored, shown or sent.

use std::{collections::VecDeque, fmt::Write as _};

use graphrun_guard::redact::{Cut, redact_part};

/// The bytes kept from the beginning of the output, and again from its end. Failures are reported last, their cause
/// often first.
const KEPT_BYTES: usize = 64 << 10;
/// The longest line; longer lines are data, not messages.
const LINE_BYTES_MAX: usize = 4 << 10;

/// Collects output in bounded memory: its head, its tail, and the number of bytes between them.
#[derive(Debug, Default)]
pub(super) struct Output {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Output {
    /// Adds bytes that were read.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(KEPT_BYTES - self.head.len()));
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(KEPT_BYTES)..];
        self.tail.extend(rest);
        self.tail.drain(..self.tail.len().saturating_sub(KEPT_BYTES));
    }

    /// Returns the number of all bytes, kept or not.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns whether a part between the beginning and the end is not kept.
    pub(super) fn is_cut(&self) -> bool {
        self.omitted() > 0
    }

    fn omitted(&self) -> u64 {
        self.total - (self.head.len() + self.tail.len()) as u64
    }

    /// Returns the text to show. Keys are removed before truncation, because a part of a key would not be recognised
    /// later.
    pub(super) fn into_text(mut self) -> String {
        let omitted = self.omitted();
        if omitted == 0 {
            // Head and tail are cleaned together, so that no character or sequence is split.
            self.head.extend(self.tail);
            return clean_part(&self.head, Cut { start: false, end: false });
        }
        let mut text = clean_part(&self.head, Cut { start: false, end: true });
        if !text.ends_with('\n') {
            text.push('\n');
        }
        let _ = writeln!(text, "… {omitted} bytes omitted");
        text + &clean_part(self.tail.make_contiguous(), Cut { start: true, end: false })
    }
}

/// Cleans text like the output of a job, but with lines of any length: they may be data. `is_cut` says whether more
/// text followed.
pub fn clean_output(bytes: &[u8], is_cut: bool) -> String {
    let text = String::from_utf8_lossy(bytes);
    clean_lines(&redact_part(&text, Cut { start: false, end: is_cut }), usize::MAX)
}

/// Cleans a whole text like [`clean_output`].
pub fn clean_text(text: &str) -> String {
    clean_output(text.as_bytes(), false)
}

fn clean_part(bytes: &[u8], cut: Cut) -> String {
    clean_lines(&redact_part(&String::from_utf8_lossy(bytes), cut), LINE_BYTES_MAX)
}

/// Turns bytes into text without escape sequences, control characters other than `\n` and `\t`, characters that reorder
/// the text around them, or endless lines.
pub(super) fn clean(bytes: &[u8]) -> String {
    clean_lines(&String::from_utf8_lossy(bytes), LINE_BYTES_MAX)
}

fn clean_lines(text: &str, line_max: usize) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut characters = text.chars();
    let mut line_bytes = 0;
    while let Some(character) = characters.next() {
        match character {
            '\n' => {
                line_bytes = 0;
                cleaned.push('\n');
            }
            '\u{1b}' => skip_escape(&mut characters),
            '\u{9b}' => skip_control_sequence(&mut characters),
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => skip_string(&mut characters),
            '\t' => line_bytes = push_capped(&mut cleaned, '\t', line_bytes, line_max),
            character if character.is_control() || is_reordering(character) => {}
            character => line_bytes = push_capped(&mut cleaned, character, line_bytes, line_max),
        }
    }
    cleaned
}

/// Adds a character unless the line is full, and marks that once. Returns the new length of the line.
fn push_capped(text: &mut String, character: char, line_bytes: usize, line_max: usize) -> usize {
    if line_bytes > line_max {
        return line_bytes;
    }
    if line_bytes + character.len_utf8() > line_max {
        text.push('…');
        return line_max + 1;
    }
    text.push(character);
    line_bytes + character.len_utf8()
}

/// Skips the rest of an escape sequence (ECMA-48); the escape character is already consumed.
fn skip_escape(characters: &mut std::str::Chars<'_>) {
    let mut ahead = characters.clone();
    match ahead.next() {
        Some('[') => {
            *characters = ahead;
            skip_control_sequence(characters);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            *characters = ahead;
            skip_string(characters);
        }
        Some(' '..='/') => {
            while let Some(' '..='/') = ahead.next() {}
            *characters = ahead;
        }
        Some('0'..='~') => *characters = ahead,
        // No sequence: only the escape character goes.
        _ => {}
    }
}

/// Skips parameters up to the final character. A character that cannot be part of it ends the sequence and stays.
fn skip_control_sequence(characters: &mut std::str::Chars<'_>) {
    loop {
        let mut ahead = characters.clone();
        match ahead.next() {
            Some(' '..='?') => *characters = ahead,
            Some('@'..='~') => {
                *characters = ahead;
                return;
            }
            _ => return,
        }
    }
}

/// Skips a string (a window title, a link) up to its terminator. A line break ends it too: an unclosed string must not
/// swallow the rest of the output.
fn skip_string(characters: &mut std::str::Chars<'_>) {
    loop {
        let mut ahead = characters.clone();
        match ahead.next() {
            Some('\u{7}' | '\u{9c}') => {
                *characters = ahead;
                return;
            }
            Some('\u{1b}') => {
                if ahead.next() == Some('\\') {
                    *characters = ahead;
                }
                return;
            }
            Some('\n') | None => return,
            Some(_) => *characters = ahead,
        }
    }
}

/// Characters that change the order or the direction of the text around them (Unicode bidirectional controls).
fn is_reordering(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cleaned() {
        for (written, shown) in [
            (&b"plain\ttext\n"[..], "plain\ttext\n"),
            (b"\x1b[31mred\x1b[0m", "red"),
            (b"\x1b]0;title\x07after", "after"),
            (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
            (b"\x1b]unclosed\nnext", "\nnext"),
            (b"\x1b(Bset", "set"),
            (b"\x1bcreset", "reset"),
            (b"\x1b[12\nnext", "\nnext"),
            (b"\xc2\x9b31mc1", "c1"),
            (b"a\0b\x08c\rd", "abcd"),
            (b"bad \xff byte", "bad \u{fffd} byte"),
            ("\u{202e}evil\u{2066}".as_bytes(), "evil"),
            ("naïve ☃".as_bytes(), "naïve ☃"),
            (b"\x1b", ""),
        ] {
            assert_eq!(clean(written), shown, "{:?}", String::from_utf8_lossy(written));
        }
    }

    #[test]
    fn endless_lines_are_cut() {
        let text = clean(format!("{}\nnext\n", "é".repeat(10_000)).as_bytes());
        let mut lines = text.lines();
        let first = lines.next().unwrap();
        assert!(
            first.ends_with('…') && first.len() <= LINE_BYTES_MAX + '…'.len_utf8(),
            "{}",
            first.len()
        );
        assert_eq!(lines.next(), Some("next"));
    }

    #[test]
    fn the_head_and_the_tail_of_long_output_are_kept() {
        let mut output = Output::default();
        output.push(b"first\n");
        for _ in 0..1000 {
            output.push("middle of the output\n".repeat(50).as_bytes());
        }
        output.push(b"last\n");
        let total = output.total();
        let text = output.into_text();
        assert!(text.starts_with("first\n") && text.ends_with("last\n"));
        assert!(text.contains(&format!("… {} bytes omitted\n", total - 2 * KEPT_BYTES as u64)));
        assert!(text.len() < 2 * KEPT_BYTES + 100);
    }

    #[test]
    fn a_key_at_a_cut_is_not_shown_in_part() {
        const KEY: &str = "canary-of-output-7f3a9c2b";
        graphrun_guard::redact::learn(KEY);
        for before in KEPT_BYTES - KEY.len()..=KEPT_BYTES {
            let mut output = Output::default();
            output.push("x".repeat(before - 1).as_bytes());
            output.push(format!("\n{KEY}").as_bytes());
            output.push("-".repeat(3 * KEPT_BYTES).as_bytes());
            output.push(KEY.as_bytes());
            output.push("y".repeat(before - 1).as_bytes());
            let text = output.into_text();
            assert!(!text.contains(&KEY[..8]) && !text.contains(&KEY[KEY.len() - 8..]), "{before}");
        }
        let line = clean_part(
            format!("{}{KEY}", "x".repeat(LINE_BYTES_MAX - 12)).as_bytes(),
            Cut { start: false, end: false },
        );
        assert!(!line.contains(&KEY[..8]), "{line}");
    }

    #[test]
    fn output_that_fits_is_not_cut() {
        let mut output = Output::default();
        let text = "é\n".repeat(40_000);
        for chunk in text.as_bytes().chunks(777) {
            output.push(chunk);
        }
        assert_eq!(output.into_text(), text);
    }
}
