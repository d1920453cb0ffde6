//! The names of the nodes, to which the rest of the file refers, and their structure: the branches
//! of each `parallel`, the nodes that each `map` and `join` names.

use std::collections::{BTreeMap, BTreeSet};

use graphrun_core::{
    diagnostic::{Diagnostic, did_you_mean},
    graph::Target,
    id::NodeName,
};

use crate::{
    Registry,
    format::JoinKeys,
    source::{
        reader::{Data, SpannedText, Yaml},
        report::Report,
        shape::{Section, built_in},
    },
};

/// The names under `nodes`.
#[derive(Debug, Default)]
pub(crate) struct Declarations {
    /// The nodes that run.
    pub(crate) nodes: BTreeSet<NodeName>,
    /// The branches of each `parallel`: nodes and other `parallel`s, one after the other.
    pub(crate) groups: BTreeMap<NodeName, Vec<Vec<NodeName>>>,
    /// The node that each `map` runs for every item.
    pub(crate) maps: BTreeMap<NodeName, NodeName>,
    /// What each node with a `join` waits for.
    pub(crate) joins: BTreeMap<NodeName, AwaitedNodes>,
    /// The nodes with an invalid part, which is reported: `parallel`s, `map`s, nodes with a `join`,
    /// and nodes of no kind, which may have been any of these. The checks assume that such a part
    /// may do anything, so they report nothing about its consequences.
    pub(crate) incomplete: BTreeSet<NodeName>,
    /// The continuation behind each part of a `parallel` or a `map`.
    follows: BTreeMap<NodeName, Follows>,
    /// Whether some node has an invalid name, which is reported.
    has_invalid_name: bool,
}

/// What a join waits for.
#[derive(Clone, Debug)]
pub(crate) struct AwaitedNodes {
    pub(crate) nodes: Vec<NodeName>,
    /// How many of the nodes.
    pub(crate) count: usize,
}

/// The list of the nodes of a join, and the number of them that it waits for: one, a written one, or all.
enum JoinForm<'y> {
    All(&'y Yaml),
    Any(&'y Yaml),
    Some(&'y Yaml, &'y Yaml),
}

/// The continuation behind a name, as given by its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Follows {
    /// The targets of its `then`.
    Then,
    /// The next name of its branch, unless its `then` says something else.
    Next(NodeName),
    /// The targets of the `parallel` whose branch ends with it.
    Group(NodeName),
    /// The targets of the `map` that runs it.
    Map(NodeName),
}

/// The `parallel` or `map` that a name is a part of.
type Owners = BTreeMap<NodeName, NodeName>;

impl<'y> JoinForm<'y> {
    fn read(report: &mut Report, yaml: &'y Yaml) -> Option<Self> {
        if !matches!(yaml.data, Data::Map(_)) {
            return Some(Self::All(yaml));
        }
        let section = Section::read::<JoinKeys>(report, yaml, "`join`")?;
        let Some((word, any)) = section.key("any").zip(section.get("any")) else {
            let of = section.require(report, "of", "write `of: [a, b, c]`");
            let count = section.require(report, "count", "write `count: 2`");
            return of.zip(count).map(|(of, count)| Self::Some(of, count));
        };
        if section.has_or_means("of") || section.has_or_means("count") {
            let message = "`any` waits for one node, so it stands alone";
            report.bad_value(word, message, "write `any: [a, b]`, or `of: [a, b]` and `count: 1`");
            return None;
        }
        Some(Self::Any(any))
    }
}

/// Reads how many of some nodes a join waits for.
fn read_join_count(report: &mut Report, yaml: &Yaml, nodes: usize) -> Option<usize> {
    let count = report.count(yaml, "`count`", 1_usize)?;
    if count > nodes {
        let message = format!("a join cannot wait for {count} of {nodes} nodes");
        let diagnostic = Diagnostic::error("GR037", message);
        let diagnostic = diagnostic.at(report.span(&yaml.range), "more than there are");
        report.push(diagnostic.help(format!("write a number from 1 to {nodes}")));
        return None;
    }
    Some(count)
}

