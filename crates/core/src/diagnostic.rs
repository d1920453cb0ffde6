//! The mistakes of a workflow's author: each with a code, a span, a message and a fix.
//!
//! A check does not stop at its first diagnostic; it adds the diagnostic to a [`Diagnostics`] and
//! continues. The caller draws them.

mod codes;

use std::{fmt, ops::Range, sync::Arc};

pub use self::codes::{CODES, Code};

/// A text that spans point into: a workflow, a prompt.
#[derive(Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// The path or other name it is shown under.
    pub name: String,
    /// The whole text.
    pub text: String,
}

/// A range of bytes in a source file.
#[derive(Clone, PartialEq, Eq)]
pub struct SourceSpan {
    /// The file.
    pub file: Arc<SourceFile>,
    /// The bytes.
    pub range: Range<usize>,
}

impl SourceSpan {
    /// Returns the line and the column of the first byte, both counted from one; columns are characters.
    pub fn line_and_column(&self) -> (usize, usize) {
        self.position(self.range.start)
    }

    /// Returns the line and the column behind the last character that is no white space.
    ///
    /// A YAML block ends where the next one begins, which may be lines below.
    pub fn end_line_and_column(&self) -> (usize, usize) {
        let marked = self.file.text.get(self.range.clone()).unwrap_or_default();
        self.position(self.range.start + marked.trim_end().len())
    }

    fn position(&self, at: usize) -> (usize, usize) {
        let before = self.file.text.get(..at).unwrap_or(&self.file.text);
        let line = before.matches('\n').count() + 1;
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (line, before[line_start..].chars().count() + 1)
    }
}

impl fmt::Debug for SourceSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.line_and_column();
        write!(f, "{}:{line}:{column}", self.file.name)
    }
}

/// How bad a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Right as it is, unless something else was meant; never fails a check.
    Hint,
    /// Worth a look; the workflow runs.
    Warning,
    /// The workflow does not load.
    Error,
}

/// A marked span with a few words about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Where.
    pub span: SourceSpan,
    /// The text of the label.
    pub text: String,
}

/// One diagnostic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The stable code, such as `GR010`; its meaning never changes.
    pub code: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The problem, in one line.
    pub message: String,
    /// The spans, the most important first; none for a graph built in Rust.
    pub labels: Vec<Label>,
    /// What to do about it.
    pub help: Option<String>,
}

