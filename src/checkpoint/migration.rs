//! Carrying a run over to another workflow: what was, what is, and what became of each name.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, BTreeSet},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Outline, RunInfo, TaskRecord};
use crate::id::{ChannelName, NodeName};

/// What the names of a run are in another workflow. What is not named keeps its name.
///
/// A name stands for everything below it as well: `review` for `review.lint`, unless that is named
/// itself.
///
/// ```
/// use graphrun::{checkpoint::Mapping, id::NodeName};
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

/// What a mapping says of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate<N> {
    /// Nothing.
    Unsaid,
    /// It has this name.
    Named(N),
    /// It is left behind.
    Dropped,
}

/// What a run goes by: its workflow, and what a program needs to go on with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Basis {
    /// The workflow.
    pub workflow: String,
    /// Whatever the program needs to resume the run, such as paths.
    pub origin: Value,
    /// The graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<Box<Outline>>,
}

/// A run was carried over to another workflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Migration {
    /// What it went by until then.
    pub was: Basis,
    /// What it goes by since.
    pub is: Basis,
    /// What became of its names.
    pub mapping: Mapping,
    /// What tasks of the open step had done by then, as records of the step that is open since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<TaskRecord>,
}

impl Mapping {
    /// A node has another name, and what is below it too. Under its own name: it is the same node,
    /// though what it does has changed, and what it asked stays asked.
    #[must_use]
    pub fn node(mut self, old: NodeName, new: NodeName) -> Self {
        self.nodes.insert(old, new);
        self
    }

    /// A field has another name, and what is below it too. Under its own name: its value is kept,
    /// though it was merged in another way.
    #[must_use]
    pub fn field(mut self, old: ChannelName, new: ChannelName) -> Self {
        self.fields.insert(old, new);
        self
    }

    /// The run goes on without a node: its tasks are left behind, and nothing that has begun to
    /// wait waits for it.
    #[must_use]
    pub fn drop_node(mut self, node: NodeName) -> Self {
        self.dropped_nodes.insert(node);
        self
    }

    /// The value of a field is left behind, and what finished tasks have written to it.
    #[must_use]
    pub fn drop_field(mut self, field: ChannelName) -> Self {
        self.dropped_fields.insert(field);
        self
    }

    /// The tasks of a node in the open step begin anew: what they asked is asked anew, and what they
    /// have done is done again. The node goes by the name it had.
    #[must_use]
    pub fn again(mut self, node: NodeName) -> Self {
        self.again.insert(node);
        self
    }

    /// A field holds this value. It goes by the name it has.
    #[must_use]
    pub fn set(mut self, field: ChannelName, value: Value) -> Self {
        self.set.insert(field, value);
        self
    }

    /// The name of a node in the other workflow; none if it is dropped.
    pub fn new_name_of(&self, node: &NodeName) -> Option<NodeName> {
        match self.fate_of_node(node) {
            Fate::Named(new) => Some(new),
            Fate::Unsaid => Some(node.clone()),
            Fate::Dropped => None,
        }
    }

    /// The name of a field in the other workflow; none if it is dropped.
    pub fn new_field_of(&self, field: &ChannelName) -> Option<ChannelName> {
        match self.fate_of_field(field) {
            Fate::Named(new) => Some(new),
            Fate::Unsaid => Some(field.clone()),
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

    /// Several mappings of the names of one graph, each of what the one before has made of them, as
    /// one.
    pub(crate) fn in_a_row(outline: &Outline, mappings: &[&Self]) -> Self {
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
            // A name that would be too deep is none that a graph has.
            Self::Named(name) => parse(&name).map_or(Fate::Unsaid, Fate::Named),
            Self::Unsaid => Fate::Unsaid,
        }
    }
}

/// What is said of a name, or else of the nearest one that it is below.
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
            None => return Fate::Unsaid,
        }
    }
}

impl RunInfo {
    /// What the run goes by.
    pub fn basis(&self) -> Basis {
        let (workflow, origin) = (self.workflow.clone(), self.origin.clone());
        Basis { workflow, origin, graph: self.graph.clone() }
    }

    /// The same run on another basis.
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
        };
        let outline = Outline {
            channels: ["a", "b", "c"].map(|it| (field(it), channel.clone())).into(),
            ..Outline::default()
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
