//! Changes of the fields.

use graphrun_core::{
    id::{ChannelName, NodeName},
    words::quoted_list,
};

use super::{Differences, Names, Parts, Remedy, names::map_field, shared};
use crate::checkpoint::{ChannelOutline, Fate};

/// Collects the changes of the fields.
pub(super) struct FieldChanges<'a> {
    names: Names<'a>,
    parts: Parts<'a>,
    /// Whether the comparison is for a migration rather than for a plain resume.
    is_migration: bool,
    found: Differences,
}

impl<'a> FieldChanges<'a> {
    pub(super) fn find(names: Names<'a>, is_migration: bool) -> Differences {
        let parts = Parts { names };
        let found = Differences::default();
        let mut changes = Self { names, parts, is_migration, found };
        changes.compare();
        changes.found
    }

    fn compare(&mut self) {
        let old = self.names.compared.old;
        let new = self.names.compared.new;
        for (name, was) in &old.channels {
            match self.names.field(name) {
                Some(now) => {
                    if *name != now {
                        self.found.note(format!("the field `{name}` is `{now}`"));
                    }
                    self.merged(name, was, &now, &new.channels[&now]);
                    self.typed(name, was, &now, &new.channels[&now]);
                }
                None if self.names.is_dropped_field(name) => {
                    if self.parts.holds(name) {
                        self.found.note(format!("the value of `{name}` is discarded"));
                    }
                }
                None => self.field_gone(name, was),
            }
        }
        for name in new.channels.keys() {
            if !old.channels.keys().any(|it| self.names.field(it).as_ref() == Some(name)) {
                self.field_new(name, &new.channels[name]);
            }
        }
        let pairs = old.channels.keys().filter_map(|it| Some((it.clone(), self.names.field(it)?)));
        for (now, names) in shared(pairs) {
            if names.iter().filter(|it| self.parts.holds(it)).count() < 2 {
                continue;
            }
            let own = names.iter().find(|it| **it == now).or(names.last()).cloned();
            self.found.broken(
                format!("{} all map to `{now}`", quoted_list(&names)),
                "several of them hold a value".to_owned(),
                "`--drop` discards one of them".to_owned(),
                own.into_iter().map(Remedy::DropField).collect(),
            );
        }
    }

    fn field_gone(&mut self, name: &ChannelName, was: &ChannelOutline) {
        let what = format!("the field `{name}` ({}) is gone", was.ty);
        let breaks = match self.parts.writer_of(name) {
            _ if self.names.compared.saved.values.contains_key(name) => {
                "it holds a value".to_owned()
            }
            Some(writer) => format!("`{writer}` has written it in an incomplete step"),
            None => return self.found.note(what),
        };
        let new = self.names.renamed_field(name, was);
        let map = map_field(name, new.clone());
        let hint = match new {
            Some(new) => format!("if `{new}` is this field, `{map}`; else `--drop {name}`"),
            None => format!("`{map}` names the new field, `--drop {name}` discards the value"),
        };
        // If the value probably belongs to another field now, the rename is the first remedy. Without a
        // candidate, dropping it is.
        let drop = Remedy::DropField(name.clone());
        let remedies = match map {
            Remedy::MapField(_, None) => vec![drop, map],
            map => vec![map, drop],
        };
        self.found.broken(what, breaks, hint, remedies);
    }

    fn field_new(&mut self, name: &ChannelName, is: &ChannelOutline) {
        let what = format!("the field `{name}` ({}) is new", is.ty);
        let channel = self.names.compared.graph.schema().channel(name.as_str());
        let default = channel.and_then(|it| it.default());
        let Some(default) = default.filter(|_| !self.names.mapping.set.contains_key(name)) else {
            return self.found.note(what);
        };
        if self.is_migration {
            return self.found.note(format!("{what}; it starts as {default}"));
        }
        self.found.broken(
            what,
            "the run has no value for it".to_owned(),
            "a migration sets its default".to_owned(),
            Vec::new(),
        );
    }

    /// A value merged by one reducer cannot be continued with another, unless the mapping says so.
    fn merged(
        &mut self,
        name: &ChannelName,
        was: &ChannelOutline,
        now: &ChannelName,
        is: &ChannelOutline,
    ) {
        if was.reducer == is.reducer {
            return;
        }
        let word = |it: &Option<String>| it.clone().unwrap_or_else(|| "replace".to_owned());
        let before = word(&was.reducer);
        let after = word(&is.reducer);
        let what = format!("the reducer of `{now}` was {before} and is {after}");
        let is_confirmed = matches!(self.names.mapping.fate_of_field(name), Fate::Named(_))
            || self.names.mapping.set.contains_key(now);
        if !self.names.compared.saved.values.contains_key(name) || is_confirmed {
            return self.found.note(what);
        }
        let keep = Remedy::MapField(name.clone(), Some(now.clone()));
        let set = Remedy::Set(now.clone());
        let hint = format!("`{keep}` keeps the value, `{set}` replaces it");
        let breaks = "the old reducer made its value".to_owned();
        self.found.broken(what, breaks, hint, vec![keep, set]);
    }

    /// The value of a field, and the updates of finished tasks, must fit the new type.
    fn typed(
        &mut self,
        name: &ChannelName,
        was: &ChannelOutline,
        now: &ChannelName,
        is: &ChannelOutline,
    ) {
        let what = match was.ty == is.ty {
            _ if (&was.ty, &was.schema) == (&is.ty, &is.schema) => None,
            true => Some(format!("the schema of `{now}` has changed")),
            false => Some(format!("`{now}` was {} and is {}", was.ty, is.ty)),
        };
        let Some(what) = what else { return };
        let Some(channel) = self.names.compared.graph.schema().channel(now.as_str()) else {
            return;
        };
        let held = self.names.compared.saved.values.get(name);
        let held = held.filter(|_| !self.names.mapping.set.contains_key(now));
        let misfit = held.and_then(|value| channel.validate(value).err());
        let written: Vec<(NodeName, Vec<String>)> = self
            .parts
            .written(name)
            .into_iter()
            .filter_map(|(node, value)| Some((node, channel.check_saved(&value).err()?)))
            .collect();
        if misfit.is_none() && written.is_empty() {
            return self.found.note(what);
        }
        if let Some(problems) = misfit {
            let breaks = format!("its value does not fit ({})", problems.join("; "));
            let set = Remedy::Set(now.clone());
            let drop = Remedy::DropField(name.clone());
            let hint = format!("`{set}` replaces it, `{drop}` discards it");
            self.found.broken(what.clone(), breaks, hint, vec![set, drop]);
        }
        for (node, problems) in written {
            let problems = problems.join("; ");
            let breaks = format!("the update of `{node}` does not fit ({problems})");
            let again = Remedy::Again(node);
            let drop = Remedy::DropField(name.clone());
            let hint = format!("`{again}` runs the node again, `{drop}` discards the value");
            self.found.broken(what.clone(), breaks, hint, vec![again, drop]);
        }
    }
}
