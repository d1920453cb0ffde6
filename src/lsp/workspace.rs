//! The open documents of the editor, and their diagnostics.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    grammar::{Grammar, Role, role},
    positions::LineIndex,
    protocol::{self, Location, PublishDiagnostics, RelatedInformation},
    uri,
};
use crate::{
    beneath::{read_named, without_mark},
    compile::{CompiledGraph, compile},
    data_limit::DataLimit,
    diagnostic::{Diagnostic, Diagnostics, Label, Severity, SourceFile, SourceSpan},
    id::ChannelName,
    nodes::{self, Services},
    state::Schema,
    workflow::{
        Buffers, FileKind, Outline, Registry, Step, Workflow, case_file::Draft, source_paths,
        survey,
    },
};

/// The open documents.
#[derive(Debug)]
pub(super) struct Workspace {
    registry: Registry,
    grammar: Grammar,
    cases_grammar: Grammar,
    /// The documents by URI, as the client writes it.
    documents: BTreeMap<String, Document>,
    /// The workflows under test that are not open.
    on_disk: BTreeMap<String, Document>,
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
    /// The nodes of the used workflows that are a part of it; also of the last state that could be parsed.
    inner_nodes: Vec<String>,
    /// The workflow under test, if it is a file of test cases; also of the last state without errors.
    tested: Option<TestedWorkflow>,
}

/// The names that a file of test cases can use.
#[derive(Debug)]
pub(super) struct TestedWorkflow {
    /// The URI of the workflow.
    pub(super) uri: String,
    /// Its fields, those of used workflows among them.
    pub(super) schema: Schema,
    pub(super) input: Vec<String>,
    /// The nodes, each with the fields that it writes; `None` if that is not known.
    pub(super) nodes: BTreeMap<String, Option<Vec<String>>>,
}

/// A snapshot of a document.
pub(super) struct DocumentView<'w> {
    pub(super) uri: &'w str,
    pub(super) text: &'w str,
    pub(super) path: Option<&'w Path>,
    pub(super) state: Option<&'w Schema>,
    /// The nodes of the used workflows that are a part of it.
    pub(super) inner_nodes: &'w [String],
    pub(super) registry: &'w Registry,
    pub(super) grammar: &'w Grammar,
    /// Whether it is a file of test cases.
    pub(super) is_cases: bool,
    pub(super) tested: Option<&'w TestedWorkflow>,
    pub(super) outline: Outline,
    pub(super) lines: LineIndex<'w>,
}

