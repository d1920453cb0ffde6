//! Files of test cases: their keys and values name nodes and fields of the workflow under test.

use std::ops::Range;

use super::{
    grammar::{self, Role},
    mentions::{Mention, entry},
    protocol::Hover,
    workspace::{DocumentView, Spot, TestedWorkflow, Workspace},
};
use crate::{
    state::{Schema, Type},
    workflow::{Part, Step},
};

/// Returns the names of the workflow in a key or a value of a file, with their places in it. Names of used workflows begin with the
/// node that uses them.
pub(super) fn mentions(
    workflow: &DocumentView<'_>,
    file: &DocumentView<'_>,
    part: &Part,
) -> Vec<Mention> {
    let mut found = Vec::new();
    if let Some(key) = part.key.clone() {
        let inside = || {
            let declared = declared_data(workflow, file, &part.path)?;
            Some(vec![Mention { declared, range: key.clone() }])
        };
        let role = file.grammar.key_role(&part.path);
        found.extend(match role {
            Some(role) => named_in(workflow, role, file.text, key.clone()),
            None => inside().unwrap_or_default(),
        });
    }
    let role = file.grammar.at(&part.path).and_then(grammar::role);
    if let (Some(value), Some(role)) = (part.value.clone(), role) {
        found.extend(named_in(workflow, role, file.text, value));
    }
    found
}

/// Returns the names in a word with a role.
fn named_in(
    workflow: &DocumentView<'_>,
    role: Role,
    text: &str,
    span: Range<usize>,
) -> Vec<Mention> {
    let Some(word) = text.get(span.clone()) else { return Vec::new() };
    let sections: &[&str] = match role {
        Role::Node => &["nodes"],
        Role::Field | Role::Path => &["state", "nodes"],
        Role::Tool => {
            return vec![Mention { declared: entry("tools", word), range: span }];
        }
        _ => &[],
    };
    let mut names = words_of_path(word);
    let Some(first) = names.next() else { return Vec::new() };
    let name = &word[first.clone()];
    // A state that Rust declares has no section in the file.
    let is_field = |section: &str| {
        section == "state" && workflow.state.is_some_and(|it| it.channel(name).is_some())
    };
    let is_declared =
        |section: &&&str| workflow.outline.under(&[section, name]).is_some() || is_field(section);
    let Some(section) = sections.iter().find(is_declared) else { return Vec::new() };
    let mut declared = entry(section, name);
    let mut found = vec![Mention { declared: declared.clone(), range: first }];
    for range in names {
        let Some(part) = workflow.declared_part(&declared, &word[range.clone()]) else { break };
        declared = part;
        found.push(Mention { declared: declared.clone(), range });
    }
    found.into_iter().map(|it| it.moved(span.start)).collect()
}

/// Returns the places of the names of a path such as `review.verdict`.
fn words_of_path(path: &str) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    path.split('.').map(move |name| {
        let range = start..start + name.len();
        start = range.end + 1;
        range
    })
}

/// Returns the path of the declaration of a field in a value.
fn declared_data(
    workflow: &DocumentView<'_>,
    file: &DocumentView<'_>,
    path: &[Step],
) -> Option<Vec<Step>> {
    let (at, name) = field_above(file, path)?;
    let mut names = name.split('.');
    let root = entry("state", names.next()?);
    let root = names.try_fold(root, |of, name| workflow.declared_part(&of, name))?;
    path[at + 1..].iter().try_fold(root, |of, step| match step {
        Step::Key(name) => workflow.declared_part(&of, name),
        Step::Item(_) => Some(of),
    })
}

/// Returns the number of the step that names the field of a value, and that name.
fn field_above<'p>(file: &DocumentView<'_>, path: &'p [Step]) -> Option<(usize, &'p str)> {
    path.iter().enumerate().find_map(|(at, step)| match step {
        Step::Key(key) => {
            let role = file.grammar.key_role(&path[..=at]);
            matches!(role, Some(Role::Field | Role::Path)).then_some((at, key.as_str()))
        }
        Step::Item(_) => None,
    })
}

