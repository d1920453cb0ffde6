//! Compares a workflow with the one a run was started with: the changes, whether the run can continue, and
//! the remedies if it cannot.
//!
//! Without a mapping, the result describes `resume`; with one, the problems that a migration still has.

mod fields;
mod names;
mod nested;
mod nodes;
mod parts;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use graphrun_analysis::{CompiledGraph, FieldReader};
use graphrun_core::{
    diagnostic::did_you_mean,
    id::{ChannelName, NodeName},
    words::quoted_list,
};

use self::{
    fields::FieldChanges, names::Names, nested::NestedChanges, nodes::NodeChanges, parts::Parts,
};
use crate::checkpoint::{ChannelOutline, GraphOutline, InboxMessage, Mapping, SavedRun};

/// There are fewer kinds of differences than this, so more rounds of remedies show nothing new.
const ROUNDS_MAX: usize = 6;

/// A difference between the workflow and the one the run was started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The change, such as "the node `qa` is gone".
    pub what: String,
    /// The part of the run that breaks, if any.
    pub breaks: Option<String>,
    /// A fix.
    pub hint: Option<String>,
    /// The migration flags that settle it, the most likely first.
    pub remedies: Vec<Remedy>,
}

/// An argument of a migration. As text, it is the flag of the CLI.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remedy {
    /// The node has this new name, if one is likely.
    MapNode(NodeName, Option<NodeName>),
    /// The field has this new name, if one is likely.
    MapField(ChannelName, Option<ChannelName>),
    /// The run continues without the node.
    DropNode(NodeName),
    /// The value of the field is dropped.
    DropField(ChannelName),
    /// The tasks of the node start again.
    Again(NodeName),
    /// The field gets a given value.
    Set(ChannelName),
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MapNode(old, Some(new)) => write!(f, "--map {old}={new}"),
            Self::MapNode(old, None) => write!(f, "--map {old}=NODE"),
            Self::MapField(old, Some(new)) => write!(f, "--map {old}={new}"),
            Self::MapField(old, None) => write!(f, "--map {old}=FIELD"),
            Self::DropNode(name) => write!(f, "--drop {name}"),
            Self::DropField(name) => write!(f, "--drop {name}"),
            Self::Again(name) => write!(f, "--again {name}"),
            Self::Set(name) => write!(f, "--set {name}=JSON"),
        }
    }
}

impl Remedy {
    /// Adds the remedy to a mapping, if it is complete.
    fn add_to(&self, mapping: Mapping) -> Option<Mapping> {
        Some(match self.clone() {
            Self::MapNode(old, new) => mapping.node(old, new?),
            Self::MapField(old, new) => mapping.field(old, new?),
            Self::DropNode(name) => mapping.drop_node(name),
            Self::DropField(name) => mapping.drop_field(name),
            Self::Again(name) => mapping.again(name),
            // The value does not influence which other remedies are needed.
            Self::Set(name) => mapping.set(name, serde_json::Value::Null),
        })
    }
}

impl Difference {
    /// Returns the first of these differences that breaks the run.
    pub(super) fn first_break(all: &[Self]) -> Option<Box<Self>> {
        all.iter().find(|it| it.breaks.is_some()).cloned().map(Box::new)
    }
}

impl std::error::Error for Difference {}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        for part in [&self.breaks, &self.hint].into_iter().flatten() {
            write!(f, "; {part}")?;
        }
        Ok(())
    }
}

/// A run, and the graph it may continue with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison<'a> {
    /// The graph the run was started with.
    pub(super) old: &'a GraphOutline,
    pub(super) new: &'a GraphOutline,
    pub(super) graph: &'a CompiledGraph,
    pub(super) saved: &'a SavedRun,
    /// The inbox messages that are not processed yet.
    pub(super) messages: &'a [InboxMessage],
}

