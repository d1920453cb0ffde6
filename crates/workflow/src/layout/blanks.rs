//! Blanks in block texts (`|`, `>`) that the layout would drop or misread: those at the ends of lines, and those that the
//! first line begins with. While it works, a character that the file has nowhere stands in the place of each.
//!
//! A text whose first line begins with blanks needs an indentation indicator (`|2`), which depends on the layout. So the
//! indicators are taken out, and put back where they are needed.

use std::{fmt::Write as _, ops::Range};

use yaml_parser::{SyntaxElement, SyntaxError, SyntaxKind, SyntaxNode, SyntaxToken, parse};

/// A text in which other characters stand for the blanks that must stay.
pub(super) struct GuardedText {
    pub(super) text: String,
    stand_ins: StandIns,
}

/// The characters that stand for blanks.
#[derive(Clone, Copy)]
struct StandIns {
    space: char,
    tab: char,
    /// The end of a line without text.
    empty: char,
}

impl GuardedText {
    /// Puts other characters in the places of the blanks that must stay.
    pub(super) fn new(text: &str) -> Result<Self, SyntaxError> {
        // The characters of this range are for private use, so a text hardly has them.
        let mut free = ('\u{f0000}'..='\u{f00ff}').filter(|it| !text.contains(*it));
        let mut next = || free.next().unwrap_or('\u{f0000}');
        let stand_ins = StandIns { space: next(), tab: next(), empty: next() };
        let mut guarded = String::with_capacity(text.len());
        let mut copied = 0;
        for block in block_texts(text)? {
            let indicator = block.indicator.clone().unwrap_or(block.start..block.start);
            guarded.push_str(&text[copied..indicator.start]);
            guarded.push_str(&text[indicator.end..block.start]);
            let mut is_first = true;
            for line in text[block.start..block.end].split_inclusive('\n') {
                stand_ins.put_line(line, &block, is_first, &mut guarded);
                is_first &= line.trim().is_empty();
            }
            copied = block.end;
        }
        guarded.push_str(&text[copied..]);
        Ok(Self { text: guarded, stand_ins })
    }

    /// Returns a text that was made from the guarded one, with the blanks and the indicators again.
    pub(super) fn restore(&self, laid_out: &str) -> Result<String, SyntaxError> {
        let mut restored = String::with_capacity(laid_out.len());
        let mut copied = 0;
        for block in block_texts(laid_out)? {
            let lines = &laid_out[block.start..block.end];
            if self.stand_ins.begin_with_space(lines) {
                self.stand_ins.restore(&laid_out[copied..block.header], &mut restored);
                let _ = write!(restored, "{}", block.indent - block.parent_indent);
                copied = block.header;
            }
        }
        self.stand_ins.restore(&laid_out[copied..], &mut restored);
        Ok(restored)
    }
}

/// Removes blanks from the lines in brackets that have nothing else, as the layout leaves them there.
pub(super) fn trim_empty_lines(text: &str) -> Result<String, SyntaxError> {
    if !text.lines().any(|it| it.starts_with([' ', '\t']) && it.trim().is_empty()) {
        return Ok(text.to_owned());
    }
    let mut trimmed = String::with_capacity(text.len());
    let mut depth = 0_usize;
    for token in parse(text)?.descendants_with_tokens().filter_map(SyntaxElement::into_token) {
        match token.kind() {
            SyntaxKind::L_BRACE | SyntaxKind::L_BRACKET => depth += 1,
            SyntaxKind::R_BRACE | SyntaxKind::R_BRACKET => depth = depth.saturating_sub(1),
            _ => {}
        }
        let is_between = token.kind() == SyntaxKind::WHITESPACE && depth > 0;
        let part = token.text();
        match part.rsplit_once('\n').filter(|_| is_between) {
            Some((lines, indentation)) => {
                for line in lines.split('\n') {
                    trimmed.push_str(line.trim_start_matches([' ', '\t']));
                    trimmed.push('\n');
                }
                trimmed.push_str(indentation);
            }
            None => trimmed.push_str(part),
        }
    }
    Ok(trimmed)
}

