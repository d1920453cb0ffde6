//! Finds every place that names something, in its workflow, in the prompts of that workflow and in its test cases, to show or to
//! rename it.

use std::{ops::Range, path::PathBuf, sync::Arc};

use super::{
    cases::{self, NamedPart},
    expressions::{ExpectedKind, binds_next, chain_at, is_word, quoted_at, variables},
    grammar::Role,
    positions::LineIndex,
    protocol::{Location, TextEdit, WorkspaceEdit},
    workspace::{DocumentView, Workspace},
};
use crate::{
    id::NodeName,
    workflow::{Part, Step, check_field_name, check_type_name},
};

/// A thing that a workflow declares.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Declaration {
    /// The section that declares it.
    section: &'static str,
    name: String,
}

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
    let (named, _) = named_at(workspace, view, at)?;
    let owner = owner(workspace, view);
    let all = all(workspace, owner.as_ref().unwrap_or(view), &named).into_iter();
    let wanted = all.filter(|it| with_declaration || !it.is_declaration);
    let location =
        |it: Reference| Location { range: LineIndex::new(&it.text).range(&it.range), uri: it.uri };
    Some(wanted.map(location).collect())
}

/// Returns the range of the name at an offset, if it can be renamed.
pub(super) fn renamed_range(
    workspace: &Workspace,
    view: &DocumentView<'_>,
    at: usize,
) -> Option<Range<usize>> {
    let (named, range) = named_at(workspace, view, at)?;
    let owner = owner(workspace, view);
    owner.as_ref().unwrap_or(view).outline.under(&[named.section, &named.name])?;
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
    let (named, _) = named_at(workspace, view, at).ok_or("there is no name of this workflow")?;
    let owner = owner(workspace, view);
    let view = owner.as_ref().unwrap_or(view);
    let Declaration { section, name } = &named;
    if view.outline.under(&[section, name]).is_none() {
        return Err(format!("`{name}` is not declared in this file"));
    }
    match *section {
        "state" => check_field_name(new)?,
        "types" => check_type_name(new)?,
        _ => NodeName::parse(new).map(drop).map_err(|error| error.to_string())?,
    }
    if ["end", "fail"].contains(&new) {
        return Err(format!("`{new}` has another meaning"));
    }
    if new != name && view.outline.under(&[section, new]).is_some() {
        return Err(format!("there is `{new}` already"));
    }
    refuse_names_elsewhere(workspace, view, &named)?;
    let mut edit = WorkspaceEdit::default();
    for Reference { uri, text, range, .. } in all(workspace, view, &named) {
        let range = LineIndex::new(&text).range(&range);
        edit.changes.entry(uri).or_default().push(TextEdit { range, new_text: new.to_owned() });
    }
    Ok(edit)
}

/// Refuses to rename what other files, or the values of an enum, name by the same word: they would mean another thing.
fn refuse_names_elsewhere(
    workspace: &Workspace,
    view: &DocumentView<'_>,
    named: &Declaration,
) -> Result<(), String> {
    let Declaration { section, name } = named;
    let parts = view.outline.parts();
    let text = |it: &Part| it.value.clone().and_then(|it| view.text.get(it));
    if *section == "state" {
        let is_passed = |it: &Part| {
            let [Step::Key(key), ..] = it.path.as_slice() else { return false };
            let is_key = it.path.len() == 2 && it.name() == Some(name);
            matches!(key.as_str(), "input" | "output")
                && (is_key || text(it) == Some(name.as_str()))
        };
        if parts.iter().any(is_passed)
            && let Some(user) = workspace.users_of(view).first()
        {
            let user = user.display();
            return Err(format!(
                "`{user}` uses this workflow and names `{name}`: change both by hand"
            ));
        }
    }
    let is_chosen = |it: &Part| {
        let [outer @ .., Step::Key(last)] = it.path.as_slice() else { return false };
        let to = [outer, &[Step::Key("to".to_owned())][..]].concat();
        last == "match"
            && outer.last() == Some(&Step::Key("then".to_owned()))
            && view.outline.part(&to).is_none()
    };
    if *section == "nodes"
        && parts.iter().any(is_chosen)
        && parts.iter().any(|it| {
            let role = view.grammar.at(&it.path).and_then(super::grammar::role);
            let values = text(it).filter(|it| role == Some(Role::Type) && it.contains('|'));
            values.is_some_and(|it| words(it).any(|range| it[range] == **name))
        })
    {
        return Err(format!(
            "an enum has the value `{name}`, by which `match` leads to this node: change both by hand"
        ));
    }
    Ok(())
}

/// Returns the workflow that a prompt or a file of test cases belongs to.
fn owner<'w>(workspace: &'w Workspace, view: &DocumentView<'_>) -> Option<DocumentView<'w>> {
    workspace.owner(view).map(|(it, _)| it).or_else(|| workspace.tested(view))
}