impl Declarations {
    pub(crate) fn read(report: &mut Report, yaml: &Yaml, registry: &Registry) -> Self {
        let has_invalid_name = !matches!(yaml.data, Data::Map(_));
        let mut declarations = Self { has_invalid_name, ..Self::default() };
        let mut branches = Vec::new();
        let mut maps = Vec::new();
        let mut joins = Vec::new();
        for entry in yaml.entries() {
            if built_in(&entry.key.text).is_some() {
                let message = format!("`{}` is built in and cannot name a node", entry.key.text);
                let span = report.span(&entry.key.range);
                let diagnostic = Diagnostic::error("GR016", message).at(span, "reserved");
                report.push(diagnostic.help("choose another name"));
                declarations.has_invalid_name = true;
                continue;
            }
            let Some(name) = report.node_name(&entry.key) else {
                declarations.has_invalid_name = true;
                continue;
            };
            if let Some(parallel) = entry.value.get("parallel") {
                branches.push((name, parallel));
                continue;
            }
            if registry.kinds_of(&entry.value).next().is_none() {
                declarations.incomplete.insert(name.clone());
            }
            maps.extend(entry.value.get("map").map(|map| (name.clone(), map)));
            joins.extend(entry.value.get("join").map(|join| (name.clone(), join)));
            declarations.nodes.insert(name);
        }
        declarations.groups = branches.iter().map(|(name, _)| (name.clone(), Vec::new())).collect();
        let mut owners = Owners::new();
        for (name, yaml) in branches {
            let found = declarations.read_branches(report, &name, yaml, &mut owners);
            if found.iter().flatten().any(Option::is_none) {
                declarations.incomplete.insert(name.clone());
            }
            let found = found.into_iter().map(|it| it.into_iter().flatten().collect());
            let found: Vec<Vec<NodeName>> = found.collect();
            declarations
                .groups
                .insert(name, found.into_iter().filter(|it| !it.is_empty()).collect());
        }
        declarations.cut_circles(report, yaml, &mut owners);
        for (name, map) in maps {
            let found =
                map.get("do").and_then(|it| declarations.read_do(report, &name, it, &mut owners));
            let takes_no_items = |name: &&NodeName| {
                let node = yaml.get(name.as_str()).into_iter();
                node.flat_map(|it| registry.kinds_of(it)).any(|it| !it.kind.takes_items())
            };
            if let Some(inner) = found.as_ref().filter(takes_no_items) {
                let message = format!("`{inner}` runs other nodes, but a map runs one node");
                let span = map.get("do").and_then(|it| report.span(&it.range));
                let diagnostic = Diagnostic::error("GR039", message).at(span, "several nodes");
                let help = "map over a node that does the work itself, or over one with `use`";
                report.push(diagnostic.help(help));
            }
            match found {
                Some(node) => _ = declarations.maps.insert(name, node),
                None => _ = declarations.incomplete.insert(name),
            }
        }
        for (name, yaml) in joins {
            let form = JoinForm::read(report, yaml);
            let awaited = form.as_ref().map(|it| declarations.read_join(report, &name, it));
            let awaited = awaited.unwrap_or_else(|| vec![None]);
            let is_incomplete = awaited.iter().any(Option::is_none);
            let nodes: Vec<NodeName> = awaited.into_iter().flatten().flatten().collect();
            let count = match form {
                Some(JoinForm::Any(_)) => 1,
                Some(JoinForm::Some(_, count)) if !is_incomplete => {
                    read_join_count(report, count, nodes.len()).unwrap_or(nodes.len())
                }
                _ => nodes.len(),
            };
            if is_incomplete || nodes.len() < 2 {
                declarations.incomplete.insert(name.clone());
            }
            declarations.joins.insert(name, AwaitedNodes { nodes, count });
        }
        declarations.follows = declarations.follows_of_parts();
        declarations
    }

