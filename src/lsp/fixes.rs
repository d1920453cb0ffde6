//! Quick fixes: the advice of a diagnostic as an edit. A fix is offered only if the file with it has the diagnostic no longer, and no
//! other one instead.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::Path,
};

use super::{
    grammar::Role,
    mentions::{entry, value_of, words},
    protocol::{self, CodeAction, TextEdit, WorkspaceEdit},
    workspace::{DocumentView, Workspace},
};

/// A possible edit: its title, the bytes that it replaces, and their new text.
struct Edit {
    title: String,
    range: Range<usize>,
    new: String,
}

/// Returns the fixes of the diagnostics that touch a range.
pub(super) fn fixes(
    workspace: &Workspace,
    view: &DocumentView<'_>,
    range: protocol::Range,
) -> Vec<CodeAction> {
    let before = workspace.published(view.uri);
    let touches =
        |it: &&protocol::Diagnostic| it.range.start <= range.end && range.start <= it.range.end;
    let mut actions = Vec::new();
    for diagnostic in before.iter().filter(touches) {
        let edits = edits(view, diagnostic);
        let is_only = edits.len() == 1;
        for edit in edits {
            let mut text = view.text.to_owned();
            text.replace_range(edit.range.clone(), &edit.new);
            let path = view.path.unwrap_or(Path::new(view.uri)).to_owned();
            let after = workspace.check_with(view, BTreeMap::from([(path, text.into())]));
            let errors =
                |all: &[protocol::Diagnostic]| all.iter().filter(|it| it.severity == 1).count();
            let is_same = |other: &&protocol::Diagnostic| {
                other.code == diagnostic.code && other.message == diagnostic.message
            };
            let count = |all: &[protocol::Diagnostic]| all.iter().filter(is_same).count();
            let is_known = |it: &protocol::Diagnostic| {
                before.iter().any(|other| other.code == it.code && other.message == it.message)
            };
            let is_better = count(&after) < count(before)
                && after.len() < before.len()
                && errors(&after) <= errors(before)
                && after.iter().all(is_known);
            // A mistake of the file's shape hides all others.
            let was_hidden = before.iter().all(|it| it.code == "GR001" || it.code == "GR010");
            if !(is_better || was_hidden && count(&after) < count(before)) {
                continue;
            }
            let range = view.lines.range(&edit.range);
            let mut whole = WorkspaceEdit::default();
            let edits = whole.changes.entry(view.uri.to_owned()).or_default();
            edits.push(TextEdit { range, new_text: edit.new });
            actions.push(CodeAction {
                title: edit.title,
                kind: "quickfix",
                diagnostics: vec![diagnostic.clone()],
                is_preferred: is_only,
                edit: whole,
            });
        }
    }
    actions
}

/// Returns the edits that the advice of a diagnostic describes.
fn edits(view: &DocumentView<'_>, diagnostic: &protocol::Diagnostic) -> Vec<Edit> {
    let mut lines = diagnostic.message.lines();
    let help = lines.find_map(|it| it.strip_prefix("help: ")).unwrap_or_default();
    let start = view.lines.offset(diagnostic.range.start);
    let end = view.lines.offset(diagnostic.range.end);
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
    let named = parts.filter_map(|it| value_of(it, view.text)).flat_map(|(_, text)| {
        words(text).map(|it| &text[it]).filter(|it| view.outline.under(&["types", it]).is_some())
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
