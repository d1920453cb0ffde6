//! Which fields something may have written by the time a node runs, by some way at least.
//!
//! It looks at the file before anything is lowered, because expressions and prompts are checked
//! against it. What it cannot make sense of it passes over; the lowering reports that.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    heads::{Follows, Heads},
    reader::{Data, Yaml},
    registry::Registry,
};
use crate::{
    graph::Target,
    id::{ChannelName, NodeName},
    state::Schema,
};

type Channels = BTreeSet<ChannelName>;

/// What may be written before and by each node.
#[derive(Debug)]
pub(super) struct Flow {
    before: BTreeMap<NodeName, Channels>,
    writes: BTreeMap<NodeName, Channels>,
    start: Channels,
}

/// What the flow is read from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sources<'a> {
    pub(super) root: &'a Yaml,
    pub(super) heads: &'a Heads,
    pub(super) schema: &'a Schema,
    pub(super) input: &'a [ChannelName],
    pub(super) registry: &'a Registry,
}

impl Flow {
    pub(super) fn of(sources: Sources<'_>) -> Self {
        let channels = sources.schema.channels().iter();
        let defaults = channels.filter(|it| it.default().is_some()).map(|it| it.name().clone());
        let start: Channels = defaults.chain(sources.input.iter().cloned()).collect();
        let mut ways = Ways::default();
        let mut writes = BTreeMap::new();
        let start_node = sources.root.get("start").map(|it| sources.names(it)).unwrap_or_default();
        ways.forks.push(start_node);
        for entry in sources.root.get("nodes").map(Yaml::entries).unwrap_or_default() {
            let name = entry.key.text.as_str();
            if let Some(node) = sources.heads.nodes.get(name) {
                writes.insert(node.clone(), sources.writes(&entry.value));
                sources.add_ways(node, &entry.value, &mut ways);
            }
            if let Some((group, _)) = sources.heads.groups.get_key_value(name) {
                ways.forks.push(sources.heads.starts(group));
                for end in sources.heads.ends(group) {
                    sources.add_ways(&end, &entry.value, &mut ways);
                }
            }
            if let Some((map, node)) = sources.heads.maps.get_key_value(name) {
                ways.next.entry(map.clone()).or_default().insert(node.clone());
                sources.add_ways(node, &entry.value, &mut ways);
            }
            sources.add_next(name, &mut ways);
        }
        let before = before(&ways, &writes, &start);
        Self { before, writes, start }
    }

    /// What may be written when a node starts.
    pub(super) fn before(&self, node: &NodeName) -> Channels {
        self.before.get(node).unwrap_or(&self.start).clone()
    }

    /// What may be written when a node has finished.
    pub(super) fn after(&self, node: &NodeName) -> Channels {
        let mut channels = self.before(node);
        channels.extend(self.writes.get(node).into_iter().flatten().cloned());
        channels
    }
}

#[derive(Debug, Default)]
struct Ways {
    next: BTreeMap<NodeName, BTreeSet<NodeName>>,
    /// Nodes that start in the same step and go on side by side.
    forks: Vec<Vec<NodeName>>,
}

