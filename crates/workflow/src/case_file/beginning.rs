//! Where the run of a case starts and stops, and the facts that it is given.

use std::{collections::BTreeMap, num::NonZeroU32};

use graphrun_core::{
    diagnostic::Diagnostic,
    event::Usage,
    graph::{Edge, RouteChoice, Spread},
    id::{ChannelName, NodeName},
    usage::TokenUsage,
};
use jiff::Timestamp;
use serde_json::Value;

use super::{ExpectedValue, read::Reading};
use crate::{
    format::{MappingKeys as _, NodeUsageKeys, UsageKeys},
    source::{
        reader::{Data, Entry, Yaml},
        shape::Section,
    },
};

/// The start of a run, apart from its input.
#[derive(Clone, Debug, Default)]
pub struct Beginning {
    /// The nodes of the first step, in the order of their names; empty: the first nodes of the workflow.
    pub nodes: Vec<NodeName>,
    /// The values of fields besides the input and the defaults.
    pub state: BTreeMap<ChannelName, Value>,
    /// How often nodes have run before.
    pub visits: BTreeMap<NodeName, u32>,
    /// The usage of models before.
    pub usage: Usage,
    /// The part of single nodes.
    pub node_usage: BTreeMap<NodeName, Usage>,
}

impl Beginning {
    /// Returns whether it is the usual start of a run.
    pub fn is_usual(&self) -> bool {
        let Self { nodes, state, visits, usage, node_usage } = self;
        let is_unused = *usage == Usage::default() && node_usage.is_empty();
        nodes.is_empty() && state.is_empty() && visits.is_empty() && is_unused
    }
}

