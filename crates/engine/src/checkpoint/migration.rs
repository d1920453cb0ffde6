//! Migration of a run to another workflow: the old basis, the new basis, and the new names.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use graphrun_core::id::{ChannelName, NodeName};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{GraphOutline, RunInfo, TaskRecord};

/// The new names of nodes and fields in another workflow. A name without an entry stays the same.
///
/// An entry also applies to all names below it: `review` to `review.lint`, unless that has a
/// separate entry.
///
/// ```
/// use graphrun_core::id::NodeName;
/// use graphrun_engine::checkpoint::Mapping;
///
/// let name = |it| NodeName::parse_path(it).unwrap();
/// let mapping = Mapping::default().node(name("review"), name("check")).drop_node(name("qa"));
/// assert_eq!(mapping.new_name_of(&name("review.lint")), Some(name("check.lint")));
/// assert_eq!(mapping.new_name_of(&name("qa")), None);
/// assert_eq!(mapping.new_name_of(&name("ba")), Some(name("ba")));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mapping {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) nodes: BTreeMap<NodeName, NodeName>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) fields: BTreeMap<ChannelName, ChannelName>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) dropped_nodes: BTreeSet<NodeName>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) dropped_fields: BTreeSet<ChannelName>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) again: BTreeSet<NodeName>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) set: BTreeMap<ChannelName, Value>,
}

/// The entry of a mapping for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate<N> {
    /// None.
    Unmapped,
    /// The new name.
    Named(N),
    /// The name is dropped.
    Dropped,
}

/// The basis of a run: its workflow, and the data that a program needs to resume it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Basis {
    /// The workflow.
    pub workflow: String,
    /// Data that the program needs to resume the run, such as paths.
    pub origin: Value,
    /// The graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Arc<GraphOutline>>,
}

/// The migration of a run to another basis, by a person or at the begin of a turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Migration {
    /// The basis before.
    pub from: Basis,
    /// The basis after.
    pub to: Basis,
    /// The mapping of names.
    pub mapping: Mapping,
    /// The results of tasks of the open step, as records of the step that is open after the
    /// migration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<TaskRecord>,
}

impl Mapping {
    /// Gives a node and all names below it a new name. With the same name twice it confirms that a
    /// changed node is still the same; its open questions stay as they were asked.
    #[must_use]
    pub fn node(mut self, old: NodeName, new: NodeName) -> Self {
        self.nodes.insert(old, new);
        self
    }

    /// Gives a field and all names below it a new name. With the same name twice it confirms that
    /// the value is kept although the reducer has changed.
    #[must_use]
    pub fn field(mut self, old: ChannelName, new: ChannelName) -> Self {
        self.fields.insert(old, new);
        self
    }

    /// Continues the run without a node: its tasks are dropped, and joins that have begun to wait
    /// no longer wait for it.
    #[must_use]
    pub fn drop_node(mut self, node: NodeName) -> Self {
        self.dropped_nodes.insert(node);
        self
    }

    /// Drops the value of a field, and the updates of finished tasks to it.
    #[must_use]
    pub fn drop_field(mut self, field: ChannelName) -> Self {
        self.dropped_fields.insert(field);
        self
    }

    /// Restarts the tasks of a node in the open step: they ask their questions and do their work
    /// again. The node is given by its old name.
    #[must_use]
    pub fn again(mut self, node: NodeName) -> Self {
        self.again.insert(node);
        self
    }

    /// Sets the value of a field. The field is given by its new name.
    #[must_use]
    pub fn set(mut self, field: ChannelName, value: Value) -> Self {
        self.set.insert(field, value);
        self
    }

    /// Returns the name of a node in the other workflow; `None` if it is dropped.
    pub fn new_name_of(&self, node: &NodeName) -> Option<NodeName> {
        match self.fate_of_node(node) {
            Fate::Named(new) => Some(new),
            Fate::Unmapped => Some(node.clone()),
            Fate::Dropped => None,
        }
    }

    /// Returns the name of a field in the other workflow; `None` if it is dropped.
    pub fn new_field_of(&self, field: &ChannelName) -> Option<ChannelName> {
        match self.fate_of_field(field) {
            Fate::Named(new) => Some(new),
            Fate::Unmapped => Some(field.clone()),
            Fate::Dropped => None,
        }
    }

    pub(crate) fn fate_of_node(&self, node: &NodeName) -> Fate<NodeName> {
        let fate = fate(&self.nodes, &self.dropped_nodes, node.as_str());
        fate.parsed(|it| NodeName::parse_path(it).ok())
    }

    pub(crate) fn fate_of_field(&self, field: &ChannelName) -> Fate<ChannelName> {
        let fate = fate(&self.fields, &self.dropped_fields, field.as_str());
        fate.parsed(|it| ChannelName::parse_path(it).ok())
    }

