//! Diagnostics as workflow commands of GitHub Actions, which become annotations beside the lines.
//!
//! A command is one line, `::error file=…,line=…::message`; see "Workflow commands for GitHub
//! Actions" in GitHub's documentation.

use std::path::Path;

use super::{CheckedWorkflow, advice, seen_from};
use crate::diagnostic::{Diagnostic, Severity};

/// Returns a command for each diagnostic, with paths relative to a folder.
pub(crate) fn commands(checked: &[CheckedWorkflow], folder: &Path) -> String {
    let mut text = String::new();
    for CheckedWorkflow { workflow, diagnostics } in checked {
        for diagnostic in diagnostics.in_order() {
            text += &command(diagnostic, workflow, folder);
            text.push('\n');
        }
    }
    text
}

fn command(diagnostic: &Diagnostic, workflow: &Path, folder: &Path) -> String {
    let kind = match diagnostic.severity {
        Severity::Hint => "notice",
        Severity::Warning => "warning",
        Severity::Error => "error",
    };
    let span = diagnostic.labels.first().map(|it| &it.span);
    let file = span.map_or(workflow, |it| Path::new(&it.file.name));
    let mut properties = vec![("file", seen_from(folder, file))];
    if let Some(span) = span {
        let (line, column) = span.line_and_column();
        let (end_line, end_column) = span.end_line_and_column();
        properties.extend([("line", line.to_string()), ("endLine", end_line.to_string())]);
        // GitHub accepts columns only within one line.
        if line == end_line {
            properties.extend([("col", column.to_string()), ("endColumn", end_column.to_string())]);
        }
    }
    properties.push(("title", diagnostic.code.to_owned()));
    let property = |(name, value): &(&str, String)| format!("{name}={}", escaped_property(value));
    let properties: Vec<String> = properties.iter().map(property).collect();
    format!("::{kind} {}::{}", properties.join(","), escaped(&advice(diagnostic)))
}

/// Escapes a text so that it cannot end the line. The percent sign comes first, since the other
/// escapes contain it.
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes a text so that it cannot end its property either.
fn escaped_property(text: &str) -> String {
    escaped(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        cli::output::diagnostics::tests::checked,
        diagnostic::{Diagnostics, SourceFile, SourceSpan},
    };

    #[test]
    fn a_diagnostic_is_one_line_with_its_place() {
        insta::assert_snapshot!(commands(&[checked()], Path::new("/repo")), @r"
        ::warning file=team.yaml,title=GR018::the agent `ba` is not used
        ::error file=team.yaml,line=3,endLine=3,col=11,endColumn=17,title=GR010::there is no node `publsh`%0Adid you mean `publish`?
        ");
    }

    #[test]
    fn no_text_can_end_the_line_or_its_property() {
        let file =
            Arc::new(SourceFile { name: "a,b:c%\n::error::x.yaml".into(), text: "a\nb".into() });
        let mut diagnostics = Diagnostics::default();
        diagnostics.push(
            Diagnostic::error("GR001", "100%: a, b")
                .at(Some(SourceSpan { file, range: 0..3 }), "")
                .help("first\r\n::stop-commands::x"),
        );
        let checked = CheckedWorkflow { workflow: "team.yaml".into(), diagnostics };
        insta::assert_snapshot!(
            commands(&[checked], Path::new("/repo")),
            @"::error file=a%2Cb%3Ac%25%0A%3A%3Aerror%3A%3Ax.yaml,line=1,endLine=2,title=GR001::100%25: a, b%0Afirst ::stop-commands::x"
        );
    }
}
