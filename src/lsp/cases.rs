//! Files of test cases: their keys and values name nodes and fields of the workflow under test.

use std::ops::Range;

use super::{
    grammar::{self, Role},
    protocol::{Hover, Location},
    workspace::{DocumentView, Spot, TestedWorkflow, Workspace},
};
use crate::{
    state::{Schema, Type},
    workflow::Step,
};

/// A thing of the workflow that a name in a file of test cases stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedPart {
    /// The section of the workflow that declares it.
    pub(super) section: &'static str,
    /// The bytes of its name in the text.
    pub(super) range: Range<usize>,
}

/// Returns the things that a key or a value names, the outer ones of `review.lint` first. Names of used workflows begin
/// with the node that uses them.
pub(super) fn named_parts(
    workflow: &DocumentView<'_>,
    role: Option<Role>,
    text: &str,
) -> Vec<NamedPart> {
    let is_declared =
        |section: &str, name: &str| workflow.outline.under(&[section, name]).is_some();
    let first = text.find('.').unwrap_or(text.len());
    let sections: &[&'static str] = match role {
        Some(Role::Node) => &["nodes"],
        Some(Role::Field | Role::Path) => &["state", "nodes"],
        Some(Role::Tool) => return vec![NamedPart { section: "tools", range: 0..text.len() }],
        _ => &[],
    };
    // A state that Rust declares has no section in the file.
    let is_field = |name: &str| workflow.state.is_some_and(|it| it.channel(name).is_some());
    let names = |section: &str, name: &str| match section {
        "state" => is_declared("state", name) || is_field(name),
        section => is_declared(section, name),
    };
    let found = sections.iter().find(|section| names(section, &text[..first]));
    found.map(|section| NamedPart { section, range: 0..first }).into_iter().collect()
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

/// Returns the declaration of the name at a place.
pub(super) fn definition(
    workspace: &Workspace,
    view: &DocumentView<'_>,
    (spot, at): (&Spot, usize),
) -> Option<Location> {
    let word = view.text.get(spot.range.clone())?;
    if let Some(Role::Workflow | Role::Recording) = spot.role {
        let path = view.folder()?.join(word);
        let range = super::define::START;
        return path.is_file().then(|| Location { uri: workspace.uri_of(&path), range });
    }
    let workflow = workspace.tested(view)?;
    let at = at - spot.range.start;
    let parts = named_parts(&workflow, spot.role, word);
    let part = parts.iter().find(|it| it.range.contains(&at)).or(parts.first())?;
    workflow.declared(part.section, &word[part.range.clone()])
}

/// Returns the type of a value, or of a part of one, at the end of a path.
pub(super) fn data_type(view: &DocumentView<'_>, path: &[Step]) -> Option<Type> {
    let schema = &view.tested?.schema;
    let (at, name) = path.iter().enumerate().find_map(|(at, step)| match step {
        Step::Key(key) => {
            let role = view.grammar.key_role(&path[..=at]);
            matches!(role, Some(Role::Field | Role::Path)).then_some((at, key))
        }
        Step::Item(_) => None,
    })?;
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
