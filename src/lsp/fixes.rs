//! Quick fixes: the advice of a diagnostic as an edit. A fix is offered only if the file with it has the diagnostic no longer, and no
//! other one instead.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::Path,
};

use super::{
    grammar::Role,
    mentions::{entry, type_name, value_of},
    protocol::{self, CodeAction, TextEdit, WorkspaceEdit},
    workspace::{DocumentView, Workspace},
};

/// The kind of the actions.
pub(super) const QUICK_FIX: &str = "quickfix";

/// The most edits that one request checks. Each needs a check of the whole workflow, and the server answers nothing else meanwhile.
const CHECKS_MAX: usize = 16;

/// A possible edit: its title, the bytes that it replaces, and their new text.
struct Edit {
    title: String,
    range: Range<usize>,
    new: String,
}

/// Returns the fixes of the diagnostics that touch a range. If there are very many, those near its start come first, and the
/// others are left out.
pub(super) fn fixes(
    workspace: &Workspace,
    view: &DocumentView<'_>,
    range: protocol::Range,
) -> Vec<CodeAction> {
    let before = workspace.published(view.uri);
    let touches =
        |it: &&protocol::Diagnostic| it.range.start <= range.end && range.start <= it.range.end;
    let distance = |it: &&protocol::Diagnostic| {
        let lines = it.range.start.line.abs_diff(range.start.line);
        (lines, it.range.start.character.abs_diff(range.start.character))
    };
    let mut touching: Vec<&protocol::Diagnostic> = before.iter().filter(touches).collect();
    touching.sort_by_key(distance);
    let possible = touching.into_iter().flat_map(|diagnostic| {
        let edits = edits(view, diagnostic);
        let is_only = edits.len() == 1;
        edits.into_iter().map(move |edit| (diagnostic, edit, is_only))
    });
    let mut actions = Vec::new();
    for (diagnostic, edit, is_only) in possible.take(CHECKS_MAX) {
        if !mends(workspace, view, diagnostic, &edit) {
            continue;
        }
        let range = view.lines.range(&edit.range);
        let mut whole = WorkspaceEdit::default();
        let edits = whole.changes.entry(view.uri.to_owned()).or_default();
        edits.push(TextEdit { range, new_text: edit.new });
        actions.push(CodeAction {
            title: edit.title,
            kind: QUICK_FIX,
            diagnostics: vec![diagnostic.clone()],
            is_preferred: is_only,
            edit: whole,
        });
    }
    actions
}

/// Returns whether the file with an edit has a diagnostic no longer, and no other one instead.
fn mends(
    workspace: &Workspace,
    view: &DocumentView<'_>,
    diagnostic: &protocol::Diagnostic,
    edit: &Edit,
) -> bool {
    let before = workspace.published(view.uri);
    let mut text = view.text.to_owned();
    text.replace_range(edit.range.clone(), &edit.new);
    let path = view.path.unwrap_or(Path::new(view.uri)).to_owned();
    let after = workspace.check_with(view, BTreeMap::from([(path, text.into())]));
    let errors = |all: &[protocol::Diagnostic]| all.iter().filter(|it| it.severity == 1).count();
    let is_same = |other: &&protocol::Diagnostic| {
        other.code == diagnostic.code && other.message == diagnostic.message
    };
    let count = |all: &[protocol::Diagnostic]| all.iter().filter(is_same).count();
    let is_known = |it: &protocol::Diagnostic| {
        before.iter().any(|other| other.code == it.code && other.message == it.message)
    };
    let is_better = after.len() < before.len()
        && errors(&after) <= errors(before)
        && after.iter().all(is_known);
    // A mistake of the file's shape hides all others, but not those because of which the file cannot be read.
    let was_hidden = before.iter().all(|it| it.code == "GR001" || it.code == "GR010")
        && after.iter().filter(|it| matches!(it.code, "GR001" | "GR002")).all(is_known);
    count(&after) < count(before) && (is_better || was_hidden)
}

/// Returns the edits that the advice of a diagnostic describes.
fn edits(view: &DocumentView<'_>, diagnostic: &protocol::Diagnostic) -> Vec<Edit> {
    let mut lines = diagnostic.message.lines();
    let help = lines.find_map(|it| it.strip_prefix("help: ")).unwrap_or_default();
    let start = view.lines.offset(diagnostic.range.start);
    let end = view.lines.offset(diagnostic.range.end);
    let start = behind_properties(view, &(start..end));
    let Some(marked) = view.text.get(start..end) else { return Vec::new() };
    let mut found = Vec::new();
    if let Some(meant) = quoted_after(help, "did you mean ") {
        found.push(replaced(marked, start..end, meant));
    }
    if let Some(written) = quoted_after(help, "write ").filter(|it| !it.contains('…')) {
        found.push(replaced(marked, start..end, written));
    }
    if help == "remove it" || help.starts_with("remove it,") {
        found.extend(removed(view, start));
    }
    if found.is_empty() {
        let name = marked.trim_matches(['"', '\'']);
        let meant = view.spot(start).and_then(|it| it.role).map(|it| of_kind(view, it, name));
        found.extend(meant.iter().flatten().map(|it| replaced(marked, start..end, it)));
    }
    found
}