/// Returns the description of the name at a place.
pub(super) fn hover(workspace: &Workspace, view: &DocumentView<'_>, spot: &Spot) -> Option<Hover> {
    let word = view.text.get(spot.range.clone())?;
    let workflow = workspace.tested(view);
    let about = match spot.role {
        Some(Role::Node) => about_node(workflow.as_ref()?, view.tested?, word),
        Some(Role::Field | Role::Path) => {
            let (chain, ty) = field(word, workflow.as_ref()?.state?)?;
            workflow
                .as_ref()?
                .about_field(word, "")
                .or_else(|| Some(format!("**{chain}**: `{ty}`")))
        }
        Some(Role::Tool) => workflow.as_ref()?.about_declared("tools", word),
        Some(Role::Data) => Some(format!("`{}`", data_type(view, &spot.path)?)),
        Some(Role::Workflow) => Some("the workflow under test".to_owned()),
        Some(_) => None,
        None => about_key(view, spot),
    };
    let range = view.lines.range(&spot.range);
    Some(Hover { contents: about?.into(), range })
}

fn about_key(view: &DocumentView<'_>, spot: &Spot) -> Option<String> {
    let Some(Step::Key(key)) = spot.path.last() else { return None };
    let (_, outer) = spot.path.split_last()?;
    if view.grammar.at(outer).and_then(grammar::role) == Some(Role::Data) {
        return Some(format!("**{key}**: `{}`", data_type(view, &spot.path)?));
    }
    Some(format!("**{key}**\n\n{}", view.grammar.about_key(&spot.path)?))
}

/// Returns the description of a node, or of one of a used workflow.
fn about_node(workflow: &DocumentView<'_>, tested: &TestedWorkflow, name: &str) -> Option<String> {
    workflow.about_node(name).or_else(|| {
        let writes = tested.nodes.get(name)?.as_ref().filter(|it| !it.is_empty());
        let writes = writes.map(|it| format!("\n\n- writes `{}`", it.join("`, `")));
        Some(format!("**{name}**: a node of a used workflow{}", writes.unwrap_or_default()))
    })
}

/// Returns the type of a value, or of a part of one, at the end of a path.
pub(super) fn data_type(view: &DocumentView<'_>, path: &[Step]) -> Option<Type> {
    let schema = &view.tested?.schema;
    let (at, name) = field_above(view, path)?;
    let (_, ty) = field(name, schema)?;
    path[at + 1..].iter().try_fold(ty, |ty, step| match (step, ty.required()) {
        (Step::Item(_), Type::List(item)) | (Step::Key(_), Type::Map(item)) => {
            Some(Type::clone(item))
        }
        // An item of a list may be written without the list.
        (Step::Key(key), Type::List(item)) => item.field(key).cloned(),
        (Step::Key(key), ty) => ty.field(key).cloned(),
        (Step::Item(_), _) => None,
    })
}

/// Returns the type at the end of a path such as `review.verdict`. Fields of used workflows have dots in their names.
fn field<'t>(text: &'t str, schema: &Schema) -> Option<(&'t str, Type)> {
    let mut ends = text.match_indices('.').map(|(at, _)| at).chain([text.len()]);
    let end = ends.rfind(|it| schema.channel(&text[..*it]).is_some())?;
    let ty = schema.channel(&text[..end])?.ty().clone();
    let parts = text[end..].split('.').skip(1);
    let ty = parts.into_iter().try_fold(ty, |ty, part| ty.field(part).cloned())?;
    Some((text, ty))
}

/// Returns the node whose answer is at the end of a path.
pub(super) fn answering<'p>(view: &DocumentView<'_>, path: &'p [Step]) -> Option<&'p str> {
    let node = path.iter().rposition(|it| *it == Step::Key("nodes".to_owned()))?;
    let rest = path.get(node + 1..)?;
    let (Step::Key(name), attempts) = rest.split_first()? else { return None };
    let is_answer = attempts.iter().all(|it| matches!(it, Step::Item(_)));
    let is_node = view.grammar.key_role(&path[..node + 2]) == Some(Role::Node);
    (is_answer && is_node).then_some(name)
}
