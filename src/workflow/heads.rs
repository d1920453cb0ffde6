//! The names of the nodes, which everything else may point to, and what is structure among them:
//! the branches of each `parallel`, the nodes that each `map` and `join` names.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    nodes::KINDS,
    reader::{Data, Word, Yaml},
    report::Report,
    shape::built_in,
};
use crate::{
    diagnostic::{Diagnostic, did_you_mean},
    graph::Target,
    id::NodeName,
};

/// The names under `nodes`.
#[derive(Debug, Default)]
pub(super) struct Heads {
    /// The nodes that run.
    pub(super) nodes: BTreeSet<NodeName>,
    /// The branches of each `parallel`: nodes and other `parallel`s, one after the other.
    pub(super) groups: BTreeMap<NodeName, Vec<Vec<NodeName>>>,
    /// The node that each `map` does for every item.
    pub(super) maps: BTreeMap<NodeName, NodeName>,
    /// The nodes that each node with a `join` waits for.
    pub(super) joins: BTreeMap<NodeName, Vec<NodeName>>,
    /// What has a part that is no node, or not one that can be a part, which is reported: `parallel`s,
    /// `map`s, nodes with a `join`, and nodes of no kind, which may have been any of these. Nobody is
    /// blamed for what such a part may have done.
    pub(super) vague: BTreeSet<NodeName>,
    /// Whether some node has a name that it cannot have, which is reported.
    is_misnamed: bool,
}

/// What follows a name by where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Follows {
    /// Whatever its `then` says.
    Then,
    /// The next name of its branch, unless its `then` says something else.
    Next(NodeName),
    /// Whatever follows the `parallel` whose branch ends with it.
    Group(NodeName),
    /// Whatever follows the `map` that it is done for.
    Map(NodeName),
}

/// Who has a name as a part of it: a `parallel` or a `map`.
type Owners = BTreeMap<NodeName, NodeName>;

impl Heads {
    pub(super) fn read(report: &mut Report, yaml: &Yaml) -> Self {
        let mut heads = Self::default();
        let (mut branches, mut maps, mut joins) = (Vec::new(), Vec::new(), Vec::new());
        for entry in yaml.entries() {
            if built_in(&entry.key.text).is_some() {
                let message = format!("`{}` is built in and names no node", entry.key.text);
                let place = report.place(&entry.key.range);
                let finding = Diagnostic::error("GR016", message).at(place, "reserved");
                report.push(finding.help("choose another name"));
                heads.is_misnamed = true;
                continue;
            }
            let Some(name) = report.node_name(&entry.key) else {
                heads.is_misnamed = true;
                continue;
            };
            if let Some(parallel) = entry.value.get("parallel") {
                branches.push((name, parallel));
                continue;
            }
            if !KINDS.iter().any(|(kind, _)| entry.value.get(kind).is_some()) {
                heads.vague.insert(name.clone());
            }
            maps.extend(entry.value.get("map").map(|map| (name.clone(), map)));
            joins.extend(entry.value.get("join").map(|join| (name.clone(), join)));
            heads.nodes.insert(name);
        }
        heads.groups = branches.iter().map(|(name, _)| (name.clone(), Vec::new())).collect();
        let mut owners = Owners::new();
        for (name, yaml) in branches {
            let found = heads.read_branches(report, &name, yaml, &mut owners);
            if found.iter().flatten().any(Option::is_none) {
                heads.vague.insert(name.clone());
            }
            let found = found.into_iter().map(|it| it.into_iter().flatten().collect());
            let found: Vec<Vec<NodeName>> = found.collect();
            heads.groups.insert(name, found.into_iter().filter(|it| !it.is_empty()).collect());
        }
        heads.cut_circles(report, yaml, &mut owners);
        for (name, yaml) in maps {
            let found = yaml.get("do").and_then(|it| heads.read_do(report, &name, it, &mut owners));
            match found {
                Some(node) => _ = heads.maps.insert(name, node),
                None => _ = heads.vague.insert(name),
            }
        }
        for (name, yaml) in joins {
            let awaited = heads.read_join(report, &name, yaml);
            let is_vague = awaited.iter().any(Option::is_none);
            let awaited: Vec<NodeName> = awaited.into_iter().flatten().flatten().collect();
            if is_vague || awaited.len() < 2 {
                heads.vague.insert(name.clone());
            }
            heads.joins.insert(name, awaited);
        }
        heads
    }