    fn follows_of_parts(&self) -> BTreeMap<NodeName, Follows> {
        let mut follows = BTreeMap::new();
        for (group, branches) in &self.groups {
            for branch in branches {
                let next = branch.iter().skip(1).cloned().map(Follows::Next);
                let next = next.chain([Follows::Group(group.clone())]);
                follows.extend(branch.iter().cloned().zip(next));
            }
        }
        let of_map =
            |(map, node): (&NodeName, &NodeName)| (node.clone(), Follows::Map(map.clone()));
        follows.extend(self.maps.iter().map(of_map));
        follows
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
        let empty = |report: &mut Report, yaml: &Yaml, diagnostic: Diagnostic| {
            report.push(diagnostic.at(report.span(&yaml.range), "empty"));
            vec![None]
        };
        if items.is_empty() {
            let diagnostic = Diagnostic::error("GR037", format!("`{group}` has no branches"));
            let help = "name the nodes that run at the same time: `parallel: [a, b]`";
            return vec![empty(report, yaml, diagnostic.help(help))];
        }
        let mut branches = Vec::new();
        for item in items {
            if matches!(&item.data, Data::List(items) if items.is_empty()) {
                let message = format!("a branch of `{group}` has no nodes");
                let diagnostic = Diagnostic::error("GR039", message);
                branches.push(empty(report, item, diagnostic.help("name its nodes, or remove it")));
                continue;
            }
            let words = report.words(item, "a branch of a `parallel`");
            let names = words.iter().map(|it| self.part(report, it, group, owners));
            branches.push(names.collect());
        }
        branches
    }