impl Document {
    /// Returns whether it is a YAML file of another program, which an editor may open, too. A file without a key may
    /// become a workflow.
    fn is_foreign(&self) -> bool {
        let extension = self.path.as_ref().map(|it| it.extension().unwrap_or_default());
        let is_yaml = extension.is_none_or(|it| it == "yaml" || it == "yml");
        let is_entry = |it: &str| it.contains(':') && !it.starts_with(['#', ' ']);
        is_yaml && FileKind::of(&self.text).is_none() && self.text.lines().any(is_entry)
    }
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
        let documents = BTreeMap::new();
        let on_disk = BTreeMap::new();
        let published = BTreeMap::new();
        let grammar = Grammar::new(&registry);
        let cases_grammar = Grammar::of_cases();
        Self { registry, grammar, cases_grammar, documents, on_disk, published }
    }

    /// Sets the text of an opened or changed document.
    pub(super) fn set(&mut self, uri: String, version: i64, text: String) {
        let before = self.documents.remove(&uri);
        let path = uri::to_path(&uri);
        let text = text.into();
        let document = if let Some(before) = before {
            Document { text, version, path, ..before }
        } else {
            let state = None;
            let inner_nodes = Vec::new();
            let tested = None;
            Document { text, version, path, state, inner_nodes, tested }
        };
        self.documents.insert(uri, document);
    }

    pub(super) fn close(&mut self, uri: &str) {
        self.documents.remove(uri);
        let Self { documents, on_disk, .. } = self;
        let is_tested = |uri: &String| {
            documents.values().any(|view| view.tested.as_ref().is_some_and(|it| it.uri == *uri))
        };
        on_disk.retain(|uri, _| is_tested(uri));
    }

    /// Returns a snapshot of an open document, or of a workflow under test; `None` for a file of another program, too.
    pub(super) fn view(&self, uri: &str) -> Option<DocumentView<'_>> {
        let known = self.documents.get_key_value(uri);
        let (uri, document) = known.or_else(|| self.on_disk.get_key_value(uri))?;
        if document.is_foreign() {
            return None;
        }
        let is_cases = self.kind_of(uri) == Some(FileKind::Cases);
        Some(DocumentView {
            uri,
            text: &document.text,
            path: document.path.as_deref(),
            state: document.state.as_ref(),
            inner_nodes: &document.inner_nodes,
            registry: &self.registry,
            grammar: if is_cases { &self.cases_grammar } else { &self.grammar },
            is_cases,
            tested: document.tested.as_ref().filter(|_| is_cases),
            outline: Outline::of(&document.text),
            lines: LineIndex::new(&document.text),
        })
    }

    /// Returns the workflow that a file of test cases is for, with the fields of the workflows that it uses.
    pub(super) fn tested(&self, cases: &DocumentView<'_>) -> Option<DocumentView<'_>> {
        let tested = self.documents.get(cases.uri)?.tested.as_ref()?;
        let mut view = self.view(&tested.uri)?;
        view.state = Some(&tested.schema);
        Some(view)
    }

    /// Returns a snapshot of a workflow, which need not be open.
    pub(super) fn workflow_view<'w>(&'w self, path: &'w Path, text: &'w str) -> DocumentView<'w> {
        let view = self.cases_view("", text);
        DocumentView { path: Some(path), grammar: &self.grammar, is_cases: false, ..view }
    }

    /// Returns a snapshot of a file of test cases, which need not be open.
    pub(super) fn cases_view<'w>(&'w self, uri: &'w str, text: &'w str) -> DocumentView<'w> {
        DocumentView {
            uri,
            text,
            path: None,
            state: None,
            inner_nodes: &[],
            registry: &self.registry,
            grammar: &self.cases_grammar,
            is_cases: true,
            tested: None,
            outline: Outline::of(text),
            lines: LineIndex::new(text),
        }
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
            for diagnostic in self.check_one(&uri, kind, &buffers) {
                let (at, diagnostic) = self.published_form(&uri, &diagnostic);
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
        let document = self.documents.get(uri).or_else(|| self.on_disk.get(uri))?;
        if let Some(path) = &document.path {
            path.extension().filter(|it| *it == "yaml" || *it == "yml")?;
        }
        FileKind::of(&document.text)
    }

    /// Returns the diagnostics that were published last for a document.
    pub(super) fn published(&self, uri: &str) -> &[protocol::Diagnostic] {
        self.published.get(uri).map_or(&[], Vec::as_slice)
    }

    /// Returns the diagnostics that a document would have with other texts, of itself and of other files.
    pub(super) fn check_with(
        &self,
        view: &DocumentView<'_>,
        changed: BTreeMap<PathBuf, Arc<str>>,
    ) -> Vec<protocol::Diagnostic> {
        let all = self.check_all_with(view, changed).into_iter();
        all.filter(|(uri, _)| uri == view.uri).map(|(_, it)| it).collect()
    }

    /// Returns the same with those that it would have in other files, each with the file.
    pub(super) fn check_all_with(
        &self,
        view: &DocumentView<'_>,
        changed: BTreeMap<PathBuf, Arc<str>>,
    ) -> Vec<(String, protocol::Diagnostic)> {
        let path = view.path.unwrap_or(Path::new(view.uri));
        let text = changed.get(path).map_or_else(|| view.text.into(), Arc::clone);
        let mut buffers = self.open_texts();
        buffers.extend(changed);
        let buffers = buffers.into_iter().collect();
        let diagnostics = match self.kind_of(view.uri) {
            Some(FileKind::Cases) => self.check_cases(path, &text, &buffers).1,
            _ => self.check_workflow(path, &text, &buffers).1,
        };
        let all = diagnostics.in_order().into_iter().map(|it| self.published_form(view.uri, it));
        all.collect()
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
            let read = || read_named(path, DataLimit::FileBytes).ok();
            let text = open.or_else(|| Some(without_mark(read()?).into()))?;
            Some((uri, text))
        })
    }

    /// Returns the first open workflow with a document as a prompt, and the path of the prompt in it.
    pub(super) fn owner(&self, prompt: &DocumentView<'_>) -> Option<(DocumentView<'_>, Vec<Step>)> {
        let prompt = prompt.path?;
        let mut workflows =
            self.documents.keys().filter(|uri| self.kind_of(uri) == Some(FileKind::Workflow));
        workflows.find_map(|uri| {
            let view = self.view(uri)?;
            let folder = view.folder()?;
            let is_it = |it: &PathBuf| source_paths(folder, it).iter().any(|it| it == prompt);
            let at = view.prompts().into_iter().find(|(path, _)| is_it(path))?.1;
            Some((view, at))
        })
    }

    /// Returns the texts of the open files.
    pub(super) fn open_texts(&self) -> BTreeMap<PathBuf, Arc<str>> {
        let open = self.documents.values();
        open.filter_map(|it| Some((it.path.clone()?, Arc::clone(&it.text)))).collect()
    }

    /// Returns all diagnostics, as `graphrun validate` reports them.
    fn check_one(&mut self, uri: &str, kind: FileKind, buffers: &Buffers) -> Diagnostics {
        let Some(document) = self.documents.get(uri) else { return Diagnostics::default() };
        let path = document.path.clone().unwrap_or_else(|| PathBuf::from(uri));
        let text = Arc::clone(&document.text);
        match kind {
            FileKind::Cases => {
                let (tested, diagnostics) = self.check_cases(&path, &text, buffers);
                if let Some((tested, text)) = tested {
                    self.remember(uri, tested, text);
                }
                diagnostics
            }
            FileKind::Workflow => {
                let (checked, diagnostics) = self.check_workflow(&path, &text, buffers);
                if let Some((document, (workflow, _))) = self.documents.get_mut(uri).zip(checked) {
                    let inner = workflow.nodes.keys().filter(|it| it.scope().is_some());
                    document.inner_nodes = inner.map(ToString::to_string).collect();
                    document.state = Some(workflow.schema);
                }
                diagnostics
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
        let (workflow, diagnostics) = survey(Arc::new(file), folder, &self.registry, buffers);
        let Some(workflow) = workflow else { return (None, diagnostics) };
        if diagnostics.has_errors() {
            return (Some((workflow, None)), diagnostics);
        }
        let factory = nodes::factory(Services::offline(), self.registry.clone());
        let mut made = workflow.clone().into_graph(&factory);
        made.diagnostics.extend(diagnostics);
        match compile(made) {
            Ok(compiled) => {
                let warnings = compiled.warnings().clone();
                (Some((workflow, Some(compiled))), warnings)
            }
            Err(diagnostics) => (Some((workflow, None)), diagnostics),
        }
    }

    /// Remembers the workflow under test, and its text if it is not open.
    fn remember(&mut self, cases: &str, tested: TestedWorkflow, text: String) {
        if !self.documents.contains_key(&tested.uri) {
            let path = uri::to_path(&tested.uri);
            let state = Some(tested.schema.clone());
            let text = text.into();
            let inner_nodes = Vec::new();
            let document = Document { text, version: 0, path, state, inner_nodes, tested: None };
            self.on_disk.insert(tested.uri.clone(), document);
        }
        if let Some(document) = self.documents.get_mut(cases) {
            document.tested = Some(tested);
        }
    }

    /// Checks a file of test cases; the diagnostics of its workflow are published with that. Returns the workflow with its
    /// text, if it has no errors.
    fn check_cases(
        &self,
        path: &Path,
        text: &str,
        buffers: &Buffers,
    ) -> (Option<(TestedWorkflow, String)>, Diagnostics) {
        let file = SourceFile { name: path.display().to_string(), text: text.to_owned() };
        let draft = Draft::of(path, Arc::new(file));
        if let Err(error) = draft.check_workflow() {
            return (None, draft.without_workflow(&error.to_string()));
        }
        let workflow = draft.workflow();
        let uri = self.uri_of(&workflow);
        let read = || read_named(&workflow, DataLimit::FileBytes).map(without_mark);
        let text = match buffers.get(&workflow).map_or_else(read, |it| Ok(it.to_owned())) {
            Ok(text) => text,
            Err(error) => {
                return (None, draft.without_workflow(&format!("it cannot be read: {error}")));
            }
        };
        let (checked, diagnostics) = self.check_workflow(&workflow, &text, buffers);
        let Some((workflow, Some(compiled))) = checked else {
            let errors = diagnostics.count(Severity::Error);
            return (None, draft.without_workflow(&format!("it has errors: {errors}")));
        };
        let tested = TestedWorkflow::of(uri, &compiled);
        let diagnostics = match draft.check(&workflow, compiled.definition()) {
            Ok((_, warnings)) => warnings,
            Err(diagnostics) => diagnostics,
        };
        (Some((tested, text)), diagnostics)
    }

    /// Converts a diagnostic into the form of the protocol; returns it with its document.
    fn published_form(
        &self,
        workflow: &str,
        diagnostic: &Diagnostic,
    ) -> (String, protocol::Diagnostic) {
        let first = diagnostic.labels.first();
        let location = first.map(|it| self.location(workflow, &it.span));
        let start = protocol::Position { line: 0, character: 0 };
        let location = location.unwrap_or_else(|| Location {
            uri: workflow.to_owned(),
            range: protocol::Range { start, end: start },
        });
        let help = diagnostic.help.as_ref().map(|it| format!("\nhelp: {it}")).unwrap_or_default();
        let more = format!("\nmore: graphrun explain {}", diagnostic.code);
        let message = format!("{}{help}{more}", diagnostic.message);
        let related = |label: &Label| RelatedInformation {
            location: self.location(workflow, &label.span),
            message: label.text.clone(),
        };
        let diagnostic = protocol::Diagnostic {
            range: location.range,
            severity: match diagnostic.severity {
                Severity::Error => 1,
                Severity::Warning => 2,
                Severity::Hint => 4,
            },
            code: diagnostic.code,
            source: "graphrun",
            message,
            related_information: diagnostic.labels.iter().skip(1).map(related).collect(),
        };
        (location.uri, diagnostic)
    }

    fn location(&self, workflow: &str, span: &SourceSpan) -> Location {
        let marked = span.file.text.get(span.range.clone()).unwrap_or_default();
        // A YAML block ends where the next one starts, which may be several lines below.
        let end = span.range.start + marked.trim_end().len();
        let range = LineIndex::new(&span.file.text).range(&(span.range.start..end));
        let path = Path::new(&span.file.name);
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

impl TestedWorkflow {
    fn of(uri: String, compiled: &CompiledGraph) -> Self {
        let graph = compiled.definition();
        let texts = |it: &[ChannelName]| it.iter().map(ToString::to_string).collect::<Vec<_>>();
        let nodes = graph.nodes.iter().map(|(name, spec)| {
            let writes = spec.describe().contract.writes.as_deref();
            (name.to_string(), writes.map(texts))
        });
        let schema = graph.schema.clone();
        let input = texts(&graph.input);
        Self { uri, schema, input, nodes: nodes.collect() }
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
