//! The open documents of the editor, and their diagnostics.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    grammar::{Grammar, Role, role},
    positions::LineIndex,
    protocol::{self, Location, PublishDiagnostics, Related},
    uri,
};
use crate::{
    compile::{CompiledGraph, compile},
    diagnostic::{Diagnostic, Diagnostics, Label, Place, Severity, SourceFile},
    nodes::{self, Services},
    state::Schema,
    workflow::{
        Buffers, FileKind, Outline, Part, Registry, Step, Workflow, case_file::Draft, source_paths,
        survey,
    },
};

/// The open documents.
#[derive(Debug)]
pub(super) struct Workspace {
    registry: Registry,
    grammar: Grammar,
    /// The documents by URI, as the client writes it.
    documents: BTreeMap<String, Document>,
    /// The diagnostics that were published last.
    published: BTreeMap<String, Vec<protocol::Diagnostic>>,
}

#[derive(Debug)]
struct Document {
    text: Arc<str>,
    version: i64,
    /// `None` if it is not a file, such as a new document without a name.
    path: Option<PathBuf>,
    /// The fields of the last state that could be parsed; unfinished edits may break the current
    /// one.
    state: Option<Schema>,
}

/// A snapshot of a document.
pub(super) struct DocumentView<'w> {
    pub(super) uri: &'w str,
    pub(super) text: &'w str,
    pub(super) path: Option<&'w Path>,
    pub(super) state: Option<&'w Schema>,
    pub(super) registry: &'w Registry,
    pub(super) grammar: &'w Grammar,
    pub(super) outline: Outline,
    pub(super) lines: LineIndex<'w>,
}

/// The name at a position in a document.
pub(super) struct Spot {
    /// The path to the value; for a key, the path to its value.
    pub(super) path: Vec<Step>,
    /// Its byte range in the text.
    pub(super) range: std::ops::Range<usize>,
    /// The kind of name.
    pub(super) role: Option<Role>,
}

impl Workspace {
    pub(super) fn new(registry: Registry) -> Self {
        let (documents, published) = (BTreeMap::new(), BTreeMap::new());
        Self { grammar: Grammar::new(&registry), registry, documents, published }
    }

    /// Sets the text of an opened or changed document.
    pub(super) fn set(&mut self, uri: String, version: i64, text: String) {
        let state = self.documents.remove(&uri).and_then(|it| it.state);
        let path = uri::to_path(&uri);
        self.documents.insert(uri, Document { text: text.into(), version, path, state });
    }

    pub(super) fn close(&mut self, uri: &str) {
        self.documents.remove(uri);
    }

