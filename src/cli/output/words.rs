//! Formats numbers, durations and external text for people.

use std::borrow::Cow;

pub(crate) use graphrun_core::words::{count, quoted_list, usd};

use super::visible::{is_hidden, visible};
use crate::event::Usage;

/// The longest external text in one line, in characters.
const CHARACTERS_MAX: usize = 400;

/// Returns an external text as one line without control characters; a long text is truncated.
///
/// Models and providers write these texts: an escape sequence in one must not reach the terminal.
pub(crate) fn clean(text: &str) -> String {
    clean_to(text, CHARACTERS_MAX)
}

/// Returns an external text as [`clean`] does, with at most this many characters.
pub(crate) fn clean_to(text: &str, characters_max: usize) -> String {
    let mut line = String::new();
    let mut characters = 0;
    for character in console::strip_ansi_codes(text).trim().chars() {
        let shown = match character {
            '\n' | '\t' | '\r' => ' ',
            it if is_hidden(it) => continue,
            it => it,
        };
        if shown == ' ' && line.ends_with(' ') {
            continue;
        }
        if characters == characters_max {
            line.push('…');
            break;
        }
        characters += 1;
        line.push(shown);
    }
    line
}

/// Returns an external text as one line, whole, with every control and invisible character as an escape.
///
/// For a text that a person reads before models get it: both read the same.
pub(crate) fn escaped(text: &str) -> String {
    visible(text, false).trim().replace(['\n', '\t'], " ")
}

/// Returns alternatives as a list: `a`, `a or b`, `a, b or c`.
pub(crate) fn alternatives(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// Returns a duration with a precision that suits people.
pub(crate) fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms} ms"),
        1..60 => format!("{seconds}.{} s", ms % 1000 / 100),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Returns the elapsed time in a form of constant width.
pub(crate) fn clock(ms: u64) -> String {
    if ms < 60_000 { format!("{}.{} s", ms / 1000, ms % 1000 / 100) } else { duration(ms) }
}

/// Returns a shortened number of tokens.
pub(crate) fn tokens(number: u64) -> String {
    match number {
        0..1_000 => count(number, "token"),
        1_000..1_000_000 => format!("{}.{}k tokens", number / 1_000, number % 1_000 / 100),
        _ => format!("{}.{}M tokens", number / 1_000_000, number % 1_000_000 / 100_000),
    }
}

/// Returns a cost in US dollars. An unknown cost is never shown as zero.
pub(crate) fn cost(usd: Option<f64>) -> String {
    match usd {
        None => "cost ?".to_owned(),
        Some(usd) if usd > 0.0 && usd < 0.0001 => "<$0.0001".to_owned(),
        Some(usd) if usd > 0.0 && usd < 1.0 => format!("${usd:.4}"),
        Some(usd) => format!("${usd:.2}"),
    }
}

/// Returns the usage of models; none if none was called.
pub(crate) fn tokens_and_cost(usage: &Usage) -> Option<String> {
    (usage.tokens.calls > 0)
        .then(|| format!("{}, {}", tokens(usage.total_tokens()), cost(usage.cost_usd)))
}

/// Returns a text as one shell word.
pub(crate) fn shell_word(text: &str) -> Cow<'_, str> {
    let plain = |it: char| it.is_ascii_alphanumeric() || "_-./:=@%+,".contains(it);
    if !text.is_empty() && text.chars().all(plain) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
    }
}

/// Returns rows as aligned columns; the last column keeps its width.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|it| console::measure_text_width(it)).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let padding = width.saturating_sub(console::measure_text_width(cell)) + 2;
            line += cell;
            line.extend(std::iter::repeat_n(' ', padding));
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_of_others_cannot_move_the_cursor() {
        let hostile = "a\u{1b}[2Jb\r\nc\u{7}\u{9b}1m\u{202e}d";
        assert_eq!(clean(hostile), "ab cd");
        assert_eq!(clean(&"x".repeat(500)).chars().count(), CHARACTERS_MAX + 1);
    }

    #[test]
    fn numbers_are_shown_in_human_units() {
        let times = [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_250, "1.2 s"),
            (59_999, "59.9 s"),
            (125_000, "2 min 05 s"),
            (3_720_000, "1 h 02 min"),
        ];
        for (ms, expected) in times {
            assert_eq!(duration(ms), expected);
        }
        let many = [
            (1, "1 token"),
            (999, "999 tokens"),
            (1_250, "1.2k tokens"),
            (2_500_000, "2.5M tokens"),
        ];
        for (number, expected) in many {
            assert_eq!(tokens(number), expected);
        }
    }

    #[test]
    fn an_unknown_cost_is_never_shown_as_nothing() {
        let tokens = json!({"input_tokens": 1_000, "output_tokens": 500, "calls": 2});
        let tokens = serde_json::from_value(tokens).unwrap();
        let shown = |cost_usd| tokens_and_cost(&Usage { tokens, cost_usd });
        assert_eq!(shown(None).unwrap(), "1.5k tokens, cost ?");
        assert_eq!(shown(Some(0.0312)).unwrap(), "1.5k tokens, $0.0312");
        assert_eq!(shown(Some(12.5)).unwrap(), "1.5k tokens, $12.50");
        assert_eq!(tokens_and_cost(&Usage::default()), None);
    }

    #[test]
    fn a_shell_reads_a_word_as_it_was_meant() {
        let cases = [
            ("sqlite:a/b.db", "sqlite:a/b.db"),
            ("a b", "'a b'"),
            ("", "''"),
            (r#""it's""#, r#"'"it'\''s"'"#),
            ("$HOME", "'$HOME'"),
        ];
        for (text, expected) in cases {
            assert_eq!(shell_word(text), expected);
        }
    }

    #[test]
    fn columns_align_with_any_colour() {
        let red = "\u{1b}[31mbad\u{1b}[0m".to_owned();
        let rows =
            [vec!["a".into(), red, "x".into()], vec!["long".into(), "ok".into(), "y".into()]];
        let text = table(&rows);
        assert_eq!(console::strip_ansi_codes(&text), "a     bad  x\nlong  ok   y\n");
    }
}