/// Returns what the place at an offset names, and the range of the name.
fn named_at(
    workspace: &Workspace,
    view: &DocumentView<'_>,
    at: usize,
) -> Option<(Declaration, Range<usize>)> {
    if let Some((owner, path)) = workspace.owner(view) {
        let found = in_value(Role::Template, view.text, &owner.items_of(&path));
        let (section, range) = found.into_iter().find(|(_, it)| it.start <= at && at <= it.end)?;
        return Some((
            Declaration { section, name: view.text.get(range.clone())?.to_owned() },
            range,
        ));
    }
    let spot = view.spot(at)?;
    if view.is_cases {
        let workflow = workspace.tested(view)?;
        let word = view.text.get(spot.range.clone())?;
        let part = cases::named_parts(&workflow, spot.role, word).into_iter().next()?;
        let (start, NamedPart { section, range }) = (spot.range.start, part);
        let name = word[range.clone()].to_owned();
        return Some((Declaration { section, name }, start + range.start..start + range.end));
    }
    if spot.path.len() == 2
        && let [Step::Key(section), Step::Key(name)] = spot.path.as_slice()
        && let Some(section) = SECTIONS.iter().find(|it| *it == section)
        && view.outline.part(&spot.path)?.key.as_ref() == Some(&spot.range)
    {
        return Some((Declaration { section, name: name.clone() }, spot.range));
    }
    let word = view.text.get(spot.range.clone())?;
    let found = in_value(spot.role?, word, &view.items_of(&spot.path));
    let cursor = at - spot.range.start;
    let here = found.into_iter().find(|(_, it)| it.start <= cursor && cursor <= it.end);
    let (section, range) = here?;
    let name = word.get(range.clone())?.to_owned();
    let start = spot.range.start;
    Some((Declaration { section, name }, start + range.start..start + range.end))
}

/// The sections whose entries are names.
const SECTIONS: [&str; 7] = ["nodes", "state", "agents", "models", "sandboxes", "folders", "types"];

/// Returns all places that name something: in the workflow, and in its prompts.
fn all(workspace: &Workspace, view: &DocumentView<'_>, named: &Declaration) -> Vec<Reference> {
    let mut found = Vec::new();
    let own: Arc<str> = view.text.into();
    let mut add = |uri: &str, text: &Arc<str>, range: Range<usize>, is_declaration: bool| {
        let (uri, text) = (uri.to_owned(), Arc::clone(text));
        found.push(Reference { uri, text, range, is_declaration });
    };
    let mut prompts: Vec<(PathBuf, String)> = Vec::new();
    for part in view.outline.parts() {
        if let Some(key) = &part.key {
            let is_declaration = part.path.len() == 2
                && part.path[0] == Step::Key(named.section.to_owned())
                && part.name() == Some(&named.name);
            let role = view.grammar.key_role(&part.path).and_then(section_of);
            let is_named = role == Some(named.section) && part.name() == Some(&named.name);
            if is_declaration || is_named {
                add(view.uri, &own, key.clone(), is_declaration);
            }
        }
        let Some(value) = &part.value else { continue };
        let Some(word) = view.text.get(value.clone()) else { continue };
        let Some(role) = view.grammar.at(&part.path).and_then(super::grammar::role) else {
            continue;
        };
        let bound = view.items_of(&part.path);
        for (section, range) in in_value(role, word, &bound) {
            if section == named.section && word.get(range.clone()) == Some(&named.name) {
                add(view.uri, &own, value.start + range.start..value.start + range.end, false);
            }
        }
        if role == Role::Prompt && !prompts.iter().any(|(it, _)| it.as_os_str() == word) {
            prompts.push((word.into(), bound));
        }
    }
    for (path, bound) in prompts {
        let Some((uri, text)) = workspace.prompt(view, &path) else { continue };
        for (section, range) in in_value(Role::Template, &text, &bound) {
            if section == named.section && text.get(range.clone()) == Some(&named.name) {
                add(&uri, &text, range, false);
            }
        }
    }
    for (uri, text) in workspace.cases_of(view) {
        let file = workspace.cases_view(&uri, &text);
        for part in file.outline.parts() {
            let key = part.key.clone().map(|it| (it, file.grammar.key_role(&part.path)));
            let role = file.grammar.at(&part.path).and_then(super::grammar::role);
            let value = part.value.clone().map(|it| (it, role));
            for (span, role) in key.into_iter().chain(value) {
                let Some(word) = text.get(span.clone()) else { continue };
                for NamedPart { section, range } in cases::named_parts(view, role, word) {
                    if section == named.section && word[range.clone()] == named.name {
                        add(&uri, &text, span.start + range.start..span.start + range.end, false);
                    }
                }
            }
        }
    }
    found
}