impl Sources<'_> {
    /// The nodes named by a text or a list of texts.
    fn names(&self, yaml: &Yaml) -> Vec<NodeName> {
        let items = match &yaml.data {
            Data::List(items) => items.iter().collect(),
            _ => vec![yaml],
        };
        let targets = items.iter().filter_map(|it| self.heads.targets(it.text()?));
        let node = |it: Target| match it {
            Target::Node(name) => Some(name),
            Target::End | Target::Fail => None,
        };
        targets.flatten().filter_map(node).collect()
    }

    fn add_ways(&self, from: &NodeName, yaml: &Yaml, ways: &mut Ways) {
        let defaults = self.root.get("defaults").and_then(|it| it.get("catch"));
        let limit = self.root.get("limits").and_then(|it| it.get("exhausted"));
        let caught = [yaml.get("catch"), defaults].into_iter().flatten();
        let caught = caught.flat_map(Yaml::entries).map(|it| &it.value);
        let then = yaml.get("then").map(then_targets).unwrap_or_default();
        let others = caught.chain(yaml.get("exhausted")).chain(limit);
        let next = ways.next.entry(from.clone()).or_default();
        for target in then.into_iter().chain(others) {
            let names = self.names(target);
            next.extend(names.iter().cloned());
            if names.len() > 1 {
                ways.forks.push(names);
            }
        }
    }

    /// The way to the next name of a branch.
    fn add_next(&self, name: &str, ways: &mut Ways) {
        let heads = self.heads;
        let name = heads.nodes.get(name).or_else(|| Some(heads.groups.get_key_value(name)?.0));
        let Some(name) = name else { return };
        if let Follows::Next(next) = heads.follows(name) {
            let maps = heads.maps.get_key_value(name).map(|(map, _)| map.clone());
            for end in heads.ends(name).into_iter().chain(maps) {
                ways.next.entry(end).or_default().extend(heads.starts(&next));
            }
        }
    }

    fn writes(&self, yaml: &Yaml) -> Channels {
        let named = |name: &str| self.schema.channel(name).map(|it| it.name().clone());
        let keys = |it: &Yaml| -> Vec<String> {
            it.entries().iter().map(|it| it.key.text.clone()).collect()
        };
        let mut words: Vec<String> = yaml.get("set").map(keys).unwrap_or_default();
        if let Some(writes) = yaml.get("writes") {
            words.extend(writes.text().map(str::to_owned));
            words.extend(writes.items().iter().filter_map(Yaml::text).map(str::to_owned));
            words.extend(keys(writes));
        }
        if let Some(custom) = yaml.get("node").and_then(Yaml::text) {
            let contract = self.registry.custom(custom).map(|it| it.contract());
            // A node that does not say what it writes may write everything.
            let all = || self.schema.channels().iter().map(|it| it.name().clone()).collect();
            let written: Channels = match contract.and_then(|it| it.writes) {
                Some(writes) => writes.into_iter().collect(),
                None => all(),
            };
            return written;
        }
        words.iter().filter_map(|it| named(it)).collect()
    }
}

/// The values of `then` that name targets, in any of its forms.
fn then_targets(then: &Yaml) -> Vec<&Yaml> {
    match &then.data {
        Data::Map(_) => match then.get("to") {
            Some(to) => to.entries().iter().map(|it| &it.value).collect(),
            None => Vec::new(),
        },
        Data::List(items) if items.iter().any(|it| matches!(it.data, Data::Map(_))) => {
            items.iter().filter_map(|it| it.get("to")).collect()
        }
        Data::List(_) | Data::Scalar { .. } => vec![then],
        Data::Null => Vec::new(),
    }
}

fn before(
    ways: &Ways,
    writes: &BTreeMap<NodeName, Channels>,
    start: &Channels,
) -> BTreeMap<NodeName, Channels> {
    let mut before: BTreeMap<NodeName, Channels> =
        writes.keys().map(|it| (it.clone(), start.clone())).collect();
    // What goes on side by side: whatever one branch does may come before all but the first node
    // of another.
    for fork in &ways.forks {
        let reached: Vec<BTreeSet<&NodeName>> = fork.iter().map(|it| ways.after(it)).collect();
        for (one, first) in fork.iter().enumerate() {
            let mut written: Channels = writes.get(first).cloned().unwrap_or_default();
            written.extend(reached[one].iter().filter_map(|it| writes.get(*it)).flatten().cloned());
            for (_, others) in reached.iter().enumerate().filter(|(other, _)| *other != one) {
                for node in others {
                    before.entry((*node).clone()).or_default().extend(written.iter().cloned());
                }
            }
        }
    }
    let mut open: Vec<&NodeName> = writes.keys().collect();
    while let Some(node) = open.pop() {
        let mut after = before.get(node).cloned().unwrap_or_default();
        after.extend(writes.get(node).into_iter().flatten().cloned());
        for next in ways.next.get(node).into_iter().flatten() {
            let known = before.entry(next.clone()).or_default();
            let size = known.len();
            known.extend(after.iter().cloned());
            if known.len() > size {
                open.push(next);
            }
        }
    }
    before
}

impl Ways {
    /// The nodes that a way of at least one step leads to.
    fn after(&self, node: &NodeName) -> BTreeSet<&NodeName> {
        let mut found = BTreeSet::new();
        let mut open: Vec<&NodeName> = self.next.get(node).into_iter().flatten().collect();
        while let Some(node) = open.pop() {
            if found.insert(node) {
                open.extend(self.next.get(node).into_iter().flatten());
            }
        }
        found
    }
}
