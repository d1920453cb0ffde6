//! Collects the diagnostics of one load, and what the file refers to.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use graphrun_core::{
    diagnostic::{Diagnostic, Diagnostics, Severity, SourceFile, SourceSpan},
    graph::Target,
    id::NodeName,
};
use graphrun_expressions::problem::{Problem, suggestion};
use graphrun_guard::data_limit::DataLimitReached;

use super::references::References;

/// The most diagnostics that are reported; a file with more mistakes is probably not a workflow.
pub(crate) const DIAGNOSTICS_MAX: usize = 500;

/// The diagnostics about one workflow file and its prompts.
#[derive(Debug)]
pub struct Report {
    pub(crate) file: Arc<SourceFile>,
    diagnostics: Diagnostics,
    /// The reported diagnostics with their places, so that a prompt shared by nodes is reported once.
    reported: BTreeSet<(&'static str, String, usize, String)>,
    /// The positions of repeated keys.
    pub(crate) repeated: BTreeSet<usize>,
    /// The names of fields that are reported as invalid, so that their uses are not reported too.
    refused: BTreeSet<String>,
    /// What the file refers to.
    pub(crate) references: References,
}

/// Something that was read.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    pub(crate) value: T,
    /// Whether an error was reported meanwhile.
    pub(crate) has_error: bool,
}

impl Report {
    pub(crate) fn new(file: Arc<SourceFile>) -> Self {
        Self {
            file,
            diagnostics: Diagnostics::default(),
            reported: BTreeSet::new(),
            repeated: BTreeSet::new(),
            refused: BTreeSet::new(),
            references: References::default(),
        }
    }

    /// Returns the place of some bytes of the workflow file.
    pub fn span(&self, range: &Range<usize>) -> Option<SourceSpan> {
        Some(SourceSpan { file: Arc::clone(&self.file), range: range.clone() })
    }

    /// Adds a diagnostic, once.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        let (name, start) = match diagnostic.labels.first() {
            Some(label) => (label.span.file.name.clone(), label.span.range.start),
            None => (String::new(), 0),
        };
        let is_use = matches!(diagnostic.code, "GR021" | "GR041");
        let names = |it: &String| diagnostic.message.ends_with(&format!("`{it}`"));
        if is_use && self.refused.iter().any(names) {
            return;
        }
        let new = !self.is_full()
            && self.reported.insert((diagnostic.code, name, start, diagnostic.message.clone()));
        if new {
            self.diagnostics.push(diagnostic);
        }
    }

    pub(crate) fn extend(&mut self, diagnostics: impl IntoIterator<Item = Diagnostic>) {
        diagnostics.into_iter().for_each(|it| self.push(it));
    }

    pub(crate) fn push_problem(&mut self, problem: Problem, span: Option<SourceSpan>) {
        let Problem { code, range: _, message, label, mut help, gap, is_warning } = problem;
        let diagnostic = if is_warning { Diagnostic::warning } else { Diagnostic::error };
        let mut diagnostic = diagnostic(code, message).at(span, label);
        if let Some(gap) = gap {
            diagnostic = diagnostic.at(self.span(&gap.span), gap.text);
            if let (Some(help), Some(more)) = (&mut help, gap.help) {
                help.push_str("; ");
                help.push_str(&more);
            }
        }
        self.push(Diagnostic { help, ..diagnostic });
    }

    /// Reports an unknown name, with the nearest known one.
    pub fn unknown<'n>(
        &mut self,
        code: &'static str,
        kind: &str,
        word: &super::reader::SpannedText,
        known: impl IntoIterator<Item = &'n str>,
    ) {
        if self.is_full() {
            // A suggestion for each dropped diagnostic would take time for nothing.
            return;
        }
        let help = suggestion(&word.text, known).unwrap_or_else(|| match kind {
            "model" => {
                let name = &word.text;
                format!("declare it: `models: {{ {name}: PROVIDER/MODEL }}`")
            }
            _ => format!("this workflow declares no {kind}"),
        });
        let message = format!("there is no {kind} `{}`", word.text);
        self.push(
            Diagnostic::error(code, message)
                .at(self.span(&word.range), format!("no such {kind}"))
                .help(help),
        );
    }

    /// Returns the node of a target; `end` and `fail` are reported.
    pub(crate) fn only_node(
        &mut self,
        word: &super::reader::SpannedText,
        target: Target,
        message: &str,
        help: &str,
    ) -> Option<NodeName> {
        match target {
            Target::Node(node) => Some(node),
            Target::End | Target::Fail => {
                self.bad_value(word, message, help);
                None
            }
        }
    }

    /// Reports a value above a limit; `what` is the subject of the message.
    pub(crate) fn push_limit(&mut self, what: &str, reached: &DataLimitReached, at: &Range<usize>) {
        let diagnostic = Diagnostic::error("GR055", format!("{what} is {reached}"));
        self.push(diagnostic.at(self.span(at), "the limit is reached here"));
    }

    /// Records that the name of a field is invalid, which is reported.
    pub(crate) fn refuse_name(&mut self, name: &str) {
        self.refused.insert(name.to_owned());
    }

    /// Returns whether further diagnostics are dropped.
    fn is_full(&self) -> bool {
        self.reported.len() >= DIAGNOSTICS_MAX
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.diagnostics.has_errors()
    }

    /// Reads something, and notes whether that reports an error.
    pub(crate) fn watch<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> Watched<T> {
        let errors_before = self.diagnostics.count(Severity::Error);
        let value = read(self);
        Watched { value, has_error: self.diagnostics.count(Severity::Error) > errors_before }
    }

    pub(crate) fn into_diagnostics(self) -> Diagnostics {
        self.diagnostics
    }
}
