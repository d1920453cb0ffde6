//! Changes of the nodes.

use std::collections::BTreeSet;

use graphrun_core::{
    graph::{NodeDescription, SideEffects},
    id::NodeName,
    state::{Channel, Type},
    words::quoted_list,
};
use serde_json::{Value, json};

use super::{
    Comparison, Differences, Names, Parts, Remedy, article, list_or_nothing, names::map_node,
    shared,
};
use crate::checkpoint::{Fate, NodeOutline};

/// Collects the changes of the nodes.
pub(super) struct NodeChanges<'a> {
    names: Names<'a>,
    parts: Parts<'a>,
    found: Differences,
}

impl<'a> NodeChanges<'a> {
    pub(super) fn find(names: Names<'a>) -> Differences {
        let mut changes = Self { names, parts: Parts { names }, found: Differences::default() };
        changes.compare();
        changes.found
    }

    fn compare(&mut self) {
        let old = self.names.compared.old;
        let new = self.names.compared.new;
        for (name, was) in &old.nodes {
            match self.names.node(name) {
                Some(now) => self.changed(name, was, &now, &new.nodes[&now]),
                None if self.names.is_dropped(name) => self.dropped_node(name),
                None => self.gone(name, was),
            }
        }
        let added: Vec<NodeName> = self.names.added_nodes().map(|(it, _)| it.clone()).collect();
        for name in added {
            self.found.note(format!("the node `{name}` is new"));
        }
        let pairs = old.nodes.keys().filter_map(|it| Some((it.clone(), self.names.node(it)?)));
        for (now, names) in shared(pairs) {
            let own = names.iter().find(|it| **it == now).or(names.last()).cloned();
            self.found.broken(
                format!("{} all map to `{now}`", quoted_list(&names)),
                "they have different parts in the run".to_owned(),
                "`--drop` discards one of them".to_owned(),
                own.into_iter().map(Remedy::DropNode).collect(),
            );
        }
    }

    fn gone(&mut self, name: &NodeName, was: &NodeOutline) {
        let what = format!("the node `{name}` is gone");
        let part = self.parts.part_of(name).or_else(|| self.parts.count_of(name, was));
        let Some(breaks) = part else { return self.found.note(what) };
        let new = self.names.renamed(name, was).or_else(|| self.names.only_new(was));
        let map = map_node(name, new.clone());
        let hint = match new {
            Some(new) => format!("if `{new}` is this node, `{map}`; else `--drop {name}`"),
            None => format!("`{map}` names the new node, `--drop {name}` continues without it"),
        };
        self.found.broken(what, breaks, hint, vec![map, Remedy::DropNode(name.clone())]);
    }

    /// A node that the mapping drops.
    fn dropped_node(&mut self, name: &NodeName) {
        if let Some(part) = self.parts.part_of(name) {
            self.found.note(format!("`{name}` is dropped: {part}"));
        }
    }

    fn changed(&mut self, name: &NodeName, was: &NodeOutline, now: &NodeName, is: &NodeOutline) {
        if name != now {
            self.found.note(format!("`{name}` is `{now}`"));
        }
        self.awaits(name, was, now, is);
        self.asked(name, now);
        if was.kind != is.kind || was.behaviour != is.behaviour {
            let what = if was.kind == is.kind {
                format!("`{now}` ({}) does something else", is.kind)
            } else {
                format!("`{now}` was {} and is {}", article(&was.kind), article(&is.kind))
            };
            self.behaviour(name, now, what, was.kind == is.kind);
        }
        if was.policies != is.policies {
            self.found.note(format!("the policies of `{now}` have changed"));
        }
        let before = self.targets(was);
        if before != is.targets {
            let shown = |names: &[String]| {
                if names.is_empty() { "nowhere".to_owned() } else { names.join(", ") }
            };
            self.found.note(format!(
                "`{now}` leads to {}, and led to {} before",
                shown(&is.targets),
                shown(&before)
            ));
        }
    }

    /// Returns the targets of an old node, by their new names.
    fn targets(&self, was: &NodeOutline) -> Vec<String> {
        let named = |lead: &String| {
            let (name, rest) = lead.split_at(lead.find(' ').unwrap_or(lead.len()));
            let now = NodeName::parse_path(name).ok().and_then(|it| self.names.node(&it));
            now.map_or_else(|| lead.clone(), |it| format!("{it}{rest}"))
        };
        let mut targets: Vec<String> = was.targets.iter().map(named).collect();
        targets.sort();
        targets
    }

