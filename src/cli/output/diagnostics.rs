//! Prints diagnostics: the source line with a marker, the other labels, the help; or as JSON.
//!
//! The modules `sarif` and `github` print formats of other tools.

pub(crate) mod github;
pub(crate) mod sarif;

use std::{
    fmt,
    path::{Component, MAIN_SEPARATOR_STR, Path, PathBuf},
};

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};
use serde::Serialize;

use super::{
    terminal::{Paint, columns, print_message},
    words::clean,
};
use crate::diagnostic::{Diagnostic, Diagnostics, Label, Severity, SourceSpan};

/// Wider drawings are harder to read.
const COLUMNS_MAX: usize = 120;

/// Longer lines are not drawn: the marker would be hard to find.
const LINE_LENGTH_MAX: usize = 2_000;

/// The result of checking a workflow.
#[derive(Debug)]
pub(crate) struct CheckedWorkflow {
    /// The path of the workflow.
    pub(crate) workflow: PathBuf,
    /// The diagnostics, including those of its prompts.
    pub(crate) diagnostics: Diagnostics,
}

/// Draws every diagnostic in source order; an empty text if there is none.
pub(crate) fn draw(diagnostics: &Diagnostics, paint: Paint, columns: usize) -> String {
    let theme = if paint.is_enabled() {
        GraphicalTheme::unicode()
    } else {
        GraphicalTheme::unicode_nocolor()
    };
    let handler = GraphicalReportHandler::new_themed(theme)
        .with_width(columns.min(COLUMNS_MAX))
        .with_links(false);
    let mut text = String::new();
    for diagnostic in diagnostics.in_order() {
        let before = text.len();
        if handler.render_report(&mut text, &DrawnDiagnostic::new(diagnostic)).is_err() {
            // A label outside of its file cannot be drawn; the message is still printed.
            text.truncate(before);
            text.extend([diagnostic.code, ": ", &diagnostic.message, "\n"]);
        }
        text.push('\n');
    }
    text
}

/// Returns where to read more about the diagnostics, if there are any.
pub(crate) fn hint<'a>(diagnostics: impl IntoIterator<Item = &'a Diagnostics>) -> Option<String> {
    let first = diagnostics.into_iter().flat_map(Diagnostics::in_order).next()?;
    Some(format!("every code is explained: `graphrun explain {}`", first.code))
}

/// Prints the warnings of a workflow.
pub(crate) fn print_warnings(warnings: &Diagnostics, paint: Paint) {
    if let Some(hint) = hint([warnings]) {
        let drawn = draw(warnings, paint, columns());
        print_message(&format!("{drawn}{} {hint}", paint.command("help:")));
    }
}

/// Returns the problem and the help, one line each.
pub(crate) fn advice(diagnostic: &Diagnostic) -> String {
    let lines: Vec<String> = [Some(&diagnostic.message), diagnostic.help.as_ref()]
        .into_iter()
        .flatten()
        .map(|it| clean(it))
        .collect();
    lines.join("\n")
}

/// Returns the path of a file relative to a folder, with `/` between its parts; a file elsewhere
/// keeps its whole path.
pub(crate) fn seen_from(folder: &Path, file: &Path) -> String {
    let mut whole = PathBuf::new();
    for part in folder.join(file).components() {
        match part {
            Component::CurDir => (),
            Component::ParentDir => drop(whole.pop()),
            _ => whole.push(part),
        }
    }
    let path = whole.strip_prefix(folder).unwrap_or(&whole);
    path.display().to_string().replace(MAIN_SEPARATOR_STR, "/")
}

/// A diagnostic as JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    code: &'static str,
    severity: &'static str,
    message: String,
    file: String,
    line: Option<usize>,
    column: Option<usize>,
    help: Option<String>,
}

impl Finding {
    /// Returns all diagnostics, those of each workflow in source order.
    pub(crate) fn all(checked: &[CheckedWorkflow]) -> Vec<Self> {
        let diagnostics = checked.iter().flat_map(|CheckedWorkflow { workflow, diagnostics }| {
            diagnostics.in_order().into_iter().map(|it| Self::new(it, workflow))
        });
        diagnostics.collect()
    }

    fn new(diagnostic: &Diagnostic, path: &Path) -> Self {
        let span = diagnostic.labels.first().map(|it| &it.span);
        let (line, column) = span.map(SourceSpan::line_and_column).unzip();
        Self {
            code: diagnostic.code,
            severity: match diagnostic.severity {
                Severity::Hint => "hint",
                Severity::Warning => "warning",
                Severity::Error => "error",
            },
            message: diagnostic.message.clone(),
            file: span.map_or_else(|| path.display().to_string(), |it| it.file.name.clone()),
            line,
            column,
            help: diagnostic.help.clone(),
        }
    }
}

/// A diagnostic in the form that miette draws.
struct DrawnDiagnostic<'a> {
    diagnostic: &'a Diagnostic,
    source: Option<NamedSource<String>>,
}

impl<'a> DrawnDiagnostic<'a> {
    fn new(diagnostic: &'a Diagnostic) -> Self {
        let can_be_drawn = diagnostic.labels.iter().all(|it| stands_in_short_lines(&it.span));
        let file = diagnostic.labels.first().map(|it| &it.span.file).filter(|_| can_be_drawn);
        let source = file.map(|it| NamedSource::new(&it.name, it.text.clone()));
        Self { diagnostic, source }
    }

    /// Returns whether a label is in the drawn file; a drawing has only one file.
    fn is_shown(&self, label: &Label) -> bool {
        let first = self.diagnostic.labels.first().filter(|_| self.source.is_some());
        first.is_some_and(|it| it.span.file.name == label.span.file.name)
    }
}

