//! The open documents of the editor, and their diagnostics.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
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
    compile::compile,
    diagnostic::{Diagnostic, Diagnostics, Label, Place, Severity, SourceFile},
    nodes::{self, Services},
    state::Schema,
    workflow::{Buffers, Outline, Registry, Step, survey},
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
        let open = self.documents.values();
        let buffers: Buffers =
            open.filter_map(|it| Some((it.path.clone()?, Arc::clone(&it.text)))).collect();
        let mut found: BTreeMap<String, Vec<protocol::Diagnostic>> = BTreeMap::new();
        let workflows: Vec<String> =
            self.documents.keys().filter(|it| self.is_workflow(it)).cloned().collect();
        for uri in workflows {
            found.entry(uri.clone()).or_default();
            for finding in self.check_one(&uri, &buffers) {
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

    /// Returns whether a YAML file declares itself a workflow, or has the keys that only a workflow
    /// has; an editor may open other files too.
    fn is_workflow(&self, uri: &str) -> bool {
        let Some(document) = self.documents.get(uri) else { return false };
        if let Some(path) = &document.path {
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let is_yaml = path.extension().is_some_and(|it| it == "yaml" || it == "yml");
            // Test cases of `graphrun test`.
            if !is_yaml || name.contains(".test.") {
                return false;
            }
        }
        let has = |key: &str| document.text.lines().any(|it| it.starts_with(key));
        has("graphrun:") || has("start:") && has("nodes:")
    }

    /// Returns all diagnostics, as `graphrun validate` reports them.
    fn check_one(&mut self, uri: &str, buffers: &Buffers) -> Diagnostics {
        let Some(document) = self.documents.get_mut(uri) else { return Diagnostics::default() };
        let path = document.path.as_deref().unwrap_or(Path::new(uri));
        let text = document.text.to_string();
        let file = Arc::new(SourceFile { name: path.display().to_string(), text });
        let folder = path.parent().unwrap_or(Path::new(""));
        let (workflow, findings) = survey(file, folder, &self.registry, buffers);
        let Some(workflow) = workflow else { return findings };
        document.state = Some(workflow.schema.clone());
        if findings.has_errors() {
            return findings;
        }
        let factory = nodes::factory(Services::offline(), self.registry.clone());
        let (graph, mut more) = workflow.into_graph(&factory);
        more.extend(findings);
        match compile((graph, more)) {
            Ok(compiled) => compiled.warnings().clone(),
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
