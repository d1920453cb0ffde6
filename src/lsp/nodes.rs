//! Descriptions of nodes, fields, agents and other names of a file, for hover texts and symbols.

use std::collections::BTreeSet;

use graphrun_core::words::quoted_list;

use super::workspace::DocumentView;
use crate::workflow::{
    Part, Step,
    kind::{KeyValue, RegisteredKind},
};

impl DocumentView<'_> {
    /// Returns the kind of a node.
    fn kind_of(&self, node: &str) -> Option<&RegisteredKind> {
        let has = |key: &str| self.outline.under(&["nodes", node, key]).is_some();
        self.registry.kinds().iter().find(|it| has(it.key()))
    }

    /// Returns the texts of a value: a scalar, the items of a list, or the keys of a mapping.
    pub(super) fn texts(&self, keys: &[&str]) -> Vec<&str> {
        let Some(part) = self.outline.under(keys) else { return Vec::new() };
        if let Some(value) = &part.value {
            return self.text.get(value.clone()).into_iter().collect();
        }
        let below = self.outline.below(&part.path);
        let range = below.filter_map(|it| it.key.clone().or_else(|| it.value.clone()));
        range.filter_map(|it| self.text.get(it)).collect()
    }

    /// Returns the text of a scalar.
    pub(super) fn scalar(&self, keys: &[&str]) -> Option<&str> {
        let value = self.outline.under(keys)?.value.clone()?;
        self.text.get(value)
    }

    /// Returns the names in a section.
    pub(super) fn names(&self, section: &str) -> Vec<&str> {
        let path = [Step::Key(section.to_owned())];
        let below = self.outline.below(&path);
        below.filter_map(|it| self.text.get(it.key.clone()?)).collect()
    }

    /// Returns the kind of a node and its main argument, such as `agent sse`.
    pub(super) fn headline(&self, node: &str) -> Option<String> {
        let kind = self.kind_of(node)?;
        let key = kind.key();
        let of = match kind.value() {
            KeyValue::Name => match self.scalar(&["nodes", node, key]) {
                Some(name) => name.to_owned(),
                None => return Some(key.to_owned()),
            },
            KeyValue::Nodes => self.texts(&["nodes", node, key]).join(", "),
            KeyValue::Other => return Some(key.to_owned()),
        };
        Some(format!("{key} {of}"))
    }

    /// Returns the hover text of a node.
    pub(super) fn about_node(&self, node: &str) -> Option<String> {
        match node {
            "end" => return Some("**end**: the run is done.".to_owned()),
            "fail" => return Some("**fail**: the run has failed.".to_owned()),
            _ => (),
        }
        self.outline.under(&["nodes", node])?;
        let headline = self.headline(node).map(|it| format!(": {it}")).unwrap_or_default();
        let words =
            self.scalar(&["nodes", node, "about"]).into_iter().flat_map(str::split_whitespace);
        let about = match words.collect::<Vec<_>>().as_slice() {
            [] => String::new(),
            words => format!("\n\n{}", words.join(" ")),
        };
        let mut facts = Vec::new();
        if let writes @ [_, ..] = self.written_by(node).as_slice() {
            facts.push(format!("writes {}", quoted_list(writes)));
        }
        if let Some(bound) = self.scalar(&["nodes", node, "max_visits"]) {
            let then = self.scalar(&["nodes", node, "exhausted"]);
            let then = then.map(|it| format!(", then `{it}`")).unwrap_or_default();
            let visits = if bound == "1" { "visit" } else { "visits" };
            facts.push(format!("at most {bound} {visits}{then}"));
        }
        for key in ["resets", "clears"] {
            if let named @ [_, ..] = self.texts(&["nodes", node, key]).as_slice() {
                facts.push(format!("{key} {}", quoted_list(named)));
            }
        }
        Some(format!("**{node}**{headline}{about}{}", bullets(facts)))
    }

    /// Returns the nodes that write a field.
    pub(super) fn writers(&self, field: &str) -> Vec<&str> {
        let writes = |node: &&str| self.written_by(node).contains(&field);
        self.names("nodes").into_iter().filter(writes).collect()
    }

    /// Returns the fields that a node writes.
    pub(super) fn written_by(&self, node: &str) -> Vec<&str> {
        let kinds = self.registry.kinds().iter();
        let keys: BTreeSet<&str> = kinds.flat_map(RegisteredKind::keys_of_written_fields).collect();
        keys.into_iter().flat_map(|it| self.texts(&["nodes", node, it])).collect()
    }

    /// Returns the bindings of the maps that run a node under this path, such as `for task in
    /// plan.tasks`.
    pub(super) fn items_of(&self, path: &[Step]) -> String {
        let [Step::Key(section), Step::Key(node), ..] = path else { return String::new() };
        if section != "nodes" {
            return String::new();
        }
        let item = |map: &&str| {
            let does = self.scalar(&["nodes", map, "map", "do"])?;
            let over = self.scalar(&["nodes", map, "map", "over"])?;
            let name = self.scalar(&["nodes", map, "map", "as"]).unwrap_or("item");
            (does == node).then(|| format!("for {name} in {over} "))
        };
        self.names("nodes").iter().filter_map(item).collect()
    }

    /// Returns the hover text of an agent, a model, a sandbox or a type.
    pub(super) fn about_declared(&self, section: &str, name: &str) -> Option<String> {
        let part = self.outline.under(&[section, name])?;
        let kind = match section {
            "models" => "model",
            "agents" => "agent",
            "types" => "type",
            _ => "sandbox",
        };
        let text = format!("**{name}**: {kind}");
        if section == "models" || part.value.is_some() {
            return Some(format!("{text} {}", quoted_list(self.texts(&[section, name]))));
        }
        let fact = |part: &Part| {
            let value = self.text.get(part.value.clone()?)?;
            Some(format!("{} `{value}`", part.name()?))
        };
        Some(text + &bullets(self.outline.below(&part.path).filter_map(fact).collect()))
    }
}

/// Formats a list that follows a text.
fn bullets(facts: Vec<String>) -> String {
    let lines = facts.into_iter().enumerate().map(|(at, fact)| {
        let between = if at == 0 { "\n\n" } else { "\n" };
        format!("{between}- {fact}")
    });
    lines.collect()
}
