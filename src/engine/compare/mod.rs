//! What has changed in a workflow since a run was started, and whether the run can go on with it.

use std::{collections::BTreeSet, fmt};

use crate::{
    checkpoint::{NodeOutline, Outcome, Outline, SavedRun, TaskRecord},
    diagnostic::did_you_mean,
    graph::Hop,
    id::NodeName,
    state::Schema,
};

/// Something that is not as it was when the run was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What has changed, such as "the node `qa` is gone".
    pub what: String,
    /// What of the run that breaks, if it does.
    pub breaks: Option<String>,
    /// What would mend it.
    pub hint: Option<String>,
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

/// Every difference between the graph a run was started with and another one, those that break
/// the run as it stands first.
pub(super) fn compare(
    old: &Outline,
    new: &Outline,
    schema: &Schema,
    saved: &SavedRun,
) -> Vec<Difference> {
    let mut comparing = Comparing { old, new, schema, saved, found: Vec::new() };
    comparing.nodes();
    comparing.channels();
    if old.entry != new.entry {
        comparing.note("the start has changed".to_owned());
    }
    if old.limits != new.limits {
        comparing.note("the limits have changed".to_owned());
    }
    let mut found = comparing.found;
    found.sort_by_key(|it| it.breaks.is_none());
    found
}

struct Comparing<'a> {
    old: &'a Outline,
    new: &'a Outline,
    schema: &'a Schema,
    saved: &'a SavedRun,
    found: Vec<Difference>,
}