impl StandIns {
    /// Puts one line of a block into a text. `is_first` says that only empty lines are before it.
    fn put_line(self, line: &str, block: &BlockText, is_first: bool, into: &mut String) {
        let content = line.trim_end_matches(['\n', '\r']);
        let line_end = &line[content.len()..];
        let text = content.trim_end_matches([' ', '\t']);
        let is_blank = text.is_empty();
        let first = if is_blank { block.indent.min(content.len()) } else { text.len() };
        let spaces = content.len() - content.trim_start_matches(' ').len();
        let indent = block.indent.min(first).min(spaces);
        let inner = text.get(indent..).unwrap_or_default();
        let leading =
            if is_first { inner.len() - inner.trim_start_matches([' ', '\t']).len() } else { 0 };
        into.push_str(&content[..indent]);
        self.put_blanks(&content[indent..indent + leading], into);
        into.push_str(&content[indent + leading..first]);
        self.put_blanks(&content[first..], into);
        if is_blank && content.len() <= block.indent && block.keeps_line_ends {
            into.truncate(into.len() - first);
            let _ = write!(into, "{:indent$}{}", "", self.empty, indent = block.indent);
        }
        into.push_str(line_end);
    }

    fn put_blanks(self, blanks: &str, into: &mut String) {
        into.extend(blanks.chars().map(|it| if it == '\t' { self.tab } else { self.space }));
    }

    /// Returns whether the first line of a block that is not empty begins with a space, so that its indentation is not
    /// visible.
    fn begin_with_space(self, lines: &str) -> bool {
        let begins = lines.lines().map(|it| it.trim_start_matches(' '));
        let mut begins = begins.filter(|it| !it.is_empty() && !it.starts_with(self.empty));
        begins.next().is_some_and(|it| it.starts_with(self.space))
    }

    /// Puts a text into another one, with the blanks in the places of their stand-ins.
    fn restore(self, text: &str, into: &mut String) {
        for char in text.chars() {
            match char {
                it if it == self.space => into.push(' '),
                it if it == self.tab => into.push('\t'),
                it if it == self.empty => into.truncate(into.trim_end_matches(' ').len()),
                it => into.push(it),
            }
        }
    }
}

/// The lines of a block text, from the end of its first line on.
struct BlockText {
    start: usize,
    end: usize,
    /// The end of `|` or `>`, where an indicator can stand.
    header: usize,
    /// The indentation indicator.
    indicator: Option<Range<usize>>,
    /// The number of spaces before each line.
    indent: usize,
    /// The number of spaces before the entry that has the text.
    parent_indent: usize,
    /// Whether empty lines at its end belong to it (`|+`).
    keeps_line_ends: bool,
}

/// Returns the block texts of a file, in its order.
fn block_texts(text: &str) -> Result<Vec<BlockText>, SyntaxError> {
    let tokens = parse(text)?.descendants_with_tokens().filter_map(SyntaxElement::into_token);
    let texts = tokens.filter(|it| it.kind() == SyntaxKind::BLOCK_SCALAR_TEXT);
    Ok(texts.filter_map(|token| block_text(text, &token)).collect())
}

fn block_text(text: &str, token: &SyntaxToken) -> Option<BlockText> {
    let range = token.text_range();
    let start = text[usize::from(range.start())..].find('\n')? + usize::from(range.start()) + 1;
    // The empty lines behind the last line with text are no part of the token.
    let mut end = usize::from(range.end());
    for line in text[end..].split_inclusive('\n') {
        if !line.trim().is_empty() || !line.ends_with('\n') {
            break;
        }
        end += line.len();
    }
    let first = text[start..end].lines().find(|it| !it.trim().is_empty())?;
    let header = token.parent()?;
    let part = |kinds: &[SyntaxKind]| {
        let found =
            header.children_with_tokens().find(|it| kinds.contains(&it.kind()))?.text_range();
        Some(usize::from(found.start())..usize::from(found.end()))
    };
    let indicator = part(&[SyntaxKind::INDENT_INDICATOR]);
    let parent_indent = indent_around(text, &header)?;
    let indent = match &indicator {
        Some(it) => parent_indent + text[it.clone()].parse::<usize>().ok()?,
        None => first.len() - first.trim_start_matches(' ').len(),
    };
    let keeps_line_ends = header
        .children()
        .any(|it| it.kind() == SyntaxKind::CHOMPING_INDICATOR && it.to_string() == "+");
    let header = part(&[SyntaxKind::BAR, SyntaxKind::GREATER_THAN])?.end;
    Some(BlockText { start, end, header, indicator, indent, parent_indent, keeps_line_ends })
}

/// Returns the number of characters before the entry that has a block text; `None` if it is the whole file.
fn indent_around(text: &str, block: &SyntaxNode) -> Option<usize> {
    let is_entry = |node: &SyntaxNode| {
        matches!(node.kind(), SyntaxKind::BLOCK_MAP_ENTRY | SyntaxKind::BLOCK_SEQ_ENTRY)
    };
    let entry = block.ancestors().find(is_entry)?;
    let start = usize::from(entry.text_range().start());
    Some(start - text[..start].rfind('\n').map_or(0, |it| it + 1))
}
