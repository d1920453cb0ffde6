//! Finds every place that names something, in its workflow, in the prompts of that workflow and in its test cases, to show or to
//! rename it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    cases,
    expressions::is_word,
    grammar::{Role, role},
    mentions::{Mention, entry, value_of, words},
    positions::LineIndex,
    protocol::{self, Location, TextEdit, WorkspaceEdit},
    uri,
    workspace::{DocumentView, Workspace},
};
use crate::{
    id::NodeName,
    workflow::{Part, Step, check_field_name, check_type_name},
};

/// The sections whose entries are names.
const SECTIONS: [&str; 7] = ["nodes", "state", "agents", "models", "sandboxes", "folders", "types"];

/// A place that names something.
struct Reference {
    uri: String,
    text: Arc<str>,
    range: Range<usize>,
    is_declaration: bool,
}

/// Returns the places that name the same as the place at an offset.
pub(super) fn references(
    workspace: &Workspace,
    view: &DocumentView<'_>,
    at: usize,
    with_declaration: bool,
) -> Option<Vec<Location>> {
    let (declared, _) = named_at(workspace, view, at)?;
    let owner = workspace.owner_of(view);
    let all = all(workspace, owner.as_ref().unwrap_or(view), &declared).into_iter();
    let wanted = all.filter(|it| with_declaration || !it.is_declaration);
    let location = |reference: Reference| Location {
        range: LineIndex::new(&reference.text).range(&reference.range),
        uri: reference.uri,
    };
    Some(wanted.map(location).collect())
}

/// Returns the range of the name at an offset, if it can be renamed.
pub(super) fn renamed_range(
    workspace: &Workspace,
    view: &DocumentView<'_>,
    at: usize,
) -> Option<Range<usize>> {
    let (declared, range) = named_at(workspace, view, at)?;
    let owner = workspace.owner_of(view);
    owner.as_ref().unwrap_or(view).outline.part(&declared)?;
    Some(range)
}

/// Returns the edits that give the thing at an offset another name.
///
/// # Errors
///
/// Fails with the reason if nothing there can be renamed, or the name is not allowed.
pub(super) fn rename(
    workspace: &Workspace,
    view: &DocumentView<'_>,
    at: usize,
    new: &str,
) -> Result<WorkspaceEdit, String> {
    let no_name = "there is no name of this workflow";
    let (declared, _) = named_at(workspace, view, at).ok_or(no_name)?;
    let owner = workspace.owner_of(view);
    let view = owner.as_ref().unwrap_or(view);
    let [outer @ .., Step::Key(name)] = declared.as_slice() else { return Err(no_name.to_owned()) };
    if view.outline.part(&declared).is_none() {
        return Err(format!("`{name}` is not declared in this file"));
    }
    check_name(outer, new)?;
    let sibling = [outer, &[Step::Key(new.to_owned())]].concat();
    if new != name && view.outline.part(&sibling).is_some() {
        return Err(format!("there is `{new}` already"));
    }
    refuse_names_elsewhere(workspace, view, &declared)?;
    let found = all(workspace, view, &declared);
    refuse_shared_prompts(workspace, view, &found)?;
    if let Some(line) = dependent_line(workspace, view, &found, new) {
        return Err(format!("line {line} also depends on `{name}`: change the name by hand"));
    }
    let mut edit = WorkspaceEdit::default();
    for Reference { uri, text, range, .. } in found {
        let range = LineIndex::new(&text).range(&range);
        edit.changes.entry(uri).or_default().push(TextEdit { range, new_text: new.to_owned() });
    }
    Ok(edit)
}

/// Checks a new name of a thing below a path.
fn check_name(outer: &[Step], new: &str) -> Result<(), String> {
    match outer {
        [Step::Key(section)] => match section.as_str() {
            "state" => check_field_name(new)?,
            "types" => check_type_name(new)?,
            _ => NodeName::parse(new).map(drop).map_err(|error| error.to_string())?,
        },
        // A field of a record.
        _ if new.starts_with(|it: char| it.is_ascii_digit()) || !new.chars().all(is_word) => {
            return Err(format!("`{new}` is not one word"));
        }
        _ => (),
    }
    if outer.len() == 1 && ["end", "fail"].contains(&new) {
        return Err(format!("`{new}` has another meaning"));
    }
    Ok(())
}

