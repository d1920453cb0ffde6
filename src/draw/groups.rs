//! Groups of nodes: the branches of a `parallel`, and the nodes of a used workflow.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::DrawnNode;
use crate::id::NodeName;

/// The separator between the name of a used workflow and the name of a node in it.
const SCOPE_MARK: char = '.';

/// Nodes that a drawing puts into one box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// The group that contains it.
    pub parent: Option<String>,
    /// The nodes that are directly in it, and in no inner group, in the order of the drawing.
    pub nodes: Vec<NodeName>,
}

/// Returns the groups of a drawing, outer ones before inner ones: each `parallel` with its declared
/// name, and each used workflow, such as `review` for a node `review.lint`.
///
/// Each group is a set of nodes. Its parent is the smallest other set that contains all of it.
pub(super) fn groups(
    nodes: &[DrawnNode],
    written: &BTreeMap<NodeName, Vec<NodeName>>,
) -> Vec<Group> {
    let mut sets: BTreeMap<&str, BTreeSet<&NodeName>> = BTreeMap::new();
    for node in nodes {
        let parallels = written.iter().filter(|(_, branches)| branches.contains(&node.name));
        let names = parallels.map(|(name, _)| name.as_str()).chain(scopes(node.name.as_str()));
        for name in names {
            sets.entry(name).or_default().insert(&node.name);
        }
    }
    let mut sets: Vec<(&str, BTreeSet<&NodeName>)> = sets.into_iter().collect();
    // Of two groups with the same nodes, the one with the longer name, `review.split`, is the inner
    // one.
    sets.sort_by_key(|(name, set)| (set.len(), Reverse(name.len())));
    let innermost = |node: &NodeName| sets.iter().position(|(_, set)| set.contains(node));
    let around = |at: usize| sets[at + 1..].iter().find(|(_, set)| sets[at].1.is_subset(set));
    let groups = (0..sets.len()).map(|at| Group {
        name: sets[at].0.to_owned(),
        parent: around(at).map(|(name, _)| (*name).to_owned()),
        nodes: nodes
            .iter()
            .map(|it| &it.name)
            .filter(|it| innermost(it) == Some(at))
            .cloned()
            .collect(),
    });
    groups.rev().collect()
}

/// Returns the groups around a group including itself, the outermost first.
pub(super) fn path<'a>(groups: &'a [Group], name: &str) -> Vec<&'a Group> {
    let find = |name: &str| groups.iter().find(|it| it.name == name);
    let mut path = Vec::new();
    let mut next = find(name);
    while let Some(group) = next {
        path.push(group);
        next = group.parent.as_deref().and_then(find);
    }
    path.reverse();
    path
}

/// Returns `a` and `a.b` for `a.b.c`.
fn scopes(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices(SCOPE_MARK).map(|(at, _)| &name[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(path: &str) -> DrawnNode {
        let name = NodeName::parse_path(path).unwrap();
        DrawnNode { name, ..DrawnNode::of(&NodeName::parse("any").unwrap(), None, None) }
    }

    #[test]
    fn parallels_and_used_workflows_are_boxes_in_boxes() {
        let nodes = ["plan", "qc", "review.lint", "review.deep.a", "review.deep.b"].map(node);
        let names = |all: &[&str]| -> Vec<NodeName> {
            all.iter().map(|it| NodeName::parse_path(it).unwrap()).collect()
        };
        let written = BTreeMap::from([
            (
                names(&["split"])[0].clone(),
                names(&["qc", "review.lint", "review.deep.a", "review.deep.b"]),
            ),
            (names(&["review.deep.both"])[0].clone(), names(&["review.deep.a", "review.deep.b"])),
            (names(&["nothing"])[0].clone(), names(&["gone"])),
        ]);
        let groups = groups(&nodes, &written);
        let shown: Vec<String> = groups
            .iter()
            .map(|it| {
                let nodes: Vec<&str> = it.nodes.iter().map(NodeName::as_str).collect();
                let parent = it.parent.as_deref().unwrap_or("-");
                format!("{} in {parent}: {}", it.name, nodes.join(" "))
            })
            .collect();
        assert_eq!(
            shown,
            [
                "split in -: qc",
                "review in split: review.lint",
                "review.deep in review: ",
                "review.deep.both in review.deep: review.deep.a review.deep.b",
            ]
        );
        let path: Vec<&str> =
            path(&groups, "review.deep.both").iter().map(|it| it.name.as_str()).collect();
        assert_eq!(path, ["split", "review", "review.deep", "review.deep.both"]);
    }
}