    fn read_branches(
        &self,
        report: &mut Report,
        group: &NodeName,
        yaml: &Yaml,
        owners: &mut Owners,
    ) -> Vec<Vec<Option<NodeName>>> {
        let Data::List(items) = &yaml.data else {
            report.wrong_kind(yaml, "`parallel`", "a list of nodes");
            return Vec::new();
        };
        let mut branches = Vec::new();
        for item in items {
            let words = report.words(item, "a branch of a `parallel`");
            let names = words.iter().map(|it| self.part(report, it, group, owners));
            branches.push(names.collect());
        }
        branches
    }

    /// A name that becomes a part of a `parallel` or a `map`, and of nothing else.
    fn part(
        &self,
        report: &mut Report,
        word: &Word,
        owner: &NodeName,
        owners: &mut Owners,
    ) -> Option<NodeName> {
        let found = self.nodes.get(word.text.as_str());
        let Some(name) = found.or_else(|| Some(self.groups.get_key_value(word.text.as_str())?.0))
        else {
            self.unknown(report, word, self.names());
            return None;
        };
        let problem = match owners.get(name) {
            _ if name == owner => format!("`{name}` cannot be a part of itself"),
            Some(other) => format!("`{name}` is a part of `{other}` already"),
            None => {
                owners.insert(name.clone(), owner.clone());
                return Some(name.clone());
            }
        };
        let place = report.place(&word.range);
        report.push(Diagnostic::error("GR039", problem).at(place, "cannot be a branch"));
        None
    }

    /// A `parallel` that is a branch of its own branch would have no beginning.
    fn cut_circles(&mut self, report: &mut Report, yaml: &Yaml, owners: &mut Owners) {
        let names: Vec<NodeName> = self.groups.keys().cloned().collect();
        for name in names {
            let outer = std::iter::successors(owners.get(&name), |it| owners.get(*it));
            if !outer.take(owners.len()).any(|it| *it == name) {
                continue;
            }
            let key = yaml.entries().iter().map(|it| &it.key);
            if let Some(key) = key.into_iter().find(|it| it.text == name.as_str()) {
                let message = format!("`{name}` is a branch of one of its own branches");
                let place = report.place(&key.range);
                report.push(Diagnostic::error("GR039", message).at(place, "has no beginning"));
            }
            // What is cut once is no circle any more, so each is reported once.
            owners.retain(|_, owner| *owner != name);
            self.groups.insert(name, Vec::new());
        }
    }

    fn read_do(
        &self,
        report: &mut Report,
        map: &NodeName,
        yaml: &Yaml,
        owners: &mut Owners,
    ) -> Option<NodeName> {
        let word = report.word(yaml, "`do`")?;
        if self.groups.contains_key(word.text.as_str()) {
            let message = format!("`{}` is a parallel, and a map does one node", word.text);
            let place = report.place(&word.range);
            let finding = Diagnostic::error("GR039", message).at(place, "several nodes");
            report.push(finding.help("name one node"));
            return None;
        }
        self.part(report, &word, map, owners)
    }

    /// The nodes that each name ends with; `None` for a name that cannot be waited for.
    fn read_join(
        &self,
        report: &mut Report,
        name: &NodeName,
        yaml: &Yaml,
    ) -> Vec<Option<Vec<NodeName>>> {
        let mut awaited = Vec::new();
        for word in report.words(yaml, "`join`") {
            let Some(head) = self.head(&word.text) else {
                self.unknown(report, &word, self.names());
                awaited.push(None);
                continue;
            };
            let problem = if self.maps.contains_key(head) {
                format!("`{head}` is a map, which ends with its tasks")
            } else if head == name {
                format!("`{name}` cannot wait for itself")
            } else {
                awaited.push(Some(self.ends(head)));
                continue;
            };
            awaited.push(None);
            let place = report.place(&word.range);
            let finding = Diagnostic::error("GR037", problem).at(place, "cannot be waited for");
            report.push(finding.help("wait for a node that follows it"));
        }
        awaited
    }

    fn head(&self, name: &str) -> Option<&NodeName> {
        self.nodes.get(name).or_else(|| Some(self.groups.get_key_value(name)?.0))
    }

    /// Whether a node may have been meant as a part of something: nothing has it, and something
    /// has a part that is no node.
    pub(super) fn may_be_a_part(&self, name: &NodeName) -> bool {
        let has_parts = |it: &&NodeName| !self.joins.contains_key(*it);
        self.vague.iter().any(|it| has_parts(&it) && it != name)
            && self.follows(name) == Follows::Then
    }

