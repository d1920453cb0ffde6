//! The supported part of the Language Server Protocol 3.17.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A position between two characters, with both numbers counted from zero; characters are UTF-16
/// units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Position {
    pub(super) line: u32,
    pub(super) character: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Range {
    pub(super) start: Position,
    pub(super) end: Position,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Location {
    pub(super) uri: String,
    pub(super) range: Range,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Diagnostic {
    pub(super) range: Range,
    pub(super) severity: u8,
    pub(super) code: &'static str,
    pub(super) source: &'static str,
    pub(super) message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) related_information: Vec<RelatedInformation>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct RelatedInformation {
    pub(super) location: Location,
    pub(super) message: String,
}

/// The diagnostics of one document; they replace those published before.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PublishDiagnostics {
    pub(super) uri: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<i64>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Hover {
    pub(super) contents: Markup,
    pub(super) range: Range,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Markup {
    pub(super) kind: &'static str,
    pub(super) value: String,
}

impl From<String> for Markup {
    fn from(value: String) -> Self {
        Self { kind: "markdown", value }
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CompletionItem {
    pub(super) label: String,
    pub(super) kind: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) documentation: Option<Markup>,
    pub(super) filter_text: String,
    /// Keeps the items in their given order.
    pub(super) sort_text: String,
    pub(super) text_edit: TextEdit,
}

/// The kind of a completion item, for its icon in editors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemKind {
    Function = 3,
    Field = 5,
    Variable = 6,
    Class = 7,
    Property = 10,
    Value = 12,
    File = 17,
    EnumMember = 20,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TextEdit {
    pub(super) range: Range,
    pub(super) new_text: String,
}

/// Changes of several documents, by URI.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct WorkspaceEdit {
    pub(super) changes: BTreeMap<String, Vec<TextEdit>>,
}

/// An edit that the client offers.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CodeAction {
    pub(super) title: String,
    pub(super) kind: &'static str,
    /// The diagnostics that it fixes.
    pub(super) diagnostics: Vec<Diagnostic>,
    pub(super) is_preferred: bool,
    pub(super) edit: WorkspaceEdit,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Symbol {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detail: Option<String>,
    pub(super) kind: u8,
    pub(super) range: Range,
    pub(super) selection_range: Range,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) children: Vec<Self>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DidOpen {
    pub(super) text_document: OpenedDocument,
}

#[derive(Debug, Deserialize)]
pub(super) struct OpenedDocument {
    pub(super) uri: String,
    pub(super) version: i64,
    pub(super) text: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DidChange {
    pub(super) text_document: ChangedDocument,
    pub(super) content_changes: Vec<Change>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ChangedDocument {
    pub(super) uri: String,
    pub(super) version: i64,
}

/// The whole text; the server requests no other form of changes.
#[derive(Debug, Deserialize)]
pub(super) struct Change {
    pub(super) text: String,
}

/// The document of a request without a position: close, symbols.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OfDocument {
    pub(super) text_document: DocumentId,
}

#[derive(Debug, Deserialize)]
pub(super) struct DocumentId {
    pub(super) uri: String,
}

/// The position of a request: hover, definition, completion.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AtPosition {
    pub(super) text_document: DocumentId,
    pub(super) position: Position,
}

/// A request for the places that name something.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FindReferences {
    pub(super) text_document: DocumentId,
    pub(super) position: Position,
    pub(super) context: ReferenceContext,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReferenceContext {
    pub(super) include_declaration: bool,
}

/// A request to give something another name.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rename {
    pub(super) text_document: DocumentId,
    pub(super) position: Position,
    pub(super) new_name: String,
}

/// A request for fixes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FindActions {
    pub(super) text_document: DocumentId,
    pub(super) range: Range,
    #[serde(default)]
    pub(super) context: ActionContext,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct ActionContext {
    /// The kinds of actions that the client wants; all if it names none.
    pub(super) only: Option<Vec<String>>,
}

impl ActionContext {
    /// Returns whether the client wants actions of a kind. A kind contains those that begin with it and a dot.
    pub(super) fn wants(&self, kind: &str) -> bool {
        let contains = |it: &String| {
            let rest = kind.strip_prefix(it.as_str());
            it.is_empty() || rest.is_some_and(|it| it.is_empty() || it.starts_with('.'))
        };
        self.only.as_ref().is_none_or(|all| all.iter().any(contains))
    }
}
