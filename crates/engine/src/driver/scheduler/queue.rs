//! Tasks that wait for a slot of the run and of their node.

use std::collections::{BTreeMap, VecDeque};

use graphrun_analysis::{CompiledGraph, NodeIndex};

use crate::machine::Task;

/// The tasks that wait to start, and the slots in use.
///
/// Each node with a width has its own line, and all other nodes share one. A node without a free slot then costs one
/// check instead of one for each of its tasks: a `map` may have a hundred thousand.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The tasks of nodes without a width; the number orders tasks by arrival.
    unlimited: VecDeque<(u64, Box<Task>)>,
    limited: BTreeMap<NodeIndex, NodeQueue>,
    pushed: u64,
    /// The used slots of the run.
    used_slots: usize,
}

/// The tasks of a node with a width, and its used slots.
#[derive(Debug, Default)]
struct NodeQueue {
    tasks: VecDeque<(u64, Box<Task>)>,
    used_slots: usize,
}

impl Queue {
    /// Adds a task at the end.
    pub(super) fn push(&mut self, task: Box<Task>, graph: &CompiledGraph) {
        let number = self.pushed;
        self.pushed += 1;
        if graph.policies_at(task.node_index).schedule.width_max.is_none() {
            self.unlimited.push_back((number, task));
        } else {
            self.limited.entry(task.node_index).or_default().tasks.push_back((number, task));
        }
    }

    /// Removes the waiting tasks.
    pub(super) fn clear(&mut self) {
        self.unlimited.clear();
        self.limited.values_mut().for_each(|it| it.tasks.clear());
    }

    /// Returns how many slots of the run are in use.
    pub(super) fn used_slots(&self) -> usize {
        self.used_slots
    }

    /// Removes and returns the first task whose node has a free slot, and takes that slot and one of the run.
    pub(super) fn next(&mut self, graph: &CompiledGraph) -> Option<Box<Task>> {
        let number = |line: &VecDeque<(u64, Box<Task>)>| line.front().map(|it| it.0);
        let free = self.limited.iter().filter_map(|(node, line)| {
            let width = graph.policies_at(*node).schedule.width_max;
            let first =
                number(&line.tasks).filter(|_| width.is_none_or(|max| line.used_slots < max))?;
            Some((first, *node))
        });
        let first =
            free.min().filter(|it| number(&self.unlimited).is_none_or(|other| it.0 < other));
        let (_, task) = match first {
            None => self.unlimited.pop_front()?,
            Some((_, node)) => {
                let line = self.limited.get_mut(&node)?;
                let task = line.tasks.pop_front()?;
                line.used_slots += 1;
                task
            }
        };
        self.used_slots += 1;
        Some(task)
    }

    /// Frees the slots of a task of this node.
    pub(super) fn free_slots(&mut self, node: Option<NodeIndex>) {
        self.used_slots -= 1;
        if let Some(line) = node.and_then(|it| self.limited.get_mut(&it)) {
            line.used_slots = line.used_slots.saturating_sub(1);
        }
    }
}