/// Returns the line of a mistake that the workflow would have with a new name in the places that the search finds. A field
/// of a record can be named in others too, as in the result of a call.
fn dependent_line(
    workspace: &Workspace,
    view: &DocumentView<'_>,
    found: &[Reference],
    new: &str,
) -> Option<u32> {
    let mut changed: BTreeMap<PathBuf, Arc<str>> = BTreeMap::new();
    let mut edits: Vec<&Reference> = found.iter().collect();
    // The last place of a text first, so that the others keep theirs.
    edits.sort_by_key(|it| std::cmp::Reverse(it.range.start));
    for Reference { uri, text, range, .. } in edits {
        let path = if uri == view.uri {
            view.path.map_or_else(|| PathBuf::from(uri), Path::to_owned)
        } else {
            uri::to_path(uri).unwrap_or_else(|| uri.into())
        };
        let text = changed.entry(path).or_insert_with(|| Arc::clone(text));
        let mut new_text = text.to_string();
        new_text.replace_range(range.clone(), new);
        *text = new_text.into();
    }
    let errors = |changed| {
        let all = workspace.check_all_with(view, changed).into_iter();
        all.map(|it| it.1).filter(|it| it.severity == 1).collect::<Vec<_>>()
    };
    let before = errors(BTreeMap::new());
    let after = errors(changed);
    if after.len() <= before.len() {
        return None;
    }
    let is_new = |it: &&protocol::Diagnostic| !before.iter().any(|old| old.message == it.message);
    Some(after.iter().find(is_new).map_or(0, |it| it.range.start.line) + 1)
}

/// Refuses to rename what other files, or the values of an enum, name by the same word: they would mean another thing.
fn refuse_names_elsewhere(
    workspace: &Workspace,
    view: &DocumentView<'_>,
    declared: &[Step],
) -> Result<(), String> {
    let [Step::Key(section), Step::Key(entry), rest @ ..] = declared else { return Ok(()) };
    let parts = view.outline.parts();
    let text = |part: &Part| part.value.clone().and_then(|it| view.text.get(it));
    let is_passed = |part: &Part| {
        let [Step::Key(key), ..] = part.path.as_slice() else { return false };
        let is_key = part.path.len() == 2 && part.name() == Some(entry);
        matches!(key.as_str(), "input" | "output") && (is_key || text(part) == Some(entry.as_str()))
    };
    // The values of an input may have the type.
    let is_shared =
        section == "state" && parts.iter().any(is_passed) || section == "types" && !rest.is_empty();
    if is_shared
        && let Some(user) = workspace.users_of(view).first()
        && let Some(Step::Key(name)) = declared.last()
    {
        let user = user.display();
        return Err(format!("`{user}` uses this workflow and names `{name}`: change both by hand"));
    }
    if matches!(section.as_str(), "nodes" | "state")
        && rest.is_empty()
        && let Some((file, name)) = workspace.inner_name(view, entry)
    {
        let file = file.display();
        return Err(format!("`{file}` names it as `{name}`: change both by hand"));
    }
    if section == "nodes" && is_chosen_by_enum(view, entry) {
        return Err(format!(
            "an enum has the value `{entry}`, by which `match` leads to this node: change both by hand"
        ));
    }
    Ok(())
}

/// Refuses to change a prompt that another workflow has, too, which is open or beside this one: its fields keep their names.
fn refuse_shared_prompts(
    workspace: &Workspace,
    view: &DocumentView<'_>,
    found: &[Reference],
) -> Result<(), String> {
    let uris: BTreeSet<&str> = found.iter().map(|it| it.uri.as_str()).collect();
    let changed: Vec<PathBuf> =
        uris.into_iter().filter(|it| *it != view.uri).filter_map(uri::to_path).collect();
    if changed.is_empty() {
        return Ok(());
    }
    for (other, text) in workspace.workflows_beside(view) {
        let used = workspace.workflow_view(&other, &text).prompt_files();
        if let Some(path) = changed.iter().find(|it| used.contains(it)) {
            let (path, other) = (path.display(), other.display());
            return Err(format!("`{path}` is a prompt of `{other}`, too: change both by hand"));
        }
    }
    Ok(())
}