/// Returns whether the lines of a label and their neighbours, which are drawn as well, are short
/// enough.
fn stands_in_short_lines(SourceSpan { file, range }: &SourceSpan) -> bool {
    let text = &file.text;
    let (Some(before), Some(after)) = (text.get(..range.start), text.get(range.end..)) else {
        return true;
    };
    let start = before.rmatch_indices('\n').nth(1).map_or(0, |(at, _)| at);
    let end = after.match_indices('\n').nth(1).map_or(text.len(), |(at, _)| range.end + at);
    text[start..end].lines().all(|it| it.len() <= LINE_LENGTH_MAX)
}

impl miette::Diagnostic for DrawnDiagnostic<'_> {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.diagnostic.code))
    }

    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.diagnostic.severity {
            Severity::Hint => miette::Severity::Advice,
            Severity::Warning => miette::Severity::Warning,
            Severity::Error => miette::Severity::Error,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        let elsewhere = self.diagnostic.labels.iter().filter(|it| !self.is_shown(it));
        let spans = elsewhere.map(|it| format!("see {:?}: {}", it.span, it.text));
        let lines: Vec<String> = self.diagnostic.help.iter().cloned().chain(spans).collect();
        (!lines.is_empty()).then(|| Box::new(lines.join("\n")) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.source.as_ref().map(|it| it as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let shown = self.diagnostic.labels.iter().filter(|it| self.is_shown(it));
        let spans = shown.map(|label| {
            LabeledSpan::new_with_span(Some(clean(&label.text)), label.span.range.clone())
        });
        Some(Box::new(spans))
    }
}

impl std::error::Error for DrawnDiagnostic<'_> {}

impl fmt::Display for DrawnDiagnostic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&clean(&self.diagnostic.message))
    }
}

impl fmt::Debug for DrawnDiagnostic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::{ops::Range, sync::Arc};

    use super::*;
    use crate::diagnostic::SourceFile;

    /// Errors and warnings, with labels in two files and without any.
    pub(super) fn checked() -> CheckedWorkflow {
        CheckedWorkflow { workflow: "team.yaml".into(), diagnostics: diagnostics() }
    }

    fn diagnostics() -> Diagnostics {
        let text = "nodes:\n  qa:\n    then: publsh\n  publish: {}\n";
        let file = Arc::new(SourceFile { name: "team.yaml".into(), text: text.into() });
        let prompt = Arc::new(SourceFile { name: "qa.md".into(), text: "Hello\n".into() });
        let at = |file: &Arc<SourceFile>, range: Range<usize>| {
            Some(SourceSpan { file: Arc::clone(file), range })
        };
        let mut diagnostics = Diagnostics::default();
        diagnostics.push(
            Diagnostic::error("GR010", "there is no node `publsh`")
                .at(at(&file, 23..29), "leads nowhere")
                .at(at(&file, 32..39), "this one is near")
                .at(at(&prompt, 0..5), "the prompt")
                .help("did you mean `publish`?"),
        );
        diagnostics.push(Diagnostic::warning("GR018", "the agent `ba` is not used"));
        diagnostics
    }

    #[test]
    fn a_diagnostic_is_drawn_at_its_place() {
        insta::assert_snapshot!(draw(&diagnostics(), Paint::new(false), 80));
    }

    #[test]
    fn colours_add_nothing_but_colours() {
        let painted = draw(&diagnostics(), Paint::new(true), 80);
        assert_ne!(painted, draw(&diagnostics(), Paint::new(false), 80));
        assert_eq!(
            console::strip_ansi_codes(&painted),
            draw(&diagnostics(), Paint::new(false), 80).as_str()
        );
    }

    #[test]
    fn a_place_outside_its_file_still_has_its_message() {
        let file = Arc::new(SourceFile { name: "a.yaml".into(), text: "a".into() });
        let mut diagnostics = Diagnostics::default();
        let span = Some(SourceSpan { file, range: 7..9 });
        diagnostics.push(Diagnostic::error("GR001", "out of range").at(span, "here"));
        assert!(draw(&diagnostics, Paint::new(false), 80).contains("out of range"));
    }

    #[test]
    fn a_place_in_a_line_that_is_too_long_is_named() {
        let text = format!("{{ \"then\": \"publsh\", \"about\": \"{}\" }}\n", "x".repeat(9_999));
        let file = Arc::new(SourceFile { name: "team.json".into(), text });
        let span = Some(SourceSpan { file, range: 11..17 });
        let mut diagnostics = Diagnostics::default();
        diagnostics
            .push(Diagnostic::error("GR010", "there is no such node").at(span, "leads nowhere"));
        let drawn = draw(&diagnostics, Paint::new(false), 80);
        assert!(drawn.contains("help: see team.json:1:12: leads nowhere"), "{drawn}");
        assert!(drawn.len() < 200, "{drawn}");
    }

    #[test]
    fn a_path_is_seen_from_the_folder_it_is_below() {
        let cases = [
            ("team.yaml", "team.yaml"),
            ("./graphs//team.yaml", "graphs/team.yaml"),
            ("graphs/../prompts/qa.md", "prompts/qa.md"),
            ("/repo/graphs/team.yaml", "graphs/team.yaml"),
            ("../repo/team.yaml", "team.yaml"),
            ("../other/team.yaml", "/other/team.yaml"),
            ("/repository/team.yaml", "/repository/team.yaml"),
        ];
        for (file, expected) in cases {
            assert_eq!(seen_from(Path::new("/repo"), Path::new(file)), expected, "{file}");
        }
        assert_eq!(seen_from(Path::new(""), Path::new("./team.yaml")), "team.yaml");
    }

    #[test]
    fn programs_read_diagnostics_with_their_places() {
        let list = Finding::all(&[checked()]);
        insta::assert_snapshot!(serde_json::to_string_pretty(&list).unwrap());
    }
}
