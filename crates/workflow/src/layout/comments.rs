//! The columns of comments behind values: the layout puts each one behind its value, and comments of neighbouring
//! lines that stood in one column stay in one column.

use yaml_parser::{SyntaxElement, SyntaxError, SyntaxKind, parse};

/// A comment behind a value.
struct TrailingComment<'t> {
    /// Its first byte in the text.
    at: usize,
    /// The number of its line.
    line: usize,
    /// Its column, in characters.
    column: usize,
    /// The end of the value before it, in characters.
    end_of_value: usize,
    text: &'t str,
}

/// Returns a laid-out text in which the comments have the common columns that they had before.
pub(super) fn keep_columns(before: &str, laid_out: &str) -> Result<String, SyntaxError> {
    let old = trailing_comments(before)?;
    let new = trailing_comments(laid_out)?;
    let is_same = old.len() == new.len() && old.iter().zip(&new).all(|(a, b)| a.text == b.text);
    if !is_same {
        return Ok(laid_out.to_owned());
    }
    let mut aligned = String::with_capacity(laid_out.len());
    let mut copied = 0;
    let mut first = 0;
    while first < new.len() {
        let is_with_next = |at: &usize| {
            let next = at + 1;
            next < new.len()
                && old[next].line == old[*at].line + 1
                && old[next].column == old[*at].column
                && new[next].line == new[*at].line + 1
        };
        let last = (first..new.len()).find(|at| !is_with_next(at)).unwrap_or(first);
        let group = &new[first..=last];
        let column = group.iter().map(|it| it.end_of_value + 1).max().unwrap_or_default();
        for comment in group {
            aligned.push_str(&laid_out[copied..comment.at]);
            aligned.extend(std::iter::repeat_n(' ', column.saturating_sub(comment.column)));
            copied = comment.at;
        }
        first = last + 1;
    }
    aligned.push_str(&laid_out[copied..]);
    Ok(aligned)
}

/// Returns the comments behind values, in the order of the text.
fn trailing_comments(text: &str) -> Result<Vec<TrailingComment<'_>>, SyntaxError> {
    let tokens = parse(text)?.descendants_with_tokens().filter_map(SyntaxElement::into_token);
    let mut found = Vec::new();
    let mut line = 0;
    let mut counted = 0;
    for token in tokens.filter(|it| it.kind() == SyntaxKind::COMMENT) {
        let range = token.text_range();
        let at = usize::from(range.start());
        let end = usize::from(range.end());
        line += text[counted..at].matches('\n').count();
        counted = at;
        let start = text[..at].rfind('\n').map_or(0, |it| it + 1);
        let value = &text[start..at];
        let end_of_value = value.trim_end().chars().count();
        if end_of_value > 0 {
            let column = value.chars().count();
            let text = text[at..end].trim_end();
            found.push(TrailingComment { at, line, column, end_of_value, text });
        }
    }
    Ok(found)
}
