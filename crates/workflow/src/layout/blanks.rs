//! Blanks at the ends of lines in block texts (`|`, `>`): they belong to the text, and the layout would drop them. While
//! it works, a character that the file has nowhere stands in the place of each.

use std::fmt::Write as _;

use yaml_parser::{SyntaxElement, SyntaxError, SyntaxKind, SyntaxToken, parse};

/// A text in which other characters stand for the blanks that must stay.
pub(super) struct Guarded {
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

impl Guarded {
    /// Puts other characters in the places of the blanks that must stay.
    pub(super) fn new(text: &str) -> Result<Self, SyntaxError> {
        // The characters of this range are for private use, so a text hardly has them.
        let mut free = ('\u{f0000}'..='\u{f00ff}').filter(|it| !text.contains(*it));
        let mut next = || free.next().unwrap_or('\u{f0000}');
        let stand_ins = StandIns { space: next(), tab: next(), empty: next() };
        let mut guarded = String::with_capacity(text.len());
        let mut copied = 0;
        for block in block_texts(text)? {
            guarded.push_str(&text[copied..block.start]);
            for line in text[block.start..block.end].split_inclusive('\n') {
                stand_ins.put_line(line, &block, &mut guarded);
            }
            copied = block.end;
        }
        guarded.push_str(&text[copied..]);
        Ok(Self { text: guarded, stand_ins })
    }

    /// Returns a text that was made from the guarded one, with the blanks again.
    pub(super) fn restore(&self, laid_out: &str) -> String {
        let StandIns { space, tab, empty } = self.stand_ins;
        let mut restored = String::with_capacity(laid_out.len());
        for char in laid_out.chars() {
            match char {
                it if it == space => restored.push(' '),
                it if it == tab => restored.push('\t'),
                it if it == empty => restored.truncate(restored.trim_end_matches(' ').len()),
                it => restored.push(it),
            }
        }
        restored
    }
}

impl StandIns {
    /// Puts one line of a block into a text.
    fn put_line(self, line: &str, block: &BlockText, into: &mut String) {
        let content = line.trim_end_matches(['\n', '\r']);
        let line_end = &line[content.len()..];
        let text = content.trim_end_matches([' ', '\t']);
        let is_blank = text.is_empty();
        let first = if is_blank { block.indent.min(content.len()) } else { text.len() };
        into.push_str(&content[..first]);
        for blank in content[first..].chars() {
            into.push(if blank == '\t' { self.tab } else { self.space });
        }
        if is_blank && content.len() <= block.indent && block.keeps_line_ends {
            into.truncate(into.len() - first);
            let _ = write!(into, "{:indent$}{}", "", self.empty, indent = block.indent);
        }
        into.push_str(line_end);
    }
}

/// The lines of a block text, from the end of its first line on.
struct BlockText {
    start: usize,
    end: usize,
    /// The number of spaces before each line.
    indent: usize,
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
    let indent = first.len() - first.trim_start_matches(' ').len();
    let header = token.parent()?;
    let has = |kind: SyntaxKind| header.children_with_tokens().any(|it| it.kind() == kind);
    if has(SyntaxKind::INDENT_INDICATOR) {
        return None; // The layout leaves such a text as it is.
    }
    let keeps_line_ends = header
        .children()
        .any(|it| it.kind() == SyntaxKind::CHOMPING_INDICATOR && it.to_string() == "+");
    Some(BlockText { start, end, indent, keeps_line_ends })
}