/// Returns every difference between the graph of a run and another graph; those that break the run at its
/// current position come first.
pub(super) fn compare(compared: Comparison<'_>, mapping: Option<&Mapping>) -> Vec<Difference> {
    let none = Mapping::default();
    let names = Names { compared, mapping: mapping.unwrap_or(&none) };
    let parts = Parts { names };
    let mut found = Differences::default();
    unknown_names(names, &mut found);
    found.0.extend(NodeChanges::find(names).0);
    found.0.extend(FieldChanges::find(names, mapping.is_some()).0);
    lost_messages(names, parts, &mut found);
    unwritten_fields(names, parts, &mut found);
    found.0.extend(NestedChanges::find(names).0);
    let Comparison { old, new, .. } = compared;
    let entry: BTreeSet<NodeName> = old.entry.iter().filter_map(|it| names.node(it)).collect();
    if entry != new.entry.iter().cloned().collect() {
        found.note("the start has changed".to_owned());
    }
    if old.limits != new.limits {
        found.note("the limits have changed".to_owned());
    }
    found.0.sort_by_key(|it| it.breaks.is_none());
    found.0
}

/// Returns the arguments that a migration needs, as far as they can be guessed. A person has to review them.
pub(super) fn suggest(compared: Comparison<'_>) -> Vec<Remedy> {
    let mut flags: Vec<Remedy> = Vec::new();
    let mut mapping = Mapping::default();
    for _ in 0..ROUNDS_MAX {
        let found = compare(compared, Some(&mapping));
        let first = |difference: &Difference| {
            difference.remedies.first().cloned().filter(|_| difference.breaks.is_some())
        };
        let wanted: BTreeSet<Remedy> = found.iter().filter_map(first).collect();
        let new: Vec<Remedy> = wanted.into_iter().filter(|it| !flags.contains(it)).collect();
        if new.is_empty() {
            break;
        }
        for remedy in new {
            mapping = remedy.add_to(mapping.clone()).unwrap_or(mapping);
            flags.push(remedy);
        }
    }
    flags
}

/// The differences found so far.
#[derive(Debug, Default)]
struct Differences(Vec<Difference>);

impl Differences {
    fn note(&mut self, what: String) {
        let breaks = None;
        let hint = None;
        let remedies = Vec::new();
        self.0.push(Difference { what, breaks, hint, remedies });
    }

    fn broken(&mut self, what: String, breaks: String, hint: String, remedies: Vec<Remedy>) {
        let breaks = Some(breaks);
        let hint = Some(hint);
        self.0.push(Difference { what, breaks, hint, remedies });
    }
}

/// Checks that every name in the mapping exists.
fn unknown_names(names: Names<'_>, found: &mut Differences) {
    let Comparison { old, new, .. } = names.compared;
    let mapping = names.mapping;
    let old_nodes = KnownNames { whose: "the run", kind: "node", names: node_names(old) };
    let new_nodes = KnownNames { whose: "the workflow", kind: "node", names: node_names(new) };
    let old_fields = KnownNames { whose: "the run", kind: "field", names: field_names(old) };
    let new_fields = KnownNames { whose: "the workflow", kind: "field", names: field_names(new) };
    for (from, to) in &mapping.nodes {
        old_nodes.check(from.as_str(), found);
        new_nodes.check(to.as_str(), found);
    }
    for (from, to) in &mapping.fields {
        old_fields.check(from.as_str(), found);
        new_fields.check(to.as_str(), found);
    }
    let either = old_nodes.names.iter().chain(&new_nodes.names).copied().collect();
    let either = KnownNames { names: either, ..old_nodes };
    mapping.dropped_nodes.iter().for_each(|it| either.check(it.as_str(), found));
    mapping.dropped_fields.iter().for_each(|it| old_fields.check(it.as_str(), found));
    mapping.again.iter().for_each(|it| old_nodes.check(it.as_str(), found));
    mapping.set.keys().for_each(|it| new_fields.check(it.as_str(), found));
}

fn node_names(outline: &GraphOutline) -> Vec<&str> {
    outline.nodes.keys().map(NodeName::as_str).collect()
}

fn field_names(outline: &GraphOutline) -> Vec<&str> {
    outline.channels.keys().map(ChannelName::as_str).collect()
}

/// The names of one kind of part.
struct KnownNames<'a> {
    /// The owner of these parts, as in a sentence.
    whose: &'static str,
    kind: &'static str,
    names: Vec<&'a str>,
}