/// Returns the section that declares the names of a role.
fn section_of(role: Role) -> Option<&'static str> {
    Some(match role {
        Role::Node | Role::Target => "nodes",
        Role::Field => "state",
        Role::Agent => "agents",
        Role::Model => "models",
        Role::Sandbox => "sandboxes",
        Role::Folder => "folders",
        Role::Tier => "memory",
        Role::Tool => "tools",
        Role::Type => "types",
        Role::Prompt
        | Role::Expression
        | Role::Template
        | Role::Value
        | Role::State
        | Role::SchemaFile
        | Role::Workflow
        | Role::Recording
        | Role::Path
        | Role::Data
        | Role::Word => return None,
    })
}

/// Returns the names in a value, each with the section that declares it. `bound` binds the item of a map.
fn in_value(role: Role, text: &str, bound: &str) -> Vec<(&'static str, Range<usize>)> {
    match role {
        Role::Expression => in_expression(text, bound),
        Role::Template => {
            let mut found = Vec::new();
            let mut bound = bound.to_owned();
            for code in codes(text) {
                let inner = in_expression(&text[code.clone()], &bound);
                let placed = |(section, it): (&'static str, Range<usize>)| {
                    (section, code.start + it.start..code.start + it.end)
                };
                found.extend(inner.into_iter().map(placed));
                // A loop binds its variable for the code after it.
                bound.push_str(&text[code]);
                bound.push(' ');
            }
            found
        }
        Role::Type => words(text).map(|it| ("types", it)).collect(),
        role => section_of(role).map(|it| (it, 0..text.len())).into_iter().collect(),
    }
}

/// Returns the code of a template, which is between its marks.
fn codes(text: &str) -> Vec<Range<usize>> {
    let mut codes = Vec::new();
    let mut at = 0;
    while let Some((open, close)) = next_mark(&text[at..]) {
        let start = at + open + 2;
        let Some(length) = text[start..].find(close) else { break };
        if close != "#}" {
            codes.push(start..start + length);
        }
        at = start + length + 2;
    }
    codes
}

fn next_mark(text: &str) -> Option<(usize, &'static str)> {
    let marks = [("{{", "}}"), ("{%", "%}"), ("{#", "#}")];
    let found = marks.iter().filter_map(|(open, close)| Some((text.find(open)?, *close)));
    found.min_by_key(|(at, _)| *at)
}

/// Returns the fields and nodes that an expression names.
fn in_expression(text: &str, bound: &str) -> Vec<(&'static str, Range<usize>)> {
    // YAML escapes this quote; the expression contains it unescaped.
    let expression = text.replace("\\\"", " \"");
    let mut found = Vec::new();
    for word in words(&expression) {
        if let Some((range, wanted)) = quoted_at(&expression, word.start) {
            if wanted == ExpectedKind::Node && range == word {
                found.push(("nodes", word));
            }
            continue;
        }
        let chain = chain_at(&expression, word.end).unwrap_or(word.clone());
        let before = format!("{bound}{}", &expression[..word.start]);
        let name = &expression[word.clone()];
        let is_key = expression[word.end..].trim_start().starts_with(':')
            && expression[..word.start].trim_end().ends_with(['{', ',']);
        let is_called = expression[word.end..].starts_with('(');
        let is_number = name.starts_with(|it: char| it.is_ascii_digit());
        let is_other = is_key || is_called || is_number || binds_next(&before);
        if chain.start == word.start && !is_other && !variables(&before).contains(&name) {
            found.push(("state", word));
        }
    }
    found
}

/// Returns the words of a text that could be names.
fn words(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + text[at..].find(is_word)?;
        let end = start + text[start..].find(|it| !is_word(it)).unwrap_or(text.len() - start);
        at = end;
        Some(start..end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<'t>(role: Role, text: &'t str, bound: &str) -> Vec<(&'static str, &'t str)> {
        let found = in_value(role, text, bound);
        found.into_iter().map(|(section, it)| (section, &text[it])).collect()
    }

    #[test]
    fn an_expression_names_fields_and_nodes_but_not_its_variables() {
        let text = "a.b == \"a\" && xs.exists(x, x.a == c) && visits(\"n\") > 1";
        let expected = [("state", "a"), ("state", "xs"), ("state", "c"), ("nodes", "n")];
        assert_eq!(names(Role::Expression, text, ""), expected);
        assert_eq!(
            names(Role::Expression, "T{ a: b, c: d }", ""),
            [("state", "T"), ("state", "b"), ("state", "d")]
        );
        assert_eq!(names(Role::Expression, "item.x", "for item in y "), []);
    }

    #[test]
    fn only_the_code_of_a_template_names_fields() {
        let text = "a {{ a }} {# a #} {% for b in a.c %}{{ b }}{{ d | join(e) }}{% endfor %}";
        let found = names(Role::Template, text, "");
        let fields: Vec<&str> = found.iter().map(|(_, it)| *it).collect();
        assert_eq!(fields.iter().filter(|it| **it == "a").count(), 2, "{fields:?}");
        assert!(fields.contains(&"d") && fields.contains(&"e"), "{fields:?}");
        assert_eq!(fields.iter().filter(|it| **it == "b").count(), 0, "{fields:?}");
    }
}