impl Comparing<'_> {
    fn note(&mut self, what: String) {
        self.found.push(Difference { what, breaks: None, hint: None });
    }

    fn broken(&mut self, what: String, breaks: String, hint: String) {
        self.found.push(Difference { what, breaks: Some(breaks), hint: Some(hint) });
    }

    fn nodes(&mut self) {
        let (old, new) = (self.old, self.new);
        for (name, was) in &old.nodes {
            match new.nodes.get(name) {
                None => self.gone(name, was),
                Some(is) => self.changed(name, was, is),
            }
        }
        for name in new.nodes.keys().filter(|it| !old.nodes.contains_key(*it)) {
            self.note(format!("the node `{name}` is new"));
        }
    }

    fn gone(&mut self, name: &NodeName, was: &NodeOutline) {
        let what = format!("the node `{name}` is gone");
        let Some(breaks) = self.part_of(name).or_else(|| self.bound_of(name, was)) else {
            return self.note(what);
        };
        let hint = match self.renamed(name, was) {
            Some(new) => format!("if `{new}` is this node, give it its old name back"),
            None => "bring it back".to_owned(),
        };
        self.broken(what, breaks, hint);
    }

    fn changed(&mut self, name: &NodeName, was: &NodeOutline, is: &NodeOutline) {
        if was.awaits != is.awaits {
            let what = format!(
                "`{name}` waits for {} now, and for {} before",
                list(&is.awaits),
                list(&was.awaits)
            );
            let arrived = self.arrived_at(name);
            if arrived.is_empty() {
                self.note(what);
            } else {
                let breaks = format!("it has begun to wait: {} arrived there", list(&arrived));
                self.broken(what, breaks, "let it wait for the same nodes".to_owned());
            }
        }
        if was.kind != is.kind || was.does != is.does {
            let what = if was.kind == is.kind {
                format!("what `{name}` ({}) does has changed", is.kind)
            } else {
                format!("`{name}` was {} and is {}", article(&was.kind), article(&is.kind))
            };
            if self.asks(name) {
                let breaks = "it waits for the answer to what it asked before".to_owned();
                self.broken(what, breaks, "a fork of the run asks anew".to_owned());
            } else {
                self.note(what);
            }
        }
        if was.policies != is.policies {
            self.note(format!("the conditions under which `{name}` runs have changed"));
        }
        if was.leads != is.leads {
            let told =
                |it: &[String]| if it.is_empty() { "nowhere".to_owned() } else { it.join(", ") };
            self.note(format!(
                "`{name}` leads to {} now, and to {} before",
                told(&is.leads),
                told(&was.leads)
            ));
        }
    }

    fn channels(&mut self) {
        let (old, new) = (self.old, self.new);
        for (name, was) in &old.channels {
            let held = self.saved.values.get(name);
            let Some(is) = new.channels.get(name) else {
                let what = format!("the field `{name}` ({}) is gone", was.ty);
                if held.is_none() {
                    self.note(what);
                    continue;
                }
                let added = new.channels.iter().filter(|(it, _)| !old.channels.contains_key(*it));
                let same: Vec<&str> =
                    added.filter(|(_, it)| *it == was).map(|(it, _)| it.as_str()).collect();
                let nearest = did_you_mean(name.as_str(), same.iter().copied());
                let only = if same.len() == 1 { same.first().copied() } else { None };
                let hint = match nearest.or(only) {
                    Some(new) => format!("if `{new}` is this field, give it its old name back"),
                    None => "bring it back".to_owned(),
                };
                self.broken(what, "it holds a value".to_owned(), hint);
                continue;
            };
            if was.reducer != is.reducer {
                let word = |it: &Option<String>| it.clone().unwrap_or_else(|| "replace".to_owned());
                let (was, is) = (word(&was.reducer), word(&is.reducer));
                let what = format!("`{name}` was merged by {was} and is by {is}");
                if held.is_some() {
                    let hint = "a fork of the run goes on with that value".to_owned();
                    self.broken(
                        what,
                        "it holds a value that was made the old way".to_owned(),
                        hint,
                    );
                } else {
                    self.note(what);
                }
            }
            if (&was.ty, &was.schema) != (&is.ty, &is.schema) {
                let what = if was.ty == is.ty {
                    format!("the schema of `{name}` has changed")
                } else {
                    format!("`{name}` was {} and is {}", was.ty, is.ty)
                };
                let channel = self.schema.channel(name.as_str());
                let misfit = held.zip(channel).and_then(|(value, it)| it.validate(value).err());
                match misfit {
                    Some(problems) => {
                        let breaks = format!("its value does not fit ({})", problems.join("; "));
                        let hint = format!("a fork can begin with another: `--set {name}=JSON`");
                        self.broken(what, breaks, hint);
                    }
                    None => self.note(what),
                }
            }
        }
        for (name, is) in new.channels.iter().filter(|(it, _)| !old.channels.contains_key(*it)) {
            let what = format!("the field `{name}` ({}) is new", is.ty);
            let has_default =
                self.schema.channel(name.as_str()).is_some_and(|it| it.default().is_some());
            if has_default && !self.saved.values.contains_key(name) {
                let breaks = "the run does not hold what it is to begin with".to_owned();
                self.broken(what, breaks, "a fork of the run begins with it".to_owned());
            } else {
                self.note(what);
            }
        }
    }

    /// The part that a node has in the run as it stands.
    fn part_of(&self, name: &NodeName) -> Option<String> {
        let SavedRun { position, records, .. } = self.saved;
        if self.asks(name) {
            return Some("it waits for an answer".to_owned());
        }
        if records.iter().any(|it| it.node == *name && it.outcome.is_final()) {
            return Some("it has finished in a step that is not complete".to_owned());
        }
        if position.frontier.iter().any(|it| it.node == *name) {
            return Some("it is to run next".to_owned());
        }
        let arrived = self.arrived_at(name);
        if !arrived.is_empty() {
            return Some(format!("it has begun to wait: {} arrived there", list(&arrived)));
        }
        if let Some((to, _)) = position.joins.iter().find(|(_, it)| it.contains(name)) {
            return Some(format!("it has arrived at `{to}`, which waits for it"));
        }
        if position.deferred.contains_key(name) {
            return Some("the run has come to it, and it lets others go first".to_owned());
        }
        let leads_there =
            |it: &&TaskRecord| hops(it).iter().map(Hop::target).any(|it| it.node() == Some(name));
        let from = records.iter().find(leads_there);
        from.map(|it| format!("`{}` has finished and leads there", it.node))
    }

    /// The nodes that have arrived at one that waits, those of the open step included.
    fn arrived_at(&self, name: &NodeName) -> Vec<NodeName> {
        let SavedRun { position, records, .. } = self.saved;
        let mut arrived: BTreeSet<&NodeName> =
            position.joins.get(name).into_iter().flatten().collect();
        let joins =
            |it: &&TaskRecord| hops(it).iter().any(|it| matches!(it, Hop::Join(to) if to == name));
        arrived.extend(records.iter().filter(joins).map(|it| &it.node));
        arrived.into_iter().cloned().collect()
    }

    /// The bound that is lost with a node: its visits would count from zero under another name.
    fn bound_of(&self, name: &NodeName, was: &NodeOutline) -> Option<String> {
        let max = was.max_visits?;
        let visits = *self.saved.position.visits.get(name)?;
        self.renamed(name, was)?;
        Some(format!("it has run {visits} of {max} times, which would be forgotten"))
    }

    /// The new node that is most likely this one under another name.
    fn renamed(&self, name: &NodeName, was: &NodeOutline) -> Option<NodeName> {
        let (old, new) = (self.old, self.new);
        let added = || new.nodes.iter().filter(|(it, _)| !old.nodes.contains_key(*it));
        let mut same = added().filter(|(_, it)| (&it.kind, &it.does) == (&was.kind, &was.does));
        if let (Some((only, _)), None) = (same.next(), same.next()) {
            return Some(only.clone());
        }
        let names: BTreeSet<&str> = added().map(|(it, _)| it.as_str()).collect();
        did_you_mean(name.as_str(), names).and_then(|it| NodeName::parse(it).ok())
    }

    /// Whether a question of a node is open.
    fn asks(&self, name: &NodeName) -> bool {
        let mut open = BTreeSet::new();
        for record in self.saved.records.iter().filter(|it| it.node == *name) {
            if matches!(record.outcome, Outcome::Asked { .. }) {
                open.insert(record.task);
            } else {
                open.remove(&record.task);
            }
        }
        !open.is_empty()
    }
}

/// Where a record leads.
fn hops(record: &TaskRecord) -> &[Hop] {
    match &record.outcome {
        Outcome::Finished { hops, .. }
        | Outcome::Caught { hops, .. }
        | Outcome::Skipped { hops, .. } => hops,
        _ => &[],
    }
}

fn list(nodes: &[NodeName]) -> String {
    if nodes.is_empty() {
        return "nothing".to_owned();
    }
    nodes.iter().map(|it| format!("`{it}`")).collect::<Vec<_>>().join(", ")
}

fn article(kind: &str) -> String {
    let vowel = kind.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {kind}", if vowel { "an" } else { "a" })
}