    /// A node with an open question must be the one that receives the answer, unless it asks again.
    fn behaviour(&mut self, name: &NodeName, now: &NodeName, what: String, is_same_kind: bool) {
        let is_confirmed =
            matches!(self.names.mapping.fate_of_node(name), Fate::Named(_)) && is_same_kind;
        // The question of a nested run belongs to one of its nodes.
        let is_nested = is_same_kind && self.names.compared.graph.nested_graph_of(now).is_some();
        let is_kept = is_confirmed || is_nested || self.names.mapping.again.contains(name);
        if is_kept || !self.parts.asks(name) {
            return self.found.note(what);
        }
        let again = Remedy::Again(name.clone());
        let keep = Remedy::MapNode(name.clone(), Some(now.clone()));
        let (hint, remedies) = if is_same_kind {
            let hint = format!("`{again}` asks again, `{keep}` keeps the question");
            (hint, vec![again, keep])
        } else {
            (format!("`{again}` starts it again"), vec![again])
        };
        self.found.broken(
            what,
            "it waits for the answer to its old question".to_owned(),
            hint,
            remedies,
        );
    }

    /// The answer to an open question must fit the fields that the node writes, unless it asks again.
    fn asked(&mut self, name: &NodeName, now: &NodeName) {
        let Comparison { graph, .. } = self.names.compared;
        let Some(spec) = graph.node(now) else { return };
        let NodeDescription { side_effects, contract, nested_levels, .. } = spec.describe();
        let is_more_than_ask = *side_effects != SideEffects::Nothing || *nested_levels > 0;
        // A node that does more than ask checks its answer itself.
        if is_more_than_ask || self.names.mapping.again.contains(name) {
            return;
        }
        let channels = contract.writes.iter().flatten();
        let channels = channels.filter_map(|it| graph.schema().channel(it.as_str()));
        for channel in channels.filter(|it| self.names.is_changed(it.name())) {
            if self.parts.questions(name).all(|it| fits_all(&it.schema, channel)) {
                continue;
            }
            let again = Remedy::Again(name.clone());
            self.found.broken(
                format!("`{now}` asks for another type of answer"),
                format!("its open question accepts answers that do not fit `{}`", channel.name()),
                format!("`{again}` asks again"),
                vec![again],
            );
        }
    }

    /// The nodes that a join waits for, if some have arrived already.
    fn awaits(&mut self, name: &NodeName, was: &NodeOutline, now: &NodeName, is: &NodeOutline) {
        let awaited: BTreeSet<NodeName> = is.awaits.iter().cloned().collect();
        // An old node without a decided new name is most likely this one.
        let likely =
            |old: &NodeName| self.names.renamed(old, self.names.compared.old.nodes.get(old)?);
        let before = was.awaits.iter().filter(|it| !self.names.is_dropped(it));
        let before: BTreeSet<NodeName> =
            before.filter_map(|it| self.names.node(it).or_else(|| likely(it))).collect();
        if awaited == before {
            return;
        }
        let what = format!(
            "`{now}` waits for {}, and waited for {} before",
            list_or_nothing(&is.awaits),
            list_or_nothing(&was.awaits)
        );
        let arrived = self.parts.arrived_at(name);
        if arrived.is_empty() {
            return self.found.note(what);
        }
        let begun = format!("it is waiting: {} arrived there", quoted_list(&arrived));
        let is_astray =
            |name: &&NodeName| self.names.node(name).is_some_and(|it| !awaited.contains(&it));
        let astray = arrived.iter().filter(is_astray);
        let midway = self.parts.midway();
        let missing = awaited.iter().filter(|it| !before.contains(*it));
        let missing = missing.filter(|name| {
            let has_arrived = midway.arrived.get(now).is_some_and(|all| all.contains(*name));
            !has_arrived && !self.names.compared.graph.comes_to(&midway, name, now)
        });
        let drops: Vec<Remedy> = astray.chain(missing).cloned().map(Remedy::DropNode).collect();
        if drops.is_empty() {
            return self.found.note(what);
        }
        let flags: Vec<String> = drops.iter().map(|it| format!("`{it}`")).collect();
        let hint = format!("{} continues without", flags.join(" and "));
        self.found.broken(what, begun, hint, drops);
    }
}

/// Returns whether a field takes every answer that a question accepts. That is certain for a choice, and for an equal schema.
fn fits_all(question: &Value, channel: &Channel) -> bool {
    let is_list = channel.reducer().grows_list();
    if let Type::Enum(choices) = Type::of_schema(question) {
        return choices.into_iter().map(Value::from).all(|value| {
            let written = if is_list { json!([value]) } else { value };
            channel.validate(&written).is_ok()
        });
    }
    let mut schema = channel.schema().clone();
    if is_list {
        let mut item = schema["items"].take();
        if let (Value::Object(item), Some(shared)) = (&mut item, schema.get("$defs")) {
            item.insert("$defs".to_owned(), shared.clone());
        }
        schema = item;
    }
    schema == *question
}
