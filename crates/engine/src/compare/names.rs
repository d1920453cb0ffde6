//! Which new name belongs to an old node or field: by the mapping, or by a guess.

use std::collections::BTreeSet;

use graphrun_core::{
    diagnostic::did_you_mean,
    id::{ChannelName, NodeName},
};

use super::{Comparison, Remedy};
use crate::checkpoint::{ChannelOutline, Fate, Mapping, NodeOutline};

/// The names in the graph of a run and in the graph that it is compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'a> {
    pub(super) compared: Comparison<'a>,
    pub(super) mapping: &'a Mapping,
}

impl Names<'_> {
    /// Returns the name of a node in the new graph, if it exists there.
    pub(super) fn node(&self, old: &NodeName) -> Option<NodeName> {
        let new = self.mapping.new_name_of(old)?;
        self.compared.new.nodes.contains_key(&new).then_some(new)
    }

    /// Returns the name of a field in the new graph, if it exists there.
    pub(super) fn field(&self, old: &ChannelName) -> Option<ChannelName> {
        let new = self.mapping.new_field_of(old)?;
        self.compared.new.channels.contains_key(&new).then_some(new)
    }

    pub(super) fn is_dropped(&self, node: &NodeName) -> bool {
        self.mapping.fate_of_node(node) == Fate::Dropped
    }

    pub(super) fn is_dropped_field(&self, field: &ChannelName) -> bool {
        self.mapping.fate_of_field(field) == Fate::Dropped
    }

    /// Returns the new node that is most likely this one, renamed.
    pub(super) fn renamed(&self, name: &NodeName, was: &NodeOutline) -> Option<NodeName> {
        let added: Vec<(&NodeName, &NodeOutline)> = self.added_nodes().collect();
        let names: Vec<&str> = added.iter().map(|(it, _)| it.as_str()).collect();
        let of_use = elsewhere(name.as_str(), &names);
        if let Some(new) = of_use.and_then(|it| NodeName::parse_path(it).ok()) {
            return Some(new);
        }
        let mut same =
            added.iter().filter(|(_, it)| (&it.kind, &it.behaviour) == (&was.kind, &was.behaviour));
        if let (Some((only, _)), None) = (same.next(), same.next()) {
            return Some((*only).clone());
        }
        let near = did_you_mean(name.as_str(), names);
        near.and_then(|it| NodeName::parse_path(it).ok())
    }

    /// Returns the only new node of this kind, if exactly one of the kind is gone.
    pub(super) fn only_new(&self, was: &NodeOutline) -> Option<NodeName> {
        let mut new = self.added_nodes().filter(|(_, it)| it.kind == was.kind);
        let old = self.compared.old.nodes.iter().filter(|(_, it)| it.kind == was.kind);
        let mut gone = old.filter(|(it, _)| self.node(it).is_none() && !self.is_dropped(it));
        match (new.next(), new.next(), gone.next(), gone.next()) {
            (Some((only, _)), None, Some(_), None) => Some(only.clone()),
            _ => None,
        }
    }

    /// Returns the new field that is most likely this one, renamed.
    pub(super) fn renamed_field(
        &self,
        name: &ChannelName,
        was: &ChannelOutline,
    ) -> Option<ChannelName> {
        let kept: BTreeSet<ChannelName> =
            self.compared.old.channels.keys().filter_map(|it| self.field(it)).collect();
        let added = self.compared.new.channels.iter().filter(|(it, _)| !kept.contains(*it));
        let added: Vec<(&ChannelName, &ChannelOutline)> = added.collect();
        let names: Vec<&str> = added.iter().map(|(it, _)| it.as_str()).collect();
        let of_use = elsewhere(name.as_str(), &names);
        let same: Vec<&str> =
            added.iter().filter(|(_, it)| *it == was).map(|(it, _)| it.as_str()).collect();
        let only = if same.len() == 1 { same.first().copied() } else { None };
        let near = did_you_mean(name.as_str(), same.iter().copied()).or(only);
        of_use.or(near).and_then(|it| ChannelName::parse_path(it).ok())
    }

    /// Returns whether a field of the new graph has no counterpart of the same type in the old graph.
    pub(super) fn is_changed(&self, field: &ChannelName) -> bool {
        let Comparison { old, new, .. } = self.compared;
        let same = |was: &ChannelOutline| {
            new.channels.get(field).is_some_and(|is| (&is.ty, &is.schema) == (&was.ty, &was.schema))
        };
        let mut all = old.channels.iter();
        !all.any(|(it, was)| self.field(it).as_ref() == Some(field) && same(was))
    }

    /// Returns the nodes that have no counterpart in the old graph.
    pub(super) fn added_nodes(&self) -> impl Iterator<Item = (&NodeName, &NodeOutline)> {
        let kept: BTreeSet<NodeName> =
            self.compared.old.nodes.keys().filter_map(|it| self.node(it)).collect();
        self.compared.new.nodes.iter().filter(move |(it, _)| !kept.contains(*it))
    }
}

/// Returns the remedy that renames a node; for a node of a used workflow, the remedy renames the whole
/// workflow.
pub(super) fn map_node(old: &NodeName, new: Option<NodeName>) -> Remedy {
    let Some(new) = new else { return Remedy::MapNode(old.clone(), None) };
    let (from, to) = scopes(old.as_str(), new.as_str());
    let scopes = NodeName::parse_path(from).ok().zip(NodeName::parse_path(to).ok());
    let (old, new) = scopes.unwrap_or_else(|| (old.clone(), new));
    Remedy::MapNode(old, Some(new))
}

/// Returns the remedy that renames a field; for a field of a used workflow, the remedy renames the whole
/// workflow.
pub(super) fn map_field(old: &ChannelName, new: Option<ChannelName>) -> Remedy {
    let Some(new) = new else { return Remedy::MapField(old.clone(), None) };
    let (from, to) = scopes(old.as_str(), new.as_str());
    let scopes = ChannelName::parse_path(from).ok().zip(ChannelName::parse_path(to).ok());
    let (old, new) = scopes.unwrap_or_else(|| (old.clone(), new));
    Remedy::MapField(old, Some(new))
}

/// Returns the only new name that has the same last part in another used workflow.
fn elsewhere<'a>(name: &str, added: &[&'a str]) -> Option<&'a str> {
    let mut end = name;
    while let Some((_, rest)) = end.split_once('.') {
        let ends = |text: &&str| text.strip_suffix(rest).is_some_and(|it| it.ends_with('.'));
        let mut found = added.iter().copied().filter(ends);
        if let (Some(only), None) = (found.next(), found.next()) {
            return Some(only);
        }
        end = rest;
    }
    None
}

/// Returns the two paths without their common last part.
fn scopes<'a>(mut old: &'a str, mut new: &'a str) -> (&'a str, &'a str) {
    while let (Some((old_scope, old_name)), Some((new_scope, new_name))) =
        (old.rsplit_once('.'), new.rsplit_once('.'))
        && old_name == new_name
    {
        (old, new) = (old_scope, new_scope);
    }
    (old, new)
}
