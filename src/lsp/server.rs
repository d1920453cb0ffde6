//! Handles messages one after the other, and answers requests.

use lsp_server::{Connection, ErrorCode, Message, Notification, Request, RequestId, Response};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    complete::complete,
    define::definition,
    fixes::{QUICK_FIX, fixes},
    hover::hover,
    protocol::{
        AtPosition, DidChange, DidOpen, FindActions, FindReferences, OfDocument, Rename, TextEdit,
    },
    references::{references, rename, renamed_range},
    symbols::symbols,
    workspace::{DocumentView, Workspace},
};
use crate::workflow::{FileKind, Registry, format_text};

/// The server of one client.
pub(super) struct Server<'c> {
    connection: &'c Connection,
    workspace: Workspace,
    is_shut_down: bool,
}

/// The reason why the server refuses a request.
struct Refusal(ErrorCode, String);

impl<'c> Server<'c> {
    /// Answers until the client sends `exit` or closes the connection; returns whether it sent
    /// `shutdown` before.
    pub(super) fn serve(connection: &'c Connection, registry: Registry) -> bool {
        let Ok((id, _)) = connection.initialize_start() else { return false };
        let mut server =
            Self { connection, workspace: Workspace::new(registry), is_shut_down: false };
        server.send(Response::new_ok(id, capabilities()));
        for message in &connection.receiver {
            match message {
                Message::Request(request) => server.answer(request),
                Message::Notification(it) if it.method == "exit" => return server.is_shut_down,
                Message::Notification(notification) => server.note(notification),
                // The server sends no requests, so it expects no responses.
                Message::Response(_) => (),
            }
        }
        false
    }

    fn answer(&mut self, Request { id, method, params }: Request) {
        if self.is_shut_down {
            let message = "the server is shut down".to_owned();
            return self.refuse(id, Refusal(ErrorCode::InvalidRequest, message));
        }
        let answer = match method.as_str() {
            "shutdown" => {
                self.is_shut_down = true;
                Ok(Value::Null)
            }
            "textDocument/hover" => {
                self.at_place(params, |view, at| hover(&self.workspace, view, at))
            }
            "textDocument/definition" => {
                self.at_place(params, |view, at| definition(&self.workspace, view, at))
            }
            "textDocument/completion" => {
                self.at_place(params, |view, at| Some(complete(&self.workspace, view, at)))
            }
            "textDocument/references" => read(params).and_then(|asked: FindReferences| {
                let with_declaration = asked.context.include_declaration;
                let at = |view: &DocumentView<'_>| view.lines.offset(asked.position);
                let view = self.workspace.view(&asked.text_document.uri);
                to_value(view.and_then(|view| {
                    references(&self.workspace, &view, at(&view), with_declaration)
                }))
            }),
            "textDocument/prepareRename" => self.at_place(params, |view, at| {
                renamed_range(&self.workspace, view, at).map(|it| view.lines.range(&it))
            }),
            "textDocument/rename" => read(params).and_then(|asked: Rename| {
                let Some(view) = self.workspace.view(&asked.text_document.uri) else {
                    return Ok(Value::Null);
                };
                let at = view.lines.offset(asked.position);
                let renamed = rename(&self.workspace, &view, at, &asked.new_name);
                let refused = |reason| Refusal(ErrorCode::RequestFailed, reason);
                renamed.map_err(refused).and_then(to_value)
            }),
            "textDocument/codeAction" => read(params).and_then(|asked: FindActions| {
                let view = self.workspace.view(&asked.text_document.uri);
                to_value(view.map(|view| {
                    if asked.context.wants(QUICK_FIX) {
                        fixes(&self.workspace, &view, asked.range)
                    } else {
                        Vec::new()
                    }
                }))
            }),
            "textDocument/formatting" => read(params).and_then(|asked: OfDocument| {
                to_value(
                    self.workspace.view(&asked.text_document.uri).and_then(|it| formatted(&it)),
                )
            }),
            "textDocument/documentSymbol" => read(params).and_then(|asked: OfDocument| {
                to_value(self.workspace.view(&asked.text_document.uri).map(|it| symbols(&it)))
            }),
            "initialize" => {
                let message = "the server is initialized already".to_owned();
                Err(Refusal(ErrorCode::InvalidRequest, message))
            }
            _ => Err(Refusal(ErrorCode::MethodNotFound, format!("there is no method `{method}`"))),
        };
        match answer {
            Ok(result) => self.send(Response::new_ok(id, result)),
            Err(refusal) => self.refuse(id, refusal),
        }
    }