impl KnownNames<'_> {
    /// Checks that a name is one of these, or the prefix of one.
    fn check(&self, name: &str, found: &mut Differences) {
        let Self { whose, kind, names } = self;
        let below =
            |channel: &&str| channel.strip_prefix(name).is_some_and(|it| it.starts_with('.'));
        if names.iter().any(|it| *it == name || below(it)) {
            return;
        }
        let near = did_you_mean(name, names.iter().copied());
        let hint = near.map_or_else(
            || "`graphrun graph` draws the nodes".to_owned(),
            |it| format!("did you mean `{it}`?"),
        );
        let what = format!("{whose} has no {kind} `{name}`");
        found.broken(what, "no part of the run has that name".to_owned(), hint, Vec::new());
    }
}

/// Checks that messages have a list in the new graph.
fn lost_messages(names: Names<'_>, parts: Parts<'_>, found: &mut Differences) {
    let Comparison { saved, messages, new, .. } = names.compared;
    let channels = saved
        .position
        .people
        .pending_messages
        .iter()
        .chain(messages)
        .map(|it| it.message.channel.clone());
    for channel in channels.collect::<BTreeSet<_>>() {
        let is_reported = parts.holds(&channel);
        if is_reported || names.field(&channel).is_some() || names.is_dropped_field(&channel) {
            continue;
        }
        let near = did_you_mean(channel.as_str(), new.channels.keys().map(ChannelName::as_str));
        let near = near.and_then(|it| ChannelName::parse_path(it).ok());
        let hint = "`--map` names the new list, `--drop` discards the messages";
        let remedies =
            vec![Remedy::MapField(channel.clone(), near), Remedy::DropField(channel.clone())];
        found.broken(
            format!("the field `{channel}` is gone"),
            "it has messages that the run has not read".to_owned(),
            hint.to_owned(),
            remedies,
        );
    }
}

/// Checks that a new field has a value if the run may still reach a node that requires it, and a field that was optional,
/// too.
fn unwritten_fields(names: Names<'_>, parts: Parts<'_>, found: &mut Differences) {
    let Comparison { old, graph, new, .. } = names.compared;
    let midway = parts.midway();
    let kept: BTreeMap<ChannelName, &ChannelOutline> =
        old.channels.iter().filter_map(|(it, was)| Some((names.field(it)?, was))).collect();
    let likely: BTreeSet<ChannelName> = found
        .0
        .iter()
        .flat_map(|it| &it.remedies)
        .filter_map(|remedy| match remedy {
            Remedy::MapField(_, new) => new.clone(),
            Remedy::Set(field) => Some(field.clone()),
            _ => None,
        })
        .collect();
    for (field, reader) in graph.unwritten(&midway) {
        let is = &new.channels[&field];
        let what = match kept.get(&field) {
            None => format!("the field `{field}` ({}) is new", is.ty),
            Some(was) if was.ty != is.ty => format!("`{field}` was {} and is {}", was.ty, is.ty),
            Some(_) => continue,
        };
        if likely.contains(&field) {
            continue;
        }
        let breaks = match reader {
            FieldReader::Node(node) => format!(
                "`{node}` reads it, and the run may reach that node before the field is written"
            ),
            FieldReader::Output => "it is an output, and the run may end without it".to_owned(),
        };
        let hint = format!("`--set {field}=JSON` sets it");
        found.broken(what, breaks, hint, vec![Remedy::Set(field)]);
    }
}

/// Returns the new names that several old names map to.
fn shared<N: Ord + Clone>(pairs: impl Iterator<Item = (N, N)>) -> BTreeMap<N, Vec<N>> {
    let mut by_new: BTreeMap<N, Vec<N>> = BTreeMap::new();
    for (old, new) in pairs {
        by_new.entry(new).or_default().push(old);
    }
    by_new.retain(|_, old| old.len() > 1);
    by_new
}

fn list_or_nothing(nodes: &[impl fmt::Display]) -> String {
    if nodes.is_empty() { "nothing".to_owned() } else { quoted_list(nodes) }
}

fn article(kind: &str) -> String {
    let vowel = kind.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {kind}", if vowel { "an" } else { "a" })
}
