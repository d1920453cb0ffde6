//! The names of the nodes, which everything else may point to, and the branches of each
//! `parallel`.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    reader::{Data, Word, Yaml},
    report::Report,
    shape::built_in,
};
use crate::{diagnostic::Diagnostic, graph::Target, id::NodeName};

/// The names under `nodes`.
#[derive(Debug, Default)]
pub(super) struct Heads {
    /// The nodes that run.
    pub(super) nodes: BTreeSet<NodeName>,
    /// The branches of each `parallel`.
    pub(super) groups: BTreeMap<NodeName, Vec<NodeName>>,
}

impl Heads {
    pub(super) fn read(report: &mut Report, yaml: &Yaml) -> Self {
        let mut heads = Self::default();
        let mut branches: Vec<(NodeName, &Yaml)> = Vec::new();
        for entry in yaml.entries() {
            if built_in(&entry.key.text).is_some() {
                let message = format!("`{}` is built in and names no node", entry.key.text);
                let place = report.place(&entry.key.range);
                let finding = Diagnostic::error("GR016", message).at(place, "reserved");
                report.push(finding.help("choose another name"));
                continue;
            }
            let Some(name) = report.node_name(&entry.key) else { continue };
            match entry.value.get("parallel") {
                Some(parallel) => branches.push((name, parallel)),
                None => drop(heads.nodes.insert(name)),
            }
        }
        heads.groups = branches.iter().map(|(name, _)| (name.clone(), Vec::new())).collect();
        let mut taken = BTreeMap::new();
        for (name, yaml) in branches {
            let found = heads.read_branches(report, &name, yaml, &mut taken);
            heads.groups.insert(name, found);
        }
        heads
    }

    fn read_branches(
        &self,
        report: &mut Report,
        group: &NodeName,
        yaml: &Yaml,
        taken: &mut BTreeMap<NodeName, NodeName>,
    ) -> Vec<NodeName> {
        let mut found = Vec::new();
        if !matches!(yaml.data, Data::List(_)) {
            report.wrong_kind(yaml, "`parallel`", "a list of nodes");
            return found;
        }
        for word in report.words(yaml, "`parallel`") {
            let problem = if self.groups.contains_key(word.text.as_str()) {
                format!("`{}` is a parallel itself", word.text)
            } else if let Some(other) = taken.get(word.text.as_str()) {
                format!("`{}` is a branch of `{other}` already", word.text)
            } else if let Some(node) = self.nodes.get(word.text.as_str()) {
                taken.insert(node.clone(), group.clone());
                found.push(node.clone());
                continue;
            } else {
                report.unknown("GR010", "node", &word, self.nodes.iter().map(NodeName::as_str));
                continue;
            };
            let place = report.place(&word.range);
            report.push(Diagnostic::error("GR039", problem).at(place, "cannot be a branch"));
        }
        found
    }

    /// The `parallel` that a node is a branch of.
    pub(super) fn group_of(&self, node: &NodeName) -> Option<&NodeName> {
        self.groups.iter().find(|(_, branches)| branches.contains(node)).map(|(name, _)| name)
    }

    /// What a name stands for; a `parallel` stands for its branches.
    pub(super) fn targets(&self, name: &str) -> Option<Vec<Target>> {
        if let Some(target) = built_in(name) {
            return Some(vec![target]);
        }
        if let Some(branches) = self.groups.get(name) {
            return Some(branches.iter().cloned().map(Target::Node).collect());
        }
        self.nodes.get(name).map(|node| vec![Target::Node(node.clone())])
    }

    /// Every word that can be a target.
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        let nodes = self.nodes.iter().chain(self.groups.keys()).map(NodeName::as_str);
        nodes.chain(["end", "fail"])
    }

    /// The nodes a word names, reported if there are none.
    pub(super) fn resolve(&self, report: &mut Report, word: &Word) -> Vec<Target> {
        self.targets(&word.text).unwrap_or_else(|| {
            report.unknown("GR010", "node", word, self.words());
            Vec::new()
        })
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
