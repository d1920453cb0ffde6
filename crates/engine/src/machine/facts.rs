//! The facts of the open step, and the order of its items.

use std::{collections::BTreeMap, sync::Arc};

use graphrun_analysis::NodeIndex;
use graphrun_core::{
    graph::{Failure, ItemNeeds, ItemOrder, Remaining, RunFacts},
    id::NodeName,
};
use serde_json::Value;

use super::{Machine, indexed::IndexedActivation};

impl Machine {
    /// Computes what the open step needs before its tasks begin: the facts of the run, and the items that an item of a
    /// map needs.
    pub(super) fn prepare_step(&mut self) {
        self.note_facts();
        if !self.position.frontier.iter().any(IndexedActivation::is_dispatched) {
            return;
        }
        let mut maps: BTreeMap<NodeIndex, Vec<usize>> = BTreeMap::new();
        for (index, active) in self.position.frontier.iter().enumerate() {
            if self.item_order(index).is_some() {
                maps.entry(active.node).or_default().push(index);
            }
        }
        for items in maps.into_values() {
            let needs = self.item_needs(&items);
            self.open_step.link_items(&items, needs);
        }
    }

    /// Returns the needs of the items of a map, whose tasks have these indexes.
    fn item_needs(&self, items: &[usize]) -> Result<ItemNeeds, Failure> {
        let first = items.first().copied().unwrap_or_default();
        let Some(order) = self.item_order(first) else { return Ok(ItemNeeds::default()) };
        let values = items.iter().filter_map(|&it| self.position.frontier[it].input.item());
        let values: Vec<&Value> = values.collect();
        self.routing().needs(order, &values, &self.position.frontier[first].trigger)
    }

    /// Returns the order of the items of a map, if a task belongs to one whose items need each other.
    fn item_order(&self, index: usize) -> Option<&dyn ItemOrder> {
        let items = self.policies(index).schedule.items.as_ref()?;
        items.order.as_deref().filter(|_| self.position.frontier[index].is_dispatched())
    }

    /// Notes the facts at the start of the step after the position.
    fn note_facts(&mut self) {
        let graph = self.graph.definition();
        let used = &self.position.used;
        let usage_of = |it: &NodeName| Some((it.clone(), used.node_usage.get(it)?.usage));
        let steps = self.limits.steps.saturating_sub(self.position.steps_of_turn());
        let calls = self.limits.calls.map(|it| it.saturating_sub(used.usage.tokens.calls));
        let tokens = self.limits.tokens.map(|it| it.saturating_sub(used.usage.total_tokens()));
        // Calls without a known price do not count for the limit, either.
        let cost = used.usage.cost_usd.unwrap_or(0.0);
        let usd = self.limits.usd.map(|limit| (limit - cost).max(0.0));
        // The tasks of the last step no longer share the facts, so this copies nothing.
        let facts = Arc::make_mut(&mut self.facts);
        // The workflow may need the time only since the run was resumed.
        facts.began = graph.facts.time.then(|| self.position.began.unwrap_or(self.now));
        facts.usage = used.usage;
        if !graph.facts.usage_of.is_empty() {
            facts.node_usage = graph.facts.usage_of.iter().filter_map(usage_of).collect();
        }
        facts.remaining = Remaining { steps, calls, tokens, usd };
    }

    /// Returns the facts for a task of the step.
    pub(super) fn facts_of(&self, index: usize) -> Arc<RunFacts> {
        match self.open_step.tasks()[index]
            .item
            .filter(|_| self.graph.definition().facts.item_index)
        {
            Some(item) => {
                Arc::new(RunFacts { item_index: Some(item), ..self.facts.as_ref().clone() })
            }
            None => Arc::clone(&self.facts),
        }
    }
}
