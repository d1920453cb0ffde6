//! Compares a workflow with the one a run was started with: the changes, whether the run can continue, and
//! the remedies if it cannot.
//!
//! Without a mapping, the result describes `resume`; with one, the problems that a migration still has.

mod candidates;
mod fields;
mod nodes;
mod parts;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use graphrun_analysis::{CompiledGraph, Midway};
use graphrun_core::{
    diagnostic::did_you_mean,
    graph::Transition,
    id::{ChannelName, NodeName},
};

use super::superstep::carry;
use crate::checkpoint::{Fate, InboxMessage, Mapping, Outline, SavedRun};

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
pub(super) struct Compared<'a> {
    /// The graph the run was started with.
    pub(super) old: &'a Outline,
    pub(super) new: &'a Outline,
    pub(super) graph: &'a CompiledGraph,
    pub(super) saved: &'a SavedRun,
    /// The inbox messages that are not processed yet.
    pub(super) messages: &'a [InboxMessage],
}

/// Returns every difference between the graph of a run and another graph; those that break the run at its
/// current position come first.
pub(super) fn compare(compared: Compared<'_>, mapping: Option<&Mapping>) -> Vec<Difference> {
    let given = mapping.cloned().unwrap_or_default();
    let is_migration = mapping.is_some();
    let mut comparing = Comparing { compared, mapping: given, is_migration, found: Vec::new() };
    comparing.names();
    comparing.nodes();
    comparing.fields();
    comparing.messages();
    comparing.unwritten();
    let Compared { old, new, .. } = compared;
    let entry: BTreeSet<NodeName> = old.entry.iter().filter_map(|it| comparing.node(it)).collect();
    if entry != new.entry.iter().cloned().collect() {
        comparing.note("the start has changed".to_owned());
    }
    if old.limits != new.limits {
        comparing.note("the limits have changed".to_owned());
    }
    let mut found = comparing.found;
    found.sort_by_key(|it| it.breaks.is_none());
    found
}