/// Returns whether a value of an enum leads to a node of its name.
fn is_chosen_by_enum(view: &DocumentView<'_>, node: &str) -> bool {
    let parts = view.outline.parts();
    let is_choice = |part: &Part| {
        let [outer @ .., Step::Key(last)] = part.path.as_slice() else { return false };
        let to = [outer, &[Step::Key("to".to_owned())][..]].concat();
        last == "match"
            && outer.last() == Some(&Step::Key("then".to_owned()))
            && view.outline.part(&to).is_none()
    };
    let has_value = |part: &Part| {
        let is_type = view.grammar.at(&part.path).and_then(role) == Some(Role::Type);
        let values = value_of(part, view.text).filter(|(_, it)| is_type && it.contains('|'));
        values.is_some_and(|(_, values)| words(values).any(|range| &values[range] == node))
    };
    parts.iter().any(is_choice) && parts.iter().any(has_value)
}

impl Workspace {
    /// Returns the workflow that a prompt or a file of test cases belongs to.
    pub(super) fn owner_of(&self, view: &DocumentView<'_>) -> Option<DocumentView<'_>> {
        self.owner(view).map(|(it, _)| it).or_else(|| self.tested(view))
    }
}

/// Returns the declaration of what the place at an offset names, and the range of the name.
pub(super) fn named_at(
    workspace: &Workspace,
    view: &DocumentView<'_>,
    at: usize,
) -> Option<(Vec<Step>, Range<usize>)> {
    let here = |found: Vec<Mention>| {
        let it = found.into_iter().find(|it| it.range.start <= at && at <= it.range.end)?;
        Some((it.declared, it.range))
    };
    if let Some((owner, path)) = workspace.owner(view) {
        return here(owner.mentions(Role::Template, view.text, &owner.context_of(&path)));
    }
    if view.is_cases {
        let workflow = workspace.tested(view)?;
        let parts = view.outline.parts().iter();
        return parts.into_iter().find_map(|it| here(cases::mentions(&workflow, view, it)));
    }
    let spot = view.spot(at)?;
    let part = view.outline.part(&spot.path)?;
    if part.key.as_ref() == Some(&spot.range) && declares(view, &spot.path) {
        return Some((spot.path, spot.range));
    }
    if part.key.as_ref() == Some(&spot.range)
        && let Some(declared) = view.declared_in_default(&spot.path)
    {
        return Some((declared, spot.range));
    }
    let context = view.context_of(&spot.path);
    here(view.mentions_in(spot.role?, spot.range, &context))
}

/// Returns whether a key declares the name that it is.
fn declares(view: &DocumentView<'_>, path: &[Step]) -> bool {
    let is_entry = match path {
        [Step::Key(section), Step::Key(_)] => SECTIONS.contains(&section.as_str()),
        _ => false,
    };
    is_entry || view.declares_part(path)
}

/// Returns all places that name what a path declares: in the workflow, in its prompts, and in its test cases.
fn all(workspace: &Workspace, view: &DocumentView<'_>, declared: &[Step]) -> Vec<Reference> {
    let mut found = Vec::new();
    let own: Arc<str> = view.text.into();
    let mut add = |uri: &str, text: &Arc<str>, range: Range<usize>, is_declaration: bool| {
        let uri = uri.to_owned();
        let text = Arc::clone(text);
        found.push(Reference { uri, text, range, is_declaration });
    };
    for part in view.outline.parts() {
        if let Some(key) = &part.key {
            let is_declaration = part.path == declared;
            let section = view.grammar.key_role(&part.path).and_then(super::mentions::section_of);
            let name = part.name().unwrap_or_default();
            let is_named = section.is_some_and(|it| entry(it, name) == declared)
                || view.declared_in_default(&part.path).is_some_and(|it| it == declared);
            if is_declaration || is_named {
                add(view.uri, &own, key.clone(), is_declaration);
            }
        }
        let Some(value) = part.value.clone() else { continue };
        let Some(role) = view.grammar.at(&part.path).and_then(role) else { continue };
        for it in view.mentions_in(role, value, &view.context_of(&part.path)) {
            if it.declared == declared {
                add(view.uri, &own, it.range, false);
            }
        }
    }
    for (path, at) in view.prompts() {
        let Some((uri, text)) = workspace.prompt(view, &path) else { continue };
        for it in view.mentions(Role::Template, &text, &view.context_of(&at)) {
            if it.declared == declared {
                add(&uri, &text, it.range, false);
            }
        }
    }
    for (uri, text) in workspace.cases_of(view) {
        let file = workspace.cases_view(&uri, &text);
        for part in file.outline.parts() {
            for it in cases::mentions(view, &file, part) {
                if it.declared == declared {
                    add(&uri, &text, it.range, false);
                }
            }
        }
    }
    found
}