    /// Whether a node may have been meant as what a `map` does, with an item of any name.
    pub(super) fn may_have_an_item(&self, name: &NodeName) -> bool {
        let is_map =
            |it: &&NodeName| !self.joins.contains_key(*it) && !self.groups.contains_key(*it);
        self.vague.iter().any(|it| is_map(&it) && it != name) && self.follows(name) == Follows::Then
    }

    /// What follows a name by where it stands.
    pub(super) fn follows(&self, name: &NodeName) -> Follows {
        if let Some((map, _)) = self.maps.iter().find(|(_, node)| *node == name) {
            return Follows::Map(map.clone());
        }
        for (group, branches) in &self.groups {
            for branch in branches {
                let Some(at) = branch.iter().position(|it| it == name) else { continue };
                let next = branch.get(at + 1);
                return next
                    .map_or_else(|| Follows::Group(group.clone()), |it| Follows::Next(it.clone()));
            }
        }
        Follows::Then
    }

    /// The nodes that a name begins with.
    pub(super) fn starts(&self, name: &NodeName) -> Vec<NodeName> {
        match self.groups.get(name) {
            Some(branches) => {
                branches.iter().filter_map(|it| it.first()).flat_map(|it| self.starts(it)).collect()
            }
            None => vec![name.clone()],
        }
    }

    /// The nodes that a name ends with.
    pub(super) fn ends(&self, name: &NodeName) -> Vec<NodeName> {
        match self.groups.get(name) {
            Some(branches) => {
                branches.iter().filter_map(|it| it.last()).flat_map(|it| self.ends(it)).collect()
            }
            None => vec![self.maps.get(name).unwrap_or(name).clone()],
        }
    }

    /// Every node of each `parallel`, for drawings.
    pub(super) fn members(&self) -> BTreeMap<NodeName, Vec<NodeName>> {
        self.groups.keys().map(|it| (it.clone(), self.members_of(it))).collect()
    }

    fn members_of(&self, name: &NodeName) -> Vec<NodeName> {
        match self.groups.get(name) {
            Some(branches) => {
                branches.iter().flatten().flat_map(|it| self.members_of(it)).collect()
            }
            None => [name].into_iter().chain(self.maps.get(name)).cloned().collect(),
        }
    }

    /// What a name stands for; a `parallel` stands for where its branches begin.
    pub(super) fn targets(&self, name: &str) -> Option<Vec<Target>> {
        if let Some(target) = built_in(name) {
            return Some(vec![target]);
        }
        let head = self.head(name)?;
        Some(self.starts(head).into_iter().map(Target::Node).collect())
    }

    /// Every word that can be a target.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        self.names().chain(["end", "fail"])
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().chain(self.groups.keys()).map(NodeName::as_str)
    }

    /// Reports a word that names no node, unless it may name one whose own name is reported.
    fn unknown<'n>(
        &'n self,
        report: &mut Report,
        word: &Word,
        known: impl Iterator<Item = &'n str>,
    ) {
        if !self.is_misnamed || did_you_mean(&word.text, self.words()).is_some() {
            report.unknown("GR010", "node", word, known);
        }
    }

    /// The nodes a word names, reported if there are none.
    pub(super) fn named(&self, report: &mut Report, word: &Word) -> Vec<Target> {
        self.targets(&word.text).unwrap_or_else(|| {
            self.unknown(report, word, self.words());
            Vec::new()
        })
    }

    /// The nodes a word leads to, reported if there are none or they are not to be led to.
    pub(super) fn resolve(&self, report: &mut Report, word: &Word) -> Vec<Target> {
        let targets = self.named(report, word);
        for node in targets.iter().filter_map(Target::node) {
            if let Some((map, _)) = self.maps.iter().find(|(_, it)| *it == node) {
                let message =
                    format!("`{node}` is done for each item of `{map}`, and not otherwise");
                let place = report.place(&word.range);
                let finding = Diagnostic::error("GR039", message).at(place, "without an item");
                report.push(finding.help(format!("lead to `{map}`")));
            }
        }
        targets
    }

    /// The one target a word names, for a place that a whole `parallel` cannot stand at.
    pub(super) fn resolve_one(&self, report: &mut Report, word: &Word) -> Option<Target> {
        if self.groups.contains_key(word.text.as_str()) {
            let message =
                format!("`{}` is a parallel, and only one node can follow here", word.text);
            let place = report.place(&word.range);
            let finding = Diagnostic::error("GR039", message).at(place, "several nodes");
            report.push(finding.help("lead to a node whose `then` is the parallel"));
            return None;
        }
        self.resolve(report, word).pop()
    }
}
