//! Tasks that wait for a slot of the run and of their node.

use std::collections::{BTreeMap, VecDeque};

use graphrun_analysis::CompiledGraph;
use graphrun_core::id::NodeName;

use crate::superstep::Task;

/// The tasks that wait to start, and the slots in use.
///
/// Each node has its own line. A node without a free slot then costs one check instead of one for each of its
/// tasks: a `map` may have a hundred thousand.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By node; the number orders tasks by arrival.
    lines: BTreeMap<NodeName, VecDeque<(u64, Box<Task>)>>,
    pushed: u64,
    running: usize,
    /// The used slots of each node that has a width.
    taken: BTreeMap<NodeName, usize>,
}

impl Queue {
    /// Adds a task at the end.
    pub(super) fn push(&mut self, task: Box<Task>) {
        let number = self.pushed;
        self.pushed += 1;
        match self.lines.get_mut(&task.node) {
            Some(line) => line.push_back((number, task)),
            None => drop(self.lines.insert(task.node.clone(), [(number, task)].into())),
        }
    }

    /// Removes the waiting tasks.
    pub(super) fn clear(&mut self) {
        self.lines.clear();
    }

    /// Returns the number of running tasks.
    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// Removes and returns the first task whose node has a free slot, and takes that slot.
    pub(super) fn next(&mut self, graph: &CompiledGraph) -> Option<Box<Task>> {
        let width = |it: &NodeName| graph.node(it).and_then(|it| it.policies.width_max);
        let taken = |it: &NodeName| self.taken.get(it).copied().unwrap_or_default();
        let has_room = |it: &NodeName| width(it).is_none_or(|max| taken(it) < max);
        let free = self.lines.iter().filter(|(node, _)| has_room(node));
        let first = free.min_by_key(|(_, line)| line.front().map(|it| it.0));
        let node = first.map(|(node, _)| node.clone())?;
        let line = self.lines.get_mut(&node)?;
        let (_, task) = line.pop_front()?;
        if line.is_empty() {
            self.lines.remove(&node);
        }
        if width(&node).is_some() {
            *self.taken.entry(node).or_default() += 1;
        }
        Some(task)
    }

    /// Counts the task from `next` as running.
    pub(super) fn began(&mut self) {
        self.running += 1;
    }

    /// Counts a task of this node as ended.
    pub(super) fn ended(&mut self, node: Option<&NodeName>) {
        self.running -= 1;
        if let Some(taken) = node.and_then(|it| self.taken.get_mut(it)) {
            *taken = taken.saturating_sub(1);
        }
    }

    /// Frees the slots of all nodes: nothing runs, and the task from `next` does not start.
    pub(super) fn free_all_slots(&mut self) {
        self.taken.clear();
    }
}