    /// Returns a snapshot of an open document.
    pub(super) fn view(&self, uri: &str) -> Option<DocumentView<'_>> {
        let (uri, document) = self.documents.get_key_value(uri)?;
        Some(DocumentView {
            uri,
            text: &document.text,
            path: document.path.as_deref(),
            state: document.state.as_ref(),
            registry: &self.registry,
            grammar: &self.grammar,
            outline: Outline::of(&document.text),
            lines: LineIndex::new(&document.text),
        })
    }

    /// Checks all open workflows; returns the diagnostics that the client does not have yet.
    ///
    /// It checks all of them, because they share prompts; a check takes milliseconds.
    pub(super) fn check(&mut self) -> Vec<PublishDiagnostics> {
        let buffers: Buffers = self.open_texts().into_iter().collect();
        let mut found: BTreeMap<String, Vec<protocol::Diagnostic>> = BTreeMap::new();
        let kind = |uri: &String| Some((uri.clone(), self.kind_of(uri)?));
        let ours: Vec<(String, FileKind)> = self.documents.keys().filter_map(kind).collect();
        for (uri, kind) in ours {
            found.entry(uri.clone()).or_default();
            for finding in self.check_one(&uri, kind, &buffers) {
                let (at, diagnostic) = self.published_form(&uri, &finding);
                let list = found.entry(at).or_default();
                // Two workflows may share a prompt that is invalid for both.
                if !list.contains(&diagnostic) {
                    list.push(diagnostic);
                }
            }
        }
        for known in self.published.keys() {
            found.entry(known.clone()).or_default();
        }
        let news = found.iter().filter(|(uri, list)| self.published.get(*uri) != Some(*list));
        let news = news.map(|(uri, list)| PublishDiagnostics {
            uri: uri.clone(),
            version: self.documents.get(uri).map(|it| it.version),
            diagnostics: list.clone(),
        });
        let news = news.collect();
        let is_of_interest =
            |uri: &String, list: &mut Vec<_>| !list.is_empty() || self.documents.contains_key(uri);
        found.retain(is_of_interest);
        self.published = found;
        news
    }

    /// Returns the kind of a document; `None` if it is a file of another program, which an editor may open, too.
    fn kind_of(&self, uri: &str) -> Option<FileKind> {
        let document = self.documents.get(uri)?;
        if let Some(path) = &document.path {
            path.extension().filter(|it| *it == "yaml" || *it == "yml")?;
        }
        FileKind::of(&document.text)
    }

    /// Returns the diagnostics that were published last for a document.
    pub(super) fn published(&self, uri: &str) -> &[protocol::Diagnostic] {
        self.published.get(uri).map_or(&[], Vec::as_slice)
    }

    /// Returns the diagnostics that a document would have with another text.
    pub(super) fn check_text(
        &self,
        view: &DocumentView<'_>,
        text: &str,
    ) -> Vec<protocol::Diagnostic> {
        let path = view.path.unwrap_or(Path::new(view.uri));
        let mut buffers = self.open_texts();
        buffers.insert(path.to_owned(), text.into());
        let buffers = buffers.into_iter().collect();
        let findings = match self.kind_of(view.uri) {
            Some(FileKind::Cases) => self.check_cases(path, text, &buffers),
            _ => self.check_workflow(path, text, &buffers).1,
        };
        let all = findings.in_order().into_iter().map(|it| self.published_form(view.uri, it));
        all.filter(|(uri, _)| uri == view.uri).map(|(_, it)| it).collect()
    }

    /// Returns the URI and the text of a prompt that a workflow names.
    pub(super) fn prompt(
        &self,
        view: &DocumentView<'_>,
        relative: &Path,
    ) -> Option<(String, Arc<str>)> {
        let paths = source_paths(view.folder()?, relative);
        paths.iter().find_map(|path| {
            let uri = self.uri_of(path);
            let open = self.documents.get(&uri).map(|it| Arc::clone(&it.text));
            let text = open.or_else(|| Some(fs::read_to_string(path).ok()?.into()))?;
            Some((uri, text))
        })
    }

    /// Returns the open workflow that names a document as a prompt, and the path to that name in it.
    pub(super) fn owner(&self, prompt: &DocumentView<'_>) -> Option<(DocumentView<'_>, Vec<Step>)> {
        let path = prompt.path?;
        let is_workflow = |uri: &&String| self.kind_of(uri) == Some(FileKind::Workflow);
        self.documents.keys().filter(is_workflow).find_map(|uri| {
            let view = self.view(uri)?;
            let names_it = |part: &&Part| {
                let role = view.grammar.at(&part.path).and_then(role);
                let word = part.value.clone().and_then(|it| view.text.get(it));
                let paths = || Some(source_paths(view.folder()?, word?.as_ref()));
                let paths: Option<Vec<PathBuf>> = paths();
                role == Some(Role::Prompt) && paths.is_some_and(|it| it.iter().any(|it| it == path))
            };
            let at = view.outline.parts().iter().find(names_it)?.path.clone();
            Some((view, at))
        })
    }

    /// Returns the texts of the open files.
    fn open_texts(&self) -> BTreeMap<PathBuf, Arc<str>> {
        let open = self.documents.values();
        open.filter_map(|it| Some((it.path.clone()?, Arc::clone(&it.text)))).collect()
    }

    /// Returns all diagnostics, as `graphrun validate` reports them.
    fn check_one(&mut self, uri: &str, kind: FileKind, buffers: &Buffers) -> Diagnostics {
        let Some(document) = self.documents.get(uri) else { return Diagnostics::default() };
        let path = document.path.clone().unwrap_or_else(|| PathBuf::from(uri));
        let text = Arc::clone(&document.text);
        match kind {
            FileKind::Cases => self.check_cases(&path, &text, buffers),
            FileKind::Workflow => {
                let (checked, findings) = self.check_workflow(&path, &text, buffers);
                let state = checked.map(|(workflow, _)| workflow.schema);
                if let Some(document) = self.documents.get_mut(uri).filter(|_| state.is_some()) {
                    document.state = state;
                }
                findings
            }
        }
    }

    /// Checks a workflow; returns it as far as it is valid, and its graph if it has no errors.
    fn check_workflow(
        &self,
        path: &Path,
        text: &str,
        buffers: &Buffers,
    ) -> (Option<(Workflow, Option<CompiledGraph>)>, Diagnostics) {
        let file = SourceFile { name: path.display().to_string(), text: text.to_owned() };
        let folder = path.parent().unwrap_or(Path::new(""));
        let (workflow, findings) = survey(Arc::new(file), folder, &self.registry, buffers);
        let Some(workflow) = workflow else { return (None, findings) };
        if findings.has_errors() {
            return (Some((workflow, None)), findings);
        }
        let factory = nodes::factory(Services::offline(), self.registry.clone());
        let (graph, mut more) = workflow.clone().into_graph(&factory);
        more.extend(findings);
        match compile((graph, more)) {
            Ok(compiled) => {
                let warnings = compiled.warnings().clone();
                (Some((workflow, Some(compiled))), warnings)
            }
            Err(findings) => (Some((workflow, None)), findings),
        }
    }

    /// Checks a file of test cases; the diagnostics of its workflow are published with that.
    fn check_cases(&self, path: &Path, text: &str, buffers: &Buffers) -> Diagnostics {
        let file = SourceFile { name: path.display().to_string(), text: text.to_owned() };
        let draft = Draft::of(path, Arc::new(file));
        if let Err(error) = draft.check_workflow() {
            return draft.without_workflow(&error.to_string());
        }
        let workflow = draft.workflow();
        let read = || fs::read_to_string(&workflow);
        let text = match buffers.get(&workflow).map_or_else(read, |it| Ok(it.to_owned())) {
            Ok(text) => text,
            Err(error) => return draft.without_workflow(&format!("it cannot be read: {error}")),
        };
        let (checked, findings) = self.check_workflow(&workflow, &text, buffers);
        let Some((workflow, Some(compiled))) = checked else {
            let errors = findings.count(Severity::Error);
            return draft.without_workflow(&format!("it has errors: {errors}"));
        };
        match draft.check(&workflow, compiled.graph()) {
            Ok((_, warnings)) => warnings,
            Err(findings) => findings,
        }
    }

    /// Converts a diagnostic into the form of the protocol; returns it with its document.
    fn published_form(
        &self,
        workflow: &str,
        finding: &Diagnostic,
    ) -> (String, protocol::Diagnostic) {
        let first = finding.labels.first();
        let location = first.map(|it| self.location(workflow, &it.place));
        let start = protocol::Position { line: 0, character: 0 };
        let location = location.unwrap_or_else(|| Location {
            uri: workflow.to_owned(),
            range: protocol::Range { start, end: start },
        });
        let help = finding.help.as_ref().map(|it| format!("\nhelp: {it}")).unwrap_or_default();
        let more = format!("\nmore: graphrun explain {}", finding.code);
        let message = format!("{}{help}{more}", finding.message);
        let related = |it: &Label| Related {
            location: self.location(workflow, &it.place),
            message: it.text.clone(),
        };
        let diagnostic = protocol::Diagnostic {
            range: location.range,
            severity: match finding.severity {
                Severity::Error => 1,
                Severity::Warning => 2,
                Severity::Hint => 4,
            },
            code: finding.code,
            source: "graphrun",
            message,
            related_information: finding.labels.iter().skip(1).map(related).collect(),
        };
        (location.uri, diagnostic)
    }

    fn location(&self, workflow: &str, place: &Place) -> Location {
        let marked = place.file.text.get(place.range.clone()).unwrap_or_default();
        // A YAML block ends where the next one starts, which may be several lines below.
        let end = place.range.start + marked.trim_end().len();
        let range = LineIndex::new(&place.file.text).range(&(place.range.start..end));
        let path = Path::new(&place.file.name);
        let is_it =
            |uri: &str| self.documents.get(uri).is_some_and(|it| it.path.as_deref() == Some(path));
        let uri = if is_it(workflow) || !path.is_absolute() {
            workflow.to_owned()
        } else {
            self.uri_of(path)
        };
        Location { uri, range }
    }

    /// Returns the URI of a file, as the client writes it if the file is open.
    pub(super) fn uri_of(&self, path: &Path) -> String {
        let mut open = self.documents.iter();
        let open = open.find(|(_, it)| it.path.as_deref() == Some(path));
        open.map_or_else(|| uri::of_path(path), |(uri, _)| uri.clone())
    }
}

impl DocumentView<'_> {
    /// Returns the name at an offset.
    pub(super) fn spot(&self, at: usize) -> Option<Spot> {
        let holds = |it: &std::ops::Range<usize>| it.start <= at && at <= it.end;
        self.outline.parts().iter().find_map(|part| {
            let key = part.key.clone().filter(holds);
            let path = part.path.clone();
            let role = match key {
                Some(_) => self.grammar.key_role(&path),
                None => self.grammar.at(&path).and_then(role),
            };
            let range = key.or_else(|| part.value.clone().filter(holds))?;
            Some(Spot { path, range, role })
        })
    }

    /// Returns the folder that paths in the workflow are relative to.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.path?.parent()
    }
}
