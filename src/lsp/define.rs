//! Finds the declaration of the name under the cursor.

use super::{
    cases,
    expressions::{ExpectedKind, chain_at, open_code, quoted_at},
    grammar::Role,
    protocol::{Location, Position, Range},
    workspace::{DocumentView, Workspace},
};
use crate::workflow::source_paths;

/// The start of a file.
pub(super) const START: Range =
    Range { start: Position { line: 0, character: 0 }, end: Position { line: 0, character: 0 } };

/// Returns the declaration of the name at an offset.
pub(super) fn definition(
    workspace: &Workspace,
    view: &DocumentView<'_>,
    at: usize,
) -> Option<Location> {
    if let Some((owner, _)) = workspace.owner(view) {
        let code = open_code(&view.text[..at])?;
        return owner.declared_within(&view.text[code..], at - code);
    }
    let spot = view.spot(at)?;
    if view.is_cases {
        return cases::definition(workspace, view, (&spot, at));
    }
    let word = view.text.get(spot.range.clone())?;
    let cursor = at - spot.range.start;
    match spot.role? {
        Role::Node | Role::Target => view.declared("nodes", word),
        Role::Field => view.declared("state", word),
        Role::Agent => view.declared("agents", word),
        Role::Model => view.declared("models", word),
        Role::Sandbox => view.declared("sandboxes", word).or_else(|| view.declared("hosts", word)),
        Role::Tool => view.declared("tools", word),
        Role::Folder => view.declared("folders", word),
        Role::Tier => view.declared("memory", word),
        Role::Prompt => {
            let paths = source_paths(view.folder()?, word.as_ref());
            let uris = paths.iter().map(|it| (it, workspace.uri_of(it)));
            let mut there =
                uris.filter(|(path, uri)| path.is_file() || workspace.view(uri).is_some());
            there.next().map(|(_, uri)| Location { uri, range: START })
        }
        Role::Expression => view.declared_within(word, cursor),
        Role::Template => {
            let code = open_code(&word[..cursor])?;
            view.declared_within(&word[code..], cursor - code)
        }
        Role::Type => view.declared("types", &word[chain_at(word, cursor)?]),
        Role::SchemaFile => {
            let path = view.folder()?.join(word);
            path.is_file().then(|| Location { uri: workspace.uri_of(&path), range: START })
        }
        Role::Value
        | Role::State
        | Role::Word
        | Role::Workflow
        | Role::Recording
        | Role::Path
        | Role::Data => None,
    }
}

impl DocumentView<'_> {
    pub(super) fn declared(&self, section: &str, name: &str) -> Option<Location> {
        let key = self.outline.under(&[section, name])?.key.clone()?;
        Some(Location { uri: self.uri.to_owned(), range: self.lines.range(&key) })
    }

    fn declared_within(&self, expression: &str, at: usize) -> Option<Location> {
        let expression = expression.replace("\\\"", " \"");
        if let Some((range, wanted)) = quoted_at(&expression, at) {
            let is_node = wanted == ExpectedKind::Node;
            return is_node.then(|| self.declared("nodes", &expression[range])).flatten();
        }
        let chain = &expression[chain_at(&expression, at)?];
        self.declared("state", chain.split('.').next()?)
    }
}
