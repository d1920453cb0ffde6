//! The outline of a workflow for an editor: its sections, and the nodes with their kinds.

use super::{protocol::Symbol, workspace::DocumentView};
use crate::workflow::{Part, Step};

const MODULE: u8 = 2;
const FUNCTION: u8 = 12;
const OBJECT: u8 = 19;
const FIELD: u8 = 8;

/// The sections whose names are shown, with the kind of symbol in editors.
const SECTIONS: &[(&str, u8)] = &[
    ("state", FIELD),
    ("types", OBJECT),
    ("models", OBJECT),
    ("agents", OBJECT),
    ("sandboxes", OBJECT),
    ("folders", OBJECT),
    ("hosts", OBJECT),
    ("mcp", OBJECT),
    ("memory", OBJECT),
    ("nodes", FUNCTION),
];

/// Returns all names that the workflow declares.
pub(super) fn symbols(view: &DocumentView<'_>) -> Vec<Symbol> {
    if view.is_cases {
        return cases(view);
    }
    let section = |(section, kind): &(&str, u8)| {
        let path = [Step::Key((*section).to_owned())];
        let part = view.outline.part(&path)?;
        let child = |part: &Part| {
            let name = part.name()?;
            let detail = (*section == "nodes").then(|| view.headline(name)).flatten();
            symbol(view, part, detail, *kind)
        };
        let children: Vec<Symbol> = view.outline.below(&path).filter_map(child).collect();
        let whole = symbol(view, part, None, MODULE)?;
        (!children.is_empty()).then_some(Symbol { children, ..whole })
    };
    SECTIONS.iter().filter_map(section).collect()
}

/// Returns the test cases by their names.
fn cases(view: &DocumentView<'_>) -> Vec<Symbol> {
    let named = |name: &Part| {
        let [Step::Key(section), Step::Item(_), Step::Key(key)] = name.path.as_slice() else {
            return None;
        };
        let value = name.value.clone().filter(|_| section == "cases" && key == "name")?;
        let case = &name.path[..2];
        let inside = view.outline.parts().iter().filter(|it| it.path.starts_with(case));
        let ends = inside.flat_map(|it| [it.key.as_ref(), it.value.as_ref()]).flatten();
        let end = ends.map(|it| it.end).max().unwrap_or(value.end);
        Some(Symbol {
            name: view.text.get(value.clone())?.to_owned(),
            detail: None,
            kind: FUNCTION,
            range: view.lines.range(&(value.start..end)),
            selection_range: view.lines.range(&value),
            children: Vec::new(),
        })
    };
    view.outline.parts().iter().filter_map(named).collect()
}

/// Returns a name with the range of all its parts.
fn symbol(
    view: &DocumentView<'_>,
    part: &Part,
    detail: Option<String>,
    kind: u8,
) -> Option<Symbol> {
    let key = part.key.clone()?;
    let inside = view.outline.parts().iter().filter(|it| it.path.starts_with(&part.path));
    let ends = inside.flat_map(|it| [it.key.as_ref(), it.value.as_ref()]).flatten();
    let end = ends.map(|it| it.end).max().unwrap_or(key.end);
    Some(Symbol {
        name: part.name()?.to_owned(),
        detail,
        kind,
        range: view.lines.range(&(key.start..end)),
        selection_range: view.lines.range(&key),
        children: Vec::new(),
    })
}
