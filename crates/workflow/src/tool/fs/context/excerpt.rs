//! The parts of a long file that tell the most: its beginning, and the lines around its matches.

use std::{cmp::Reverse, fmt::Write as _};

use graphrun_core::{usage::TokenUsage, words::count};

use super::rank::QueryWords;

/// The lines at the beginning, where a file names its purpose and its imports.
const BEGINNING_LINES: usize = 30;
/// The lines shown on each side of a match.
const AROUND_LINES: usize = 6;
/// The most characters of a line.
const LINE_CHARACTERS_MAX: usize = 400;
/// The characters of a line that stands for lines that were left out, at most.
const GAP_CHARACTERS: usize = "[18446744073709551615 lines left out]\n".len();

/// Returns an excerpt of a text of at most this many tokens, by our estimate.
pub(super) fn of(text: &str, words: &QueryWords, tokens_max: u64) -> String {
    let lines: Vec<String> =
        text.lines().map(|it| it.chars().take(LINE_CHARACTERS_MAX).collect()).collect();
    let mut matches: Vec<_> = lines
        .iter()
        .enumerate()
        .filter_map(|(at, line)| Some((Reverse(words.count_in(line)), at)).filter(|it| it.0.0 > 0))
        .collect();
    matches.sort();
    let mut excerpt =
        Excerpt { is_shown: vec![false; lines.len()], lines: &lines, characters: 0, tokens_max };
    excerpt.show(0..BEGINNING_LINES.min(lines.len()));
    for (_, at) in matches {
        excerpt.show(at.saturating_sub(AROUND_LINES)..(at + AROUND_LINES + 1).min(lines.len()));
    }
    // The rest of the room belongs to the beginning.
    excerpt.show(0..lines.len());
    excerpt.text()
}

struct Excerpt<'a> {
    lines: &'a [String],
    is_shown: Vec<bool>,
    /// The characters of the shown lines, and of a gap beside each part.
    characters: usize,
    tokens_max: u64,
}

impl Excerpt<'_> {
    /// Shows as many of these lines as there is room for.
    fn show(&mut self, part: std::ops::Range<usize>) {
        let mut opens_part = true;
        for at in part {
            if self.is_shown[at] {
                continue;
            }
            // A part may have a gap on both sides.
            let gaps = if opens_part { 2 * GAP_CHARACTERS } else { 0 };
            let characters = self.characters + self.lines[at].chars().count() + 1 + gaps;
            if TokenUsage::estimate(characters, 0).input_tokens > self.tokens_max {
                return;
            }
            (self.characters, self.is_shown[at], opens_part) = (characters, true, false);
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut left_out = 0;
        let gap = |text: &mut String, left_out: usize| {
            if left_out > 0 {
                let lines = count(left_out as u64, "line");
                writeln!(text, "[{lines} left out]").expect("a text can be written");
            }
        };
        for (line, is_shown) in self.lines.iter().zip(&self.is_shown) {
            if !is_shown {
                left_out += 1;
                continue;
            }
            gap(&mut text, std::mem::take(&mut left_out));
            text += line;
            text.push('\n');
        }
        gap(&mut text, left_out);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_tells_how_many_lines_it_has() {
        let lines: Vec<String> = ["a", "b", "c", "d", "e"].map(str::to_owned).into();
        let shown = |is_shown: [bool; 5]| {
            Excerpt { lines: &lines, is_shown: is_shown.into(), characters: 0, tokens_max: 9 }
                .text()
        };
        assert_eq!(
            shown([true, false, true, false, false]),
            "a\n[1 line left out]\nc\n[2 lines left out]\n"
        );
    }
}
