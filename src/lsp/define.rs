//! Finds the declaration of the name under the cursor.

use super::{
    grammar::Role,
    protocol::{Location, Position, Range},
    references::named_at,
    workspace::{DocumentView, Workspace},
};
use crate::workflow::{Step, source_paths};

/// The start of a file.
const START: Range =
    Range { start: Position { line: 0, character: 0 }, end: Position { line: 0, character: 0 } };

/// Returns the declaration of the name at an offset.
pub(super) fn definition(
    workspace: &Workspace,
    view: &DocumentView<'_>,
    at: usize,
) -> Option<Location> {
    let owner = workspace.owner_of(view);
    let spot = view.spot(at).filter(|_| owner.is_none() || view.is_cases);
    if let Some(spot) = spot
        && let Some(role @ (Role::Prompt | Role::SchemaFile | Role::Workflow | Role::Recording)) =
            spot.role
    {
        let folder = view.folder()?;
        let word = view.text.get(spot.range)?;
        let paths = match role {
            Role::Prompt => source_paths(folder, word.as_ref()),
            _ => vec![folder.join(word)],
        };
        let uris = paths.iter().map(|it| (it, workspace.uri_of(it)));
        let mut there = uris.filter(|(path, uri)| path.is_file() || workspace.view(uri).is_some());
        return there.next().map(|(_, uri)| Location { uri, range: START });
    }
    let (declared, _) = named_at(workspace, view, at)?;
    owner.as_ref().unwrap_or(view).declared(&declared)
}

impl DocumentView<'_> {
    /// Returns the place of a declaration.
    fn declared(&self, path: &[Step]) -> Option<Location> {
        let key = self.outline.part(path)?.key.clone()?;
        Some(Location { uri: self.uri.to_owned(), range: self.lines.range(&key) })
    }
}