    /// Adds a name as a part of a `parallel` or a `map`. A name can be a part only once.
    fn part(
        &self,
        report: &mut Report,
        word: &SpannedText,
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
            _ if name == owner => format!("`{name}` cannot contain itself"),
            Some(other) => format!("`{name}` is a part of `{other}` already"),
            None => {
                owners.insert(name.clone(), owner.clone());
                return Some(name.clone());
            }
        };
        let span = report.span(&word.range);
        report.push(Diagnostic::error("GR039", problem).at(span, "cannot be a branch"));
        None
    }

    /// Removes cycles of branches: a `parallel` within its own branch would have no beginning.
    fn cut_circles(&mut self, report: &mut Report, yaml: &Yaml, owners: &mut Owners) {
        let names: Vec<NodeName> = self.groups.keys().cloned().collect();
        for name in names {
            let outer = std::iter::successors(owners.get(&name), |it| owners.get(*it));
            if !outer.take(owners.len()).any(|it| *it == name) {
                continue;
            }
            let key = yaml.entries().iter().map(|it| &it.key);
            if let Some(key) = key.into_iter().find(|it| it.text == name.as_str()) {
                let message = format!("`{name}` is a branch of one of its branches");
                let span = report.span(&key.range);
                report.push(Diagnostic::error("GR039", message).at(span, "has no first node"));
            }
            // Breaking the cycle here reports it only once.
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
            let message = format!("`{}` is a parallel, but a map runs one node", word.text);
            let span = report.span(&word.range);
            let diagnostic = Diagnostic::error("GR039", message).at(span, "several nodes");
            report.push(diagnostic.help("name one node"));
            return None;
        }
        self.part(report, &word, map, owners)
    }

    /// Reads the nodes that a join awaits; `None` for a name that cannot be awaited.
    fn read_join(
        &self,
        report: &mut Report,
        name: &NodeName,
        form: &JoinForm<'_>,
    ) -> Vec<Option<Vec<NodeName>>> {
        let (yaml, is_partial) = match form {
            JoinForm::All(yaml) => (*yaml, false),
            JoinForm::Any(yaml) | JoinForm::Some(yaml, _) => (*yaml, true),
        };
        let mut awaited: Vec<Option<Vec<NodeName>>> = Vec::new();
        for word in report.words(yaml, "`join`") {
            let Some(head) = self.head(&word.text) else {
                self.unknown(report, &word, self.names());
                awaited.push(None);
                continue;
            };
            let follow = "wait for a node that follows it";
            let (problem, help) = if self.maps.contains_key(head) {
                (format!("`{head}` is a map, which ends with its tasks"), follow)
            } else if head == name {
                (format!("`{name}` cannot wait for itself"), follow)
            } else if is_partial && self.groups.contains_key(head) {
                let problem = format!("`{head}` is a parallel, which does not count as one node");
                (problem, "name its last nodes, or a node that follows it")
            } else {
                let ends = self.ends(head);
                let before = awaited.iter().flatten().flatten();
                let Some(twice) = before.into_iter().find(|it| ends.contains(it)) else {
                    awaited.push(Some(ends));
                    continue;
                };
                let problem = format!("`{name}` waits for `{twice}` twice");
                let is_group = |it: &&NodeName| self.groups.contains_key(*it);
                let help = if yaml
                    .words()
                    .iter()
                    .filter_map(|it| self.head(it))
                    .any(|it| is_group(&it))
                {
                    "a parallel stands for the last node of each of its branches: remove one of both"
                } else {
                    "remove one of both"
                };
                (problem, help)
            };
            awaited.push(None);
            let span = report.span(&word.range);
            let diagnostic = Diagnostic::error("GR037", problem).at(span, "cannot be waited for");
            report.push(diagnostic.help(help));
        }
        awaited
    }

    fn head(&self, name: &str) -> Option<&NodeName> {
        self.nodes.get(name).or_else(|| Some(self.groups.get_key_value(name)?.0))
    }

    /// Returns whether a node may have been meant as a part of something: it is no part of anything, and some
    /// `parallel` or `map` has an invalid part.
    pub(crate) fn may_be_a_part(&self, name: &NodeName) -> bool {
        let has_parts = |it: &&NodeName| !self.joins.contains_key(*it);
        self.incomplete.iter().any(|it| has_parts(&it) && it != name)
            && *self.follows(name) == Follows::Then
    }

    /// Returns whether a node may have been meant as the node of a `map`, with an item of any name.
    pub(crate) fn may_have_an_item(&self, name: &NodeName) -> bool {
        let is_map =
            |it: &&NodeName| !self.joins.contains_key(*it) && !self.groups.contains_key(*it);
        self.incomplete.iter().any(|it| is_map(&it) && it != name)
            && *self.follows(name) == Follows::Then
    }

    /// Returns the continuation behind a name, as given by its position.
    pub(crate) fn follows(&self, name: &NodeName) -> &Follows {
        self.follows.get(name).unwrap_or(&Follows::Then)
    }

    /// Returns the first nodes of a name.
    pub(crate) fn starts(&self, name: &NodeName) -> Vec<NodeName> {
        match self.groups.get(name) {
            Some(branches) => {
                branches.iter().filter_map(|it| it.first()).flat_map(|it| self.starts(it)).collect()
            }
            None => vec![name.clone()],
        }
    }

    /// Returns the last nodes of a name.
    pub(crate) fn ends(&self, name: &NodeName) -> Vec<NodeName> {
        match self.groups.get(name) {
            Some(branches) => {
                branches.iter().filter_map(|it| it.last()).flat_map(|it| self.ends(it)).collect()
            }
            None => vec![self.maps.get(name).unwrap_or(name).clone()],
        }
    }

    /// Returns every node of each `parallel`, for drawings.
    pub(crate) fn members(&self) -> BTreeMap<NodeName, Vec<NodeName>> {
        let members = |name: &NodeName| {
            let mut members = Vec::new();
            self.add_members(name, &mut members);
            (name.clone(), members)
        };
        self.groups.keys().map(members).collect()
    }

    fn add_members(&self, name: &NodeName, members: &mut Vec<NodeName>) {
        match self.groups.get(name) {
            Some(branches) => {
                branches.iter().flatten().for_each(|it| self.add_members(it, members));
            }
            None => members.extend([name].into_iter().chain(self.maps.get(name)).cloned()),
        }
    }

    /// Returns the targets of a name; a `parallel` means the first nodes of its branches.
    pub(crate) fn targets(&self, name: &str) -> Option<Vec<Target>> {
        if let Some(target) = built_in(name) {
            return Some(vec![target]);
        }
        let head = self.head(name)?;
        Some(self.starts(head).into_iter().map(Target::Node).collect())
    }

    /// Returns every name that can be a target.
    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        self.names().chain(["end", "fail"])
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().chain(self.groups.keys()).map(NodeName::as_str)
    }

    /// Reports a name of no node, unless the name of some node is invalid.
    fn unknown<'n>(
        &'n self,
        report: &mut Report,
        word: &SpannedText,
        known: impl Iterator<Item = &'n str>,
    ) {
        if !self.has_invalid_name || did_you_mean(&word.text, self.words()).is_some() {
            report.unknown("GR010", "node", word, known);
        }
    }

    /// Returns the nodes of a name; reported if there are none.
    pub(crate) fn named(&self, report: &mut Report, word: &SpannedText) -> Vec<Target> {
        self.targets(&word.text).unwrap_or_else(|| {
            self.unknown(report, word, self.words());
            Vec::new()
        })
    }

    /// Returns the targets of a name; reported if there are none or they cannot be targets.
    pub(crate) fn resolve(&self, report: &mut Report, word: &SpannedText) -> Vec<Target> {
        let targets = self.named(report, word);
        for node in targets.iter().filter_map(Target::node) {
            if let Some((map, _)) = self.maps.iter().find(|(_, it)| *it == node) {
                let message = format!("`{node}` runs only for the items of `{map}`");
                let span = report.span(&word.range);
                let diagnostic = Diagnostic::error("GR039", message).at(
                    span,
                    "would run without an \
                    item",
                );
                report.push(diagnostic.help(format!("lead to `{map}`")));
            }
        }
        targets
    }

    /// Returns the single target of a name, for places that do not accept a whole `parallel`.
    pub(crate) fn resolve_one(&self, report: &mut Report, word: &SpannedText) -> Option<Target> {
        if self.groups.contains_key(word.text.as_str()) {
            let message =
                format!("`{}` is a parallel, but only one node can follow here", word.text);
            let span = report.span(&word.range);
            let diagnostic = Diagnostic::error("GR039", message).at(span, "several nodes");
            report.push(diagnostic.help("lead to a node whose `then` is the parallel"));
            return None;
        }
        self.resolve(report, word).pop()
    }

    /// Reads the single target of a key.
    pub(crate) fn read_target(
        &self,
        report: &mut Report,
        yaml: &Yaml,
        what: &str,
    ) -> Option<Target> {
        let word = report.word(yaml, what)?;
        self.resolve_one(report, &word)
    }

    /// Reads a target, or a list of targets.
    pub(crate) fn read_targets(&self, report: &mut Report, yaml: &Yaml, what: &str) -> Vec<Target> {
        if matches!(&yaml.data, Data::List(items) if items.is_empty()) {
            let diagnostic = Diagnostic::error("GR006", format!("{what} names no node"));
            let diagnostic = diagnostic.at(report.span(&yaml.range), "empty");
            let end = what.strip_suffix('`').map_or("`end`".to_owned(), |it| format!("{it}: end`"));
            report.push(diagnostic.help(format!("write {end}, if nothing follows")));
            return Vec::new();
        }
        let words = report.words(yaml, what);
        words.iter().flat_map(|it| self.resolve(report, it)).collect()
    }

    /// Returns whether a node is a join that lacks some of the nodes it waits for, because of a reported mistake.
    pub(crate) fn is_incomplete_join(&self, name: &NodeName) -> bool {
        self.incomplete.contains(name) && self.joins.contains_key(name)
    }

    /// Returns whether a node with a `join` waits for another one.
    pub(crate) fn is_awaited(&self, from: &NodeName, by: &NodeName) -> bool {
        self.joins.get(by).is_some_and(|it| it.nodes.contains(from))
    }
}
