//! Changes of the nodes.

use std::collections::BTreeSet;

use graphrun_core::id::NodeName;

use super::{Comparing, Remedy, article, list, shared};
use crate::checkpoint::{Fate, NodeOutline};

impl Comparing<'_> {
    pub(super) fn nodes(&mut self) {
        let (old, new) = (self.compared.old, self.compared.new);
        for (name, was) in &old.nodes {
            match self.node(name) {
                Some(now) => self.changed(name, was, &now, &new.nodes[&now]),
                None if self.is_dropped(name) => self.dropped_node(name),
                None => self.gone(name, was),
            }
        }
        let added: Vec<NodeName> = self.added_nodes().map(|(it, _)| it.clone()).collect();
        for name in added {
            self.note(format!("the node `{name}` is new"));
        }
        let pairs = old.nodes.keys().filter_map(|it| Some((it.clone(), self.node(it)?)));
        for (now, names) in shared(pairs) {
            let own = names.iter().find(|it| **it == now).or(names.last()).cloned();
            self.broken(
                format!("{} all map to `{now}`", list(&names)),
                "they have different parts in the run".to_owned(),
                "`--drop` discards one of them".to_owned(),
                own.into_iter().map(Remedy::DropNode).collect(),
            );
        }
    }

    fn gone(&mut self, name: &NodeName, was: &NodeOutline) {
        let what = format!("the node `{name}` is gone");
        let part = self.part_of(name).or_else(|| self.count_of(name, was));
        let Some(breaks) = part else { return self.note(what) };
        let new = self.renamed(name, was).or_else(|| self.only_new(was));
        let map = Self::map_node(name, new.clone());
        let hint = match new {
            Some(new) => format!("if `{new}` is this node, `{map}`; else `--drop {name}`"),
            None => format!("`{map}` names the new node, `--drop {name}` continues without it"),
        };
        self.broken(what, breaks, hint, vec![map, Remedy::DropNode(name.clone())]);
    }

    /// A node that the mapping drops.
    fn dropped_node(&mut self, name: &NodeName) {
        if let Some(part) = self.part_of(name) {
            self.note(format!("`{name}` is dropped: {part}"));
        }
    }

    fn changed(&mut self, name: &NodeName, was: &NodeOutline, now: &NodeName, is: &NodeOutline) {
        if name != now {
            self.note(format!("`{name}` is `{now}`"));
        }
        self.awaits(name, was, now, is);
        if was.kind != is.kind || was.behaviour != is.behaviour {
            let what = if was.kind == is.kind {
                format!("`{now}` ({}) does something else", is.kind)
            } else {
                format!("`{now}` was {} and is {}", article(&was.kind), article(&is.kind))
            };
            self.behaviour(name, now, what, was.kind == is.kind);
        }
        if was.policies != is.policies {
            self.note(format!("the conditions under which `{now}` runs have changed"));
        }
        let before = self.targets(was);
        if before != is.targets {
            let told =
                |it: &[String]| if it.is_empty() { "nowhere".to_owned() } else { it.join(", ") };
            self.note(format!(
                "`{now}` leads to {}, and led to {} before",
                told(&is.targets),
                told(&before)
            ));
        }
    }

    /// Returns the targets of an old node, by their new names.
    fn targets(&self, was: &NodeOutline) -> Vec<String> {
        let named = |lead: &String| {
            let (name, rest) = lead.split_at(lead.find(' ').unwrap_or(lead.len()));
            let now = NodeName::parse_path(name).ok().and_then(|it| self.node(&it));
            now.map_or_else(|| lead.clone(), |it| format!("{it}{rest}"))
        };
        let mut targets: Vec<String> = was.targets.iter().map(named).collect();
        targets.sort();
        targets
    }

    /// A node with an open question must be the one that receives the answer, unless it asks again.
    fn behaviour(&mut self, name: &NodeName, now: &NodeName, what: String, is_same_kind: bool) {
        let is_said = matches!(self.mapping.fate_of_node(name), Fate::Named(_)) && is_same_kind;
        if !self.asks(name) || is_said || self.mapping.again.contains(name) {
            return self.note(what);
        }
        let again = Remedy::Again(name.clone());
        let keep = Remedy::MapNode(name.clone(), Some(now.clone()));
        let (hint, remedies) = if is_same_kind {
            let hint = format!("`{again}` asks again, `{keep}` keeps the question");
            (hint, vec![again, keep])
        } else {
            (format!("`{again}` starts it again"), vec![again])
        };
        self.broken(what, "it waits for the answer to its old question".to_owned(), hint, remedies);
    }

    /// The nodes that a join waits for, if some have arrived already.
    fn awaits(&mut self, name: &NodeName, was: &NodeOutline, now: &NodeName, is: &NodeOutline) {
        let awaited: BTreeSet<NodeName> = is.awaits.iter().cloned().collect();
        // An old node without a decided new name is most likely this one.
        let likely = |it: &NodeName| self.renamed(it, self.compared.old.nodes.get(it)?);
        let before = was.awaits.iter().filter(|it| !self.is_dropped(it));
        let before: BTreeSet<NodeName> =
            before.filter_map(|it| self.node(it).or_else(|| likely(it))).collect();
        if awaited == before {
            return;
        }
        let what = format!(
            "`{now}` waits for {}, and waited for {} before",
            list(&is.awaits),
            list(&was.awaits)
        );
        let arrived = self.arrived_at(name);
        if arrived.is_empty() {
            return self.note(what);
        }
        let begun = format!("it is waiting: {} arrived there", list(&arrived));
        let is_astray = |it: &&NodeName| self.node(it).is_some_and(|it| !awaited.contains(&it));
        let astray = arrived.iter().filter(is_astray);
        let midway = self.midway();
        let missing = awaited.iter().filter(|it| !before.contains(*it));
        let missing = missing.filter(|it| {
            let has_arrived = midway.arrived.get(now).is_some_and(|all| all.contains(*it));
            !has_arrived && !self.compared.graph.comes_to(&midway, it, now)
        });
        let drops: Vec<Remedy> = astray.chain(missing).cloned().map(Remedy::DropNode).collect();
        if drops.is_empty() {
            return self.note(what);
        }
        let flags: Vec<String> = drops.iter().map(|it| format!("`{it}`")).collect();
        let hint = format!("{} continues without", flags.join(" and "));
        self.broken(what, begun, hint, drops);
    }
}