/// Returns the arguments that a migration needs, as far as they can be guessed. A person has to review them.
pub(super) fn suggest(compared: Compared<'_>) -> Vec<Remedy> {
    let mut flags: Vec<Remedy> = Vec::new();
    let mut mapping = Mapping::default();
    for _ in 0..ROUNDS_MAX {
        let found = compare(compared, Some(&mapping));
        let first = |it: &Difference| it.remedies.first().cloned().filter(|_| it.breaks.is_some());
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

struct Comparing<'a> {
    compared: Compared<'a>,
    mapping: Mapping,
    /// Whether the comparison is for a migration rather than for a plain resume.
    is_migration: bool,
    found: Vec<Difference>,
}

impl Comparing<'_> {
    fn note(&mut self, what: String) {
        let (breaks, hint, remedies) = (None, None, Vec::new());
        self.found.push(Difference { what, breaks, hint, remedies });
    }

    fn broken(&mut self, what: String, breaks: String, hint: String, remedies: Vec<Remedy>) {
        let (breaks, hint) = (Some(breaks), Some(hint));
        self.found.push(Difference { what, breaks, hint, remedies });
    }

    /// Returns the name of a node in the new graph, if it exists there.
    fn node(&self, old: &NodeName) -> Option<NodeName> {
        let new = self.mapping.new_name_of(old)?;
        self.compared.new.nodes.contains_key(&new).then_some(new)
    }

    /// Returns the name of a field in the new graph, if it exists there.
    fn field(&self, old: &ChannelName) -> Option<ChannelName> {
        let new = self.mapping.new_field_of(old)?;
        self.compared.new.channels.contains_key(&new).then_some(new)
    }

    fn is_dropped(&self, node: &NodeName) -> bool {
        self.mapping.fate_of_node(node) == Fate::Dropped
    }

    fn is_dropped_field(&self, field: &ChannelName) -> bool {
        self.mapping.fate_of_field(field) == Fate::Dropped
    }

    /// Every name in the mapping must exist.
    fn names(&mut self) {
        let Compared { old, new, .. } = self.compared;
        let mapping = self.mapping.clone();
        let old_nodes: Vec<&str> = old.nodes.keys().map(NodeName::as_str).collect();
        let new_nodes: Vec<&str> = new.nodes.keys().map(NodeName::as_str).collect();
        let old_fields: Vec<&str> = old.channels.keys().map(ChannelName::as_str).collect();
        let new_fields: Vec<&str> = new.channels.keys().map(ChannelName::as_str).collect();
        for (from, to) in &mapping.nodes {
            self.named(from.as_str(), "node", ("the run", &old_nodes));
            self.named(to.as_str(), "node", ("the workflow", &new_nodes));
        }
        for (from, to) in &mapping.fields {
            self.named(from.as_str(), "field", ("the run", &old_fields));
            self.named(to.as_str(), "field", ("the workflow", &new_fields));
        }
        let either: Vec<&str> = old_nodes.iter().chain(&new_nodes).copied().collect();
        for name in &mapping.dropped_nodes {
            self.named(name.as_str(), "node", ("the run", &either));
        }
        for name in &mapping.dropped_fields {
            self.named(name.as_str(), "field", ("the run", &old_fields));
        }
        for name in &mapping.again {
            self.named(name.as_str(), "node", ("the run", &old_nodes));
        }
        for name in mapping.set.keys() {
            self.named(name.as_str(), "field", ("the workflow", &new_fields));
        }
    }

    /// A name must be one of these, or the prefix of one.
    fn named(&mut self, name: &str, kind: &str, (whose, names): (&str, &[&str])) {
        let below = |it: &&str| it.strip_prefix(name).is_some_and(|it| it.starts_with('.'));
        if names.iter().any(|it| *it == name || below(it)) {
            return;
        }
        let near = did_you_mean(name, names.iter().copied());
        let hint = near.map_or_else(
            || "`graphrun graph` draws the nodes".to_owned(),
            |it| format!("did you mean `{it}`?"),
        );
        let what = format!("{whose} has no {kind} `{name}`");
        self.broken(what, "no part of the run has that name".to_owned(), hint, Vec::new());
    }

    /// Messages need a list in the new graph.
    fn messages(&mut self) {
        let Compared { saved, messages, new, .. } = self.compared;
        let channels = saved
            .position
            .people
            .pending_messages
            .iter()
            .chain(messages)
            .map(|it| it.message.channel.clone());
        for channel in channels.collect::<BTreeSet<_>>() {
            let is_told = self.holds(&channel);
            if is_told || self.field(&channel).is_some() || self.is_dropped_field(&channel) {
                continue;
            }
            let near = did_you_mean(channel.as_str(), new.channels.keys().map(ChannelName::as_str));
            let near = near.and_then(|it| ChannelName::parse_path(it).ok());
            let hint = "`--map` names the new list, `--drop` discards the messages";
            let remedies =
                vec![Remedy::MapField(channel.clone(), near), Remedy::DropField(channel.clone())];
            self.broken(
                format!("the field `{channel}` is gone"),
                "it has messages that the run has not read".to_owned(),
                hint.to_owned(),
                remedies,
            );
        }
    }

    /// A new field needs a value if a node that the run may still reach requires it.
    fn unwritten(&mut self) {
        let Compared { old, graph, new, .. } = self.compared;
        let midway = self.midway();
        let kept: BTreeSet<ChannelName> =
            old.channels.keys().filter_map(|it| self.field(it)).collect();
        let likely: BTreeSet<ChannelName> = self
            .found
            .iter()
            .flat_map(|it| &it.remedies)
            .filter_map(|it| match it {
                Remedy::MapField(_, new) => new.clone(),
                Remedy::Set(field) => Some(field.clone()),
                _ => None,
            })
            .collect();
        for (field, node) in graph.unwritten(&midway) {
            if kept.contains(&field) || likely.contains(&field) {
                continue;
            }
            let ty = &new.channels[&field].ty;
            self.broken(
                format!("the field `{field}` ({ty}) is new"),
                format!(
                    "`{node}` reads it, and the run may reach that node before the field is \
                         written"
                ),
                format!("`--set {field}=JSON` sets it"),
                vec![Remedy::Set(field)],
            );
        }
    }

    /// Returns the position of the run in the new graph.
    fn midway(&self) -> Midway {
        let Compared { graph, saved, messages, .. } = self.compared;
        let carried = carry(graph, &self.mapping, (&saved.position, &saved.records), messages);
        let position = &carried.position;
        let mut midway = Midway { arrived: position.joins.clone(), ..Midway::default() };
        let finals = carried.records.iter().filter(|it| it.outcome.is_final());
        let settled: BTreeSet<u32> = finals.clone().map(|it| it.task.index).collect();
        let open = (0..).zip(&position.frontier).filter(|(at, _)| !settled.contains(at));
        midway.next.extend(open.map(|(_, it)| it.node.clone()));
        midway.next.extend(position.deferred.keys().cloned());
        for record in finals {
            if let crate::checkpoint::Outcome::Finished { update, .. } = &record.outcome {
                midway.held.extend(update.writes.iter().map(|(field, _)| field.clone()));
            }
            for transition in record.outcome.transitions() {
                match transition {
                    Transition::Join(to) => {
                        let arrived = midway.arrived.entry(to.clone()).or_default();
                        arrived.insert(record.node.clone());
                    }
                    transition => midway.next.extend(transition.target().node().cloned()),
                }
            }
        }
        let held = saved.values.keys().filter_map(|it| self.field(it));
        midway.held.extend(held.chain(self.mapping.set.keys().cloned()));
        let defaults = graph.schema().channels().iter().filter(|it| it.default().is_some());
        midway.held.extend(defaults.map(|it| it.name().clone()));
        midway
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

fn list(nodes: impl IntoIterator<Item = impl fmt::Display>) -> String {
    let names: Vec<String> = nodes.into_iter().map(|it| format!("`{it}`")).collect();
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

fn article(kind: &str) -> String {
    let vowel = kind.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {kind}", if vowel { "an" } else { "a" })
}