impl Diagnostic {
    /// A diagnostic that keeps the workflow from loading.
    pub fn error(code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, severity: Severity::Error, message, labels: Vec::new(), help: None }
    }

    /// A diagnostic that is worth a look.
    pub fn warning(code: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, message) }
    }

    /// A diagnostic about something that is right, unless something else was meant.
    pub fn hint(code: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Hint, ..Self::error(code, message) }
    }

    /// Adds a label at a span, if there is one.
    #[must_use]
    pub fn at(mut self, span: Option<SourceSpan>, text: impl Into<String>) -> Self {
        self.labels.extend(span.map(|span| Label { span, text: text.into() }));
        self
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// Every diagnostic of a set of checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// Adds a diagnostic.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }

    /// Adds the diagnostics of another check.
    pub fn extend(&mut self, diagnostics: impl IntoIterator<Item = Diagnostic>) {
        self.0.extend(diagnostics);
    }

    /// Returns whether a diagnostic keeps the workflow from loading.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|it| it.severity == Severity::Error)
    }

    /// How many diagnostics have a severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.0.iter().filter(|it| it.severity == severity).count()
    }

    /// Returns whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the diagnostics in the order of their places; those without one come first.
    pub fn in_order(&self) -> Vec<&Diagnostic> {
        let mut diagnostics: Vec<&Diagnostic> = self.0.iter().collect();
        diagnostics.sort_by_key(|diagnostic| {
            let span = diagnostic.labels.first().map(|label| &label.span);
            (span.map(|it| &it.file.name), span.map(|it| it.range.start), diagnostic.code)
        });
        diagnostics
    }

    /// Returns the value and the warnings if there is no error, else every diagnostic.
    ///
    /// # Errors
    ///
    /// Gives the diagnostics back when one of them is an error.
    pub fn or_ok<T>(self, value: T) -> Result<(T, Self), Self> {
        if self.has_errors() { Err(self) } else { Ok((value, self)) }
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        Self(vec![diagnostic])
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, diagnostic) in self.in_order().into_iter().enumerate() {
            let separator = if at == 0 { "" } else { "\n" };
            write!(f, "{separator}{}: {}", diagnostic.code, diagnostic.message)?;
            if let Some(label) = diagnostic.labels.first() {
                write!(f, "\n  at {:?}: {}", label.span, label.text)?;
            }
            if let Some(help) = &diagnostic.help {
                write!(f, "\n  help: {help}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// Longer words, in bytes, are compared with nothing.
const WORD_BYTES_MAX: usize = 64;
/// More candidates are not compared with a word: a file may have thousands of both.
const CANDIDATES_MAX: usize = 200;

/// Returns the candidate nearest to a misspelt word, if one is near enough to be meant.
pub fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // A distance takes time in proportion to the product of both lengths.
    let is_short = |it: &&str| it.len().max(word.len()) <= WORD_BYTES_MAX;
    candidates
        .into_iter()
        .filter(is_short)
        .take(CANDIDATES_MAX)
        .map(|it| {
            // The case of the letters is one difference.
            let is_same = it.eq_ignore_ascii_case(word);
            let distance = strsim::damerau_levenshtein(word, it);
            (if is_same { distance.min(1) } else { distance }, it)
        })
        .filter(|(distance, it)| {
            let longer = it.len().max(word.len());
            // Half of a short word is alike; other words of one letter are not.
            let is_alike = distance * 2 <= longer || it.eq_ignore_ascii_case(word);
            is_alike && *distance <= 1 + longer / 4
        })
        .min()
        .map(|(_, it)| it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagnostics_are_shown_in_the_order_of_the_file() {
        let file = Arc::new(SourceFile { name: "w.yaml".into(), text: "a: 1\nbé: 2\n".into() });
        let span = |range| Some(SourceSpan { file: Arc::clone(&file), range });
        let mut diagnostics = Diagnostics::default();
        diagnostics
            .push(Diagnostic::error("GR002", "second").at(span(9..10), "here").help("mend it"));
        diagnostics.push(Diagnostic::warning("GR001", "first").at(span(0..1), "there"));
        insta::assert_snapshot!(diagnostics, @r"
        GR001: first
          at w.yaml:1:1: there
        GR002: second
          at w.yaml:2:4: here
          help: mend it
        ");
        assert_eq!([Severity::Error, Severity::Warning].map(|it| diagnostics.count(it)), [1, 1]);
    }

    #[test]
    fn a_suggestion_is_like_the_word() {
        let near = |word| did_you_mean(word, ["b", "ok", "score", "résumé"]);
        for (word, suggested) in [
            ("x", None),
            ("B", Some("b")),
            ("bb", Some("b")),
            ("on", Some("ok")),
            ("up", None),
            ("socre", Some("score")),
            ("sc", None),
            ("resumé", Some("résumé")),
        ] {
            assert_eq!(near(word), suggested, "{word}");
        }
    }

    #[test]
    fn a_place_ends_where_its_text_does() {
        let file =
            Arc::new(SourceFile { name: "w.yaml".into(), text: "a:\n  é: 2\n\nb: 1".into() });
        let end = |range| SourceSpan { file: Arc::clone(&file), range }.end_line_and_column();
        assert_eq!(end(0..1), (1, 2));
        assert_eq!(end(5..12), (2, 7), "not at `b`, where the block ends for YAML");
        assert_eq!(end(5..5), (2, 3));
        assert_eq!(end(13..99), (4, 2), "a range that is no text ends where it begins");
    }

    #[test]
    fn a_suggestion_is_near_or_absent() {
        assert_eq!(did_you_mean("majr", ["minor", "major"]), Some("major"));
        assert_eq!(did_you_mean("publish", ["qa", "tl"]), None);
    }
}