    /// Answers a request about a position; null if there is nothing, or no such document.
    fn at_place<T: Serialize>(
        &self,
        params: Value,
        answer: impl FnOnce(&DocumentView<'_>, usize) -> Option<T>,
    ) -> Result<Value, Refusal> {
        let AtPosition { text_document, position } = read(params)?;
        let view = self.workspace.view(&text_document.uri);
        to_value(view.and_then(|it| answer(&it, it.lines.offset(position))))
    }

    /// Handles a notification. It ignores invalid and unknown ones, because the protocol has no
    /// response to a notification.
    fn note(&mut self, Notification { method, params }: Notification) {
        match method.as_str() {
            "textDocument/didOpen" => {
                let Ok(DidOpen { text_document: it }) = read(params) else { return };
                self.workspace.set(it.uri, it.version, it.text);
            }
            "textDocument/didChange" => {
                let Ok(DidChange { text_document, mut content_changes }) = read(params) else {
                    return;
                };
                let Some(change) = content_changes.pop() else { return };
                self.workspace.set(text_document.uri, text_document.version, change.text);
            }
            "textDocument/didClose" => {
                let Ok(OfDocument { text_document }) = read(params) else { return };
                self.workspace.close(&text_document.uri);
            }
            // A saved prompt may not be open in the editor; its change affects the checks.
            "textDocument/didSave" | "workspace/didChangeWatchedFiles" => (),
            _ => return,
        }
        for news in self.workspace.check() {
            self.send(Notification::new("textDocument/publishDiagnostics".to_owned(), news));
        }
    }

    fn refuse(&self, id: RequestId, Refusal(code, message): Refusal) {
        self.send(Response::new_err(id, code as i32, message));
    }

    /// Sends a message. Errors are ignored: the receiver notices a closed connection.
    fn send(&self, message: impl Into<Message>) {
        drop(self.connection.sender.send(message.into()));
    }
}

fn capabilities() -> Value {
    json!({
        "capabilities": {
            "positionEncoding": "utf-16",
            // Whole texts: a workflow is small, and with incremental changes a lost one would
            // corrupt the text.
            "textDocumentSync": {"openClose": true, "change": 1, "save": true},
            "hoverProvider": true,
            "definitionProvider": true,
            "documentSymbolProvider": true,
            "referencesProvider": true,
            "renameProvider": {"prepareProvider": true},
            "codeActionProvider": {"codeActionKinds": [QUICK_FIX]},
            "documentFormattingProvider": true,
            "completionProvider": {"triggerCharacters": [" ", ".", "\"", "/", "[", "{"]},
        },
        "serverInfo": {"name": "graphrun", "version": env!("CARGO_PKG_VERSION")},
    })
}

/// Returns the edit that lays a document out; none if it is laid out, or is not ours, or cannot be read.
fn formatted(view: &DocumentView<'_>) -> Option<Vec<TextEdit>> {
    FileKind::of(view.text)?;
    let new_text = format_text(view.uri, view.text).ok()?;
    if new_text == view.text {
        return Some(Vec::new());
    }
    Some(vec![TextEdit { range: view.lines.range(&(0..view.text.len())), new_text }])
}

fn read<T: DeserializeOwned>(params: Value) -> Result<T, Refusal> {
    serde_json::from_value(params).map_err(|it| Refusal(ErrorCode::InvalidParams, it.to_string()))
}

fn to_value(answer: impl Serialize) -> Result<Value, Refusal> {
    serde_json::to_value(answer).map_err(|it| Refusal(ErrorCode::InternalError, it.to_string()))
}