/// Returns the names of one kind that a name of another kind may stand for, such as the agent of a node where an agent is meant.
fn of_kind(view: &DocumentView<'_>, role: Role, name: &str) -> BTreeSet<String> {
    let texts = |keys: &[&str]| view.texts(keys).into_iter().map(str::to_owned);
    let agents = || texts(&["nodes", name, "agent"]);
    let fields = || view.written_by(name).into_iter().map(str::to_owned);
    let mut found: BTreeSet<String> = match role {
        Role::Agent => agents().collect(),
        Role::Model => {
            let agents = agents().chain([name.to_owned()]);
            agents.flat_map(|it| texts(&["agents", &it, "model"])).collect()
        }
        Role::Field | Role::Path | Role::Expression | Role::Template => {
            let of_type = view.names("state").into_iter().map(str::to_owned);
            fields().chain(of_type.filter(|it| types_of(view, it).contains(name))).collect()
        }
        Role::Node | Role::Target => {
            let nodes = view.names("nodes").into_iter();
            let runs = |it: &&str| view.texts(&["nodes", it, "agent"]).contains(&name);
            nodes.filter(runs).chain(view.writers(name)).map(str::to_owned).collect()
        }
        Role::Type => {
            let fields = fields().chain([name.to_owned()]);
            fields.flat_map(|it| types_of(view, &it)).collect()
        }
        _ => BTreeSet::new(),
    };
    found.remove(name);
    found
}

/// Returns the named types in the type of a field.
fn types_of(view: &DocumentView<'_>, field: &str) -> BTreeSet<String> {
    let inside = entry("state", field);
    let parts = view.outline.parts().iter().filter(|it| it.path.starts_with(&inside));
    let named = parts.filter_map(|it| value_of(it, view.text)).filter_map(|(_, text)| {
        let name = &text[type_name(text)?];
        view.outline.under(&["types", name]).map(|_| name)
    });
    named.map(str::to_owned).collect()
}

/// Returns the text in backquotes after some words.
fn quoted_after<'h>(help: &'h str, words: &str) -> Option<&'h str> {
    let rest = &help[help.find(words)? + words.len()..];
    let rest = rest.strip_prefix('`')?;
    Some(&rest[..rest.find('`')?])
}

fn replaced(marked: &str, range: Range<usize>, new: &str) -> Edit {
    let quote = marked.chars().next().filter(|it| matches!(it, '"' | '\''));
    let is_quoted = quote.is_some_and(|it| marked.len() > 1 && marked.ends_with(it));
    // The quotes of YAML stay.
    let range = if is_quoted { range.start + 1..range.end - 1 } else { range };
    Edit { title: format!("Replace by `{new}`"), range, new: new.to_owned() }
}

/// Returns the start of a scalar behind its anchor and its tag. An alias elsewhere may refer to the anchor.
fn behind_properties(view: &DocumentView<'_>, marked: &Range<usize>) -> usize {
    let start_of = |value: &Range<usize>| {
        let before =
            view.text.get(marked.start..value.start).filter(|_| value.end <= marked.end)?;
        let properties = before.trim_end_matches(['"', '\'']);
        let is_property = |it: &str| it.starts_with(['&', '!']);
        let has_no_more = properties.split_whitespace().all(is_property);
        has_no_more.then_some(marked.start + properties.len())
    };
    let mut values = view.outline.parts().iter().filter_map(|it| it.value.as_ref());
    values.find_map(start_of).unwrap_or(marked.start)
}

/// Removes the entry of a mapping whose key begins at an offset.
fn removed(view: &DocumentView<'_>, start: usize) -> Option<Edit> {
    let key_at = |it: &Range<usize>| it.start == start || it.start == start + 1;
    let part = view.outline.parts().iter().find(|it| it.key.as_ref().is_some_and(key_at))?;
    let inside = view.outline.parts().iter().filter(|it| it.path.starts_with(&part.path));
    let scalars = inside.flat_map(|it| [it.key.as_ref(), it.value.as_ref()]).flatten();
    let scalars: Vec<&Range<usize>> = scalars.collect();
    let end = scalars.iter().map(|it| it.end).max()?;
    let end = end + closing(view.text, start..end, &scalars);
    let title = format!("Remove `{}`", part.name()?);
    let line = view.text[..start].rfind('\n').map_or(0, |it| it + 1);
    let is_block = view.text[line..start].trim().is_empty();
    let rest = &view.text[end..];
    let line_end = end + rest.find('\n').map_or(rest.len(), |it| it + 1);
    if is_block {
        return Some(Edit { title, range: line..line_end, new: String::new() });
    }
    // In brackets, a comma goes with it.
    let close = rest.find([',', '}'])?;
    if rest[close..].starts_with(',') {
        let behind = &rest[close + 1..];
        let blanks = behind.len() - behind.trim_start_matches(' ').len();
        return Some(Edit { title, range: start..end + close + 1 + blanks, new: String::new() });
    }
    let before = view.text[..start].trim_end().strip_suffix(',')?;
    Some(Edit { title, range: before.len()..end, new: String::new() })
}

/// Returns the length of the text that closes the brackets of a value which end behind its last scalar.
fn closing(text: &str, value: Range<usize>, scalars: &[&Range<usize>]) -> usize {
    let is_outside = |at: &usize| scalars.iter().all(|it| !it.contains(at));
    let brackets = text[value.clone()].char_indices().map(|(at, it)| (value.start + at, it));
    let mut depth = 0_usize;
    for (_, bracket) in brackets.filter(|(at, _)| is_outside(at)) {
        match bracket {
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            _ => (),
        }
    }
    let rest = &text[value.end..];
    let closed = rest.match_indices(['}', ']']).take(depth).last();
    closed.map_or(0, |(at, bracket)| at + bracket.len())
}