impl Reading<'_> {
    /// Reads `start`, `state`, `visits` and `usage` of a case.
    pub(super) fn beginning(&mut self, section: &Section<'_>) -> Beginning {
        let state = section.get("state").map(|it| self.initial_state(it)).unwrap_or_default();
        let visits = section.get("visits").map(|it| self.visits_made(it)).unwrap_or_default();
        let (usage, node_usage) = section.get("usage").map(|it| self.usage(it)).unwrap_or_default();
        let nodes = section.get("start").map(|it| self.start(it)).unwrap_or_default();
        Beginning { nodes, state, visits, usage, node_usage }
    }

    fn start(&mut self, yaml: &Yaml) -> Vec<NodeName> {
        let mut nodes = Vec::new();
        for word in self.report.words(yaml, "`start`") {
            let Some(node) = self.node(&word) else { continue };
            if let Some(map) = self.map_of(&node) {
                let message = format!("`{node}` runs for an item of `{map}`, and here it has none");
                let span = self.report.span(&word.range);
                let diagnostic = Diagnostic::error("GR081", message).at(span, "cannot start here");
                self.report.push(diagnostic.help(format!("start at `{map}`")));
            } else if nodes.contains(&node) {
                self.report.named_twice(&word, "`start`");
            } else {
                nodes.push(node);
            }
        }
        nodes.sort();
        nodes
    }

    /// Returns the map whose items a node works on.
    fn map_of(&self, node: &NodeName) -> Option<&NodeName> {
        self.graph.edges.iter().find_map(|edge| match edge {
            Edge::Route { from, route, .. } if route.spread() == Spread::Items => {
                let mut choices = route.choices().unwrap_or_default().into_iter();
                let sends = |it: RouteChoice| {
                    it.is_dispatched && it.to.iter().any(|to| to.node() == Some(node))
                };
                choices.any(sends).then_some(from)
            }
            _ => None,
        })
    }

    fn initial_state(&mut self, yaml: &Yaml) -> BTreeMap<ChannelName, Value> {
        let Data::Map(entries) = &yaml.data else {
            self.report.wrong_kind(yaml, "`state`", "a mapping from fields to values");
            return BTreeMap::new();
        };
        let schema = self.graph.schema.clone();
        let mut state = BTreeMap::new();
        for Entry { key, value } in entries {
            let Some(name) = self.report.channel(key, &schema) else { continue };
            let Some(channel) = schema.channel(name.as_str()) else { continue };
            if let Some(value) = self.written(channel, value) {
                state.insert(name, value);
            }
        }
        state
    }

    fn visits_made(&mut self, yaml: &Yaml) -> BTreeMap<NodeName, u32> {
        let Data::Map(entries) = &yaml.data else {
            self.report.wrong_kind(yaml, "`visits`", "a mapping from nodes to numbers");
            return BTreeMap::new();
        };
        let read = |Entry { key, value }: &Entry| {
            let node = self.node(key)?;
            Some((node, self.report.count(value, "how often it has run", 0)?))
        };
        entries.iter().filter_map(read).collect()
    }

    fn usage(&mut self, yaml: &Yaml) -> (Usage, BTreeMap<NodeName, Usage>) {
        let Some(section) = Section::read::<UsageKeys>(&mut self.report, yaml, "`usage`") else {
            return Default::default();
        };
        let mut of_nodes = BTreeMap::new();
        if let Some(yaml) = section.get("nodes") {
            if !matches!(yaml.data, Data::Map(_)) {
                self.report.wrong_kind(yaml, "`nodes`", "a mapping from nodes to their usage");
            }
            for Entry { key, value } in yaml.entries() {
                let Some(node) = self.node(key) else { continue };
                let what = format!("the usage of `{node}`");
                let read = Section::read::<NodeUsageKeys>(&mut self.report, value, &what);
                if let Some(used) = read.and_then(|it| self.usage_of(&it)) {
                    of_nodes.insert(node, used);
                }
            }
        }
        let mut sum = Usage::default();
        for it in of_nodes.values() {
            sum.add(it);
        }
        let is_given = NodeUsageKeys::keys().iter().any(|it| section.get(it).is_some());
        let usage = if is_given { self.usage_of(&section).unwrap_or_default() } else { sum };
        (usage, of_nodes)
    }

    /// Reads the usage of a run or a node.
    fn usage_of(&mut self, section: &Section<'_>) -> Option<Usage> {
        let mut count = |key: &str, default: u64| match section.get(key) {
            Some(yaml) => self.report.count(yaml, &format!("`{key}`"), 0),
            None => Some(default),
        };
        let tokens = count("tokens", 0)?;
        let output_tokens = count("output_tokens", 0)?;
        let calls = count("calls", u64::from(tokens > 0))?;
        let Some(input_tokens) = tokens.checked_sub(output_tokens) else {
            let yaml = section.get("output_tokens")?;
            let wanted = format!("a whole number up to the {tokens} of `tokens`");
            self.report.wrong_kind(yaml, "`output_tokens`", &wanted);
            return None;
        };
        let cost_usd = match section.get("usd") {
            Some(yaml) => {
                let wanted = "a sum of money from zero on";
                let fits = |it: &f64| it.is_finite() && *it >= 0.0;
                Some(self.report.number(yaml, "`usd`", wanted, fits)?)
            }
            None => None,
        };
        let mut known = |key: &str| match section.get(key) {
            Some(yaml) => self.report.count(yaml, &format!("`{key}`"), 1).map(NonZeroU32::new),
            None => Some(None),
        };
        let context_tokens = known("context_tokens")?;
        let context_window = known("context_window")?;
        let tokens = TokenUsage {
            input_tokens,
            output_tokens,
            calls,
            context_tokens,
            context_window,
            ..TokenUsage::default()
        };
        Some(Usage { tokens, cost_usd })
    }

    /// Reads `now`.
    pub(super) fn now(&mut self, yaml: &Yaml) -> Option<Timestamp> {
        let word = self.report.word(yaml, "`now`")?;
        let parsed = word.text.parse();
        if let Err(error) = &parsed {
            let message = format!("`now` is no moment: {error}");
            let help = "write it with its offset, as in `2025-01-01T00:00:00Z`";
            self.report.bad_value(&word, message, help);
        }
        parsed.ok()
    }

    /// Reads `until`.
    pub(super) fn until(&mut self, yaml: &Yaml) -> Vec<ExpectedValue<NodeName>> {
        self.nodes(yaml, "`until`")
    }
}
