//! Draws findings: the source line with a marker, the other places, what to do; or as JSON.

use std::{fmt, path::Path};

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};
use serde::Serialize;

use super::{terminal::Paint, words::clean};
use crate::diagnostic::{Diagnostic, Diagnostics, Label, Place, Severity};

/// Drawings wider than this are harder to read, not easier.
const COLUMNS_MAX: usize = 120;

/// Draws every finding in the order of its place; nothing if there is none.
pub(super) fn draw(findings: &Diagnostics, paint: Paint, columns: usize) -> String {
    let theme = if paint.is_enabled() {
        GraphicalTheme::unicode()
    } else {
        GraphicalTheme::unicode_nocolor()
    };
    let handler = GraphicalReportHandler::new_themed(theme)
        .with_width(columns.min(COLUMNS_MAX))
        .with_links(false);
    let mut text = String::new();
    for finding in findings.in_order() {
        let before = text.len();
        if handler.render_report(&mut text, &Drawn::new(finding)).is_err() {
            // A place outside its file cannot be drawn; what was found still can be said.
            text.truncate(before);
            text.extend([finding.code, ": ", &finding.message, "\n"]);
        }
        text.push('\n');
    }
    text
}

/// One finding as a program reads it.
#[derive(Debug, Serialize)]
pub(super) struct Finding {
    code: &'static str,
    severity: &'static str,
    message: String,
    file: String,
    line: Option<usize>,
    column: Option<usize>,
    help: Option<String>,
}

impl Finding {
    /// Every finding of a file, in the order of its place.
    pub(super) fn all(findings: &Diagnostics, path: &Path) -> Vec<Self> {
        findings.in_order().into_iter().map(|it| Self::new(it, path)).collect()
    }

    fn new(finding: &Diagnostic, path: &Path) -> Self {
        let place = finding.labels.first().map(|it| &it.place);
        let (line, column) = place.map(Place::line_and_column).unzip();
        Self {
            code: finding.code,
            severity: match finding.severity {
                Severity::Warning => "warning",
                Severity::Error => "error",
            },
            message: finding.message.clone(),
            file: place.map_or_else(|| path.display().to_string(), |it| it.file.name.clone()),
            line,
            column,
            help: finding.help.clone(),
        }
    }
}

/// A finding in the form that miette draws.
struct Drawn<'a> {
    finding: &'a Diagnostic,
    source: Option<NamedSource<String>>,
}

impl<'a> Drawn<'a> {
    fn new(finding: &'a Diagnostic) -> Self {
        let file = finding.labels.first().map(|it| &it.place.file);
        let source = file.map(|it| NamedSource::new(&it.name, it.text.clone()));
        Self { finding, source }
    }

    /// Whether a place is in the file that is shown; there is room for one.
    fn is_shown(&self, label: &Label) -> bool {
        let first = self.finding.labels.first();
        first.is_some_and(|it| it.place.file.name == label.place.file.name)
    }
}

impl miette::Diagnostic for Drawn<'_> {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.finding.code))
    }

    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.finding.severity {
            Severity::Warning => miette::Severity::Warning,
            Severity::Error => miette::Severity::Error,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        let elsewhere = self.finding.labels.iter().filter(|it| !self.is_shown(it));
        let places = elsewhere.map(|it| format!("see {:?}: {}", it.place, it.text));
        let lines: Vec<String> = self.finding.help.iter().cloned().chain(places).collect();
        (!lines.is_empty()).then(|| Box::new(lines.join("\n")) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.source.as_ref().map(|it| it as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let shown = self.finding.labels.iter().filter(|it| self.is_shown(it));
        let spans = shown
            .map(|it| LabeledSpan::new_with_span(Some(clean(&it.text)), it.place.range.clone()));
        Some(Box::new(spans))
    }
}

impl std::error::Error for Drawn<'_> {}

impl fmt::Display for Drawn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&clean(&self.finding.message))
    }
}

impl fmt::Debug for Drawn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::{ops::Range, sync::Arc};

    use super::*;
    use crate::diagnostic::SourceFile;

    fn findings() -> Diagnostics {
        let text = "nodes:\n  qa:\n    then: publsh\n  publish: {}\n";
        let file = Arc::new(SourceFile { name: "team.yaml".into(), text: text.into() });
        let prompt = Arc::new(SourceFile { name: "qa.md".into(), text: "Hello\n".into() });
        let at = |file: &Arc<SourceFile>, range: Range<usize>| {
            Some(Place { file: Arc::clone(file), range })
        };
        let mut findings = Diagnostics::default();
        findings.push(
            Diagnostic::error("GR010", "there is no node `publsh`")
                .at(at(&file, 24..30), "leads nowhere")
                .at(at(&file, 33..40), "this one is near")
                .at(at(&prompt, 0..5), "the prompt")
                .help("did you mean `publish`?"),
        );
        findings.push(Diagnostic::warning("GR018", "the agent `ba` is not used"));
        findings
    }

    #[test]
    fn a_finding_is_drawn_at_its_place() {
        insta::assert_snapshot!(draw(&findings(), Paint::new(false), 80));
    }

    #[test]
    fn colours_add_nothing_but_colours() {
        let painted = draw(&findings(), Paint::new(true), 80);
        assert_ne!(painted, draw(&findings(), Paint::new(false), 80));
        assert_eq!(
            console::strip_ansi_codes(&painted),
            draw(&findings(), Paint::new(false), 80).as_str()
        );
    }

    #[test]
    fn a_place_outside_its_file_still_has_its_message() {
        let file = Arc::new(SourceFile { name: "a.yaml".into(), text: "a".into() });
        let mut findings = Diagnostics::default();
        let place = Some(Place { file, range: 7..9 });
        findings.push(Diagnostic::error("GR001", "out of range").at(place, "here"));
        assert!(draw(&findings, Paint::new(false), 80).contains("out of range"));
    }

    #[test]
    fn programs_read_findings_with_their_places() {
        let list = Finding::all(&findings(), Path::new("team.yaml"));
        insta::assert_snapshot!(serde_json::to_string_pretty(&list).unwrap());
    }
}