    /// Combines several mappings of the names of one graph into one; each applies to the result of
    /// the one before.
    pub(crate) fn in_a_row(outline: &GraphOutline, mappings: &[&Self]) -> Self {
        let mut all = Self::default();
        for node in outline.nodes.keys() {
            match mappings.iter().try_fold(node.clone(), |name, it| it.new_name_of(&name)) {
                Some(new) => drop(all.nodes.insert(node.clone(), new)),
                None => drop(all.dropped_nodes.insert(node.clone())),
            }
        }
        for field in outline.channels.keys() {
            match mappings.iter().try_fold(field.clone(), |name, it| it.new_field_of(&name)) {
                Some(new) => drop(all.fields.insert(field.clone(), new)),
                None => drop(all.dropped_fields.insert(field.clone())),
            }
        }
        for mapping in mappings {
            let set = std::mem::take(&mut all.set).into_iter();
            let set = set.filter_map(|(field, it)| Some((mapping.new_field_of(&field)?, it)));
            all.set = set.collect();
            all.set.extend(mapping.set.iter().map(|(field, it)| (field.clone(), it.clone())));
        }
        all
    }
}

impl Fate<String> {
    fn parsed<N>(self, parse: impl Fn(&str) -> Option<N>) -> Fate<N> {
        match self {
            Self::Dropped => Fate::Dropped,
            // A name that is too deep cannot be in a graph.
            Self::Named(name) => parse(&name).map_or(Fate::Unmapped, Fate::Named),
            Self::Unmapped => Fate::Unmapped,
        }
    }
}

/// Returns the entry for a name, or else for the nearest name above it.
fn fate<N: Borrow<str> + Ord>(
    mapped: &BTreeMap<N, N>,
    dropped: &BTreeSet<N>,
    name: &str,
) -> Fate<String> {
    let mut above = name;
    loop {
        if let Some(new) = mapped.get(above) {
            return Fate::Named(format!("{}{}", new.borrow(), &name[above.len()..]));
        }
        if dropped.contains(above) {
            return Fate::Dropped;
        }
        match above.rsplit_once('.') {
            Some((scope, _)) => above = scope,
            None => return Fate::Unmapped,
        }
    }
}

impl RunInfo {
    /// Returns the basis of the run.
    pub fn basis(&self) -> Basis {
        let workflow = self.workflow.clone();
        let origin = self.origin.clone();
        Basis { workflow, origin, graph: self.graph.clone() }
    }

    /// Returns the same run with another basis.
    #[must_use]
    pub fn on(self, Basis { workflow, origin, graph }: Basis) -> Self {
        Self { workflow, origin, graph, ..self }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str) -> NodeName {
        NodeName::parse_path(name).unwrap()
    }

    fn field(name: &str) -> ChannelName {
        ChannelName::parse_path(name).unwrap()
    }

    #[test]
    fn the_nearest_name_above_decides() {
        let mapping = Mapping::default()
            .node(node("a"), node("x"))
            .node(node("a.b.c"), node("y.z"))
            .drop_node(node("a.b"))
            .drop_node(node("aa"));
        let new = |name: &str| mapping.new_name_of(&node(name)).map(|it| it.to_string());
        assert_eq!(new("a").as_deref(), Some("x"));
        assert_eq!(new("a.d").as_deref(), Some("x.d"));
        assert_eq!(new("a.b.c").as_deref(), Some("y.z"));
        assert_eq!(new("a.b.c.d").as_deref(), Some("y.z.d"));
        assert_eq!((new("a.b"), new("a.b.e"), new("aa")), (None, None, None));
        assert_eq!(new("ab").as_deref(), Some("ab"));
    }

    #[test]
    fn mappings_in_a_row_are_one() {
        let channel = super::super::ChannelOutline {
            ty: "int".to_owned(),
            schema: String::new(),
            reducer: None,
            is_private: false,
        };
        let outline = GraphOutline {
            channels: ["a", "b", "c"].map(|it| (field(it), channel.clone())).into(),
            ..GraphOutline::default()
        };
        let first = Mapping::default().field(field("a"), field("b")).drop_field(field("b"));
        let first = first.set(field("c"), json!(1));
        let then = Mapping::default().field(field("b"), field("d")).field(field("c"), field("b"));
        let both = Mapping::in_a_row(&outline, &[&first, &then]);
        let new = |name: &str| both.new_field_of(&field(name)).map(|it| it.to_string());
        assert_eq!(
            (new("a").as_deref(), new("b"), new("c").as_deref()),
            (Some("d"), None, Some("b"))
        );
        assert_eq!(both.set, BTreeMap::from([(field("b"), json!(1))]));
    }
}
