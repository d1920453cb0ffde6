//! Splits an expression into tokens.

use std::ops::Range;

use crate::problem::Problem;

/// The longest expression, in bytes.
const LENGTH_MAX: usize = 4096;

/// The symbols, longer ones first.
const SYMBOLS: &[&str] = &[
    "||", "&&", "==", "!=", "<=", ">=", "<", ">", "!", "+", "-", "*", "/", "%", "?", ":", "(", ")",
    "[", "]", "{", "}", ",", ".",
];

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Int(i64),
    Float(f64),
    Text(String),
    Name(String),
    Symbol(&'static str),
    End,
}

/// A text in quotes in an expression that may be incomplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotedText {
    /// The bytes, with the quotes. A text without an end reaches to the end of the expression.
    pub range: Range<usize>,
    /// Whether it has an end.
    pub is_closed: bool,
}

impl QuotedText {
    /// Returns the bytes between the quotes.
    pub fn inside(&self) -> Range<usize> {
        self.range.start + 1..self.range.end - usize::from(self.is_closed)
    }
}

/// Returns the texts in quotes of an expression that may be incomplete: for editors.
///
/// ```
/// use graphrun_expressions::quoted_texts;
///
/// let source = r#"a == "it's \"b\"" && c == 'd"#;
/// let texts: Vec<&str> = quoted_texts(source).map(|it| &source[it.inside()]).collect();
/// assert_eq!(texts, [r#"it's \"b\""#, "d"]);
/// ```
pub fn quoted_texts(source: &str) -> impl Iterator<Item = QuotedText> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + source[at..].find(['"', '\''])?;
        let end = text_end(source, start);
        at = end.unwrap_or(source.len());
        Some(QuotedText { range: start..at, is_closed: end.is_some() })
    })
}

/// Returns the tokens with their bytes; the last one is [`Token::End`].
pub(super) fn tokens(source: &str) -> Result<Vec<(Token, Range<usize>)>, Problem> {
    if source.len() > LENGTH_MAX {
        let message = format!("an expression has at most {LENGTH_MAX} bytes");
        return Err(Problem::new("GR020", 0..source.len(), message, "too long"));
    }
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(next) = source[at..].chars().next() {
        if next.is_whitespace() {
            at += next.len_utf8();
            continue;
        }
        let (token, length) = match next {
            '0'..='9' => number(source, at)?,
            '"' | '\'' => text(source, at)?,
            _ if next.is_alphabetic() || next == '_' => {
                let length = length_while(&source[at..], |it| it.is_alphanumeric() || it == '_');
                (Token::Name(source[at..at + length].to_owned()), length)
            }
            _ => symbol(source, at, next)?,
        };
        tokens.push((token, at..at + length));
        at += length;
    }
    tokens.push((Token::End, at..at));
    Ok(tokens)
}

fn number(source: &str, at: usize) -> Result<(Token, usize), Problem> {
    let digits = |from: usize| length_while(&source[from..], |it| it.is_ascii_digit());
    let mut length = digits(at);
    let mut whole = true;
    if source[at + length..].starts_with('.') && digits(at + length + 1) > 0 {
        whole = false;
        length += 1 + digits(at + length + 1);
    }
    let exponent = &source[at + length..];
    if let Some(exponent) = exponent.strip_prefix(['e', 'E']) {
        let sign = usize::from(exponent.starts_with(['+', '-']));
        let power = digits(at + length + 1 + sign);
        if power > 0 {
            whole = false;
            length += 1 + sign + power;
        }
    }
    let written = &source[at..at + length];
    let token = if whole {
        written.parse().ok().map(Token::Int)
    } else {
        written.parse().ok().filter(|it: &f64| it.is_finite()).map(Token::Float)
    };
    match token {
        Some(token) => Ok((token, length)),
        None => Err(problem(at..at + length, "the number is too large", "too large")),
    }
}

fn text(source: &str, at: usize) -> Result<(Token, usize), Problem> {
    let Some(end) = text_end(source, at) else {
        return Err(problem(at..source.len(), "the text has no end", "starts here"));
    };
    let mut text = String::new();
    let mut inside = source[at + 1..end - 1].char_indices();
    while let Some((offset, next)) = inside.next() {
        if next != '\\' {
            text.push(next);
            continue;
        }
        match inside.next() {
            Some((_, 'n')) => text.push('\n'),
            Some((_, 't')) => text.push('\t'),
            Some((_, plain @ ('\\' | '"' | '\''))) => text.push(plain),
            _ => {
                let range = at + 1 + offset..at + 2 + offset;
                let message = r#"after `\` comes one of `n`, `t`, `\`, `"`, `'`"#;
                return Err(problem(range, message, "not an escape"));
            }
        }
    }
    Ok((Token::Text(text), end - at))
}

/// Returns the offset behind the text that begins with the quote at an offset; `None` if it has no end.
fn text_end(source: &str, at: usize) -> Option<usize> {
    let mut rest = source[at..].char_indices();
    let (_, quote) = rest.next()?;
    while let Some((offset, next)) = rest.next() {
        match next {
            '\\' => drop(rest.next()),
            _ if next == quote => return Some(at + offset + 1),
            _ => (),
        }
    }
    None
}

fn symbol(source: &str, at: usize, next: char) -> Result<(Token, usize), Problem> {
    if ["{{", "{%"].iter().any(|it| source[at..].starts_with(it)) {
        let found = problem(at..at + 2, "an expression is not a template", "starts here");
        let help = match of_template(source) {
            Some(sum) => format!("write `{sum}`, or let a node with `render` make the text"),
            None => "remove the braces; a record is written `{ field: value }`".to_owned(),
        };
        return Err(found.help(help));
    }
    if let Some(symbol) = SYMBOLS.iter().find(|it| source[at..].starts_with(**it)) {
        return Ok((Token::Symbol(symbol), symbol.len()));
    }
    let message = format!("`{next}` has no meaning in an expression");
    let found = Problem::new("GR020", at..at + next.len_utf8(), message, "not understood");
    Err(match next {
        '=' => found.help("equality is `==`"),
        '&' => found.help("and is `&&`"),
        '|' => found.help("or is `||`"),
        '\u{201c}'..='\u{201f}' | '\u{2018}'..='\u{201b}' | '«' | '»' => {
            found.help("a text stands in straight quotes: `\"text\"`")
        }
        '$' => found.help("a field is written by its name alone, as in `review.verdict`"),
        _ => found,
    })
}

/// Returns the sum of texts that a template with a text around its values stands for.
fn of_template(source: &str) -> Option<String> {
    let mut parts = Vec::new();
    let mut rest = source.trim();
    while let Some((text, more)) = rest.split_once("{{") {
        let (value, after) = more.split_once("}}")?;
        parts.extend((!text.is_empty()).then(|| format!("\"{text}\"")));
        parts.push(value.trim().to_owned());
        rest = after;
    }
    parts.extend((!rest.is_empty()).then(|| format!("\"{rest}\"")));
    let is_plain = !source.contains(['"', '\'', '\\']) && !source.contains("{%");
    (parts.len() > 1 && is_plain).then(|| parts.join(" + "))
}

fn length_while(text: &str, fits: impl Fn(char) -> bool) -> usize {
    text.find(|it| !fits(it)).unwrap_or(text.len())
}

fn problem(range: Range<usize>, message: &str, label: &str) -> Problem {
    Problem::new("GR020", range, message, label)
}
