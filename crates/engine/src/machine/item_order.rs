//! The order of the items of a map that need each other.

use std::collections::BTreeMap;

use graphrun_analysis::NodeIndex;
use graphrun_core::graph::{Failure, ItemNeeds, ItemOrder};
use serde_json::Value;

use super::{Machine, indexed::IndexedActivation};

impl Machine {
    /// Links the items of the open step to those that they need. The code that names them may read the facts of the step.
    pub(super) fn link_items(&mut self) {
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
}
